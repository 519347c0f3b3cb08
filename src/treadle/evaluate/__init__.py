"""The meaning of every operation.

`interpreter` runs a program on NumPy arrays, region by region, blocks of open size cut as a `Cuts` says: it is the
truth that every other room is compared with. `scalar` is the meaning of elementwise operations on arrays, `tiles` the
run-time form of tiles, `watch` the observers behind `sanitize`. Start at `interpreter.evaluate`.
"""
