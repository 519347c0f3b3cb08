"""Contractions whose depth is shared out in one launch: stretches of all tiles, or of those that are left over."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import isinf
from random import Random
from re import sub
from typing import Any

import pytest
from tests.realise.texts import linear, program
from tests.targets.cuda.cuda_kit import clean, tried
from tests.targets.cuda.graphs import GRAPHS, known
from tests.targets.cuda.test_cuda_streams import halves, read

import treadle as td
from treadle import lib
from treadle.algebra.expr import const
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.machine.form import If, MachineProgram, Tasks, walk
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts, contiguous
from treadle.realise.choices import NotLowered
from treadle.realise.portions import Portions, left_over
from treadle.targets.cuda import shared_streams
from treadle.targets.cuda.shared_streams import SharedStreams, sharing

M, N, K = td.dims("M N K")
TARGET = "cuda:sm_90a"
FEW = ("processors=5",)


def facts_of(source: Program, sizes: dict[str, int], *features: str) -> CallFacts:
    found = contiguous(source, TARGET, sizes)
    return replace(found, features=frozenset({*found.features, *features}))


def built(source: Program, sizes: dict[str, int], point: dict[str, Any], *features: str) -> MachineProgram:
    family, facts = SharedStreams(), facts_of(source, sizes, *features)
    assert family.admits(source, facts) == []
    whole = {a.name: a.values[0] for a in family.axes(source, facts)} | {"staged": False, "raster": "row"} | point
    way = family.derivation(source, facts, whole)
    assert way is not None and all(v.status == "verified" for v in validate_derivation(way.programs, way.steps))
    machine = family.build(source, facts, whole, family.guard(source, facts, whole))
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    return machine


POINTS: dict[str, tuple[str, dict[str, int], dict[str, Any], tuple[str, ...]]] = {
    "all tiles, of two consumers": (
        "linear_bf16",
        {"M": 72, "N": 72, "K": 328},
        {"consumers": 2, "columns": 64, "step": 64, "versions": 2, "flight": 1, "parts": "2 shared"},
        (),
    ),
    "columns for rows": (
        "linear_bf16",
        {"M": 9, "N": 136, "K": 600},
        {"consumers": 1, "columns": 16, "step": 128, "versions": 2, "turned": True, "parts": "2 shared"},
        (),
    ),
    "those left over": (
        "linear_bf16",
        {"M": 72, "N": 200, "K": 200},
        {"consumers": 1, "columns": 64, "step": 64, "versions": 2, "parts": "2 of those left"},
        FEW,
    ),
}


@pytest.mark.parametrize("name", POINTS)
def test_shares_are_judged_run_and_assembled(name: str) -> None:
    kernel, sizes, point, features = POINTS[name]
    source = program(kernel)
    machine = built(source, sizes, point, *features)
    assert len(machine.host.launches) == 1 and len(machine.host.counters) == 1
    tried(machine, source, sizes)
    clean(machine)


def test_what_leaves_as_boxes_is_no_rest_for_the_last_one() -> None:
    """Its engine is waited for by threads, some of which have other tiles by then."""
    _, sizes, point, features = POINTS["those left over"]
    source = read(halves(linear("bf16")))
    built(source, sizes, point, *features)
    with pytest.raises(NotLowered, match="leaves by engines"):
        built(source, sizes, point | {"staged": True}, *features)


def test_clusters_fold_together() -> None:
    """A stretch a workgroup, some of them beyond the depth; each folds a slice of the columns."""
    source = program("linear_bf16")
    for sizes, point in (
        ({"M": 72, "N": 136, "K": 264}, {"columns": 64, "parts": "2 together"}),
        ({"M": 9, "N": 72, "K": 136}, {"columns": 32, "turned": True, "parts": "4 together"}),
    ):
        machine = built(source, sizes, {"consumers": 1, "step": 64, "versions": 2, **point})
        (launch,) = machine.host.launches
        assert launch.cluster == int(str(point["parts"])[0]) and not machine.host.workspace
        tried(machine, source, sizes)
        clean(machine)
        text = print_machine(machine)
        for pattern, new in (
            (r"@\(i\)", "@(0)"),
            (r"loop (k0\w*) = 0 \.\. ", r"loop \1 = 64 .. "),
            ("      sync cluster.arrive\n      sync cluster.wait\n", ""),
            (r"  K <= \d+\n", ""),
        ):
            changed = sub(pattern, new, text)
            assert changed != text, pattern
            assert check(parse_machine(changed)).status != "verified", pattern


@td.kernel
def gated(X: td.Tensor[M, K], U: td.Tensor[K, N], V: td.Tensor[K, N], Y: td.Out[M, N] = None):
    """Two sums along one depth."""
    for m, n in td.parallel(M, N):
        a, b = td.zeros(m, n), td.zeros(m, n)
        for k in td.reduce(K):
            x = X[m, k]
            a = td.mma(x, U[k, n], a)
            b = td.mma(x, V[k, n], b)
        Y[m, n] = (a * b).to(Y.dtype)


def test_shares_of_batches_and_of_several_sums() -> None:
    point = {"consumers": 1, "columns": 64, "step": 64, "versions": 2, "parts": "2 shared"}
    like = td.like(td.bf16, 8, 8, align=256)
    for kernel, args, sizes in (
        (gated, (like,) * 4, {"M": 72, "N": 72, "K": 136}),
        (lib.batched_matmul, (td.like(td.bf16, 2, 8, 8, align=256),) * 3, {"B": 3, "M": 72, "N": 72, "K": 136}),
    ):
        source = expand(kernel.program(*args))
        machine = built(source, sizes, point)
        tried(machine, source, sizes)


def test_wrong_shares_are_refused() -> None:
    source = program("linear_bf16")
    _, sizes, point, _ = POINTS["all tiles, of two consumers"]
    text = print_machine(built(source, sizes, point))
    wrong = (
        (r"of \(K \+ 255\) // 256 id", "of 2 id"),  # not all have come
        (r"loop i = 0 \.\.", "loop i = 1 .."),  # a stretch is left out
        (r"loop (k0\w*) = 256\*share \.\.", r"loop \1 = 0 .."),  # a stretch begins too early
        (r"store b_acc\[share, ", "store b_acc[0*share, "),
        (r"  K <= 1073741824\n", ""),
        (r"share < \(K \+ 255\) // 256", "share < 3"),
    )
    for pattern, new in wrong:
        changed = sub(pattern, new, text)
        assert changed != text, pattern
        assert check(parse_machine(changed)).status != "verified", pattern


def test_tiles_of_full_rounds_are_one_stretch() -> None:
    """Stretches of a tile are its depth, each contribution once; tiles of full rounds have one."""
    for rows, columns, length, workgroups in ((7, 5, 9, 4), (3, 4, 1000, 12), (5, 5, 300, 132), (1, 3, 17, 2)):
        first = left_over((const(rows), const(columns)), workgroups)
        portions = Portions(const(length), 128, first)
        whole = rows * columns // workgroups * workgroups
        for tile in range(rows * columns):
            number = portions.number([const(n) for n in divmod(tile, columns)])
            assert number.constant == (1 if tile < whole else -(-length // 128))
            seen: list[int] = []
            for i in range(number.constant):
                begin, before, end = (
                    min(length, int(e.evaluate({})))
                    for e in (
                        portions.begin(const(i)),
                        portions.before(const(i), number),
                        portions.end(const(i), number),
                    )
                )
                assert begin == before == len(seen)
                seen += range(begin, end)
            assert seen == list(range(length))


def test_points_are_declared_priced_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    source, family = program("linear_bf16"), SharedStreams()
    settings = {
        (512, 512, 8192): ["4 shared", "2 shared", "8 together", "4 together", "2 together"],
        (4096, 4352, 8192): ["8 of those left", "4 of those left"],
        (4096, 4096, 4096): [],  # nearly full rounds
        (4096, 4352, 256): [],  # too short
    }
    for sizes, wanted in settings.items():
        facts = facts_of(source, dict(zip("MNK", sizes, strict=True)))
        (axis,) = (a for a in family.axes(source, facts) if a.name == "parts")
        assert [v for v in axis.values if isinstance(v, str)] == wanted
        for setting in wanted:
            point = {a.name: a.values[0] for a in family.axes(source, facts)} | {"parts": setting}
            assert isinf(family.cost(source, facts, point).total)  # engines store nothing where all have arrived
            point |= {"staged": False, "raster": "row"}
            if "together" in setting:
                assert isinf(family.cost(source, facts, point).total)  # of one consumer
                point |= {"consumers": 1, "columns": 128}
            assert family.cost(source, facts, point).total < 2e-3
            assert sharing(point) == (int(setting.split()[0]), setting.partition(" ")[2])
    monkeypatch.setattr(shared_streams, "UNTIMED", 0.1)
    given = (td.like(td.bf16, 64, 8192), td.like(td.bf16, 8192, 1024), None, td.like(td.bf16, 64, 1024))
    plan = lib.linear.plan(*given, target=TARGET, where=td.tile(k=128))
    assert sharing(plan.decisions.point) is not None and plan.check().status == "verified"
    assert f"parts={plan.decisions.point['parts']}" in " ".join(plan.explain().split())


def test_no_point_is_beyond_pricing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is left over of tiles of whatever size, and clusters of more workgroups than there are processors."""
    source, settings = program("linear_bf16"), ("2 shared", "3 of those left", "8 together")
    monkeypatch.setattr(SharedStreams, "portions", lambda self, shape: settings)
    for sizes, few in (((132 * 64, 512, 4096), ()), ((512, 512, 8192), FEW), ((5 * 128, 64, 1 << 14), FEW)):
        family, facts = SharedStreams(), facts_of(source, dict(zip("MNK", sizes, strict=True)), *few)
        axes = {a.name: a.values for a in family.axes(source, facts)}
        axes |= {"staged": (False,), "raster": ("row",), "cluster": ("alone",), "parts": settings}
        times = [
            family.cost(source, facts, dict(zip(axes, values, strict=True))).total for values in product(*axes.values())
        ]
        assert min(times) > 0 and not isinf(min(times))


