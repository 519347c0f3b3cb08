"""Frames: where lowering stands in the machine program, what is bound there, and where values can be found.

A frame is one body being written (a kernel, a task, an iteration). It knows the dimensions that enclosing nests have
fixed to a fragment's slots (lanes), the bounds of region arguments, and the places of values. A statement is put into
the outermost frame in which all that it mentions exists, so code that does not vary leaves its loop by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import (
    Constraint,
    Expr,
    ExprLike,
    Fn,
    Max,
    Min,
    Sym,
    as_expr,
    ceildiv,
    const,
    lt,
    maximum,
    minimum,
    of,
    sym,
)
from treadle.base.names import Names, identifier
from treadle.dtype.formats import DType
from treadle.ir.core import Block, Program, Value
from treadle.machine.form import Body, Buffer, Frag, FragRef, Number

PartKey = tuple[Dim, Expr, Expr]


@dataclass(frozen=True)
class Lane:
    """A part of a dimension fixed by a nest: slot `s` stands for coordinate `base + s`; `slot` is "" for a single one.

    `live` holds for the slots that exist (empty when all do). `deep`: the slots are contracted together by an atom, and
    stand behind all others in its operands.
    """

    part: PartKey
    base: Expr
    width: int = 1
    slot: str = ""
    live: tuple[Constraint, ...] = ()
    deep: bool = False
    digit: Expr | None = None
    """What a slot adds to the base, where several parts share its symbol: a digit of it."""

    @property
    def coord(self) -> Expr:
        """The coordinate, with the slot's symbol."""
        if self.digit is not None:
            return self.base + self.digit
        return self.base + sym(self.slot) if self.slot else self.base


@dataclass(frozen=True)
class Got:
    """A value's elements at hand: a fragment (or number) and the slots it spans, in its axes' order."""

    source: str | Number
    dtype: DType
    slots: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The fragment's name (Requires: not a number)."""
        assert isinstance(self.source, str)
        return self.source

    def element(self) -> Expr:
        """The integer fragment's element as an index expression, in slot symbols."""
        return of(Fn(self.name, tuple(sym(s) for s in self.slots)))


@dataclass(frozen=True)
class Digits:
    """One axis of a buffer: `(coord - origin)` of value axis `axis`, its `width`-panel, or its place in the panel; with
    `arg` the coordinate of that region argument, and no axis of the value."""

    axis: int
    origin: Expr
    size: Expr
    kind: str = "all"
    width: int = 1
    arg: str = ""


@dataclass(frozen=True)
class Kept:
    """A value's elements in a buffer. `axes`: the part of the value that is there, when it is not all of it."""

    buffer: str
    dtype: DType
    digits: tuple[Digits, ...]
    padded: frozenset[int] = frozenset()  # axes that are read and written whole, padding included
    fill: Number | None = None  # what that padding holds
    tiles: tuple[tuple[int, int], ...] = ()  # axes padded to whole tiles, with nothing of use in the padding
    axes: tuple[Part, ...] = ()

    def parts(self, value: Value) -> tuple[Part, ...]:
        """The axes of what is kept of a value."""
        return self.axes or value.type.axes

    def covered(self, coords: Sequence[Expr], frame: Frame) -> set[str]:
        """Slots that may be read and written beyond the value's end."""
        found = {s for a in self.padded for s in frame.slots_in(coords[a])}
        return found | {s for a, w in self.tiles for s in frame.slots_in(coords[a]) if w % frame.width(s) == 0}


