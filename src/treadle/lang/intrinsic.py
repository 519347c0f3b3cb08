"""`td.intrinsic`: an operation of the user's own, with the contract that its emission must keep.

The contract's first part is the meaning: a function in the language, which the interpreter runs. Without emissions
every target computes it, inlined. With emissions the operation is opaque: targets put the author's text in its place,
the judge takes it for some function of its operands, and a target without a text refuses it by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from treadle.base.source import user_position
from treadle.dtype.formats import DType, f32, f64, i32, i64, u32, u64
from treadle.dtype.promote import promote_weak
from treadle.ir.core import Block, TileType
from treadle.ir.ops.elementwise import Bitcast, Cast, Elementwise, Full
from treadle.ir.ops.intrinsic import PREFIX, Meaning
from treadle.ir.ops.intrinsic import Intrinsic as Op
from treadle.lang import pointwise
from treadle.lang.errors import BadArgument
from treadle.lang.state import context, maybe_context
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context

EFFECTS = ("none",)
CONVERGENCE = ("none", "subgroup", "workgroup")
CLASSES = ("exact", "2ulp", "storage", "fast")
TARGETS = (
    "cpu",
    "cuda",
    "cuda:sm_80",
    "cuda:sm_90a",
    *(f"cpu:{x}" for x in "avx2 avx512 amx neon neon_dot sve".split()),
)
DTYPES: tuple[DType, ...] = (f32, f64, i32, i64, u32, u64)
"""What operands and results of an operation with emissions may be: what targets hold in registers as it is."""
PURE = (Elementwise, Cast, Bitcast, Full)


class Intrinsic:
    """What `td.intrinsic` makes: called in a kernel, it computes its pattern."""

    def __init__(
        self, pattern: Callable[..., Any], effects: str, convergence: str, numerics: str, emit: Mapping[str, str]
    ) -> None:
        self.pattern = pattern
        self.effects = effects
        self.convergence = convergence
        self.numerics = numerics
        self.emit = dict(emit)

    @property
    def name(self) -> str:
        """The name of its pattern."""
        return getattr(self.pattern, "__name__", "intrinsic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ctx = context()
        if not self.emit:
            return ctx.call(self.pattern, list(args), kwargs)
        operands = self._operands(ctx, args, kwargs)
        dtypes = [x.dtype for x in operands]
        meaning = ctx.meanings.get((id(self), tuple(dtypes)))
        if meaning is None:
            meaning = ctx.meanings[id(self), tuple(dtypes)] = self._meaning(ctx, dtypes)
        pointwise.join(ctx, operands, f"computing {self.name}")
        op = Op(fn=meaning.name, args=tuple(x.value for x in operands), meaning=meaning)
        return ctx.tile(ctx.builder.emit(op).result)

    def _operands(self, ctx: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tile]:
        """The operands as tiles; numbers take the dtype of the first tile."""
        doing = f"computing {self.name}"
        lifted = [pointwise.lift(ctx, x, doing) for x in args]
        first = next((x for x in lifted if isinstance(x, Tile)), None)
        wrong = [x.dtype for x in lifted if isinstance(x, Tile) and x.dtype not in DTYPES]
        if kwargs or first is None or wrong:
            found = f"the keyword {next(iter(kwargs))}" if kwargs else f"{wrong[0]}" if wrong else "no tile"
            raise BadArgument(
                doing=doing,
                found=f"an operand of {found}" if wrong else found,
                expected=f"operands by position, of {', '.join(map(str, DTYPES))}",
                hint="convert them with .to first; staged values belong into the pattern",
                span=ctx.span,
            )
        found_tiles: list[Tile] = []
        for x in lifted:
            if not isinstance(x, Tile):
                promote_weak(first.dtype, x, doing=doing, span=ctx.span)
                x = ctx.tile(pointwise.constant(ctx, x, first.dtype))
            found_tiles.append(x)
        return found_tiles

    def _meaning(self, ctx: Context, dtypes: list[DType]) -> Meaning:
        """The pattern as a block of its own, on scalars of these dtypes. *Errors*: `capture/argument`."""
        block = Block()
        name = ctx.names.fresh(f"{PREFIX}{self.name}")
        params = [ctx.builder.value(TileType(d), f"p{i}") for i, d in enumerate(dtypes)]
        stack, ctx.builder.stack = ctx.builder.stack, [block]
        try:
            found = ctx.call(self.pattern, [Tile(v.type, block, value=v) for v in params], {})
            made = pointwise.lift(ctx, found, f"reading the pattern of {self.name}")
            block.yields = [made.value if isinstance(made, Tile) else pointwise.constant(ctx, made, dtypes[0])]
        finally:
            ctx.builder.stack = stack
        drop_unused(block)
        odd = [op.keyword for op in block.ops if type(op) not in PURE or any(r.type.axes for r in op.results)]
        result = block.yields[0].type.dtype
        if odd or result not in DTYPES:
            raise BadArgument(
                doing=f"reading the pattern of {self.name}",
                found=f"an operation `{odd[0]}`" if odd else f"a result of {result}",
                expected=f"arithmetic and functions of its operands, and a result of {', '.join(map(str, DTYPES))}",
                hint="load, fold and store outside of the intrinsic",
                span=ctx.span,
            )
        for i, value in enumerate([*params, *(r for op in block.ops for r in op.results)]):
            value.name = f"%{name}.{i}"
        meaning = Meaning(name, self.name, params, block, self.numerics, self.emit)
        wrong = meaning.wrong_text()
        if wrong is not None:
            raise BadArgument(
                doing=f"computing {self.name}",
                found=wrong[0],
                expected=f"{wrong[1]}, by the dtypes of its operands and of its pattern",
                hint="convert the operands with .to, or write the text for these types",
                span=ctx.span,
            )
        return meaning

    def __repr__(self) -> str:
        return f"td.intrinsic({self.name})"


def intrinsic(
    pattern: Callable[..., Any],
    effects: str = "none",
    convergence: str = "none",
    numerics: str = "exact",
    emit: Mapping[str, str] | None = None,
) -> Intrinsic:
    """An operation of the user's own: `pattern` says what it computes, the rest what an emission of it must keep.

    `effects` "none": it reads its operands and nothing else. `convergence`: who must arrive together. `numerics`: how
    far from the pattern a result may be. `emit`: text by target (`"cpu"`, `"cuda"`, `"cuda:sm_90a"`), of a function of
    scalars that is called as the pattern is: `define float @name(float %x) {...}` in LLVM IR, `__device__ float
    name(float x) {...}` in CUDA C++. Without any text every target computes the pattern; with some, a target without
    one refuses (`limit/intrinsic`).

    *Errors*: `capture/argument` for a contract that cannot be stated this way; at a call `plan/intrinsic-text` for a
    text that the target's compiler refuses.
    """
    ctx = maybe_context()
    texts = dict(emit or {})
    wrong: str | None = None
    if not callable(pattern) or inspect.isclass(pattern):
        wrong = f"the pattern {pattern!r}, which is no function"
    elif effects not in EFFECTS:
        wrong = f"effects={effects!r}, where only none can be stated"
    elif convergence not in CONVERGENCE:
        wrong = f"convergence={convergence!r}"
    elif numerics not in CLASSES:
        wrong = f"numerics={numerics!r}"
    elif texts:
        wrong = _wrong_texts(pattern, convergence, texts)
    if wrong is not None:
        raise BadArgument(
            doing="declaring td.intrinsic",
            found=wrong,
            expected=f"a function, effects none, convergence {', '.join(CONVERGENCE)}, numerics {', '.join(CLASSES)}",
            hint='write td.intrinsic(pattern, effects="none", convergence="none", numerics="exact", emit={})',
            span=user_position() if ctx is None else ctx.span,
        )
    return Intrinsic(pattern, effects, convergence, numerics, texts)


def _wrong_texts(pattern: Any, convergence: str, texts: dict[Any, Any]) -> str | None:
    """What is wrong with emissions, if anything."""
    name = getattr(pattern, "__name__", "")
    odd = next((t for t in texts if t not in TARGETS), None)
    if odd is not None:
        return f"emit={{{odd!r}: ...}}, which is none of {', '.join(TARGETS)}"
    if not name.isidentifier():
        return f"a pattern named {name}: texts call it by its name"
    empty = next((t for t, text in texts.items() if not isinstance(text, str) or name not in text), None)
    if empty is not None:
        return f"a text for {empty} without a function {name}"
    return None if convergence == "none" else f"convergence={convergence!r} of a text: who arrives together is planned"


def drop_unused(block: Block) -> None:
    """Removes operations whose results nothing in the block uses."""
    needed = {v.name for v in block.yields}
    kept: list[Any] = []
    for op in reversed(block.ops):
        if any(r.name in needed for r in op.results) or not op.results:
            kept.append(op)
            needed |= {v.name for v in op.operands}
    block.ops[:] = reversed(kept)
