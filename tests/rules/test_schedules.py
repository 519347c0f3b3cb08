"""Each schedule: ordinary functions made of rules, whose steps are all validated, and which mean the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treadle.checker.derivation import VALIDATORS, validate_derivation
from treadle.ir.core import Region
from treadle.ir.ops.access import Extract, Load
from treadle.rules import (
    RULES,
    Derivation,
    dematerialise_all,
    fuse_scopes,
    fuse_siblings,
    inline,
    schedules,
    split_k,
    stage,
    tile,
)
from treadle.rules.refusals import DependenceBroken, FormUnsupported, NameUnknown, NotFactored, Overwritten

from . import kernels


def regions(d: Derivation) -> list[tuple[str, list[str]]]:
    """Regions in order, with their arguments."""
    return [(op.name, [a.name for a in op.args]) for op in d.program.body.walk() if isinstance(op, Region)]


def made(kernel: object, schedule: Callable[[Derivation], Derivation]) -> Derivation:
    """What a schedule makes of a kernel: every step verified, and the same results."""
    d = schedule(Derivation(kernels.program(kernel)))
    assert d.steps and {v.status for v in validate_derivation(d.programs, d.steps)} == {"verified"}
    assert kernels.same(d.start, d.program)
    assert d.replay().to_json() == d.to_json()
    return d


def test_nothing_of_a_schedule_is_a_step() -> None:
    own = {n for n, f in vars(schedules).items() if getattr(f, "__module__", "") == schedules.__name__}
    assert {"tile", "split_k", "stage", "inline", "fuse_siblings", "dematerialise_all"} <= own
    assert not own & {*RULES, *VALIDATORS}


def test_tile() -> None:
    d = made(kernels.contract, lambda d: tile(d, "R0", {"m": 4, "n": 8}))
    assert [s.kind for s in d.steps] == ["split", "split", "fuse"]
    (outer, blocks), (inner, indices), *_ = regions(d)
    assert outer == "R0" and len(blocks) == len(indices) == 2 and inner != "R0"
    one = made(kernels.contract, lambda d: tile(d, "R0", {"n": 3}))
    assert [s.kind for s in one.steps] == ["split"]
    with pytest.raises(NameUnknown):
        tile(Derivation(kernels.program(kernels.contract)), "R0", {"z": 4})


def test_split_k() -> None:
    d = made(kernels.contract, lambda d: split_k(d, "R1", "k", 4))
    assert [s.kind for s in d.steps] == ["factor"] and len(regions(d)) == 3
    with pytest.raises(NotFactored):
        split_k(Derivation(kernels.program(kernels.recurrence)), "R0", "n", 4)


def test_stage() -> None:
    d = made(kernels.contract, lambda d: stage(d, "X", "R1"))
    assert [s.kind for s in d.steps] == ["distribute"]
    (r1,) = [op for op in d.program.body.walk() if isinstance(op, Region) and op.name == "R1"]
    assert [op.tensor.name for op in r1.body.ops if isinstance(op, Load)] == ["W"]
    with pytest.raises(NameUnknown, match="no load of Z in R1"):
        stage(d, "Z", "R1")
    with pytest.raises(NameUnknown, match="no region R9"):
        stage(d, "X", "R9")
    with pytest.raises(Overwritten):
        stage(Derivation(kernels.program(kernels.snapshots)), "Y", "R1")


def test_inline_recomputes_a_tile_wherever_it_is_read() -> None:
    d = made(kernels.tiles, lambda d: inline(d, "%T.2"))
    assert [s.kind for s in d.steps] == ["recompute"]
    assert [name for name, _ in regions(d)] == ["R1"]
    with pytest.raises(NameUnknown, match="nothing reads %T"):
        inline(d, "%T.2")
    with pytest.raises(FormUnsupported):
        inline(Derivation(kernels.program(kernels.neighbours)), "%T.2")


def test_fuse_siblings() -> None:
    d = made(kernels.siblings, lambda d: fuse_siblings(d, "R0", "R1"))
    assert [s.kind for s in d.steps] == ["fuse_scopes", "dematerialise"]
    assert [op.tensor.name for op in d.program.body.walk() if isinstance(op, Load)] == ["X"]
    with pytest.raises(DependenceBroken):
        fuse_siblings(Derivation(kernels.program(kernels.neighbours)), "R0", "R1")


def test_dematerialise_all() -> None:
    d = made(kernels.tiles, lambda d: dematerialise_all(d.then(fuse_scopes, "R0", "R1"), "R0"))
    assert [s.kind for s in d.steps] == ["fuse_scopes", "dematerialise"]
    assert not any(isinstance(op, Extract) for op in d.program.body.walk())
    start = Derivation(kernels.program(kernels.crossed))
    (region, _), *_ = regions(start)
    kept = dematerialise_all(start, region)  # a read of what another store may have changed stays
    loads = [sum(isinstance(op, Load) for op in x.program.body.walk()) for x in (start, kept)]
    assert loads[1] > 0 and loads[1] <= loads[0]
    with pytest.raises(NameUnknown):
        dematerialise_all(start, "R9")
