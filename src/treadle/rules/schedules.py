"""Schedules: ordinary functions made of rules. Each takes a derivation and gives a longer one.

Nothing here has a validator, for nothing here changes a program: what the rules record is validated.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.ir.core import Region
from treadle.ir.ops.access import Extract, Load
from treadle.rules.copies import dematerialise, distribute, recompute
from treadle.rules.derivation import Derivation
from treadle.rules.folds import factor
from treadle.rules.nests import fuse, split
from treadle.rules.refusals import NameUnknown, Overwritten
from treadle.rules.scopes import fuse_scopes


def tile(d: Derivation, at: str, sizes: Mapping[str, int]) -> Derivation:
    """The instances of a region in rectangles: blocks of each argument outside, their indices in one region inside.

    *Errors*: those of `split` and `fuse`.
    """
    inner: list[str] = []
    for arg, size in sizes.items():
        before = {op.name for op in _regions(d)}
        d = d.then(split, at, arg, size)
        inner += [op.name for op in _regions(d) if op.name not in before]
    for name in inner[:0:-1]:  # the last region that was made is the outermost
        d = d.then(fuse, name)
    return d


def split_k(d: Derivation, at: str, arg: str, size: int) -> Derivation:
    """A fold over chunks of `size` side by side, their results folded: `factor` by its usual name."""
    return d.then(factor, at, arg, size)


def stage(d: Derivation, tensor: str, at: str) -> Derivation:
    """Every load of a tensor in the body of the region `at`, made once in front of it.

    *Errors*: `rules/name` where there is none, and those of `distribute`.
    """
    region = _region(d, at)
    loads = [op.result.name for op in region.body.ops if isinstance(op, Load) and op.tensor.name == tensor]
    if not loads:
        raise _none(d, f"no load of {tensor} in {at}")
    for name in loads:
        d = d.then(distribute, name)
    return d


def inline(d: Derivation, value: str) -> Derivation:
    """A tile computed again wherever it is read, and so no tile any more.

    *Errors*: `rules/name` where nothing reads it, and those of `recompute`.
    """
    readers = [op.result.name for op in d.program.body.walk() if isinstance(op, Extract) and op.source.name == value]
    if not readers:
        raise _none(d, f"nothing reads {value}")
    for name in readers:
        d = d.then(recompute, name)
    return d


def fuse_siblings(d: Derivation, first: str, second: str) -> Derivation:
    """Two neighbouring regions as one, and what the first one writes for the second one not read back.

    *Errors*: those of `fuse_scopes`. Reads that may find something else stay.
    """
    return dematerialise_all(d.then(fuse_scopes, first, second), first)


def dematerialise_all(d: Derivation, at: str) -> Derivation:
    """What instances of the region `at` read of what they have just written, or read before, not read again: tiles that
    nothing reads then are gone.

    *Errors*: `rules/name`. Reads that may find something else stay.
    """
    for op in list(_region(d, at).body.ops):
        if isinstance(op, Load | Extract) and op.fill is None:
            try:
                d = d.then(dematerialise, op.result.name)
            except Overwritten:
                continue
    return d


def _regions(d: Derivation) -> list[Region]:
    return [op for op in d.program.body.walk() if isinstance(op, Region)]


def _region(d: Derivation, name: str) -> Region:
    found = next((op for op in _regions(d) if op.name == name), None)
    if found is None:
        raise _none(d, f"no region {name}")
    return found


def _none(d: Derivation, found: str) -> NameUnknown:
    return NameUnknown(
        doing=f"scheduling {d.start.name}", found=found, expected="a name of the program", hint="print the program"
    )
