"""Contractions of warps: `mma.sync`, as many instructions as a warp holds pieces of 16 rows and 8 columns."""

from __future__ import annotations

from treadle.algebra.expr import Expr, sym
from treadle.dtype.formats import bf16, f16, f32, f64
from treadle.hardware.layouts import WARP_ATOMS
from treadle.machine.form import FragRef, Mma
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.fragments import lane_bit, lane_rows
from treadle.targets.cuda.emit.scope import Scope, register


def quad() -> Expr:
    """The lane's number among the four of a row."""
    return sym(lane_bit(0)) + sym(lane_bit(1)) * 2


def warp_contract(scope: Scope, stmt: Mma) -> None:
    """`dst = acc + a b` in every warp: as many instructions as the fragments hold."""
    made, pair = scope.layout(stmt.dst), WARP_ATOMS.get(stmt.atom, 0)
    if not isinstance(stmt.a, FragRef) or not isinstance(stmt.b, FragRef) or len(made.frag.shape) != 2:
        raise unsupported(f"{stmt.atom} with operands in memory", "fragments of a warp")
    a, b = scope.layout(stmt.a.name), scope.layout(stmt.b.name)
    double = stmt.atom.endswith(".f64")
    kinds = (bf16, f16) if pair == 2 else (f64,) if double else (f32,)
    if (
        not pair
        or made.frag.dtype != (f64 if double else f32)
        or a.frag.dtype != b.frag.dtype
        or a.frag.dtype not in kinds
    ):
        raise unsupported(
            f"{stmt.atom} of {a.frag.dtype} and {b.frag.dtype}", "operands of its format, a sum of f32 or f64"
        )
    if stmt.acc is not None and (stmt.acc.name != stmt.dst or stmt.acc.coords is not None):
        raise unsupported(f"{stmt.atom} onto {stmt.acc.name} into {stmt.dst}", "one accumulator")
    depth, each = stmt.contracted[0] if len(stmt.contracted) == 1 else 0, 8 * pair
    if not depth or depth % each or stmt.a.coords is None or stmt.b.coords is None:
        raise ill_formed(f"{stmt.atom} contracting {stmt.contracted}", f"one multiple of {each}, with coordinates")
    called = scope.use(f"mma_m16n8k{each}_{a.frag.dtype if pair == 2 or double else 'tf32'}")
    high, low = lane_rows(), quad()
    row_part, column_part = made.parts[0] - high, made.parts[1] - 2 * low
    if any("@lane" in n for part in (row_part, column_part) for n in part.symbols):
        raise unsupported(f"{stmt.dst} with its distribution", "the accumulators' distribution over warps")
    if stmt.acc is None:
        for i in range(made.count):
            scope.line(f"{register(stmt.dst)}[{i}] = 0.0f;")
    pieces = sorted({(s[0] // 16 * 16, s[1] // 8 * 8) for s in made.slots})
    lefts: dict[tuple[int, int], list[str]] = {}
    rights: dict[tuple[int, int], list[str]] = {}
    for step in range(0, depth, each):
        for row, column in pieces:
            own = [made.by_coords[(row + 8 * h, column + c)] for h in (0, 1) for c in (0, 1)]
            if (row, step) not in lefts:
                lefts[row, step] = [
                    _word(scope, stmt.a, {"$0": row_part + high + row + 8 * (j & 1)}, low, j >> 1, pair, step)
                    for j in range(4)
                ]
            if (column, step) not in rights:
                rights[column, step] = [
                    _word(scope, stmt.b, {"$1": column_part + high + column}, low, j, pair, step) for j in range(2)
                ]
            out = ", ".join(f"{register(stmt.dst)}[{s}]" for s in own)
            scope.line(f"{called}({out}, {', '.join(lefts[row, step] + rights[column, step])});")
            scope.setting.counts["DMMA" if double else "HMMA"] += 4 if double else 1


def _word(scope: Scope, ref: FragRef, env: dict[str, Expr], low: Expr, half: int, pair: int, step: int) -> str:
    """The register with the lane's neighbours along the depth, in the first or second half of it."""
    assert ref.coords is not None
    depth = [pair * low + 4 * pair * half + h + step for h in range(pair)]
    slots = [scope.source(ref.name, ref.coords, env | {"$2": k}) for k in depth]
    if scope.layout(ref.name).frag.dtype == f64:
        return f"{register(ref.name)}[{slots[0]}]"
    if pair == 1:
        return f"__float_as_uint({register(ref.name)}[{slots[0]}])"
    if slots[0] % 2 or slots[1] != slots[0] + 1 or not scope.layout(ref.name).packed:
        raise unsupported(f"the register operand {ref.name} in this distribution", "contracted pairs in a word")
    return f"{register(ref.name)}[{slots[0] // 2}]"
