"""The machine program: the form that is judged and emitted. Its text, parser, verifier of form and witness types.

`docs/machine_format.md` describes the text; `parse(print(x)) == x` is a tested law.

Start at `form.py`; `text.py` prints, `parse.py` reads, `verify.py` checks the form, `vocabulary.py` has the closed
words, `mutate.py` makes wrong programs of right ones.
"""
