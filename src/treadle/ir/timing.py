"""What may differ from run to run although every promise is kept: the old values of unordered atomic writes.

Which of several instances comes first is nobody's promise; neither is what is made from the answer. Where a value that
depends on it decides an address, a condition or a range, everything that is done there depends on it too.
"""

from __future__ import annotations

from treadle.ir.core import Block, If, Op, Program, Region
from treadle.ir.ops.access import Load, Store
from treadle.ir.rewrite import expressions


def unsettled_tensors(program: Program) -> set[str]:
    """Names of the tensors whose elements may depend on the order of unordered atomic writes.

    *Ensures*: no others do, as long as the promises of `parallel` are kept. Sums of floats, whose rounding depends on
    the order, are not meant.
    """
    tainted = _Tainted(program)
    while tainted.grew():
        pass
    return tainted.tensors


class _Tainted:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.values: set[str] = set()
        self.tensors: set[str] = set()

    def grew(self) -> bool:
        before = len(self.values) + len(self.tensors)
        self.block(self.program.body, False)
        return len(self.values) + len(self.tensors) > before

    def block(self, block: Block, control: bool) -> None:
        for op in block.ops:
            self.op(op, control)

    def op(self, op: Op, control: bool) -> None:
        names = {v.name for v in op.operands} | {n for e in expressions(op) for n in e.functions}
        mine = control or bool(names & self.values)
        match op:
            case Store():
                if op.effect != "set" and op.order == "unordered" and op.results:
                    self.values.add(op.result.name)
                # An atomic write of settled values settles, whoever comes first.
                if mine:
                    self.tensors.add(op.tensor.name)
            case Load():
                mine = mine or op.tensor.name in self.tensors
            case Region():
                self.region(op, control or any(n in self.values for n in self.ranges(op)))
                return
            case If():
                self.branches(op, control or op.cond.name in self.values)
                return
            case _:
                for inner in op.blocks:
                    self.block(inner, mine)
                    mine = mine or any(v.name in self.values for v in inner.yields)
        if mine:
            self.values |= {v.name for v in op.results}

    def ranges(self, op: Region) -> set[str]:
        bounds = [e for a in op.args for e in (a.domain.lo, a.domain.hi, *([] if a.size is None else [a.size]))]
        return {n for e in bounds for n in e.functions}

    def region(self, op: Region, control: bool) -> None:
        for init, carried in zip(op.inits, op.carried, strict=True):
            if control or init.name in self.values:
                self.values.add(carried.name)
        self.block(op.body, control)
        for carried, final, result in zip(op.carried, op.body.yields, op.results, strict=True):
            if final.name in self.values or carried.name in self.values:
                self.values |= {carried.name, result.name}

    def branches(self, op: If, control: bool) -> None:
        for block in op.blocks:
            self.block(block, control)
        for i, result in enumerate(op.results):
            if control or any(b.yields[i].name in self.values for b in op.blocks):
                self.values.add(result.name)
