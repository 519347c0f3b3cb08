"""In what dtype the operators compute: f32, or f64 where an operand is f64; integers of 8 and 16 bits add up in i32.

A result that the caller leaves out has the dtype computed in; one that is passed gets each element rounded once.
"""

from __future__ import annotations

from treadle import f32, f64, i32


def wide(x):
    """`x` in f32, or as it is where it is f64. Exact for every float dtype of at most 32 bits."""
    return x if x.dtype == f64 else x.to(f32)


def computing(*dtypes):
    """The dtype that `wide` gives values of these: f64 if one is f64, else f32."""
    return f64 if any(d == f64 for d in dtypes) else f32


def state(*dtypes):
    """The dtype of an accumulator for products of these: f64 with f64, i32 of integers, else f32."""
    if any(d == f64 for d in dtypes):
        return f64
    return i32 if all(d.is_int for d in dtypes) else f32
