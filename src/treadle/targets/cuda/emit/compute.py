"""Elementwise statements, folds and contractions of registers.

Order of a fold: its axes one after another, ascending. Along an axis a thread first folds its own slots, in the order
of their coordinates, by halving: with `h` the largest power of two below their number, `x[i] (+) x[i + h]`. Then lanes,
the bit with the largest stride first: the lane without the bit gives the left operand, and both get the result. So a
fragment without a distribution is folded by halving alone, and one spread over lanes needs one exchange a bit and a
result. `acc` is the left operand of the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.algebra.expr import ZERO, Expr, const
from treadle.dtype.formats import f32
from treadle.machine.form import Compute, Fold, FragRef, MemRef, Mma, Operand, Scan
from treadle.machine.vocabulary import APPROXIMATE
from treadle.targets.cuda.emit.access import Pointer, filled, storage
from treadle.targets.cuda.emit.casts import bitcast, cast
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.exponent import LOG2_E, Scaled
from treadle.targets.cuda.emit.fragments import Layout
from treadle.targets.cuda.emit.halves import fetched
from treadle.targets.cuda.emit.narrow import kept_narrow
from treadle.targets.cuda.emit.scans import picked, scan
from treadle.targets.cuda.emit.scope import Scope, register
from treadle.targets.cuda.emit.shuffles import exchanged
from treadle.targets.cuda.emit.values import HALVES, Val, bits, ctype, number


def operand(scope: Scope, arg: FragRef, made: Layout, slot: int) -> Val:
    """A fragment operand at a slot of the destination: at its coordinates, else at the same element, or the scalar."""
    other = scope.layout(arg.name)
    if not other.frag.shape:
        return scope.read(arg.name, 0)
    env = scope.place(made, slot)
    if arg.coords is not None:
        return scope.read(arg.name, scope.source(arg.name, arg.coords, env))
    if other.frag.shape != made.frag.shape:
        raise ill_formed(f"{arg.name} of shape {other.frag.shape}", f"shape {made.frag.shape}")
    if other.slots == made.slots and other.parts == made.parts:
        return scope.read(arg.name, slot)
    found = other.find(made.coords(slot))
    if found is None:
        raise unsupported(
            f"{arg.name} and {made.frag.name} with different distributions",
            "one distribution",
            "distribute both fragments alike, or go through shared memory",
        )
    return scope.read(arg.name, found)


def _argument(scope: Scope, arg: Operand, made: Layout, slot: int) -> Val | None:
    """An operand's value; None for a number, which has no dtype of its own."""
    if isinstance(arg, FragRef):
        scalar = scope.setting.scalars.get(arg.name)
        return scalar if scalar is not None else operand(scope, arg, made, slot)
    if isinstance(arg, MemRef):
        memory = storage(scope, arg.name)
        if memory.halves:
            return fetched(scope, memory, arg, scope.point(made, slot))
        pointer = Pointer(scope, memory, arg, scope.point(made, slot))
        pointer.start()
        text = f"*{pointer.at(pointer.first)}"
        return Val(f"({text} != 0)" if memory.dtype.is_bool else text, memory.dtype)
    return None


def compute(scope: Scope, stmt: Compute) -> None:
    """`dst[$] = fn(args)`."""
    if id(stmt) in scope.setting.absorbed:
        return
    made = scope.layout(stmt.dst)
    if kept_narrow(scope, stmt, made):
        return
    fill = filled(stmt.fill, made)
    with scope.block("{"):
        if (scaled := scope.setting.scaled.get(id(stmt))) is not None:
            _exponentials(scope, stmt, made, scaled)
            return
        if stmt.fn == "div" and not stmt.where and _divide(scope, stmt, made):
            return
        moved = exchanged(scope, stmt, made) if stmt.fn == "pick" else None
        values: list[Val] = []
        for slot in range(made.count):
            value = moved[slot] if moved is not None else _value(scope, stmt, made, slot)
            if stmt.fill != "undef" and stmt.where:
                condition = scope.conditions(stmt.where, scope.point(made, slot))
                if condition is not None:
                    value = scope.setting.arith.apply("where", [Val(f"({condition})", value.dtype), value, fill])
            values.append(value)
        assign(scope, stmt.dst, values, [a for a in stmt.args if isinstance(a, FragRef)])


