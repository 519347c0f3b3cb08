"""Prefixes along an axis of registers, and the element of another lane.

Digit by digit of the axis, the smallest stride first. The prefixes inside a block are there; the totals of the blocks
of a group are scanned, and what stands before a block is merged in front of all its prefixes. Blocks of one thread are
taken one after the other; those of lanes by doubling: each takes what the lane 1, 2, 4, ... before it has so far.
`acc` is the left operand of the last step. (What is before the first block is the identity, which changes no bit.)
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.expr import Expr
from treadle.algebra.monoids import MONOIDS
from treadle.machine.form import Compute, FragRef, Mode, Scan
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.fragments import Layout, part_text
from treadle.targets.cuda.emit.scope import Scope
from treadle.targets.cuda.emit.values import HALVES, Val, bits, ctype, number

Place = tuple[int, ...]


def scan(scope: Scope, stmt: Scan, made: Layout) -> list[Val]:
    """The values of all slots of the destination, but for `acc`."""
    source = scope.layout(stmt.src.name)
    if stmt.src.coords is not None or source.frag.dtype != made.frag.dtype or len(stmt.axes) != 1:
        raise ill_formed(f"a scan of {stmt.src.name} into {stmt.dst}", "a whole fragment of one dtype, one axis")
    if source.short or (source.parts, source.slots) != (made.parts, made.slots):
        raise unsupported(f"a scan of {stmt.src.name} into another distribution", "full slots, distributed alike")
    scanning = _Scanning(scope, stmt, source)
    for mode, radix in _digits(source, stmt.axes[0]):
        scanning.digit(mode, radix)
    return [Val(scanning.prefixes[place], made.frag.dtype) for place in made.slots]


def _digits(source: Layout, axis: int) -> list[tuple[Mode, int]]:
    """The digits of an axis, the smallest stride first, and what a digit of lanes counts in the lane number."""
    frag = source.frag
    if not frag.dist:
        return [(Mode("slot", frag.shape[axis], axis, 1), 0)]
    found: list[tuple[Mode, int]] = []
    radix = 1
    for mode in frag.dist:
        if mode.axis == axis and mode.size > 1:
            found.append((mode, radix))
        radix *= mode.size if mode.who == "lane" else 1
    found.sort(key=lambda d: d[0].stride)
    stride = 1
    for mode, _ in found:
        if mode.stride != stride or mode.who not in ("slot", "lane"):
            raise unsupported(f"a scan along axis {axis} of {frag.name}", "slots and lanes that count it")
        stride *= mode.size
    if stride != frag.shape[axis]:
        raise unsupported(f"a scan along axis {axis} of {frag.name}", "digits that count all of it")
    return found


class _Scanning:
    """Variables of the text by slot coordinates: the prefixes inside blocks, and the blocks' totals (by the coordinates
    of their first slot)."""

    def __init__(self, scope: Scope, stmt: Scan, source: Layout) -> None:
        self.scope, self.stmt = scope, stmt
        self.axis = stmt.axes[0]
        self.dtype = source.frag.dtype
        self.kind = ctype(self.dtype)
        self.identity = self._text(number(MONOIDS[stmt.monoid].identity(self.dtype), self.dtype))
        own: dict[Place, str] = {}
        for slot in range(source.count):
            own.setdefault(source.slots[slot], self._held(scope.read(source.frag.name, slot)))
        self.totals = dict(own)
        self.prefixes = dict.fromkeys(own, self.identity) if stmt.exclusive else dict(own)
        self.blocks: dict[Place, list[Place]] = {p: [p] for p in own}

    def digit(self, mode: Mode, radix: int) -> None:
        """Blocks become groups of `mode.size` blocks."""
        if mode.who == "lane":
            self._lanes(mode, radix)
        else:
            self._slots(mode)

    def _slots(self, mode: Mode) -> None:
        groups: dict[Place, list[Place]] = {}
        for place in sorted(self.totals):
            at = place[self.axis]
            first = at - at // mode.stride % mode.size * mode.stride
            groups.setdefault((*place[: self.axis], first, *place[self.axis + 1 :]), []).append(place)
        blocks, totals = self.blocks, self.totals
        self.blocks, self.totals = dict[Place, list[Place]](), dict[Place, str]()
        for first, members in groups.items():
            order = members[::-1] if self.stmt.reverse else members
            before = totals[order[0]]
            for block in order[1:]:
                alone = len(blocks[block]) == 1 and self.prefixes[block] == totals[block]
                after = self._merge(before, totals[block])
                for place in blocks[block]:
                    self.prefixes[place] = after if alone else self._merge(before, self.prefixes[place])
                before = after
            self.totals[first] = before
            self.blocks[first] = [p for block in members for p in blocks[block]]

    def _lanes(self, mode: Mode, radix: int) -> None:
        last = (mode.size - 1) * radix
        mine = f"(lane & {last})" if last != 31 else "lane"
        for block in sorted(self.totals):
            running = self.totals[block]
            step = 1
            while step < mode.size:
                other = self._from(running, step * radix)
                there = self._has(mine, step * radix, last)
                running = self._chosen(there, self._merge(other, running), running)
                step *= 2
            before = self._chosen(self._has(mine, radix, last), self._from(running, radix), self.identity)
            for place in self.blocks[block]:
                self.prefixes[place] = self._merge(before, self.prefixes[place])
            end = f"lane & ~{last}" if self.stmt.reverse else f"lane | {last}"
            self.totals[block] = self._shuffled("__shfl_sync", running, end)

    def _has(self, mine: str, step: int, last: int) -> str:
        """Whether there is a lane so many before this one in its group."""
        return f"{mine} <= {last - step}" if self.stmt.reverse else f"{mine} >= {step}"

    def _from(self, name: str, step: int) -> str:
        """What the lane so many before this one has."""
        return self._shuffled(f"__shfl_{'down' if self.stmt.reverse else 'up'}_sync", name, str(step))

    # ---- variables

    def _text(self, value: Val) -> str:
        return bits(value, self.scope.setting.prelude) if value.dtype in HALVES else value.text

    def _named(self, text: str) -> str:
        name = self.scope.head.fresh("x")
        self.scope.line(f"const {self.kind} {name} = {text};")
        return name

    def _held(self, value: Val) -> str:
        return self._named(self._text(value)) if value.dtype in HALVES else value.text

    def _merge(self, a: str, b: str) -> str:
        arith = self.scope.setting.arith
        return self._named(
            self._text(arith.fold(self.stmt.monoid, Val(a, self.dtype), Val(b, self.dtype), self.stmt.nan))
        )

    def _chosen(self, there: str, a: str, b: str) -> str:
        return self._named(f"({there}) ? {a} : {b}")

    def _shuffled(self, called: str, name: str, where: str) -> str:
        return self._named(shuffled(called, name, where, self.dtype.bits, self.kind))


def shuffled(called: str, name: str, where: str, width: int, kind: str) -> str:
    """The text of a shuffle of a value of `kind`."""
    wide = f"(u32)({name})" if width < 32 else name
    return f"({kind}){called}(~0u, {wide}, {where})"


def picked(scope: Scope, stmt: Compute, made: Layout, slot: int) -> Val:
    """The element of a fragment at coordinates that one lane of the warp holds, the same one for all its lanes."""
    (ref,) = stmt.args
    if not isinstance(ref, FragRef) or ref.coords is None:
        raise ill_formed("pick without coordinates", "a fragment and coordinates")
    source = scope.layout(ref.name)
    env = scope.place(made, slot)
    coords = [scope.symbols.decided(scope.symbols.replaced(c).substitute(env)) for c in ref.coords]
    for found in range(source.count):
        lane = _lane(source, found, coords)
        if lane is None:
            continue
        held = scope.read(ref.name, found)
        if lane == (0, 0):
            return held
        index, mask = lane
        kind = ctype(held.dtype)
        text = bits(held, scope.setting.prelude) if held.dtype in HALVES else held.text
        where = str(index) if mask == 31 else f"(lane & {31 & ~mask}) | {index}"
        return Val(shuffled("__shfl_sync", text, where, held.dtype.bits, kind), held.dtype)
    chosen = _by_warp(scope, ref.name, source, coords)
    if chosen is not None:
        return chosen
    raise unsupported(
        f"the element {ref.name}[{', '.join(map(str, ref.coords))}] of another lane",
        "a register and a lane that are the same for all lanes of a warp",
        "pick at coordinates that are numbers along axes over lanes",
    )


def _by_warp(scope: Scope, name: str, source: Layout, coords: Sequence[Expr]) -> Val | None:
    """The element of this thread's own registers that its warp number chooses; None where lanes choose."""
    text = ""
    for slot in range(source.count):
        tests: list[str] = []
        for part, constant, coord in zip(source.parts, source.slots[slot], coords):
            rest = coord - part
            if any(not s.startswith("@warp") for s in rest.symbols):
                return None
            if rest.constant is not None:
                tests += [] if rest.constant == constant else ["false"]
            else:
                base = rest.substitute(dict.fromkeys(rest.symbols, 0))
                tests.append(f"({part_text(rest - base)}) == {constant - (base.constant or 0)}")
        if "false" in tests:
            continue
        held = scope.read(name, slot)
        own = bits(held, scope.setting.prelude) if held.dtype in HALVES else held.text
        text = f"({' && '.join(tests) or 'true'}) ? {own} : ({text})" if text else own
    return Val(f"({text})", source.frag.dtype) if text else None


def _lane(source: Layout, slot: int, coords: Sequence[Expr]) -> tuple[int, int] | None:
    """The bits of the lane that has this element in this slot, and which bits they are; None if no lane has."""
    index = mask = 0
    for part, constant, coord in zip(source.parts, source.slots[slot], coords):
        lanes = Expr(tuple((m, c) for m, c in part.terms if m and str(m[0]).startswith("@lane")))
        rest = coord - (part - lanes) - constant
        if rest == lanes:
            continue  # every lane has its own
        left = rest.constant
        if left is None:
            return None
        for monomial, weight in sorted(lanes.terms, key=lambda t: -t[1]):
            bit = 1 << int(str(monomial[0]).removeprefix("@lane"))
            mask |= bit
            if left >= weight:
                left -= weight
                index |= bit
        if left:
            return None
    return index, mask
