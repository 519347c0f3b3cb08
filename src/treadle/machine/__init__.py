"""The machine program: the form that is judged and emitted. Its text, parser, verifier of form and witness types.

`docs/machine_format.md` describes the text; `parse(print(x)) == x` is a tested law.
"""
