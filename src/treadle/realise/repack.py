"""Operands copied to a pitch that engines can take: launches before the one that contracts, through workspace.

A tensor whose rows begin anywhere cannot be copied by boxes. One pass over it by plain loads costs little beside a
contraction without engines: each warp copies a row, and fills it up with zeros to whole stripes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.analysis.uses import Uses
from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.machine.form import Buffer, Kernel, Launch
from treadle.realise.choices import Choices, Digit, Pack
from treadle.realise.frame import Frame
from treadle.realise.lanes import LaneLowering, row_agent, striped
from treadle.realise.ring import Tile
from treadle.realise.threads import Binding, assemble

STRIPE = 256
"""Elements of a row that a warp copies at a time: two neighbours a lane, four sweeps."""


@dataclass(frozen=True)
class Repacked:
    """Launches that copy tensors, the workspace they copy to, and where each tensor is then."""

    kernels: list[Kernel]
    launches: list[Launch]
    workspace: list[Buffer]
    places: dict[str, str]


def repacked(program: Program, tiles: Sequence[Tile], guard: Guard, target: str, *, workgroups: int) -> Repacked:
    """The copies of tensors of two axes, each with the outer axis of its tile first and the inner one last.

    *Requires*: a tile is a plain block of its tensor along both axes. *Errors*: `realise/unsupported`.
    """
    found = Repacked([], [], [], {})
    uses = Uses(program)
    for tile in tiles:
        outer, inner = tile.outer.dim.name, tile.inner.dim.name
        layout: tuple[Digit, ...] = ((outer, "all", 1), (inner, "all", 1))
        pack = Pack(tile.value.name, "", layout, ((inner, STRIPE),), wide=False, whole=((inner, STRIPE),))
        choices = Choices(tasks=frozenset({""}), packs=(pack,), vector=(inner,))
        engine = LaneLowering(program, choices, uses, row_agent(1), {inner: striped(32, 1, 2, STRIPE // 64)})
        for name in found.places.values():
            engine.parts.names.fresh(name)
        top = Frame([], block=program.body)
        engine.emit_pack(pack, top)
        machine = assemble(engine, top.body, guard, target, Binding("warps", 4, 32, workgroups))
        (kernel,), (launch,), (buffer,) = machine.kernels, machine.host.launches, machine.host.workspace
        kernel.name = f"repack{len(found.kernels)}"
        found.kernels.append(kernel)
        found.launches.append(Launch(kernel.name, launch.grid, launch.threads))
        found.workspace.append(buffer)
        found.places[tile.tensor] = buffer.name
    return found
