"""Plans that the tests of pictures draw, made once."""

from __future__ import annotations

import functools
from pathlib import Path

from treadle.driver.describe import described_plan
from treadle.machine.form import MachineProgram

FIRST = str(Path(__file__).resolve().parents[2] / "examples" / "first.py")
LIB = Path(__file__).resolve().parents[2] / "src" / "treadle" / "lib" / "attention.py"

LINEAR = ("X", "W", "bias", "Y")
NAMES = ("linear", "chain", "blocks", "rows", "stencil", "universal-gpu", "tiled", "sweep", "universal")


@functools.cache
def planned(name: str):
    """The plan of that name."""
    where, args, dims, target, family = {
        "linear": (f"{FIRST}:linear_gelu", [f"{a}=bf16" for a in LINEAR], "MNK", "cuda:sm_90a", None),
        "chain": (f"{LIB}:attention", [f"{a}=bf16" for a in "QKVY"], "", "cuda:sm_90a", None),
        "blocks": (f"{FIRST}:linear_gelu", [], "MNK", "cuda:sm_80", None),
        "rows": (f"{FIRST}:softmax", [], "MN", "cuda:sm_90a", None),
        "stencil": (f"{LIB.parent / 'stencils.py'}:blur", [], "", "cuda:sm_90a", None),
        "universal-gpu": (f"{FIRST}:softmax", [], "MN", "cuda:sm_90a", "universal"),
        "tiled": (f"{FIRST}:linear_gelu", [], "MNK", "cpu:avx512", None),
        "sweep": (f"{FIRST}:softmax", [], "MN", "cpu:avx2", None),
        "universal": (f"{FIRST}:softmax", [], "MN", "cpu:avx2", "universal"),
    }[name]
    extents = [f"{d}=2048" for d in dims]
    if name == "chain":
        extents = ["D=128", "Sq=2048", "Sk=2048", "B=2", "H=4"]
    return described_plan(where, args, [], extents, [], target, family)


def machine(name: str) -> MachineProgram:
    """Its machine program."""
    return planned(name).program


@functools.cache
def drawn(name: str) -> str:
    """Its page."""
    return planned(name).page()
