"""The source program, indexed: definitions, scopes of operations, and which arguments of regions a value depends on.

A value's instance is given by the arguments it depends on: through block bounds and scalars, through bounds of folded
axes, or by being carried. The coordinates of its axes say the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from treadle.algebra.dims import Dim
from treadle.algebra.dims import Part as Axis
from treadle.algebra.expr import Expr
from treadle.checker.terms import Elem
from treadle.dtype.formats import BY_NAME
from treadle.ir.core import AxisSub, Block, If, Op, Program, Region, RegionArg, Sub, Value
from treadle.ir.guard import Absent, Disjoint, Guard, Same
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Index
from treadle.ir.ops.fold import ArgReduce, Mma, Reduce, Scan
from treadle.ir.ranges import LIMIT

Scope = tuple[Region, None] | tuple[If, bool]


@dataclass(frozen=True, eq=False)
class View:
    """Where a comparison stands: bindings of region arguments in force, and branches of source `if`s taken."""

    bindings: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    branches: Mapping[Elem, bool] = field(default_factory=dict[Elem, bool])  # by the condition that was tested

    @cached_property
    def key(self) -> object:
        """Equal for equal views."""
        return frozenset(self.bindings.items()), frozenset(self.branches.items())


def argument_symbols(arg: RegionArg) -> tuple[str, ...]:
    """The symbols that an argument binds."""
    return (f"{arg.name}.start", f"{arg.name}.stop") if arg.kind == "block" else (arg.name,)


class Scopes:
    """The embedded program, indexed for the judge."""

    def __init__(self, program: Program, guard: Guard | None = None) -> None:
        self.program = program
        self.guard = Guard() if guard is None else guard
        self.ops: list[Op] = []
        self.scopes: dict[int, tuple[Scope, ...]] = {}
        self.order: dict[int, int] = {}
        self.values: dict[str, Value] = {}
        self.defs: dict[str, Op] = {}
        self.regions: dict[str, Region] = {}
        self.by_argument: dict[str, tuple[Region, RegionArg]] = {}
        self._index(program.body, ())
        for scalar in program.scalars:
            self.values[scalar.value.name] = scalar.value
        self.stores = [op for op in self.ops if isinstance(op, Store)]
        self.ifs = [op for op in self.ops if isinstance(op, If)]
        self.used = {v.name for op in self.ops for v in op.operands}
        self.used |= {v.name for op in self.ops for b in op.blocks for v in b.yields}
        self.used |= {n for op in self.ops for e in index_expressions(op) for n in e.functions}
        self.stored = {op.tensor.name for op in self.stores}
        self.loaded = {op.tensor.name for op in self.ops if isinstance(op, Load)}
        self.changed = {t.name for t in program.tensors if any(self.meet(t.name, s) != "never" for s in self.stored)}
        self.scalars = {n: s.value for s in program.scalars for n in (s.name, s.value.name)}
        self.deps: dict[str, frozenset[str]] = {s.value.name: frozenset() for s in program.scalars}
        self._depend(program.body)

    def opaque_range(self, name: str) -> tuple[int, int]:
        """The range of an opaque number of index expressions, by the dtype that its name tells (`terms.opaque_index`);
        of 64 bits it may be any."""
        dtype = self.values[name].type.dtype if name in self.values else None
        if name.endswith("[]"):
            dtype = next((t.dtype for t in self.program.tensors if t.name == name[:-2].partition(" at ")[0]), None)
        elif "(" in name:
            dtype = BY_NAME.get(name.partition("(")[0].rpartition(".")[2])
        if dtype is None or not dtype.is_int or dtype.bits >= 64:
            return -LIMIT, LIMIT
        return int(dtype.finite_min), int(dtype.finite_max)

    # ---- arguments

    def meet(self, first: str, second: str) -> Literal["same", "maybe", "never"]:
        """Whether elements of two tensors are one: where the indices are the same, perhaps, or never."""
        if first == second:
            return "same"
        pair = frozenset((first, second))
        for fact in self.guard.facts:
            match fact:
                case Disjoint(a, b) if frozenset((a, b)) == pair:
                    return "never"
                case Absent(a) if a in pair:
                    return "never"
                case Same(a, b) if frozenset((a, b)) == pair:
                    x, y = self.program.tensor(a), self.program.tensor(b)
                    return "same" if x.dtype == y.dtype and len(x.dims) == len(y.dims) else "maybe"
                case _:
                    pass
        return "maybe"

    def _index(self, block: Block, scopes: tuple[Scope, ...]) -> None:
        for op in block.ops:
            self.scopes[id(op)] = scopes
            self.order[id(op)] = len(self.ops)
            self.ops.append(op)
            for value in op.results:
                self.values[value.name], self.defs[value.name] = value, op
            if isinstance(op, Region):
                for value in op.carried:
                    self.values[value.name], self.defs[value.name] = value, op
                self.regions[op.name or f"R{len(self.regions)}"] = op
                for arg in op.args:
                    for symbol in argument_symbols(arg):
                        self.by_argument[symbol] = (op, arg)
                self._index(op.body, (*scopes, (op, None)))
            elif isinstance(op, If):
                self._index(op.then, (*scopes, (op, True)))
                self._index(op.orelse, (*scopes, (op, False)))

    # ---- which arguments a value depends on

    def _depend(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, Region):
                self._depend_region(op)
                continue
            if isinstance(op, If):
                self._depend(op.then)
                self._depend(op.orelse)
                inside = [v for b in (op.then, op.orelse) for v in b.yields]
                found = self._of_values([op.cond, *inside])
            else:
                found = self._of_values(op.operands) | self._of_op(op)
            for value in op.results:
                self.deps[value.name] = found

    def _depend_region(self, op: Region) -> None:
        mine = frozenset(s for arg in op.args for s in argument_symbols(arg))
        bounds = frozenset(s for arg in op.args for e in (arg.domain.lo, arg.domain.hi) for s in self._of_expr(e))
        outer = self._of_values(op.inits) | bounds
        ordered = op.kind != "parallel"
        for _ in range(2):  # the second round sees what the first found that iterations depend on
            for value in op.carried:
                self.deps[value.name] = (outer | mine) if ordered else outer
            self._depend(op.body)
            inside = frozenset[str]()
            for inner in op.body.walk():
                for value in inner.results:
                    inside |= self.deps[value.name]
            inner_args = frozenset(
                s for r in op.body.walk() if isinstance(r, Region) for a in r.args for s in argument_symbols(a)
            )
            outer = outer | (inside - mine - inner_args)
        for value in op.results:
            self.deps[value.name] = outer

    def _of_values(self, values: Iterable[Value]) -> frozenset[str]:
        found = frozenset[str]()
        for value in values:
            found |= self.deps[value.name]
        return found

    def depends(self, e: Expr) -> frozenset[str]:
        """The arguments that an index expression of the source depends on."""
        return self._of_expr(e)

    def _of_expr(self, e: Expr) -> frozenset[str]:
        found = frozenset(s for s in e.symbols if s in self.by_argument)
        for name in e.functions:
            found |= self.deps.get(name, frozenset())
        return found

    def _of_op(self, op: Op) -> frozenset[str]:
        found = frozenset[str]()
        match op:
            case Load() | Extract() | Store() | Insert():
                for sub in flat(op.subs):
                    if sub.index is not None:
                        found |= self._of_expr(sub.index)
                    if isinstance(op, Insert) and sub.part is not None:
                        found |= self._of_expr(sub.part.lo) | self._of_expr(sub.part.hi)
                # what a load of a stored tensor finds, and what an atomic store replaces, is of one instance alone
                if isinstance(op, Load) and op.tensor.name in self.changed or isinstance(op, Store):
                    for scope, _ in self.scopes[id(op)]:
                        if isinstance(scope, Region):
                            found |= {s for arg in scope.args for s in argument_symbols(arg)}
            case Index(expr=expr):
                found |= self._of_expr(expr)
            case Reduce() | ArgReduce() | Mma() | Scan():
                for lo, hi in self.domain(op):
                    found |= self._of_expr(lo) | self._of_expr(hi)
            case _:
                pass
        return found

    def in_force(self, op: Op, inst: Mapping[str, Expr], bindings: Mapping[str, Expr]) -> bool:
        """Whether an instance of an operation is the one that the enclosing statements execute."""
        return all(
            s in inst and inst[s] == bindings.get(s)
            for region, _ in self.scopes[id(op)]
            if isinstance(region, Region)
            for arg in region.args
            for s in argument_symbols(arg)
        )

    # ---- folds

    def domain(self, op: Reduce | ArgReduce | Mma | Scan) -> list[tuple[Expr, Expr]]:
        if isinstance(op, Scan):
            return [(op.part.lo, op.part.hi)]
        source = op.a if isinstance(op, Mma) else op.source
        found: list[tuple[Expr, Expr]] = []
        for dim in folded_dims(op):
            axis = source.type.axis(dim)
            assert isinstance(axis, Axis)
            found.append((axis.lo, axis.hi))
        return found


def folded_dims(op: Reduce | ArgReduce | Mma | Scan) -> tuple[Dim, ...]:
    """The dimensions along which an operation folds; of a scan, the one along which it has every prefix."""
    return op.contracted if isinstance(op, Mma) else (op.dim,) if isinstance(op, Scan) else op.dims


def index_expressions(op: Op) -> list[Expr]:
    """All index expressions in an operation."""
    if isinstance(op, Index):
        return [op.expr]
    if isinstance(op, Load | Store | Extract | Insert):
        found = [e for s in flat(op.subs) for e in ([s.index] if s.index is not None else [])]
        parts = [s.part for s in flat(op.subs) if s.part is not None]
        return found + [e for p in parts for e in (p.lo, p.hi)]
    if isinstance(op, Region):
        return [e for a in op.args for e in (a.domain.lo, a.domain.hi)]
    return []


def flat(subs: tuple[AxisSub, ...]) -> list[Sub]:
    """All subscripts, those of product axes one by one."""
    return [s for axis in subs for s in (axis if isinstance(axis, tuple) else (axis,))]
