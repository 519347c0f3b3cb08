"""Axes and places: which part of a dimension an axis stands for here, and where a statement of it can stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr, sym
from treadle.analysis.uses import Uses
from treadle.base.names import Names
from treadle.dtype.formats import DType
from treadle.ir.core import Op, Program, Region, RegionArg, Value
from treadle.machine import form
from treadle.machine.form import Claim
from treadle.machine.vocabulary import RESERVED, SYMBOLS
from treadle.realise.choices import Choices, LoweringBroken, NotLowered
from treadle.realise.frame import Frame, Got, PartKey, Parts, fragment_names, positions


class Axes(ABC):
    """The lowering engine, first part: axes, names, and the frames that statements go to."""

    def __init__(self, program: Program, choices: Choices, uses: Uses) -> None:
        self.program = program
        self.choices = choices
        self.uses = uses
        taken = {d.name for d in program.dims} | set(program.lets) | {t.name for t in program.tensors}
        taken |= {p.name for p in program.scalars} | RESERVED | set(SYMBOLS)
        self.args: dict[str, RegionArg] = {}
        for op in program.body.walk():
            if isinstance(op, Region):
                self.args.update({a.name: a for a in op.args})
        # Claims bind `c0, c1, ...` and `e0, e1, ...`: nothing else may have these names.
        taken |= set(self.args) | {f"{letter}{i}" for letter in "ce" for i in range(32)}
        self.parts = Parts(program, Names(taken))
        self.parameters = {p.value.name for p in program.scalars}
        self.made_in: dict[str, Frame] = {}
        self.claimed: dict[str, str] = {}
        self.keeping: set[str] = set()
        self.instance: dict[str, Expr] = {}
        """Arguments of regions around a value that is made outside them, at which it is made."""
        self.slots = 0

    @abstractmethod
    def index(self, expr: Expr, frame: Frame) -> Expr:
        """A source index expression as a machine expression."""

    # ---- axes

    def arg_of(self, part: Part) -> RegionArg | None:
        """The block argument whose part this is."""
        for arg in self.args.values():
            if arg.kind == "block" and part.dim is arg.domain.dim and part.lo == sym(f"{arg.name}.start"):
                return arg if part.hi == sym(f"{arg.name}.stop") else None
        return None

    def resolve(self, part: Part, frame: Frame) -> Part:
        """The part itself, or the domain of its argument where the argument is not bound here."""
        arg = self.arg_of(part)
        while arg is not None and frame.bound(arg.name) == 0:
            part = arg.domain
            arg = self.arg_of(part)
        return part

    def key(self, part: Part, frame: Frame) -> PartKey:
        """The part with its bounds in machine expressions."""
        part = self.resolve(part, frame)
        return part.dim, self.index(part.lo, frame), self.index(part.hi, frame)

    def single(self, part: Part, frame: Frame) -> bool:
        """Whether the part has exactly one coordinate (its lower bound)."""
        arg = self.arg_of(self.resolve(part, frame))
        if arg is not None and frame.bound(arg.name) == 1:
            return True
        return arg is None and part.extent.constant == 1

    def limit(self, part: Part, frame: Frame) -> int | None:
        """A constant that the extent of the part never exceeds."""
        arg = self.arg_of(self.resolve(part, frame))
        if arg is not None:
            return frame.bound(arg.name)
        return self.resolve(part, frame).extent.constant

    def room(self, part: Part, frame: Frame) -> Expr | None:
        """What the extent of the part never exceeds, as the host knows it, where `limit` knows no number."""
        arg = self.arg_of(self.resolve(part, frame))
        return None if arg is None else frame.room(arg.name)

    def free(self, parts: Sequence[Part], frame: Frame) -> list[PartKey]:
        """The axes that are neither single nor fixed by a lane of this frame."""
        found: list[PartKey] = []
        for part in parts:
            if not self.single(part, frame):
                key = self.key(part, frame)
                if frame.lane(key) is None and key not in found:
                    found.append(key)
        return found

    def coords(self, parts: Sequence[Part], frame: Frame) -> tuple[Expr, ...]:
        """The coordinates at which this frame stands along these axes.

        *Requires*: each is single or fixed by a lane.
        """
        out: list[Expr] = []
        for part in parts:
            key = self.key(part, frame)
            lane = frame.lane(key)
            if lane is None and not self.single(part, frame):
                raise LoweringBroken(
                    doing=f"lowering {self.program.name}",
                    found=f"axis {part} is not fixed where a value along it is needed",
                    expected="a nest over it",
                    pass_name="realise",
                )
            out.append(key[1] if lane is None else lane.coord)
        return tuple(out)

    # ---- where statements stand

    def target(self, frame: Frame, exprs: Sequence[Expr], gots: Sequence[Got], floor: Frame | None) -> Frame:
        """The outermost frame where a statement that mentions these can stand."""
        best = frame.owner(fragment_names(exprs))
        names = [g.source for g in gots if isinstance(g.source, str)]
        names += [n for e in exprs for n in e.functions]
        for name in names:
            made = self.made_in.get(name)
            if made is not None and made.depth > best.depth:
                best = made
        if floor is not None and floor.depth > best.depth:
            best = floor
        return best

    def floor(self, op: Op | None, frame: Frame) -> Frame:
        """The outermost frame to which a statement of `op` may move: where the source has it."""
        block = None if op is None else self.uses.home.get(id(op))
        found = None if block is None else frame.frame_of(block)
        return found or frame

    def slots_of(self, exprs: Sequence[Expr], frame: Frame) -> tuple[str, ...]:
        """Slots that expressions mention, in fragment order."""
        return frame.slot_order(fragment_names(exprs))

    def claim(self, value: Value, coords: Sequence[Expr], slots: Sequence[str], where: Sequence[Constraint]) -> Claim:
        """A claim in `$i` of a statement whose destination spans `slots`."""
        at = positions(slots)
        told = tuple((n, e) for n, e in self.instance.items() if n in self.uses.arguments(value))
        return Claim(
            value.name,
            tuple(c.substitute(at) for c in coords),
            tuple(w.substitute(at) for w in where),
            instance=told,
        )

    def fragment(self, hint: str, dtype: DType, slots: Sequence[str], frame: Frame, place: str = "register") -> str:
        """A new fragment that spans `slots`."""
        return self.parts.fragment(hint, dtype, tuple(frame.width(s) for s in slots), place)

    def append(self, stmt: form.Stmt, dst: str, dtype: DType, slots: tuple[str, ...], goal: Frame) -> Got:
        """Puts a statement in a frame and remembers where its destination lives."""
        goal.body.append(stmt)
        self.made_in[dst] = goal
        if isinstance(stmt.claim, Claim):
            self.claimed[dst] = stmt.claim.value
        return Got(dst, dtype, slots)

    def line(self, op: Op | None) -> int | None:
        """The source line of an operation."""
        return None if op is None or op.span is None else op.span.line

    def unsupported(self, op: Op, what: str) -> NotLowered:
        """The error for a form without a rule."""
        return NotLowered(
            doing=f"realising {self.program.name}",
            found=what,
            expected="a form that machine programs have",
            hint="write it with loads, stores, elementwise operations, folds and contractions",
            span=op.span,
        )