@dataclass(eq=False)
class Frame:
    """One body being written."""

    body: Body
    parent: Frame | None = None
    block: Block | None = None
    env: dict[str, Expr] = field(default_factory=dict[str, Expr])
    bounds: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    rooms: dict[str, Expr] = field(default_factory=dict[str, Expr])  # extents never exceeded, where no number is known
    lanes: tuple[Lane, ...] = ()
    symbols: set[str] = field(default_factory=set[str])
    memo: dict[tuple[str, tuple[Expr, ...]], Got] = field(default_factory=dict[tuple[str, tuple[Expr, ...]], Got])
    places: dict[str, Kept] = field(default_factory=dict[str, Kept])
    barrier: bool = False
    in_tasks: bool = False

    @property
    def depth(self) -> int:
        """How many frames are around this one."""
        return 0 if self.parent is None else self.parent.depth + 1

    def chain(self) -> Iterator[Frame]:
        """This frame and those around it, innermost first."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.parent

    def child(self, body: Body, *, block: Block | None = None, barrier: bool = False) -> Frame:
        """A frame inside this one. A barrier hides this one's fragments (other agents execute it)."""
        return Frame(body, self, block, lanes=self.lanes, barrier=barrier, in_tasks=self.in_tasks or barrier)

    # ---- bindings

    def bind(self, name: str, value: Expr) -> None:
        """Gives a symbol of the source program its expression."""
        self.env[name] = value

    def subst(self, expr: Expr) -> Expr:
        """Source symbols replaced by machine expressions."""
        table: dict[str, ExprLike] = {}
        for name in expr.symbols:
            for frame in self.chain():
                if name in frame.env:
                    table[name] = frame.env[name]
                    break
        return expr.substitute(table) if table else expr

    def bound(self, arg: str) -> int | None:
        """The largest extent of a bound block argument; 0 when it is not bound here."""
        for frame in self.chain():
            if arg in frame.bounds:
                return frame.bounds[arg]
        return 0

    def room(self, arg: str) -> Expr | None:
        """What the extent of a block argument bound here never exceeds, as the host knows it, where it is no number."""
        return next((f.rooms.get(arg) for f in self.chain() if arg in f.bounds), None)

    def lane(self, key: PartKey) -> Lane | None:
        """The lane that fixes this part."""
        return next((x for x in self.lanes if x.part == key), None)

    def slot_order(self, slots: frozenset[str]) -> tuple[str, ...]:
        """Slots in the order of fragment axes."""
        return tuple(dict.fromkeys(x.slot for x in self.lanes if x.slot in slots))

    def slots_in(self, expr: Expr) -> list[str]:
        """Slots that an expression mentions."""
        return list(dict.fromkeys(x.slot for x in self.lanes if x.slot in expr.symbols))

    def width(self, slot: str) -> int:
        """How many values a slot symbol takes."""
        return next(x.width for x in self.lanes if x.slot == slot)

    def live(self, slots: Sequence[str]) -> tuple[Constraint, ...]:
        """What must hold for slots to exist."""
        return tuple(c for x in self.lanes if x.slot in slots or not x.slot for c in x.live)

    # ---- places

    def held(self, key: tuple[str, tuple[Expr, ...]]) -> Got | None:
        """The fragment that holds a value at these coordinates."""
        for frame in self.chain():
            if key in frame.memo:
                return frame.memo[key]
            if frame.barrier:
                return None
        return None

    def kept(self, name: str) -> tuple[Kept, Frame] | None:
        """The buffer of a value, and the frame that owns it."""
        for frame in self.chain():
            if name in frame.places:
                return frame.places[name], frame
        return None

    def owner(self, symbols: frozenset[str]) -> Frame:
        """The outermost frame in which all these machine symbols exist (below a barrier)."""
        for frame in self.chain():
            if frame.symbols & symbols or frame.barrier or frame.parent is None:
                return frame
        return self

    def frame_of(self, block: Block) -> Frame | None:
        """The frame that lowers a block, when it is around this one."""
        return next((f for f in self.chain() if f.block is block), None)


