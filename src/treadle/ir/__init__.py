"""TileIR: the one form of a program, as written and as planned. Values, ops, regions; printer, parser, verifier.

Start at the builder and the printed text; each op family is one file in `ops`.
"""
