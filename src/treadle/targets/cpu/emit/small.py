"""fp8 and f4e2m1 to and from f32, bit for bit as `treadle.dtype.convert`. There are no instructions for them here.

In registers an element is its code in an i8, a 4-bit one in the low bits and zero above. A code without its sign,
shifted to where f32 has its exponent and mantissa, is the number times a power of two, subnormals included; so decoding
is a shift and an exact product. Encoding rounds the bits of f32 to the format's mantissa; below its normal numbers,
adding a number whose last place is the format's smallest step does it. f8e8m0, which is only an exponent, is encoded
from f64, where every f32 is normal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from treadle.dtype.formats import DType, f8e8m0, f32
from treadle.targets.cpu.emit.lanes import Vec, constant, vector
from treadle.targets.cpu.emit.text import Function

_NAN, _INF, _SIGN = 0x7FC00000, 0x7F800000, 0x80000000


class _Verbs(Protocol):
    """What `Casts` offers."""

    fn: Function

    def raw(self, verb: str, text: str, source: str, to: str, lanes: int | None) -> str: ...
    def op(self, verb: str, kind: str, a: str, b: str, lanes: int | None) -> str: ...
    def number(self, kind: str, number: int | str, lanes: int | None) -> str: ...
    def choose(self, condition: str, kind: str, a: str, b: str, lanes: int | None) -> str: ...


def decoded(verbs: _Verbs, a: Vec) -> Vec:
    """The number of each code as f32, exactly."""
    n, d = a.lanes, a.dtype
    code = verbs.raw("zext", a.text, "i8", "i32", n)
    if d == f8e8m0:
        return Vec(verbs.raw("bitcast", _power(verbs, code, n), "i32", "float", n), f32, n)
    size = _at(verbs, "and", code, (1 << (d.bits - 1)) - 1, n)
    tiny = verbs.raw("bitcast", _at(verbs, "shl", size, 23 - d.mantissa, n), "i32", "float", n)
    number = verbs.op("fmul", "float", tiny, constant(f32, 2.0 ** (127 - d.bias), n).text, n)
    bits = verbs.raw("bitcast", number, "float", "i32", n)
    if d.has_inf:
        bits = _where(verbs, "uge", size, top_code(d) + 1, _INF, bits, n)
    if d.has_nan:
        bits = _where(verbs, "ugt", size, _overflow_code(d) if d.has_inf else top_code(d), _NAN, bits, n)
    sign = _at(verbs, "shl", _at(verbs, "and", code, 1 << (d.bits - 1), n), 32 - d.bits, n)
    return Vec(verbs.raw("bitcast", verbs.op("or", "i32", bits, sign, n), "i32", "float", n), f32, n)


def encoded(verbs: _Verbs, a: Vec, d: DType) -> Vec:
    """f32 numbers rounded to codes of `d`. Requires: what is to saturate has been bounded, infinities too."""
    n = a.lanes
    if d == f8e8m0:
        return encoded_power(verbs, replace(a, text=verbs.raw("fpext", a.text, "float", "double", n)))
    bits = verbs.raw("bitcast", a.text, "float", "i32", n)
    size = _at(verbs, "and", bits, _SIGN - 1, n)
    cut = 23 - d.mantissa
    odd = _at(verbs, "and", _at(verbs, "lshr", size, cut, n), 1, n)
    carried = verbs.op("add", "i32", size, _at(verbs, "add", odd, (1 << (cut - 1)) - 1, n), n)
    code = _at(verbs, "sub", _at(verbs, "lshr", carried, cut, n), (127 - d.bias) << d.mantissa, n)
    # Below the normal numbers: a sum whose last place is the smallest step has the code in its low bits.
    magic = d.smallest * 2.0**23
    plain = verbs.raw("bitcast", size, "i32", "float", n)
    moved = verbs.op("fadd", "float", plain, constant(f32, magic, n).text, n)
    # The magic number is a power of two: its bits are its exponent field.
    field = 127 + d.min_exponent - d.mantissa + 23
    low = _at(verbs, "sub", verbs.raw("bitcast", moved, "float", "i32", n), field << 23, n)
    small = verbs.fn.value(
        f"icmp ult {vector('i32', n)} {size}, {verbs.number('i32', (127 + d.min_exponent) << 23, n)}"
    )
    code = verbs.choose(small, "i32", low, code, n)
    code = _where(verbs, "ugt", code, top_code(d), _overflow_code(d), code, n)
    sign = _at(verbs, "lshr", _at(verbs, "and", bits, -_SIGN, n), 32 - d.bits, n)
    signed = verbs.op("or", "i32", code, sign, n)
    result = _where(verbs, "ugt", size, _INF, _nan_code(d), signed, n)
    return Vec(verbs.raw("trunc", result, "i32", "i8", n), d, n)


def encoded_power(verbs: _Verbs, a: Vec) -> Vec:
    """f64 numbers as f8e8m0: the nearest power of two, up from the middle; NaN for what is not positive."""
    n = a.lanes

    def op(verb: str, text: str, number: int) -> str:
        return verbs.op(verb, "i64", text, verbs.number("i64", number, n), n)

    def where(predicate: str, x: str, limit: int, then: int, other: str) -> str:
        holds = verbs.fn.value(f"icmp {predicate} {vector('i64', n)} {x}, {verbs.number('i64', limit, n)}")
        return verbs.choose(holds, "i64", verbs.number("i64", then, n), other, n)

    bits = verbs.raw("bitcast", a.text, "double", "i64", n)
    code = op("sub", op("lshr", op("add", bits, 1 << 51), 52), 1023 - 127)
    code = where("slt", code, 0, 0, code)
    code = where("sgt", code, 254, 255, code)
    # Zero and, by their sign, negative numbers; NaN and infinities are beyond already.
    code = where("sle", bits, 0, 255, code)
    return Vec(verbs.raw("trunc", code, "i64", "i8", n), f8e8m0, n)


def top_code(d: DType) -> int:
    """The code of the largest finite number."""
    return (1 << (d.bits - 1)) - 1 - d.top_reserved


def _overflow_code(d: DType) -> int:
    return top_code(d) + 1 if d.has_inf or d.has_nan else top_code(d)


def _nan_code(d: DType) -> int:
    if not d.has_nan:
        return top_code(d)
    return top_code(d) + 1 + (1 << (d.mantissa - 1)) if d.has_inf else top_code(d) + 1


def _power(verbs: _Verbs, code: str, n: int | None) -> str:
    """The bits of 2^(code - 127), subnormal for code 0, NaN for 255."""
    bits = _where(verbs, "eq", code, 0, 1 << 22, _at(verbs, "shl", code, 23, n), n)
    return _where(verbs, "eq", code, 255, _NAN, bits, n)


def _at(verbs: _Verbs, verb: str, text: str, number: int, n: int | None) -> str:
    return verbs.op(verb, "i32", text, verbs.number("i32", number, n), n)


def _where(verbs: _Verbs, predicate: str, x: str, limit: int, then: int, other: str, n: int | None) -> str:
    """`then` where the comparison of `x` with `limit` holds, else `other`."""
    holds = verbs.fn.value(f"icmp {predicate} {vector('i32', n)} {x}, {verbs.number('i32', limit, n)}")
    return verbs.choose(holds, "i32", verbs.number("i32", then, n), other, n)
