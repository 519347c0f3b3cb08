"""The state of one capture: the builder, dimensions and names of the program, facts in scope, caches.

Everything that a traced value does goes through here; the rules live in `pointwise`, `subscript`, `folds`, `regions`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import ONE, Constraint, Expr, as_expr, const, maximum, minimum, sym
from treadle.base.names import Names
from treadle.base.source import Span
from treadle.dtype.formats import DType, bool_, i64, u64
from treadle.ir.builder import Builder
from treadle.ir.core import Block, Region, ScalarParam, Tensor, TileType, Value
from treadle.ir.ops.intrinsic import Meaning
from treadle.ir.ranges import EXTENT, LIMIT, Range, reach
from treadle.lang import folds, pointwise, subscript
from treadle.lang.dims import Dimension, PartRef
from treadle.lang.dtypes import as_dtype
from treadle.lang.errors import BadArgument, Gone, IndexTooLarge, NeedsExtent, OutOfRange, WrongDType
from treadle.lang.objects import ends
from treadle.lang.prove import prove_nonneg
from treadle.lang.state import staged_flag
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.monoids import Application


@dataclass
class Bounds:
    """Lower and upper bounds that every coordinate of a part keeps, if the part has any."""

    lows: tuple[Expr, ...]
    highs: tuple[Expr, ...]


@dataclass
class Cache:
    """Values of index expressions, coordinates and scalar constants made in one block."""

    index: dict[Expr, Value] = field(default_factory=dict[Expr, Value])
    coords: dict[Part, Tile] = field(default_factory=dict[Part, Tile])
    numbers: dict[tuple[DType, str], Value] = field(default_factory=dict[tuple[DType, str], Value])


Call = Callable[[Any, list[Any], dict[str, Any]], Any]


def _no_interpreter(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


class Context:
    """One capture. `extents` gives the numbers of specialised dimensions by name."""

    def __init__(self, name: str, extents: Mapping[str, int]) -> None:
        self.name = name
        self.builder = Builder()
        self.names = Names()
        self.extents = dict(extents)
        self.dims: dict[Dim, Dim] = {}
        self.program_dims: list[Dim] = []
        self.stand_ins: list[dict[Dim, Part]] = []
        self.tensors: list[Tensor] = []
        self.scalars: list[ScalarParam] = []
        self.lets: dict[str, Expr] = {}
        self.requires: list[Constraint] = []
        self.extent_facts: list[Constraint] = []
        self.facts: list[Constraint] = []
        self.promises: list[Constraint] = []
        self.bounds: dict[Part, Bounds] = {}
        self.open_parts: dict[Part, str] = {}
        self.regions: list[Region] = []
        self.caches: dict[Block, Cache] = {}
        self.stored_dtypes: dict[str, DType] = {}
        self.stored = False
        self.depth = 0
        self.call: Call = _no_interpreter
        """Calls a function as captured code does."""
        self.applications: list[Application] = []
        """Monoids of the user applied inside `td.reduce`, in order."""
        self.quiet = 0
        self.meanings: dict[Any, Meaning] = {}
        """Meanings of the user's intrinsics, by intrinsic and dtypes."""

    # ---- positions and scopes

    @property
    def span(self) -> Span | None:
        """The user's position that is being captured."""
        return self.builder.span

    @contextmanager
    def scope(self, block: Block, facts: Sequence[Constraint] = ()) -> Generator[None]:
        """Builds into `block`; facts and promises made inside are forgotten after it."""
        marks = len(self.facts), len(self.promises), len(self.bounds)
        self.facts.extend(facts)
        try:
            with self.builder.inside(block):
                yield
        finally:
            del self.facts[marks[0] :], self.promises[marks[1] :]
            # Bounds of a part may rest on facts of the scope in which it was cut.
            for part in list(self.bounds)[marks[2] :]:
                del self.bounds[part]

    @contextmanager
    def quietly(self) -> Generator[None]:
        """Monoids applied inside fold no state of a region."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    def checkpoint(self) -> tuple[Names, int, int]:
        """Names, dimensions and the count of operations so far, for `rollback` after a trial."""
        return self.names.fork(), len(self.program_dims), self.builder.emitted

    def rollback(self, mark: tuple[Names, int, int]) -> None:
        """Forgets the names and dimensions that a discarded trial made, and does not count its operations."""
        self.names = mark[0].fork()
        self.builder.emitted = mark[2]
        dropped = self.program_dims[mark[1] :]
        del self.program_dims[mark[1] :]
        self.dims = {user: d for user, d in self.dims.items() if all(d is not x for x in dropped)}

    def alive(self, x: Tile | PartRef) -> None:
        """*Errors*: `capture/gone` for a value of a block that is closed."""
        if x.block is None or any(b is x.block for b in self.builder.stack):
            return
        what = "a tile" if isinstance(x, Tile) else f"the scope handle {x}"
        raise Gone(
            doing="using a value",
            found=f"{what} made inside a region or branch that has ended",
            expected="a value made before, carried, or stored in an outer tile",
            hint="carry it: give the name a value before the region; or keep parts in T = td.empty(...)",
            span=self.span,
        )

    # ---- dimensions

    def program_dim(self, d: Dim) -> Dim:
        """The program's dimension for a dimension of the user: the same one, unless renamed or specialised."""
        if d in self.dims:
            return self.dims[d]
        root = None if d.alias_of is None else self.program_dim(d.alias_of)
        factors = tuple(map(self.program_dim, d.factors))
        name = self.names.fresh(d.name)
        extent = self._extent(d, name, root, factors)
        static = d.static or d.name in self.extents
        same = name == d.name and extent == d.extent and root is d.alias_of and factors == d.factors
        made = d if same and static == d.static else Dim(name, extent, root, factors, static)
        self.dims[d] = made
        self.program_dims.append(made)
        if extent.constant is None and root is None and not factors:
            self.extent_facts.append(Constraint(extent))
        return made

    def _extent(self, d: Dim, name: str, root: Dim | None, factors: tuple[Dim, ...]) -> Expr:
        if root is not None:
            return root.extent
        if factors:
            extent = ONE
            for factor in factors:
                extent = extent * factor.extent
            return extent
        if d.extent.constant is not None:
            return d.extent
        if d.name in self.extents:
            return const(self.extents[d.name])
        if d.static:
            raise self.needs_extent(d.name, f"{d.name}, made with static=True")
        return sym(name) if d.extent == sym(d.name) else d.extent

    def needs_extent(self, name: str, found: str) -> NeedsExtent:
        """The error that asks the driver to specialise a dimension."""
        error = NeedsExtent(
            doing="using an extent as a Python number",
            found=found,
            expected="the extent's number",
            hint=f"pass extents={{{name!r}: ...}} to capture; a call of the kernel does it from its arguments",
            span=self.span,
        )
        error.name = name
        return error

    def extent_wanted(self, x: Tile) -> NeedsExtent | None:
        """The request for a number, where `x` is an expression of extents only."""
        expr = x.expr
        if expr is None or x.rank or expr.functions:
            return None
        symbols = {d.extent: d for d in self.program_dims if d.alias_of is None and not d.factors}
        wanted = [d for e, d in symbols.items() if e.symbols & expr.symbols]
        if not wanted or {s for d in wanted for s in d.extent.symbols} != set(expr.symbols):
            return None
        user = next(u for u, p in self.dims.items() if p is wanted[0])
        return self.needs_extent(user.name, f"{expr}")

    def whole(self, d: Dimension) -> Part:
        """The part that a dimension stands for here: all of it, or the part passed to an inlined kernel."""
        for table in reversed(self.stand_ins):
            if d.identity in table:
                return table[d.identity]
        return self.program_dim(d.identity).whole()

    def anonymous_dim(self, name: str, extent: Expr) -> Dim:
        """A fresh dimension for a region over a number."""
        made = Dim(self.names.fresh(name), extent)
        self.program_dims.append(made)
        return made

    def part_ref(self, part: Part, block: Block | None = None) -> PartRef:
        """A handle of a part."""
        return PartRef(part, block=block)

    def slice_part(self, ref: PartRef, key: Any) -> PartRef:
        """`ref[lo:hi]`, clamped. *Errors*: `bounds/outside`, `capture/argument`."""
        self.alive(ref)
        found = ends(key)
        if found is None or found[2] is not None:
            raise BadArgument(
                doing=f"taking a part of {ref}",
                found=f"the subscript {key!r}" if found is None else "a slice with a step",
                expected="a slice lo:hi of coordinates",
                hint=f"write {ref}[lo:hi], or {ref}.each for single elements",
                span=self.span,
            )
        lo = None if found[0] is None else self.bound(found[0], ref)
        hi = None if found[1] is None else self.bound(found[1], ref)
        part = self.cut(ref.part, lo, hi)
        made = PartRef(part, mode=ref.mode, size=ref.size, backward=ref.backward, block=self.builder.block, above=ref)
        return made

    def bound(self, value: Any, ref: PartRef) -> Expr:
        """A bound of a slice as an expression."""
        if isinstance(value, PartRef):
            raise BadArgument(
                doing=f"taking a part of {ref}",
                found=f"the part {value} as a bound",
                expected="a number, an index scalar or a loaded integer",
                hint=f"use {value}.start or {value}.stop",
                span=self.span,
            )
        expr = self.expr_of(value, f"a bound of {ref}")
        number = expr.constant
        if number is not None and number < 0 and not isinstance(value, Tile):
            raise OutOfRange(
                doing=f"taking a part of {ref}",
                found=f"the bound {number}",
                expected="coordinates, which start at 0; nothing counts from the end",
                hint=f"write {ref}.extent - {-number}",
                span=self.span,
            )
        return expr

    def expr_of(self, value: Any, what: str) -> Expr:
        """A staged integer or traced integer scalar as an expression. *Errors*: `dtype/operand`, `capture/argument`."""
        x = pointwise.lift(self, value, f"reading {what}")
        if isinstance(x, Tile):
            if x.rank or not x.dtype.is_int or x.expr is None:
                raise WrongDType(
                    doing=f"reading {what}",
                    found=f"{x.type}",
                    expected="an integer scalar",
                    hint="subscript a tile down to one element, and convert floats with .to(i64)",
                    span=self.span,
                )
            # Beyond the signed numbers every index is as far outside as the largest of them.
            return pointwise.within_signed(self, x) if x.dtype == u64 else x.expr
        if isinstance(x, bool) or not isinstance(x, int):
            raise BadArgument(
                doing=f"reading {what}",
                found=repr(x),
                expected="an integer",
                hint="use // for a whole quotient",
                span=self.span,
            )
        if abs(x) > LIMIT:
            raise IndexTooLarge(
                doing=f"reading {what}",
                found=f"the number {x}",
                expected="an integer within 64 bits: -(2^63 - 1) to 2^63 - 1",
                hint="no index and no extent is as large",
                span=self.span,
            )
        return as_expr(x)

    def cut(self, part: Part, lo: Expr | None, hi: Expr | None) -> Part:
        """The sub-part, clamped only where it may leave the part. *Ensures*: equal to `part.cut(lo, hi)`."""
        start, stop = part.lo, part.hi
        if lo is not None and not self.proves(part.lo - lo):
            start = lo if self.proves(lo - part.lo) else maximum(lo, part.lo)
            start = start if self.proves(part.hi - start) else minimum(start, part.hi)
        if hi is not None and not self.proves(hi - part.hi):
            stop = hi if self.proves(part.hi - hi) else minimum(hi, part.hi)
            stop = stop if self.proves(stop - start) else maximum(start, stop)
        made = Part(part.dim, start, stop, "")
        known = self.bounds_of(part)
        lows = known.lows + (() if lo is None else (lo,))
        highs = known.highs + (() if hi is None else (hi,))
        if made != part:
            self.bounds.setdefault(made, Bounds((start, *lows), (stop, *highs)))
            if part in self.open_parts:
                self.open_parts.setdefault(made, self.open_parts[part])
        return made

    def bounds_of(self, part: Part) -> Bounds:
        """What the coordinates of the part keep to."""
        return self.bounds.get(part) or Bounds((part.lo,), (part.hi,))

    # ---- proofs

    def proves(self, goal: Expr, *, promises: bool = False, more: Sequence[Constraint] = ()) -> bool:
        """Whether `goal >= 0` follows from the facts in scope."""
        number = goal.constant
        if number is not None:
            return number >= 0
        facts = [*self.extent_facts, *self.facts, *self.requires, *more, *(self.promises if promises else ())]
        return prove_nonneg(goal, facts)

    def fits(self, expr: Expr) -> bool:
        """Whether 64 bits hold the expression for all extents that guards allow, sums of its terms included."""
        wide = {s.value.name for s in self.scalars if s.value.type.dtype.bits >= 64}

        def value(name: str) -> Range:
            return (-LIMIT, LIMIT) if name in wide else (-2 * EXTENT[1], 2 * EXTENT[1] + 1)

        return reach(expr, {}, value)[1] <= LIMIT

    def is_extent(self, expr: Expr) -> bool:
        """Whether the expression is a dimension's extent: a divisor that is 0 only where nothing is divided."""
        return any(d.extent == expr for d in self.program_dims)

    def axis_facts(self, axes: Sequence[Part]) -> list[Constraint]:
        """Where the element symbols of axes lie."""
        found: list[Constraint] = []
        for part in axes:
            c = pointwise.coords_expr(part)
            known = self.bounds_of(part)
            found += [Constraint(c - low) for low in (part.lo, *known.lows)]
            found += [Constraint(high - 1 - c) for high in (part.hi, *known.highs)]
        return found

    # ---- values

    def tile(
        self,
        value: Value,
        *,
        expr: Expr | None = None,
        safe: bool = False,
        fact: tuple[Constraint, ...] | None = None,
    ) -> Tile:
        """A traced value for a value of the program, alive in the current block."""
        return Tile(value.type, self.builder.block, value=value, expr=expr, safe=safe, fact=fact)

    def index(self, expr: Expr, ref: PartRef | None = None) -> Tile | int:
        """An index expression as a traced i64 scalar; a number where it is one."""
        if ref is not None:
            self.alive(ref)
        number = expr.constant
        return number if number is not None else Tile(TileType(i64), self.builder.block, expr=expr, safe=True)

    def cached(self, block: Block) -> Cache:
        """The cache of a block."""
        return self.caches.setdefault(block, Cache())

    def index_value(self, expr: Expr) -> Value:
        """The program's value of an index expression, made once a block."""
        for block in self.builder.stack:
            if (found := self.cached(block).index.get(expr)) is not None:
                return found
        made = self.builder.index(expr)
        self.cached(self.builder.block).index[expr] = made
        return made

    def coords(self, ref: PartRef) -> Tile:
        """The coordinates of a part as a tile, made once a block."""
        self.alive(ref)
        part = ref.part
        for block in self.builder.stack:
            if (found := self.cached(block).coords.get(part)) is not None:
                return found
        made = self.tile(self.builder.coords(part), expr=pointwise.coords_expr(part), safe=True)
        self.cached(self.builder.block).coords[part] = made
        return made

    # ---- what values do (the rules are elsewhere)

    def binary(self, fn: str, a: Any, b: Any) -> Any:
        """See `pointwise.binary`; `@` is in `folds`."""
        return folds.matmul(self, a, b) if fn == "matmul" else pointwise.binary(self, fn, a, b)

    def unary(self, fn: str, a: Any) -> Any:
        """See `pointwise.unary`."""
        return pointwise.unary(self, fn, a)

    def convert_to(self, x: Tile, dtype: Any, saturate: bool) -> Tile:
        """`x.to(dtype)`; to bool it is `x != 0`."""
        self.alive(x)
        saturate = staged_flag("converting with .to", "saturate", saturate)
        wanted = as_dtype(dtype, "converting with .to", self.span)
        if wanted == x.dtype:
            return x
        if wanted == bool_ and x.dtype.has_arithmetic:
            return pointwise.binary(self, "ne", x, 0)
        return pointwise.convert(self, x, wanted, saturate=saturate)

    def bitcast(self, x: Tile, dtype: Any) -> Tile:
        """`x.bitcast(dtype)`."""
        self.alive(x)
        wanted = as_dtype(dtype, "reading bits with .bitcast", self.span)
        if wanted.bits != x.dtype.bits:
            raise WrongDType(
                doing="reading bits with .bitcast",
                found=f"{x.dtype} of {x.dtype.bits} bits as {wanted} of {wanted.bits}",
                expected="dtypes of the same width",
                hint=f"convert the value with .to({wanted}) instead",
                span=self.span,
            )
        return self.tile(self.builder.bitcast(x.value, wanted))

    def extract(self, x: Tile, key: Any, fill: Any = None) -> Tile:
        """See `subscript.extract`."""
        return subscript.extract(self, x, key, fill)

    def fold(
        self, monoid: str, x: Tile, over: Sequence[Any], *, order: str = "unordered", nan: str = "propagate"
    ) -> Tile:
        """See `folds.fold`."""
        return folds.fold(self, monoid, x, over, order=order, nan=nan)

    def argfold(self, monoid: str, x: Tile, over: Sequence[Any], nan: str) -> Tile:
        """See `folds.argfold`."""
        return folds.argfold(self, monoid, x, over, nan)

    def mean(self, x: Tile, over: Sequence[Any]) -> Tile:
        """See `folds.mean`."""
        return folds.mean(self, x, over)

    def var(self, x: Tile, over: Sequence[Any], ddof: int) -> Tile:
        """See `folds.var`."""
        return folds.var(self, x, over, ddof)
