"""Regions of one program that different engines realise: their launches one after the other, in the program's order.

What crosses from one to the next is a tile of the program, which lies in the workspace. Each engine leaves the other
regions out (`LaneLowering.elsewhere`) and finds the tiles where they do: a tile's place hangs on the program alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.algebra.dims import Part
from treadle.machine.form import Buffer, Counter, Host, Kernel, Launch, MachineProgram, TensorMap
from treadle.realise.chained import chained
from treadle.realise.choices import NotLowered

ROW = 64
"""Elements of whole rows of any format that engines swizzle."""


def one_after_another(pieces: Sequence[MachineProgram]) -> MachineProgram:
    """The launches of machine programs of one program, each for regions of its own, those of a later one dependent.

    *Requires*: one guard, target and program. *Errors*: `realise/unsupported` where two engines disagree about a tile.
    """
    kernels: list[Kernel] = []
    launches: list[Launch] = []
    workspace: dict[str, Buffer] = {}
    maps: dict[str, TensorMap] = {}
    counters: dict[str, Counter] = {}
    for number, piece in enumerate(pieces):
        names = {k.name: k.name if number == 0 else f"{k.name}_{number}" for k in piece.kernels}
        kernels += [replace(k, name=names[k.name]) for k in piece.kernels]
        launches += [replace(x, kernel=names[x.kernel]) for x in piece.host.launches]
        for buffer in piece.host.workspace:
            if workspace.setdefault(buffer.name, buffer) != buffer:
                raise apart(piece, buffer.name)
        for one in piece.host.maps:
            if maps.setdefault(one.name, one) != one:
                raise apart(piece, one.name)
        for word in piece.host.counters:
            if counters.setdefault(word.name, word) is not word:
                raise apart(piece, word.name)
    first = pieces[0]
    host = Host(dict(first.host.lets), list(workspace.values()), list(maps.values()), launches, list(counters.values()))
    numerics = tuple(dict.fromkeys(line for p in pieces for line in p.numerics))
    return chained(MachineProgram(first.target, first.program, first.guard, host, kernels, numerics))


def between_launches(axes: Sequence[Part]) -> list[Part]:
    """The axes of a tile between launches as they lie in memory, which hangs on the program alone: as the program has
    them, but a fixed number of rows that an engine takes whole is contiguous where the last extent is any number."""
    fixed = [a for a in axes if (a.dim.extent.constant or 1) % ROW == 0]
    if not fixed or axes[-1].dim.extent.constant is not None:
        return list(axes)
    return [*(a for a in axes if a is not fixed[-1]), fixed[-1]]


def apart(piece: MachineProgram, name: str) -> NotLowered:
    """The error for storage that two engines know differently."""
    return NotLowered(
        doing=f"realising {piece.program.name} in several launches",
        found=f"{name} is another one in two of them",
        expected="one layout of every tile between launches",
        hint="another plan has to run this program",
    )
