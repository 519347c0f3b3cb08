"""`treadle.kernel` and `Kernel`: the named pipelines, variants and guards. The one room that sees all rooms.

`check.py` imports only what judging needs, so that `treadle check` lives without the planning rooms.
"""
