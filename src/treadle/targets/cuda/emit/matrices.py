"""Operands of warps' contractions out of shared memory: four 8 x 8 matrices of 16-bit elements an instruction.

A register of a packed fragment whose pairs lie along one axis is a matrix: lane `l` holds row `l / 4`, columns
`2 (l % 4)` and the next; of elements of 32 bits, row `l / 4` and column `l % 4` of 8 x 4. `ldmatrix` takes from lane
`8 j + i` the address of line `i` of matrix `j`; a line is the matrix's row where memory runs along the pairs, else
(`.trans`, of 16-bit elements) its column. Everything else is loaded slot by slot.
"""

from __future__ import annotations

from treadle.algebra.expr import Expr, sym
from treadle.machine.form import Load
from treadle.targets.cuda.emit.access import Pointer, storage
from treadle.targets.cuda.emit.fragments import Layout, lane_bit, lane_rows
from treadle.targets.cuda.emit.scope import Scope, register

LINE = 16
"""Bytes of a line."""


def load_matrices(scope: Scope, stmt: Load) -> bool:
    """Loads a fragment by `ldmatrix`, or says that it does not lie so. Requires: the whole agent is here."""
    made, memory = scope.layout(stmt.dst), storage(scope, stmt.src.name)
    if memory.kind != "shared" or memory.dtype != made.frag.dtype or stmt.where or stmt.by or stmt.src.rank is not None:
        return False
    if made.registers % 4 or made.short or scope.lanes != 32 or len(made.parts) != 2:
        return False
    if not made.packed and made.frag.dtype.bits != 32:
        return False
    pair = 2 if made.packed else 1  # elements of a register
    axes = _axes(made, pair)
    groups = None if axes is None else [_steps(made, *axes, group, pair) for group in range(made.registers // 4)]
    if axes is None or groups is None or any(g is None for g in groups):
        return False
    row, column = axes
    warps = {row: made.parts[row] - lane_rows(), column: made.parts[column] - pair * _quad()}
    line = sym(lane_bit(0)) + sym(lane_bit(1)) * 2 + sym(lane_bit(2)) * 4
    for turned in (False, True) if made.packed else (False,):
        moving = column if turned else row
        along = row if turned else column
        pointers: list[Pointer] = []
        for group, steps in enumerate(groups):
            assert steps is not None
            slot = made.slots[4 * pair * group]
            env: dict[str, Expr] = {}
            for axis in (row, column):
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
                    registers = [f"{register(made.frag.name)}[{4 * group + j}]" for j in range(4)]
                    _take(scope, made, f"{called}(base + {pointers[0].shared(pointer.first)}, ", registers)
                    scope.setting.counts["LDSM"] += 1
            return True
    return False


def _take(scope: Scope, made: Layout, call: str, registers: list[str]) -> None:
    """The instruction, into registers that may be no words."""
    if made.element_type == "u32":
        scope.line(f"{call}{', '.join(registers)});")
        return
    words = [scope.head.fresh("w") for _ in registers]
    scope.line(f"u32 {', '.join(words)};")
    scope.line(f"{call}{', '.join(words)});")
    for name, word in zip(registers, words, strict=True):
        scope.line(f"{name} = {f'__uint_as_float({word})' if made.frag.dtype.is_float else f'(int){word}'};")


def _quad() -> Expr:
    return sym(lane_bit(0)) + sym(lane_bit(1)) * 2


def _axes(made: Layout, pair: int) -> tuple[int, int] | None:
    """The axes of rows and of columns (pairs of them), as one register of each lane has them."""
    for row, column in ((0, 1), (1, 0)):
        parts = made.parts[row] - lane_rows(), made.parts[column] - pair * _quad()
        if not any(name.startswith("@lane") for part in parts for name in part.symbols):
            step = tuple(b - a for a, b in zip(made.slots[0], made.slots[pair - 1], strict=True))
            if step[row] == 0 and step[column] == pair - 1:
                return row, column
    return None


def _steps(made: Layout, row: int, column: int, group: int, pair: int) -> dict[int, tuple[int, int]] | None:
    """How far the second and third of four registers are from the first, along each axis, where the fourth is as far as
    both together; None otherwise."""
    first = 4 * pair * group
    words = [made.slots[first + pair * j] for j in range(4)]
    for j, word in enumerate(words):
        after = made.slots[first + pair * j + pair - 1]
        if after[row] != word[row] or after[column] != word[column] + pair - 1:
            return None
    found: dict[int, tuple[int, int]] = {}
    for axis in (row, column):
        one, two = words[1][axis] - words[0][axis], words[2][axis] - words[0][axis]
        if words[3][axis] - words[0][axis] != one + two or one < 0 or two < 0:
            return None
        found[axis] = (one, two)
    return found


def _lines(scope: Scope, pointer: Pointer, stmt: Load, env: dict[str, Expr], along: int) -> bool:
    """Whether the elements of a line from the address on, along an axis, are neighbours at a multiple of 16 bytes."""
    memory = pointer.memory
    if scope.symbols.text(pointer.first * memory.itemsize + memory.start).by % LINE:
        return False
    for step in range(1, LINE // memory.itemsize):
        index = [i.substitute(env | {f"${along}": env[f"${along}"] + step}) for i in stmt.src.index]
        if (scope.symbols.resolve(memory.offset(index, pointer.version)) - pointer.first).constant != step:
            return False
    return True
