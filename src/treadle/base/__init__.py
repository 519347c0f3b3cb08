"""Ground floor: source positions, the error families, fresh names and text printing. Imports nothing of treadle.

Start at `errors.py` for how a message is put together, `source.py` for how a position in the user's file is shown,
`text.py` for the printer and the token reader that every textual form shares, `names.py` for names that do not collide.
"""
