"""The families of CUDA, in the order in which `explain` lists them."""

from __future__ import annotations

from treadle.machine.form import MachineProgram
from treadle.plan.family import Family
from treadle.targets.cuda.blocks import Blocks
from treadle.targets.cuda.scanned import scanned_rows
from treadle.targets.cuda.shared_streams import SharedStreams
from treadle.targets.cuda.universal import Universal
from treadle.targets.cuda.warps import Warps


def families() -> list[Family[MachineProgram]]:
    """All families of the CUDA targets."""
    return [SharedStreams(), Warps(), Blocks(), scanned_rows(), Universal()]
