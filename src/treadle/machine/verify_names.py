"""What the names of a kernel stand for, and whether an expression's names have a meaning: tables for `verify`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from treadle.algebra.expr import ZERO, Constraint, Expr, Fn
from treadle.dtype.formats import DType
from treadle.ir.core import If as SourceIf
from treadle.ir.core import Program, Region, Value
from treadle.ir.guard import Aligned, Bound, Divisible, Fact, Injective, Pitch, Unit
from treadle.ir.ops.access import Store as SourceStore
from treadle.machine.form import Barrier, Buffer, Counter, Frag, Kernel
from treadle.machine.vocabulary import RESERVED

EXISTENTIAL = re.compile(r"e\d+$")


@dataclass(frozen=True)
class Problem:
    """A line of the printed text, and what is wrong with it."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass
class Source:
    """What the embedded program declares."""

    values: dict[str, Value]
    regions: dict[str, dict[str, str]]
    tensors: dict[str, tuple[DType, int]]
    symbols: set[str]
    stores: list[int]
    ifs: int
    scalars: dict[str, DType]

    @staticmethod
    def of(program: Program) -> Source:
        values: dict[str, Value] = {s.value.name: s.value for s in program.scalars}
        regions: dict[str, dict[str, str]] = {}
        stores: list[int] = []
        ifs = 0
        for op in program.body.walk():
            for value in (*op.results, *(op.carried if isinstance(op, Region) else ())):
                values[value.name] = value
            if isinstance(op, Region):
                kinds = {a.name: a.kind for a in op.args}
                regions[f"R{len(regions)}" if not op.name else op.name] = dict(kinds)
            elif isinstance(op, SourceStore):
                stores.append(_axes(op))
            elif isinstance(op, SourceIf):
                ifs += 1
        tensors = {t.name: (t.dtype, len(t.dims)) for t in program.tensors}
        tensors |= {s.name: (s.value.type.dtype, 0) for s in program.scalars}
        symbols = set(program.lets) | {s.name for s in program.scalars}
        for dim in program.dims:
            symbols |= dim.extent.symbols
        scalars: dict[str, DType] = {}
        for scalar in program.scalars:
            scalars |= {name: scalar.value.type.dtype for name in (scalar.name, scalar.value.name)}
        return Source(values, regions, tensors, symbols, stores, ifs, scalars)


def _axes(op: SourceStore) -> int:
    """How many axes a store runs over: those of its subscripts, by identity."""
    dims: dict[int, None] = {}
    for axis in op.subs:
        for sub in axis if isinstance(axis, tuple) else (axis,):
            parts = (sub.part,) if sub.part is not None else sub.tile.type.axes if sub.tile is not None else ()
            dims.update(dict.fromkeys(id(part.dim) for part in parts))
    return len(dims)


def fact_problem(fact: Fact, source: Source) -> str | None:
    """Why a call has nothing that a fact of a guard could be about; None where it has.

    A fact about a name of the text (a variable, a coordinate of a slot) would say something of every execution, and a
    call can test no such thing."""
    match fact:
        case Aligned(name) | Injective(name) | Pitch(name) | Unit(name):
            known = source.tensors.get(name)
            if known is None or (isinstance(fact, Pitch | Unit) and not 0 <= fact.axis < known[1]):
                return "is about no axis of a tensor"
            by = fact.bytes if isinstance(fact, Aligned) else fact.by if isinstance(fact, Pitch) else 1
            told = ZERO
        case Divisible(told, by):
            pass
        case Bound(constraint):
            told, by = constraint.expr, 1
        case _:
            return None
    if by < 1:
        return "asks for a multiple of no positive number"
    strange = sorted((told.symbols - source.symbols) | (told.functions - source.scalars.keys()))
    return f"is about {strange[0]}, which is no number of a call" if strange else None


@dataclass
class HostNames:
    """What the host declares for all kernels."""

    symbols: set[str] = field(default_factory=set[str])
    workspace: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    maps: dict[str, str] = field(default_factory=dict[str, str])
    counters: dict[str, Counter] = field(default_factory=dict[str, Counter])
    clusters: dict[str, int] = field(default_factory=dict[str, int])


class Names:
    """Declarations of one kernel and the names in scope, with the problems found so far."""

    def __init__(
        self, kernel: Kernel, source: Source, host: HostNames, lines: Mapping[int, int], problems: list[Problem]
    ) -> None:
        self.kernel = kernel
        self.source = source
        self.host = host
        self.lines = lines
        self.problems = problems
        self.frags: dict[str, Frag] = {f.name: f for f in kernel.frags}
        self.buffers: dict[str, Buffer] = {**host.workspace, **{b.name: b for b in kernel.buffers}}
        self.barriers: dict[str, Barrier] = {b.name: b for b in kernel.barriers}
        self.cluster = host.clusters.get(kernel.name, 1)
        self.line = 0
        self.scope: set[str] = set()

    def problem(self, text: str) -> None:
        self.problems.append(Problem(self.line, text))

    def at(self, what: object) -> None:
        """The line that problems are reported at from now on."""
        self.line = self.lines.get(id(what), self.line)

    def declare(self, name: str, taken: set[str]) -> None:
        """A name that must be new."""
        if name in RESERVED:
            self.problem(f"{name} is a word of the text and no name")
        if name in taken:
            self.problem(f"{name} is declared twice")
        taken.add(name)

    # ---- names in expressions

    def rank_of(self, holder: str) -> int:
        """Axes of a fragment or buffer."""
        if holder in self.frags:
            return len(self.frags[holder].shape)
        return len(self.buffers[holder].shape) if holder in self.buffers else 0

    def dtype_of(self, holder: str) -> DType | None:
        """Of a fragment or buffer."""
        found = self.frags.get(holder) or self.buffers.get(holder)
        return None if found is None else found.dtype

    def known(self, expr: Expr, coordinates: int, extra: frozenset[str] = frozenset()) -> None:
        """Every symbol and function of an expression has a meaning here; `$0 .. $(coordinates - 1)` do."""
        for name in sorted(expr.symbols):
            if name.startswith("$"):
                if not name[1:].isdigit() or int(name[1:]) >= coordinates:
                    self.problem(f"{name} where there are {coordinates} coordinates")
            elif name not in self.scope and name not in extra:
                self.problem(f"{name} has no value here")
        for atom in expr.atoms():
            if isinstance(atom, Fn):
                self._function(atom)

    def _function(self, atom: Fn) -> None:
        if atom.name in self.frags:
            frag = self.frags[atom.name]
            if frag.dtype.is_float:
                self.problem(f"{atom.name} of {frag.dtype} is no index")
            rank = len(frag.shape)
        elif atom.name in self.source.values:
            rank = len(self.source.values[atom.name].type.axes)
        else:
            self.problem(f"no fragment or value {atom.name}")
            return
        if len(atom.args) != rank:
            self.problem(f"{atom.name} has {rank} axes and is indexed by {len(atom.args)}")

    def constraints(self, facts: Iterable[Constraint], coordinates: int, extra: frozenset[str] = frozenset()) -> None:
        """Names in a conjunction."""
        for fact in facts:
            self.known(fact.expr, coordinates, extra)