def test_only_arrivals_go_on() -> None:
    """What follows the products stands where the last one arrives, and every task of both roles is one stretch."""
    _, sizes, point, features = POINTS["those left over"]
    machine = built(program("linear_bf16"), sizes, point, *features)
    nests = [s for s in machine.statements() if isinstance(s, Tasks)]
    assert [n.vars for n in nests] == [nests[0].vars] * 2 and nests[0].counts[0] == nests[1].counts[0]
    assert sum(isinstance(s, If) and s.last is not None for s in walk(nests[1].body)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_are_shared_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any graph whose depth can be shared out, longer than it was drawn, on a machine of few processors."""
    settings = ("2 shared", "3 shared", "2 of those left", "2 together")
    family, rng = SharedStreams(), Random(seed)
    monkeypatch.setattr(SharedStreams, "portions", lambda self, shape: settings if self.shares_out(shape) else ())
    while True:
        drawn = rng.choice(GRAPHS["streams"])(rng)
        if "K" in drawn.sizes:
            drawn.sizes["K"] += 128
        facts = known(drawn, 256)
        facts = replace(facts, features=frozenset({*facts.features, "processors=3"}))
        if family.admits(drawn.program, facts):
            continue
        fixed = {"staged": (False,), "raster": ("row",), "cluster": ("alone",), "parts": settings}
        axes = {a.name: fixed.get(a.name, a.values) for a in family.axes(drawn.program, facts)}
        points = [{name: rng.choice(values) for name, values in axes.items()} for _ in range(40)]
        point = next((p for p in points if not isinf(family.cost(drawn.program, facts, p).total)), None)
        if point is not None:
            break
    machine = family.build(drawn.program, facts, point, family.guard(drawn.program, facts, point))
    assert check(machine).status == "verified", drawn.text
    tried(machine, drawn.program, drawn.sizes)
    clean(machine)
