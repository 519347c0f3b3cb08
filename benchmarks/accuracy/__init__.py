"""How far off every function is, in every accuracy class: `measure.py` measures, `page.py` writes docs/numerics.md."""
