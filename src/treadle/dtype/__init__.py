"""Scalar formats: what each dtype holds, how values convert and round, which dtype an operation has.

Start at `formats.py` for the list of dtypes, `promote.py` for the result of an operation on two of them, `convert.py`
for the rounding rules, which every backend and the reference interpreter share.
"""