def _exponentials(scope: Scope, stmt: Compute, made: Layout, scaled: Scaled) -> None:
    """Exponentials of a multiply-add, log2 e in its factor and, once a different term, in its term."""
    terms: dict[str, str] = {}
    called = scope.use("exp2_approx")
    values: list[Val] = []
    for slot in range(made.count):
        term = operand(scope, scaled.term, made, slot).text
        if term not in terms:
            terms[term] = scope.head.fresh("shift")
            sign = "-" if scaled.minus else ""
            scope.line(f"const float {terms[term]} = {sign}({term}) * {number(LOG2_E, f32).text};")
        factor = operand(scope, scaled.factor, made, slot).text
        values.append(Val(f"{called}(fmaf({factor}, {number(scaled.number, f32).text}, {terms[term]}))", f32))
    assign(scope, stmt.dst, values, [scaled.factor, scaled.term])


SAME_DIVISOR = 4
"""Slots with one divisor from which on it is inverted once. (A division is some 16 instructions with a branch, a
product with its correction and the tests 5 or 6.)"""

CHAINS = 4
"""Accumulators of the tests: so many slots may be tested at a time."""


def _divide(scope: Scope, stmt: Compute, made: Layout) -> bool:
    """Divides several slots by one number of f32, correctly rounded as a division is."""
    dividend, divisor = stmt.args
    if made.frag.dtype != f32 or not isinstance(dividend, FragRef) or not isinstance(divisor, FragRef):
        return False
    if scope.setting.scalars.keys() & {dividend.name, divisor.name} or divisor.name == stmt.dst:
        return False
    groups: dict[str, list[int]] = {}
    for slot in range(made.count):
        groups.setdefault(operand(scope, divisor, made, slot).text, []).append(slot)
    if min(map(len, groups.values())) < SAME_DIVISOR or (dividend.name == stmt.dst and dividend.coords is not None):
        return False
    scope.use("quotient")
    signed = dividend.name not in scope.setting.unsigned
    for text, slots in groups.items():
        tops = {slot: operand(scope, dividend, made, slot).text for slot in slots}
        _quotients(scope, register(stmt.dst), text, tops, signed)
    return True


def _quotients(scope: Scope, array: str, divisor: str, tops: dict[int, str], signed: bool) -> None:
    """Slots divided by one number: by its reciprocal where no operand is out of the ordinary."""
    least = scope.head.fresh("least")
    lanes = min(CHAINS, len(tops))
    scope.line(f"u32 {least}[{lanes}] = {{{', '.join(['~0u'] * lanes)}}};")
    for i, top in enumerate(tops.values()):
        scope.line(f"not_small({top}, {least}[{i % lanes}]);")
        if signed:
            scope.line(f"not_small_below({top}, {least}[{i % lanes}]);")
    total = _sum(scope, [f"fabsf({top})" if signed else top for top in tops.values()])
    plain = " & ".join(f"ordinary_dividends({total}, {least}[{i}])" for i in range(lanes))
    with scope.block(f"if (ordinary_divisor({divisor}) & {plain}) {{", "} else {"):
        inverse = scope.head.fresh("inverse")
        scope.line(f"const float {inverse} = 1.0f / {divisor};")
        for slot, top in tops.items():
            scope.line(f"{array}[{slot}] = quotient({top}, {divisor}, {inverse});")
    scope.depth += 1
    for slot, top in tops.items():
        scope.line(f"{array}[{slot}] = {top} / {divisor};")
    scope.depth -= 1
    scope.line("}")


def _sum(scope: Scope, names: list[str]) -> str:
    """The sum by halving: the very additions of a fold of these slots, which the compiler then makes once."""
    while len(names) > 1:
        h = 1 << (len(names) - 1).bit_length() - 1
        for i in range(len(names) - h):
            total = scope.head.fresh("x")
            scope.line(f"const float {total} = ({names[i]} + {names[i + h]});")
            names[i] = total
        names = names[:h]
    return names[0]


