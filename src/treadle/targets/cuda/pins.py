"""Pins against a point of a CUDA family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.ir.ops.fold import Mma
from treadle.plan.pins import AtomPin, Pin, PlacePin, TilePin, VersionsPin
from treadle.targets.cuda.shape import Shape


def pins_refused(
    shape: Shape, cuts: Mapping[str, int], atom: str, versions: Mapping[str, int], pins: Sequence[Pin]
) -> list[str]:
    """The pins that a point does not meet, each with the fact that refuses it.

    `cuts`: "REGION.arg" -> block size; `atom`: the instruction of contractions; `versions`: tensor -> slots of a ring.
    """
    reasons: list[str] = []
    for pin in pins:
        match pin:
            case TilePin(sizes):
                for name, size in sizes.items():
                    reasons += _tile(shape, cuts, name, size)
            case AtomPin(value, wanted):
                named = [v.name for v in shape.uses.of_value.values() if value in (v.name, v.hint)]
                if any(isinstance(shape.uses.definition.get(n), Mma) for n in named):
                    if atom.split(".")[0] != wanted.split(".")[0]:
                        reasons.append(f"{value} is contracted by {atom}, not {wanted}")
            case VersionsPin(tensor, count):
                have = versions.get(tensor, 1)
                if have != count:
                    reasons.append(f"versions of blocks of {tensor}: {have}, not {count}")
            case PlacePin(value, where):
                if where != "register":
                    reasons.append(f"{value} lives in registers, not {where} memory")
    return reasons


def asked_for(versions: int, tensor: str, pins: Sequence[Pin]) -> int:
    """How many versions of a tensor's blocks a point has, or pins ask for in its place."""
    return next((p.count for p in pins if isinstance(p, VersionsPin) and p.tensor == tensor), versions)


def _tile(shape: Shape, cuts: Mapping[str, int], name: str, size: int) -> list[str]:
    found = {
        f"{shape.names[id(region)]}.{arg.name}"
        for region in shape.regions
        for arg in region.args
        if arg.kind == "block" and name in (arg.name, f"{shape.names[id(region)]}.{arg.name}")
    }
    if not found:
        return [f"no region has an open block {name}"]
    return [f"{key} is cut by {cuts.get(key, 1)}, not {size}" for key in sorted(found) if cuts.get(key, 1) != size]
