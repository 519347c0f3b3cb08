"""Groups of contracted elements as one 32-bit element: the operands of the dot-product instructions, pairs of bf16 and
fours of 8-bit integers.

A fragment whose last axis is such a group, and which only these atoms read, is kept as 32-bit elements without that
axis: a row of B is then an ordinary vector, and an element of A an ordinary broadcast. Its loads read the groups whole
where they are neighbours in memory, and interleave rows where they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treadle.algebra.expr import ONE, Expr, sym
from treadle.dtype.formats import DType, bf16, f32, i8, i32, u32
from treadle.machine.form import Body, Compute, Fold, Frag, FragRef, Load, MemRef, Mma, walk
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.fours import SUFFIX, factors
from treadle.targets.cpu.emit.index import Point, coordinate
from treadle.targets.cpu.emit.lanes import Vec
from treadle.targets.cpu.emit.layouts import reads
from treadle.targets.cpu.emit.owed import Fours
from treadle.targets.cpu.emit.places import Memory
from treadle.targets.cpu.emit.registers import Registers
from treadle.targets.cpu.emit.text import Int
from treadle.targets.cpu.instructions import CORRECTED, FEATURES, feature_of

GROUPS: dict[str, tuple[DType, int, DType]] = {"dpbf16": (bf16, 2, f32), "dpbssd": (i8, 4, i32)}
"""Atoms that contract groups: the dtype of the elements, how many, the accumulator's."""

_MEMBERS = {bf16: 2, i8: 4}


def paired(body: Body, frags: dict[str, Frag]) -> frozenset[str]:
    """Fragments that are kept as groups."""
    operands: set[str] = set()
    others: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Mma) and stmt.atom in GROUPS:
            operands |= {r.name for r in (stmt.a, stmt.b) if isinstance(r, FragRef)}
            continue
        others |= {name for name, _, _ in reads(stmt, frags)}
        if isinstance(stmt, Compute | Fold | Mma):
            others.add(stmt.dst)
    return frozenset(n for n in operands - others if frags[n].shape[-1:] == (_MEMBERS.get(frags[n].dtype),))


def narrowed(frag: Frag) -> Frag:
    """The fragment as groups."""
    return replace(frag, dtype=u32, shape=frag.shape[:-1])