def assign(scope: Scope, name: str, values: Sequence[Val], sources: Sequence[FragRef]) -> None:
    """Assigns all slots; by way of temporaries when the fragment itself is read at other slots."""
    made = scope.layout(name)
    moved = any(r.name == name and r.coords is not None for r in sources)
    if moved:
        held = scope.head.fresh("w")
        kind = ctype(made.frag.dtype)
        texts = [bits(v, scope.setting.prelude) if v.dtype in HALVES else v.text for v in values]
        scope.line(f"const {kind} {held}[{len(values)}] = {{{', '.join(texts)}}};")
        values = [Val(f"{held}[{i}]", made.frag.dtype) for i in range(len(values))]
    scope.assign(name, values)


def _low_bits_last(scope: Scope, expr: Expr) -> str:
    """An index expression whose number fits below all else that it adds up as `rest | number`: what is divided by a
    power of two then is seen to be the same for neighbours, and what is read with it is read once."""
    number = dict(expr.terms).get((), 0)
    rest = scope.symbols.text(expr - number)
    free = rest.by & -rest.by
    if rest.number is not None or number % free == 0:
        return scope.text(expr)
    high = scope.symbols.text(expr - number % free)
    return f"({high.text} | {number % free})"


def _value(scope: Scope, stmt: Compute, made: Layout, slot: int) -> Val:
    """The function's value at a slot."""
    out = made.frag.dtype
    prelude, arith = scope.setting.prelude, scope.setting.arith
    if stmt.fn == "index":
        if stmt.expr is None:
            raise ill_formed("index without an expression", "an expression")
        return Val(f"({ctype(out)})({_low_bits_last(scope, stmt.expr.substitute(scope.point(made, slot)))})", out)
    if stmt.fn == "pick":
        return picked(scope, stmt, made, slot)
    given = [_argument(scope, a, made, slot) for a in stmt.args]
    typed = [v.dtype for v in (given[1:] if stmt.fn == "where" else given) if v is not None]
    dtype = typed[-1] if typed else out
    args: list[Val] = []
    meaning = prelude.intrinsics.get(stmt.fn)
    for i, (raw, value) in enumerate(zip(stmt.args, given)):
        if value is None:
            assert isinstance(raw, int | float)
            value = number(raw, dtype if meaning is None else meaning.params[i].type.dtype)
        args.append(value)
    match stmt.fn:
        case "cast" | "cast.saturate":
            return cast(args[0], out, prelude, stmt.fn == "cast.saturate" or "saturate" in stmt.tags)
        case "bitcast":
            return bitcast(args[0], out, prelude)
        case _ if meaning is not None:
            text = meaning.text(f"cuda:{scope.setting.arch}")
            if text is None:
                raise unsupported(f"the intrinsic {meaning.symbol}", "a text of its author's for this target")
            called = prelude.define(meaning.symbol, text + "\n")
            result = Val(f"{called}({', '.join(a.text for a in args)})", meaning.result)
        case _:
            result = arith.apply(stmt.fn, args, APPROXIMATE in stmt.tags)
    if result.dtype != out:
        raise ill_formed(f"{stmt.fn} gives {result.dtype}", f"{out}, as {stmt.dst} is")
    return result


# ---- folds


def fold(scope: Scope, stmt: Fold) -> None:
    """`dst[$] = acc[$] (+) fold of src over its axes`."""
    made = scope.layout(stmt.dst)
    arith = scope.setting.arith
    with scope.block("{"):
        read = (
            scan(scope, stmt, made).__getitem__
            if isinstance(stmt, Scan)
            else _along(scope, stmt, made)
            if stmt.axes
            else _each(scope, stmt, made)
        )
        values: list[Val] = []
        for slot in range(made.count):
            value = read(slot)
            if stmt.acc is not None:
                value = arith.fold(stmt.monoid, operand(scope, stmt.acc, made, slot), value, stmt.nan)
            values.append(value)
        refs = [r for r in (stmt.src if not stmt.axes else None, stmt.acc) if r is not None]
        assign(scope, stmt.dst, values, refs)


