"""Rows over lanes: tasks of warps or workgroups whose fragments are striped over their threads.

One decision makes them all: which dimension lies along the threads, in how wide a stripe. Where the guard bounds its
extent by the stripe a row is held in registers and read once; otherwise the engine sweeps over it, once a dependent
fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from treadle.analysis.uses import Uses
from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.machine.form import MachineProgram, Tasks
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.exchange import GroupLowering
from treadle.realise.frame import Frame
from treadle.realise.lanes import beside_rows, refuse_local, row_agent, striped
from treadle.realise.scans import ScanLowering
from treadle.realise.threads import Binding, assemble
from treadle.realise.tidy import without_idle


@dataclass(frozen=True)
class Stripe:
    """How a dimension lies along the threads: neighbours a lane, sweeps of a warp; `held`: a whole row at once;
    `exact`: and nothing beside it (the guard says that extent and width are equal), so no slot needs a mask; `lanes` of
    a warp, where the others have rows beside it."""

    vector: int
    rounds: int
    held: bool = False
    exact: bool = False
    lanes: int = 32

    def width(self, warps: int) -> int:
        """Coordinates that one fragment covers."""
        return self.lanes * warps * self.vector * self.rounds


def over_lanes(
    program: Program,
    choices: Choices,
    guard: Guard,
    target: str,
    stripes: Mapping[str, Mapping[str, Stripe]],
    *,
    warps: int,
    agents: int,
    workgroups: int,
    resident: int = 0,
    beside: Mapping[str, int] | None = None,
    elsewhere: frozenset[str] = frozenset(),
) -> MachineProgram:
    """The machine program of a plan whose tasks belong to agents of `warps` warps.

    `stripes`: task region -> dimension along its threads. `agents` agents make a workgroup (one, where an agent has
    several warps); `resident` workgroups should fit a multiprocessor (0: no matter). `beside`: dimensions
    beside the threads, of whose blocks a thread holds so many coordinates at once. Regions in `elsewhere` are left out.
    *Errors*: `realise/unsupported`.
    """
    kind = GroupLowering if warps > 1 else ScanLowering
    engine = kind(program, replace(choices, fuse=True), Uses(program), row_agent(warps), {}, frozenset[str]())
    engine.elsewhere = elsewhere
    for region, own in stripes.items():
        lanes = min((s.lanes for s in own.values()), default=32)
        engine.agents[region] = row_agent(warps, lanes)
        spread = {name: beside_rows(lanes, size) for name, size in (beside or {}).items()}
        spread |= {name: striped(lanes, warps, s.vector, s.rounds) for name, s in own.items()}
        rows = {name: 32 // lanes * size for name, size in (beside or {}).items()}
        widths = {name: s.width(warps) for name, s in own.items()}
        told = replace(
            choices,
            sweep={**choices.sweep, **rows, **widths},
            tile={**widths, **choices.tile},
            vector=(*choices.vector, *(n for n in own if n not in choices.vector)),
            fuse=True,
        )
        held, exact = (frozenset(n for n, s in own.items() if getattr(s, kind)) for kind in ("held", "exact"))
        engine.by_region[region] = (spread, held, exact, told)
    top = Frame([], block=program.body)
    engine.lower_block(program.body, top)
    refuse_local(engine, program)
    if any(not isinstance(s, Tasks) and type(s).__name__ != "Version" for s in top.body):
        raise NotLowered(
            doing=f"realising {program.name} over lanes",
            found="statements outside parallel regions",
            expected="a program of parallel regions",
            hint="the universal plan executes them by one thread",
        )
    over = "persistent" if warps > 1 else "warps"
    binding = Binding(over, 1 if warps > 1 else agents, 32 * warps, workgroups)
    machine = assemble(engine, top.body, guard, target, binding)
    if engine.contracted:
        for kernel in machine.kernels:
            without_idle(kernel)
    machine.numerics = engine.ledger()
    if resident:
        machine.host.launches = [replace(x, resident=resident) for x in machine.host.launches]
    return machine