def load_of_pairs(stmt: Load, memory: Memory, divide: Callable[[Int, int], Int]) -> tuple[Load, Memory] | None:
    """The load with groups for elements. `divide` divides a stride by a number that it is a multiple of. None where a
    group's elements are not neighbours in memory, active together: they are loaded apart, and interleaved."""
    rank, many = _rank(stmt), _MEMBERS[memory.dtype]
    behind = stmt.src.index[-1] - sym(coordinate(rank)) if stmt.src.index else ONE
    # Groups along a longer axis start at multiples of their size.
    whole = all(c % many == 0 for _, c in behind.terms) and memory.strides[-1:] == (1,)
    alone = all(coordinate(rank) not in e.symbols for e in stmt.src.index[:-1])
    alone = alone and all(coordinate(rank) not in x.symbols for x in (behind, *(c.expr for c in stmt.where)))
    if not whole or not alone or stmt.fill not in ("undef", 0, 0.0):
        return None
    strides = (*(divide(s, many) for s in memory.strides[:-1]), 1)
    view = replace(memory, dtype=u32, strides=strides, version_step=divide(memory.version_step, many))
    number = Expr(tuple((m, c // many) for m, c in behind.terms))
    source = replace(stmt.src, index=(*stmt.src.index[:-1], number))
    return replace(stmt, src=source, fill="undef" if stmt.fill == "undef" else 0), view


def _rank(stmt: Load) -> int:
    """The number of the group's coordinate: the last `$` of the load."""
    numbers = [int(s[1:]) for e in stmt.src.index for s in e.symbols if s.startswith("$")]
    return max(numbers, default=0)


def dot_product(registers: Registers, stmt: Mma, features: frozenset[str], fours: Fours) -> None:
    """`dst = acc + a * b` over groups, by the instruction."""
    _, many, into = GROUPS[stmt.atom]
    feature = feature_of(stmt.atom, features)
    if registers.frag(stmt.dst).dtype != into or len(stmt.contracted) != 1 or stmt.contracted[0] % many or not stmt.acc:
        raise unsupported(
            f"this {stmt.atom} contraction", f"one contracted coordinate, a multiple of {many}, into {into.name}"
        )
    if feature is None:
        raise unsupported(
            f"the atom {stmt.atom} without {' or '.join(FEATURES[stmt.atom])}",
            "a processor with that feature",
            "use the atom fma",
        )
    rank = len(registers.frag(stmt.dst).shape)
    if feature in CORRECTED:
        left, right = (_groups(registers, stmt.atom, ref, rank) for ref in factors(stmt, rank))
        fours.contract(stmt, left, right)
        return
    step = _STEPS[feature]
    a, b = (_groups(registers, stmt.atom, ref, rank) for ref in (stmt.a, stmt.b))
    points = registers.points(stmt.dst)
    totals = [registers.read(stmt.acc, p) for p in points]
    for k in range(0, stmt.contracted[0], many):
        for i, point in enumerate(points):
            whole = point.extended((k,))
            totals[i] = step(registers, totals[i], a(whole), b(whole))
    for point, total in zip(points, totals):
        registers.write(stmt.dst, point, total)


def _groups(registers: Registers, atom: str, ref: FragRef | MemRef, rank: int) -> Callable[[Point], Vec]:
    """Reads the groups of an operand: of a fragment of groups, or of one along whose elements the lanes run."""
    many, lane = GROUPS[atom][1], rank - 1
    in_lanes = sym(coordinate(lane)) * many + sym(coordinate(rank)) if rank else None
    if not isinstance(ref, FragRef) or ref.coords is None or in_lanes is None or ref.coords[-1] != in_lanes:
        groups = _operand(registers, atom, ref, rank)
        return lambda point: registers.read(groups, point)
    name, before = ref.name, ref.coords[:-1]
    used = [i for i in range(rank) if any(coordinate(i) in e.symbols for e in ref.coords)]
    seen: dict[tuple[int, ...], Vec] = {}

    def read(point: Point) -> Vec:
        n, key = point.lanes or 1, tuple(point.at[i] for i in used)
        if key not in seen:
            first = Point((*point.at[:lane], 0), lane, n)
            starts = [many * point.at[lane] + i * n for i in range(many)]
            parts = [registers.read_at(name, (*before, sym(coordinate(lane)) + at), first) for at in starts]
            while len(parts) > 1:
                whole = [*range(2 * (parts[0].lanes or 1))]
                parts = [registers.lanes.shuffle(a, b, whole) for a, b in zip(parts[::2], parts[1::2])]
            text = registers.fn.value(f"bitcast {parts[0].type} {parts[0].text} to <{n} x i32>")
            seen[key] = Vec(text, u32, n)
        return seen[key]

    return read


def _operand(registers: Registers, atom: str, ref: FragRef | MemRef, rank: int) -> FragRef:
    k: Expr = sym(coordinate(rank))
    if not isinstance(ref, FragRef) or ref.coords is None or ref.coords[-1] not in (k, k % GROUPS[atom][1]):
        raise unsupported(
            f"an operand of {atom} that is no fragment of groups", "a fragment with the group as last axis"
        )
    if registers.frag(ref.name).dtype != u32:
        raise unsupported(f"the operand {ref.name} of {atom}, used elsewhere too", "a fragment for this atom alone")
    return FragRef(ref.name, ref.coords[:-1])


def _pairs(registers: Registers, total: Vec, a: Vec, b: Vec) -> Vec:
    n = total.lanes
    if n not in SUFFIX:
        raise unsupported(f"dpbf16 on {n} columns", "a multiple of 16 columns")
    fn = registers.fn
    kind = f"<{2 * n} x bfloat>"
    pairs = [registers.lanes.splat(v, n) for v in (a, b)]
    bits = [fn.value(f"bitcast {v.type} {v.text} to {kind}") for v in pairs]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{SUFFIX[n]}"
    return replace(total, text=fn.call(total.type, name, [total.typed, *((kind, x) for x in bits)]))


_QUAD = 4


def _signed_fours(registers: Registers, total: Vec, a: Vec, b: Vec) -> Vec:
    """The instruction of aarch64, for vectors of four sums: both factors are signed."""
    n = total.lanes
    if n is None or n % _QUAD:
        raise unsupported(f"dpbssd on {n} columns", f"a multiple of {_QUAD} columns")
    fn, lanes = registers.fn, registers.lanes
    right, left = (lanes.splat(v, n) for v in (b, a))
    parts: list[Vec] = []
    for at in range(0, n, _QUAD):
        places = [*range(at, at + _QUAD)]
        one, *two = (lanes.shuffle(v, None, places) if n > _QUAD else v for v in (total, left, right))
        bits = [("<16 x i8>", fn.value(f"bitcast <4 x i32> {v.text} to <16 x i8>")) for v in two]
        name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
        parts.append(replace(one, text=fn.call("<4 x i32>", name, [("<4 x i32>", one.text), *bits])))
    while len(parts) > 1:
        whole = [*range(2 * (parts[0].lanes or 1))]
        parts = [lanes.shuffle(x, y, whole) for x, y in zip(parts[::2], parts[1::2])]
    return parts[0]


_STEPS = {"avx512_bf16": _pairs, "asimddp": _signed_fours}