def _each(scope: Scope, stmt: Fold, made: Layout) -> Callable[[int], Val]:
    """The source's element at each slot of the destination."""

    def read(slot: int) -> Val:
        return operand(scope, stmt.src, made, slot)

    return read


class _Folding:
    """The elements still to be folded: variables of the text by slot coordinates, and the thread parts of the axes."""

    def __init__(self, scope: Scope, stmt: Fold, made: Layout) -> None:
        self.scope = scope
        self.stmt = stmt
        self.kind = ctype(made.frag.dtype)
        self.dtype = made.frag.dtype
        self.parts = list(made.parts)
        self.live: dict[tuple[int, ...], str] = {}
        exact = stmt.monoid in ("max", "min") and stmt.nan == "propagate"
        self.pairs = scope.setting.narrow.get(made.frag.name) if exact else None
        self.slots = {made.slots[slot]: slot for slot in range(made.count)}
        for slot in range(made.count):
            self.live.setdefault(made.slots[slot], self._held(scope.read(made.frag.name, slot)))

    def _held(self, value: Val) -> str:
        if value.dtype in HALVES:
            name = self.scope.head.fresh("x")
            self.scope.line(f"{self.kind} {name} = {bits(value, self.scope.setting.prelude)};")
            return name
        return value.text

    def merge(self, a: str, b: str) -> str:
        """A variable with `a (+) b`."""
        value = self.scope.setting.arith.fold(self.stmt.monoid, Val(a, self.dtype), Val(b, self.dtype), self.stmt.nan)
        name = self.scope.head.fresh("x")
        text = bits(value, self.scope.setting.prelude) if self.dtype in HALVES else value.text
        self.scope.line(f"const {self.kind} {name} = {text};")
        return name

    def lanes(self, axis: int, name: str) -> None:
        """Folds across a bit of the lane number."""
        if not name.startswith("@lane"):
            raise unsupported(
                f"a fold over an axis of {self.stmt.src.name} that is spread over warps",
                "lanes and slots",
                "store the warps' parts to shared memory and load them after a barrier",
            )
        mask = 1 << int(name.removeprefix("@lane"))
        for at in sorted(self.live):
            own = self.live[at]
            wide = f"(u32){own}" if self.dtype.bits < 32 else own
            other = f"({self.kind})__shfl_xor_sync(~0u, {wide}, {mask})"
            self.live[at] = self.merge(own, other)
        self.parts[axis] = Expr(tuple((m, c) for m, c in self.parts[axis].terms if not (m and str(m[0]) == name)))

    def axis(self, axis: int) -> None:
        """Folds the axis away, in the order of the rule."""
        groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for at in sorted(self.live):
            groups.setdefault((*at[:axis], 0, *at[axis + 1 :]), []).append(at)
        for first, members in groups.items():
            names = [self.live.pop(m) for m in members]
            if (words := self._words(members)) is not None:
                names = self._halves(words)
            while len(names) > 1:
                h = 1 << (len(names) - 1).bit_length() - 1
                names = [self.merge(names[i], names[i + h]) if i + h < len(names) else names[i] for i in range(h)]
            self.live[first] = names[0]
        bits = [(c, str(m[0])) for m, c in self.parts[axis].terms if m]
        for _, name in sorted(bits, reverse=True):
            self.lanes(axis, name)
        self._check(axis)

    def _words(self, members: list[tuple[int, ...]]) -> list[str] | None:
        """The pairs that hold these elements and no others."""
        slots = [self.slots.pop(m, None) for m in members]
        if self.pairs is None or None in slots:
            return None
        words = sorted({s // 2 for s in slots if s is not None})
        return [f"{self.pairs}[{w}]" for w in words] if 2 * len(words) == len(slots) else None

    def _halves(self, words: list[str]) -> list[str]:
        """The elements of the one pair that pairs fold to. (A maximum does not care in which order it is taken.)"""
        called = self.scope.use(f"{self.stmt.monoid}_pairs")
        while len(words) > 1:
            h = 1 << (len(words) - 1).bit_length() - 1
            for i in range(len(words) - h):
                name = self.scope.head.fresh("x")
                self.scope.line(f"const u32 {name} = {called}({words[i]}, {words[i + h]});")
                words[i] = name
            words = words[:h]
        return [f"__uint_as_float({words[0]} << 16)", f"__uint_as_float({words[0]} & 0xffff0000u)"]

    def _check(self, axis: int) -> None:
        if self.parts[axis] != ZERO or any(at[axis] for at in self.live):
            raise unsupported(
                f"a fold over axis {axis} of {self.stmt.src.name}, whose distribution halving does not follow",
                "powers of two over lanes",
            )


def _along(scope: Scope, stmt: Fold, made: Layout) -> Callable[[int], Val]:
    source = scope.layout(stmt.src.name)
    if stmt.src.coords is not None or source.frag.dtype != made.frag.dtype:
        raise ill_formed(f"a fold of {stmt.src.name} into {stmt.dst}", "a whole fragment of one dtype")
    if source.short:
        raise unsupported(f"a fold over {source.frag.name}, which has slots outside its shape", "full slots")
    kept = [a for a in range(len(source.frag.shape)) if a not in stmt.axes]
    folding = _Folding(scope, stmt, source)
    for axis in sorted(stmt.axes):
        folding.axis(axis)
    if made.frag.shape and any(folding.parts[a] != p for a, p in zip(kept, made.parts)):
        raise unsupported(f"a fold of {stmt.src.name} into {stmt.dst} with another distribution", "that of the source")
    results = {tuple(at[a] for a in kept): name for at, name in folding.live.items()}

    def read(slot: int) -> Val:
        name = results.get(made.slots[slot])
        if name is None:
            raise unsupported(f"a fold of {stmt.src.name} into other slots of {stmt.dst}", "those of the source")
        return Val(name, made.frag.dtype)

    return read


# ---- contractions of registers


def multiply_add(scope: Scope, stmt: Mma) -> None:
    """`dst[$] = acc[$] + sum over the contracted $ of a * b`, one step a contribution, in order: fused, but for
    `muladd`."""
    made = scope.layout(stmt.dst)
    if not isinstance(stmt.a, FragRef) or not isinstance(stmt.b, FragRef):
        raise unsupported("an fma contraction that reads memory", "fragments")
    rank = len(made.frag.shape)
    arith, fused = scope.setting.arith, stmt.atom != "muladd"
    with scope.block("{"):
        values: list[Val] = []
        names: list[str] = []
        for slot in range(made.count):
            start = number(0, made.frag.dtype) if stmt.acc is None else operand(scope, stmt.acc, made, slot)
            names.append(scope.head.fresh("x"))
            scope.line(f"{ctype(made.frag.dtype)} {names[-1]} = {start.text};")
        for contracted in _grid(stmt.contracted):
            extra = {f"${rank + i}": const(k) for i, k in enumerate(contracted)}
            for slot, name in enumerate(names):
                env = scope.place(made, slot) | extra
                a, b = (_factor(scope, r, env) for r in (stmt.a, stmt.b))
                total = arith.multiply_add(a, b, Val(name, made.frag.dtype), fused)
                scope.line(f"{name} = {total.text};")
        values = [Val(n, made.frag.dtype) for n in names]
        scope.assign(stmt.dst, values)


def _factor(scope: Scope, ref: FragRef | MemRef, env: dict[str, Expr]) -> Val:
    assert isinstance(ref, FragRef)
    frag = scope.layout(ref.name).frag
    if not frag.shape:
        return scope.read(ref.name, 0)
    if ref.coords is None:
        raise ill_formed(f"the factor {ref.name} without coordinates", "coordinates")
    return scope.read(ref.name, scope.source(ref.name, ref.coords, env))


def _grid(extents: Sequence[int]) -> list[tuple[int, ...]]:
    points: list[tuple[int, ...]] = [()]
    for extent in extents:
        points = [(*p, k) for p in points for k in range(extent)]
    return points
