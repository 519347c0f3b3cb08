"""Where an operation stands in a program: its path, the names that steps of a derivation use for it.

A path is numbers between dots: the operation's place in the body, then, for each level, the number of the nested block
and the place in it. `2.0.1` is the second operation of the first block of the third operation.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.ir.core import Block, Op, Program


def paths(program: Program) -> Iterator[tuple[str, Op]]:
    """Every operation with its path, outer before inner, in order.

    *Ensures*: `op_at(program, path) is op` for each pair.
    """
    yield from _paths(program.body, "")


def _paths(block: Block, before: str) -> Iterator[tuple[str, Op]]:
    for i, op in enumerate(block.ops):
        yield f"{before}{i}", op
        for n, inner in enumerate(op.blocks):
            yield from _paths(inner, f"{before}{i}.{n}.")


def op_at(program: Program, path: str) -> Op | None:
    """The operation at a path, None where there is none."""
    block: Block = program.body
    op: Op | None = None
    numbers = path.split(".")
    if len(numbers) % 2 == 0 or not all(n.isdigit() for n in numbers):
        return None
    for k, number in enumerate(map(int, numbers)):
        if k % 2 == 0:
            if number >= len(block.ops):
                return None
            op = block.ops[number]
        else:
            assert op is not None
            if number >= len(op.blocks):
                return None
            block = op.blocks[number]
    return op