@dataclass(eq=False)
class Parts:
    """The pieces of the kernel being made: names, fragments, buffers."""

    program: Program
    names: Names
    frags: list[Frag] = field(default_factory=list[Frag])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    workspace: list[Buffer] = field(default_factory=list[Buffer])

    def fresh(self, hint: str) -> str:
        """A name that reads like `hint`."""
        return self.names.fresh(identifier(hint.lstrip("%"), "t"))

    def fragment(self, hint: str, dtype: DType, shape: tuple[int, ...], place: str = "register") -> str:
        """A new fragment."""
        name = self.fresh(hint)
        self.frags.append(Frag(name, dtype, shape, place=place))
        return name

    def tiles(self, lo: Expr, hi: Expr, width: int | Expr) -> Expr:
        """How many tiles of `width` cover `[lo, hi)`.

        A bound of 64 bits that is told when the program runs may be as large as they hold: it is compared with the
        others before anything is added to it.
        """
        bounds = ends(hi)
        wide = {f.name for f in self.frags if f.dtype.bits >= 64}
        wide |= {s.name for s in self.program.scalars if s.value.type.dtype.bits >= 64}
        told = [b for b in bounds if b.functions & wide]
        known = [b for b in bounds if not b.functions]
        if not known or not told:
            return minimum(*(ceildiv(b - lo, width) for b in bounds))
        rest = [ceildiv(b - lo, width) for b in bounds if not b.functions & wide]
        return minimum(*rest, ceildiv(minimum(*told, *known) - lo, width))

    def buffer(self, hint: str, dtype: DType, shape: tuple[Expr, ...], local: bool) -> str:
        """A new buffer, private to an agent or in the launch's workspace."""
        name = self.fresh(f"b_{identifier(hint.lstrip('%'), 't')}")
        made = Buffer(name, dtype, shape, "local" if local else "workspace")
        (self.buffers if local else self.workspace).append(made)
        return name


def positions(slots: Sequence[str]) -> dict[str, ExprLike]:
    """Slot symbols -> `$i` for a statement whose destination spans `slots`."""
    return {s: sym(f"${i}") for i, s in enumerate(slots)}


def fragment_names(exprs: Sequence[Expr]) -> frozenset[str]:
    """Symbols of expressions, slots among them, those inside fragment elements too."""
    return frozenset(a.name for e in exprs for a in e.atoms() if isinstance(a, Sym))


def reference(got: Got, slots: Sequence[str]) -> FragRef | Number:
    """An operand of a statement whose destination spans `slots`."""
    if not isinstance(got.source, str):
        return got.source
    if tuple(slots) == got.slots:
        return FragRef(got.source)
    return FragRef(got.source, tuple(sym(f"${list(slots).index(s)}") for s in got.slots))


def in_range(expr: Expr, lo: ExprLike, hi: ExprLike) -> tuple[Constraint, ...]:
    """`lo <= expr < hi`."""
    return (Constraint(expr - as_expr(lo)), lt(expr, hi))


def ends(hi: Expr) -> tuple[Expr, ...]:
    """The bounds that a minimum is made of: `x < min(a, b)` is `x < a` and `x < b`."""
    if len(hi.terms) == 1 and hi.terms[0][1] == 1 and len(hi.terms[0][0]) == 1:
        atom = hi.terms[0][0][0]
        if isinstance(atom, Min):
            return atom.args
    return (hi,)


def reached(lo: Expr, hi: Expr) -> Expr:
    """The end of a range that has an element: `max(b, lo)` is `b` there."""
    if len(hi.terms) == 1 and hi.terms[0][1] == 1 and len(hi.terms[0][0]) == 1:
        atom = hi.terms[0][0][0]
        if isinstance(atom, Max) and lo in atom.args:
            return maximum(*(a for a in atom.args if a != lo))
    return hi


def surely(constraint: Constraint) -> bool:
    """Whether a constraint holds whatever non-negative numbers the buffer coordinates are."""
    if constraint.equality:
        return constraint.expr == const(0)
    return all(
        c >= 0 and all(isinstance(a, Sym) and a.name.startswith("$") for a in monomial)
        for monomial, c in constraint.expr.terms
    )
