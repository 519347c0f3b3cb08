"""Expansions of exp, log, tanh, erf and their kin for f32, with measured accuracy, one per accuracy class.

Each is a straight-line function over a small set of primitives that an emitter supplies. Start at `table.py` for what
there is, `ops.py` for the primitives, `numpy_ops.py` for the backend that the simulator uses.
"""
