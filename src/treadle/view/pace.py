"""How long things take in a picture of a run: rough cycles of a model, for proportions only.

The order of a run does not depend on these numbers except where the program leaves it open; they make a timeline whose
bars have the right order of magnitude. *Source* of the GPU's: 2048 16-bit products a cycle and multiprocessor at the
dense peak of an H200, copies out of its L2 cache at 9 TB/s for 132 multiprocessors at 1.7 GHz, several hundred cycles
from issue to arrival. Of the CPU's: two vector operations a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from treadle.machine.form import (
    Body,
    Compute,
    Copy,
    Fold,
    Frag,
    If,
    Load,
    Loop,
    Mma,
    Role,
    Stmt,
    Store,
    Tasks,
    Version,
)
from treadle.view.facts import Scene, slots

PRODUCTS = 2048.0
COPIED = 40.0
LATENCY = 500.0
ISSUE = 4.0
_SLOW = ("exp", "exp2", "log", "log2", "erf", "tanh", "sin", "cos", "sigmoid", "div", "sqrt", "rsqrt", "pow")


class Pace:
    """Cycles of the statements of one kernel. `vector`: bits of a CPU's vectors, 0 on a GPU."""

    def __init__(self, frags: Mapping[str, Frag], scene: Scene, vector: int) -> None:
        self.frags = frags
        self.scene = scene
        self.vector = vector

    def statement(self, stmt: Stmt, role: Role) -> float:
        """Cycles for which the statement keeps its agent busy."""
        match stmt:
            case Load(dst=name) | Compute(dst=name) | Fold(dst=name) | Mma(dst=name):
                frag = self.frags[name]
            case Store(src=src):
                frag = self.frags[src.name]
            case _:
                return 0.0 if isinstance(stmt, Version) else 1.0
        if isinstance(stmt, Fold) and stmt.axes:
            frag = self.frags[stmt.src.name]
        weight = 4.0 if isinstance(stmt, Compute) and stmt.fn.split(".")[0] in _SLOW else 1.0
        if isinstance(stmt, Mma):
            weight *= math.prod(stmt.contracted)
        if self.vector:
            return max(0.5, weight * math.prod(frag.shape) * frag.dtype.bits / self.vector / 2)
        # Four schedulers: a statement on one slot takes a warpgroup one cycle.
        return max(1.0, weight * slots(frag) * max(1.0, role.threads / 128))

    def contraction(self, stmt: Mma) -> float:
        """Cycles of an asynchronous contraction on the tensor cores."""
        return math.prod(self.frags[stmt.dst].shape) * math.prod(stmt.contracted) / PRODUCTS

    def transfer(self, stmt: Copy, size: int) -> float:
        """Cycles for which a copy keeps its engine busy; it arrives `LATENCY` later."""
        return math.prod(stmt.box) * size / COPIED

    def body(self, body: Body, role: Role, env: Mapping[str, int]) -> float:
        """Cycles of a body in which nobody is waited for: its loops at their first iteration's cost."""
        total = 0.0
        for item in body:
            match item:
                case Stmt():
                    total += self.statement(item, role)
                case Loop():
                    lo, hi, step = (self.scene.number(e, env) for e in (item.lo, item.hi, item.step))
                    trips = max(0, -(-(hi - lo) // max(1, step)))
                    total += trips * self.body(item.body, role, {**env, item.var: lo}) if trips else 0.0
                case If():
                    total += max(self.body(item.then, role, env), self.body(item.orelse, role, env))
                case Tasks():
                    count = math.prod(max(0, self.scene.number(c, env)) for c in item.counts)
                    total += count * self.body(item.body, role, {**env, **dict.fromkeys(item.vars, 0)})
                case _:
                    pass
        return total
