"""Random numbers as functions of a seed and coordinates: Philox 4x32-10, written in integer operations.

Every target computes the same bits. The generator's key is the seed (64 bits), its counter the coordinates: the last
one in words 0 and 1, the one before in words 2 and 3. With more than two coordinates, the leading ones make a new key
two at a time: words 0 and 1 of the generator at them. A leading coordinate of 0 before
one other changes nothing.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from treadle.dtype.formats import DType, f32, f64, i64, u32, u64
from treadle.lang import pointwise
from treadle.lang.dtypes import as_dtype
from treadle.lang.errors import BadArgument, WrongDType
from treadle.lang.objects import plain_number
from treadle.lang.state import context
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF

Word = Any
"""A u32: a Python number, or a tile."""


def bits(seed: Any, *coordinates: Any) -> Tile:
    """Random u32s over the coordinates: 32 independent bits. *Errors*: `capture/argument`, `dtype/operand`."""
    ctx = context()
    return _tile(ctx, _words(ctx, "computing td.bits", seed, coordinates)[0], u32)


def uniform(seed: Any, *coordinates: Any, dtype: Any = f32) -> Tile:
    """Random numbers in [0, 1): multiples of 2^-24 (f64: of 2^-53), all equally likely. *Errors*: as `bits`."""
    ctx = context()
    doing = "computing td.uniform"
    wanted = _float(ctx, doing, dtype)
    words = _words(ctx, doing, seed, coordinates)
    if wanted == f64:
        high, low = (pointwise.convert(ctx, _tile(ctx, w, u32), u64) for w in words[:2])
        whole = _op(ctx, "shr", _op(ctx, "or", _op(ctx, "shl", high, 32), low), 11)
        return _op(ctx, "mul", pointwise.convert(ctx, whole, f64), 2.0**-53)
    return pointwise.convert(ctx, _unit(ctx, words[0]), wanted)


def normal(seed: Any, *coordinates: Any, dtype: Any = f32) -> Tile:
    """Random numbers of the standard normal distribution, computed in f32. *Errors*: as `bits`.

    Source: G. E. P. Box, M. E. Muller, "A Note on the Generation of Random Normal Deviates", 1958.
    """
    ctx = context()
    doing = "computing td.normal"
    wanted = _float(ctx, doing, dtype)
    words = _words(ctx, doing, seed, coordinates)
    # 1 - u is never 0, so that the logarithm is finite.
    radius = pointwise.function(ctx, "log", _op(ctx, "sub", 1.0, _unit(ctx, words[0])))
    radius = pointwise.function(ctx, "sqrt", _op(ctx, "mul", radius, -2.0))
    angle = pointwise.function(ctx, "cos", _op(ctx, "mul", _unit(ctx, words[1]), 2.0 * math.pi))
    return pointwise.convert(ctx, _op(ctx, "mul", radius, angle), wanted)


def philox(ctx: Context, counter: tuple[Word, Word, Word, Word], key: tuple[Word, Word]) -> tuple[Word, ...]:
    """The four words of the generator at a counter under a key. *Ensures*: the published known answers."""
    a, b, c, d = counter
    k0, k1 = key
    for i in range(ROUNDS):
        if i:
            k0, k1 = _add(ctx, k0, WEYL[0]), _add(ctx, k1, WEYL[1])
        high0, low0 = _product(ctx, a, MULTIPLIERS[0])
        high1, low1 = _product(ctx, c, MULTIPLIERS[1])
        a, b, c, d = _xor(ctx, _xor(ctx, high1, b), k0), low1, _xor(ctx, _xor(ctx, high0, d), k1), low0
    return a, b, c, d


def _words(ctx: Context, doing: str, seed: Any, coordinates: tuple[Any, ...]) -> tuple[Word, ...]:
    key = _halves(ctx, _integer(ctx, doing, "the seed", seed))
    pairs = [_halves(ctx, _integer(ctx, doing, "a coordinate", c)) for c in coordinates]
    if not pairs:
        return philox(ctx, (0, 0, 0, 0), key)
    odd = len(pairs) % 2
    groups = [(pairs[0],)] if odd else []
    groups += [(pairs[i], pairs[i + 1]) for i in range(odd, len(pairs), 2)]
    for group in groups[:-1]:
        first, second, *_ = philox(ctx, _counter(group), key)
        key = first, second
    return philox(ctx, _counter(groups[-1]), key)


def _counter(group: tuple[tuple[Word, Word], ...]) -> tuple[Word, Word, Word, Word]:
    last, before = group[-1], group[0] if len(group) == 2 else (0, 0)
    return last[0], last[1], before[0], before[1]


def _integer(ctx: Context, doing: str, what: str, x: Any) -> Any:
    found = pointwise.lift(ctx, plain_number(x), doing)
    if isinstance(found, Tile) and not found.dtype.is_int or isinstance(found, (bool, float)):
        raise WrongDType(
            doing=doing,
            found=f"{what} of {found.dtype if isinstance(found, Tile) else repr(found)}",
            expected="an integer",
            hint="pass an integer seed: td.Scalar[i64]; coordinates are parts of dimensions or integers",
            span=ctx.span,
        )
    return found


def _halves(ctx: Context, x: Any) -> tuple[Word, Word]:
    """The low and the high word of a 64-bit integer; shorter ones are extended by their sign."""
    if not isinstance(x, Tile):
        return x & MASK, x >> 32 & MASK
    wide = x if x.dtype == u64 else pointwise.convert(ctx, x, i64)
    return pointwise.convert(ctx, wide, u32), pointwise.convert(ctx, _op(ctx, "shr", wide, 32), u32)


def _product(ctx: Context, word: Word, factor: int) -> tuple[Word, Word]:
    """The high and the low word of a product."""
    if not isinstance(word, Tile):
        return word * factor >> 32, word * factor & MASK
    wide = _op(ctx, "mul", pointwise.convert(ctx, word, u64), factor)
    return pointwise.convert(ctx, _op(ctx, "shr", wide, 32), u32), pointwise.convert(ctx, wide, u32)


def _xor(ctx: Context, a: Word, b: Word) -> Word:
    if not isinstance(a, Tile) and not isinstance(b, Tile):
        return a ^ b
    return _op(ctx, "xor", a, b)


def _add(ctx: Context, a: Word, b: int) -> Word:
    return _op(ctx, "add", a, b) if isinstance(a, Tile) else a + b & MASK


def _op(ctx: Context, fn: str, a: Any, b: Any) -> Any:
    return pointwise.binary(ctx, fn, a, b)


def _unit(ctx: Context, word: Word) -> Any:
    """The upper 24 bits as an f32 in [0, 1)."""
    upper = _op(ctx, "shr", _tile(ctx, word, u32), 8)
    return _op(ctx, "mul", pointwise.convert(ctx, upper, f32), 2.0**-24)


def _tile(ctx: Context, word: Word, dtype: DType) -> Tile:
    return word if isinstance(word, Tile) else ctx.tile(pointwise.constant(ctx, word, dtype))


def _float(ctx: Context, doing: str, dtype: Any) -> DType:
    found = as_dtype(dtype, doing, ctx.span)
    if found.is_float and found.has_arithmetic:
        return found
    raise BadArgument(
        doing=doing,
        found=f"dtype={found}",
        expected="f16, bf16, f32 or f64",
        hint="leave dtype= out for f32; td.bits gives u32",
        span=ctx.span,
    )
