"""The names a user writes, and capture: interpreting the AST of a function gives a `Definition`.

Derived values such as `td.dot`, `@` and `gelu` are compositions and live in `derived`.
"""
