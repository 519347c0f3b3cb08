"""Pairs of 16-bit elements as one 32-bit element: the operands of the bf16 dot-product instruction.

A fragment whose last axis is a pair of contracted elements, and which only `dpbf16` reads, is kept as 32-bit elements
without that axis: a row of B is then an ordinary vector, and an element of A an ordinary broadcast. Its loads read the
pairs whole, so they must be neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treadle.algebra.expr import ONE, Expr, sym
from treadle.dtype.formats import bf16, f32, u32
from treadle.machine.form import Body, Compute, Fold, Frag, FragRef, Load, MemRef, Mma, walk
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.index import coordinate
from treadle.targets.cpu.emit.lanes import Vec
from treadle.targets.cpu.emit.layouts import reads
from treadle.targets.cpu.emit.places import Memory
from treadle.targets.cpu.emit.registers import Registers
from treadle.targets.cpu.emit.text import Int

ATOM = "dpbf16"
_SUFFIX = {16: "512", 8: "256", 4: "128"}


def paired(body: Body, frags: dict[str, Frag]) -> frozenset[str]:
    """Fragments that are kept as pairs."""
    operands: set[str] = set()
    others: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Mma) and stmt.atom == ATOM:
            operands |= {r.name for r in (stmt.a, stmt.b) if isinstance(r, FragRef)}
            continue
        others |= {name for name, _, _ in reads(stmt, frags)}
        if isinstance(stmt, Compute | Fold | Mma):
            others.add(stmt.dst)
    return frozenset(n for n in operands - others if frags[n].dtype == bf16 and frags[n].shape[-1:] == (2,))


def narrowed(frag: Frag) -> Frag:
    """The fragment as pairs."""
    return replace(frag, dtype=u32, shape=frag.shape[:-1])


def load_of_pairs(stmt: Load, memory: Memory, halve: Callable[[Int], Int]) -> tuple[Load, Memory]:
    """The load with pairs for elements. `halve` divides a stride, which is even, by two."""
    rank = _rank(stmt)
    behind = stmt.src.index[-1] - sym(coordinate(rank)) if stmt.src.index else ONE
    # Pairs along a longer axis start at even places.
    whole = all(c % 2 == 0 for _, c in behind.terms) and memory.strides[-1:] == (1,)
    alone = all(coordinate(rank) not in e.symbols for e in stmt.src.index[:-1])
    alone = alone and all(coordinate(rank) not in x.symbols for x in (behind, *(c.expr for c in stmt.where)))
    if not whole or not alone or stmt.fill not in ("undef", 0, 0.0):
        raise unsupported(
            f"the load of {stmt.dst} from {stmt.src.name}",
            "pairs that are neighbours in memory, active together, filled with 0",
            "interleave the pairs when packing: [K // 2, N, 2]",
        )
    strides = (*(halve(s) for s in memory.strides[:-1]), 1)
    view = replace(memory, dtype=u32, strides=strides, version_step=halve(memory.version_step))
    number = Expr(tuple((m, c // 2) for m, c in behind.terms))
    source = replace(stmt.src, index=(*stmt.src.index[:-1], number))
    return replace(stmt, src=source, fill="undef" if stmt.fill == "undef" else 0), view


def _rank(stmt: Load) -> int:
    """The number of the pair's coordinate: the last `$` of the load."""
    numbers = [int(s[1:]) for e in stmt.src.index for s in e.symbols if s.startswith("$")]
    return max(numbers, default=0)


def dot_product(registers: Registers, stmt: Mma, features: frozenset[str]) -> None:
    """`dst = acc + a * b` over pairs, by the instruction."""
    if registers.frag(stmt.dst).dtype != f32 or len(stmt.contracted) != 1 or stmt.contracted[0] % 2 or not stmt.acc:
        raise unsupported("this dpbf16 contraction", "one contracted coordinate of even extent into f32")
    if "avx512_bf16" not in features:
        raise unsupported("the atom dpbf16 without avx512_bf16", "a processor with that feature", "use the atom fma")
    rank = len(registers.frag(stmt.dst).shape)
    a, b = (_pair_operand(registers, ref, rank) for ref in (stmt.a, stmt.b))
    points = registers.points(stmt.dst)
    totals = [registers.read(stmt.acc, p) for p in points]
    for k in range(0, stmt.contracted[0], 2):
        for i, point in enumerate(points):
            whole = point.extended((k,))
            totals[i] = _step(registers, totals[i], registers.read(a, whole), registers.read(b, whole))
    for point, total in zip(points, totals):
        registers.write(stmt.dst, point, total)


def _pair_operand(registers: Registers, ref: FragRef | MemRef, rank: int) -> FragRef:
    k: Expr = sym(coordinate(rank))
    if not isinstance(ref, FragRef) or ref.coords is None or ref.coords[-1] not in (k, k % 2):
        raise unsupported("an operand of dpbf16 that is no fragment of pairs", "a fragment with the pair as last axis")
    if registers.frag(ref.name).dtype != u32:
        raise unsupported(f"the operand {ref.name} of dpbf16, used elsewhere too", "a fragment for this atom alone")
    return FragRef(ref.name, ref.coords[:-1])


def _step(registers: Registers, total: Vec, a: Vec, b: Vec) -> Vec:
    n = total.lanes
    if n not in _SUFFIX:
        raise unsupported(f"dpbf16 on {n} columns", "a multiple of 16 columns")
    fn = registers.fn
    kind = f"<{2 * n} x bfloat>"
    pairs = [registers.lanes.splat(v, n) for v in (a, b)]
    bits = [fn.value(f"bitcast {v.type} {v.text} to {kind}") for v in pairs]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{_SUFFIX[n]}"
    return replace(total, text=fn.call(total.type, name, [total.typed, *((kind, x) for x in bits)]))
