"""`td.einsum`: contractions written with letters, made of `td.mma` and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treadle.algebra.dims import Dim
from treadle.dtype.formats import DType
from treadle.ir.core import Sub
from treadle.lang import folds, pointwise
from treadle.lang.dtypes import as_dtype
from treadle.lang.errors import BadArgument, WrongDim, WrongRank
from treadle.lang.state import context
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context

DOING = "computing td.einsum"


def einsum(spec: str, *operands: Any, dtype: Any = None) -> Tile:
    """The products of the operands summed over the letters that the result lacks: `td.einsum("mk,kn->mn", a, b)`.

    A letter stands for an axis in place and for one dimension throughout (an alias takes the dimension of its first
    use). Without `->` the result has the letters that occur once, in alphabetical order. Sums and products are made in
    `dtype` (as in `td.dot`), from left to right.

    *Errors*: `capture/argument`, `dims/rank`, `dims/wrong-dimension`, `block/observed`.
    """
    ctx = context()
    inputs, output = _parsed(ctx, spec, len(operands))
    tiles = [folds.tile_operand(ctx, DOING, x) for x in operands]
    letters: dict[str, Dim] = {}
    tiles = [_named(ctx, t, word, letters) for t, word in zip(tiles, inputs)]
    wide = None if dtype is None else as_dtype(dtype, DOING, ctx.span)
    total = _summed(ctx, tiles[0], _later(inputs[1:], output), letters, wide)
    for i, tile in enumerate(tiles[1:], 1):
        keep = {letters[c] for c in _later(inputs[i + 1 :], output)}
        axes = tuple(p for p in pointwise.join(ctx, (total, tile), DOING) if p.dim in keep)
        # What only one of both has and nothing needs later is summed before; mma sums over what both have.
        total, tile = (_over(ctx, t, keep | set(u.type.dims), wide) for t, u in ((total, tile), (tile, total)))
        acc = wide or folds.dot_dtype(total.dtype, tile.dtype)
        zero = ctx.tile(pointwise.constant(ctx, 0, acc, axes))
        total = folds.mma(ctx, total, tile, zero)
    order = [next(a for a in total.type.axes if a.dim is letters[c]) for c in output]
    value = pointwise.convert(ctx, total, wide) if wide is not None else total
    return ctx.tile(pointwise.broadcast(ctx, value, value.dtype, order))


def _parsed(ctx: Context, spec: Any, count: int) -> tuple[list[str], str]:
    text = spec.replace(" ", "") if isinstance(spec, str) else ""
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    every = "".join(inputs)
    if not arrow:
        output = "".join(sorted(c for c in set(every) if every.count(c) == 1))
    letters = set(every)
    good = isinstance(spec, str) and (every + output).isalpha() or every == ""
    once = all(len(set(word)) == len(word) for word in (*inputs, output))
    if not good or not once or not set(output) <= letters or len(inputs) != count or not count:
        raise BadArgument(
            doing=DOING,
            found=f"{spec!r} for {count} operands",
            expected="letters for the axes of each operand, each letter once an operand, and of the result",
            hint='write td.einsum("mk,kn->mn", a, b)',
            span=ctx.span,
        )
    return inputs, output


def _named(ctx: Context, x: Tile, word: str, letters: dict[str, Dim]) -> Tile:
    """The operand with its axes renamed to the dimensions of the letters."""
    if len(word) != x.rank:
        raise WrongRank(
            doing=DOING,
            found=f"{len(word)} letters, {word!r}, for {x.type}",
            expected=f"{x.rank}, one an axis",
            hint="give one letter an axis, in the order of the operand's dimensions",
            span=ctx.span,
        )
    subs: list[Sub] = []
    for letter, axis in zip(word, x.type.axes):
        dim = letters.setdefault(letter, axis.dim)
        if dim.root is not axis.dim.root:
            raise WrongDim(
                doing=DOING,
                found=f"the letter {letter!r} for {dim} and for {axis.dim}",
                expected="one dimension a letter",
                hint="use another letter, or make one dimension an alias of the other",
                span=ctx.span,
            )
        subs.append(Sub(part=type(axis)(dim, axis.lo, axis.hi, axis.label if dim is axis.dim else "")))
    if all(s.part == a for s, a in zip(subs, x.type.axes)):
        return x
    return ctx.tile(ctx.builder.extract(x.value, subs))


def _later(inputs: Sequence[str], output: str) -> set[str]:
    return set(output).union(*inputs) if inputs else set(output)


def _summed(ctx: Context, x: Tile, later: set[str], letters: dict[str, Dim], wide: DType | None) -> Tile:
    return _over(ctx, x, {letters[c] for c in later if c in letters}, wide)


def _over(ctx: Context, x: Tile, keep: set[Dim], wide: DType | None) -> Tile:
    """The operand summed over the dimensions that nothing keeps."""
    gone = [ctx.part_ref(a) for a in x.type.axes if a.dim not in keep]
    if not gone:
        return x
    return folds.fold(ctx, "add", x if wide is None else pointwise.convert(ctx, x, wide), gone)
