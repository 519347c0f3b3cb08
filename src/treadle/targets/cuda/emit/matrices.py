"""Operands of warps' contractions out of shared memory: four 8 x 8 matrices of 16-bit elements an instruction.

A register of a packed fragment whose pairs lie along one axis is a matrix: lane `l` holds row `l / 4`, columns
`2 (l % 4)` and the next. `ldmatrix` takes from lane `8 j + i` the address of line `i` of matrix `j`; a line is the
matrix's row where memory runs along the pairs, else (`.trans`) its column. Everything else is loaded slot by slot.
"""

from __future__ import annotations

from treadle.algebra.expr import Expr, sym
from treadle.machine.form import Load
from treadle.targets.cuda.emit.access import Pointer, storage
from treadle.targets.cuda.emit.fragments import Layout, lane_bit, lane_rows
from treadle.targets.cuda.emit.scope import Scope, register

LINE = 8
"""Elements of a line, 16 bytes."""


def load_matrices(scope: Scope, stmt: Load) -> bool:
    """Loads a fragment by `ldmatrix`, or says that it does not lie so. Requires: the whole agent is here."""
    made, memory = scope.layout(stmt.dst), storage(scope, stmt.src.name)
    if memory.kind != "shared" or memory.dtype != made.frag.dtype or stmt.where or stmt.by or stmt.src.rank is not None:
        return False
    if not made.packed or made.registers % 4 or made.short or scope.lanes != 32 or len(made.parts) != 2:
        return False
    axes = _axes(made)
    groups = None if axes is None else [_steps(made, *axes, group) for group in range(made.registers // 4)]
    if axes is None or groups is None or any(g is None for g in groups):
        return False
    row, pair = axes
    warps = {row: made.parts[row] - lane_rows(), pair: made.parts[pair] - 2 * _quad()}
    line = sym(lane_bit(0)) + sym(lane_bit(1)) * 2 + sym(lane_bit(2)) * 4
    for turned in (False, True):
        moving = pair if turned else row
        along = row if turned else pair
        pointers: list[Pointer] = []
        for group, steps in enumerate(groups):
            assert steps is not None
            slot = made.slots[LINE * group]
            env: dict[str, Expr] = {}
            for axis in (row, pair):
                bits = warps[axis] + (line if axis == moving else 0)
                bits = bits + steps[axis][0] * sym(lane_bit(3)) + steps[axis][1] * sym(lane_bit(4))
                env[f"${axis}"] = scope.part(bits) + slot[axis]
            pointer = Pointer(scope, memory, stmt.src, env)
            if not _lines(scope, pointer, stmt, env, along):
                break
            pointers.append(pointer)
        if len(pointers) == len(groups):
            called = scope.use("load_matrix_4_turned" if turned else "load_matrix_4")
            with scope.block("{"):
                pointers[0].start()
                for group, pointer in enumerate(pointers):
                    words = ", ".join(f"{register(made.frag.name)}[{4 * group + j}]" for j in range(4))
                    scope.line(f"{called}(base + {pointers[0].shared(pointer.first)}, {words});")
                    scope.setting.counts["LDSM"] += 1
            return True
    return False


def _quad() -> Expr:
    return sym(lane_bit(0)) + sym(lane_bit(1)) * 2


def _axes(made: Layout) -> tuple[int, int] | None:
    """The axes of rows and of pairs of columns, as one register of each lane has them."""
    for row, pair in ((0, 1), (1, 0)):
        parts = made.parts[row] - lane_rows(), made.parts[pair] - 2 * _quad()
        if not any(name.startswith("@lane") for part in parts for name in part.symbols):
            step = tuple(b - a for a, b in zip(made.slots[0], made.slots[1], strict=True))
            if step[row] == 0 and step[pair] == 1:
                return row, pair
    return None


def _steps(made: Layout, row: int, pair: int, group: int) -> dict[int, tuple[int, int]] | None:
    """How far the second and third of four registers are from the first, along each axis, where the fourth is as far as
    both together; None otherwise."""
    first = LINE * group
    words = [made.slots[first + 2 * j] for j in range(4)]
    for j, word in enumerate(words):
        after = made.slots[first + 2 * j + 1]
        if after[row] != word[row] or after[pair] != word[pair] + 1:
            return None
    found: dict[int, tuple[int, int]] = {}
    for axis in (row, pair):
        one, two = words[1][axis] - words[0][axis], words[2][axis] - words[0][axis]
        if words[3][axis] - words[0][axis] != one + two or one < 0 or two < 0:
            return None
        found[axis] = (one, two)
    return found


def _lines(scope: Scope, pointer: Pointer, stmt: Load, env: dict[str, Expr], along: int) -> bool:
    """Whether eight elements from the address on, along an axis, are neighbours at a multiple of 16 bytes."""
    memory = pointer.memory
    if scope.symbols.text(pointer.first * memory.itemsize + memory.start).by % 16:
        return False
    for step in range(1, LINE):
        index = [i.substitute(env | {f"${along}": env[f"${along}"] + step}) for i in stmt.src.index]
        if (scope.symbols.resolve(memory.offset(index, pointer.version)) - pointer.first).constant != step:
            return False
    return True
