"""Pairs of workgroups that fetch what both need once: judged, simulated, assembled, priced."""

from __future__ import annotations

import pytest
from tests.realise.texts import attention, linear, program
from tests.targets.cuda.cuda_kit import clean, tried
from tests.targets.cuda.test_cuda_streams import SMALL, built, halves, read

from treadle.machine.form import Copy, Sync, Tasks
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.streams import Streams


@pytest.mark.parametrize(("along", "shared"), [("rows", "W"), ("columns", "X")])
def test_both_workgroups_fetch_a_half_of_what_both_need(along: str, shared: str) -> None:
    source = read(halves(linear("bf16", gelu=True)))
    machine = built(source, SMALL, columns=64, versions=2, cluster=along)
    sent = {s.src.name: s.multicast for s in machine.statements() if isinstance(s, Copy) and s.engine == "tma.load"}
    assert sent == {"X": 0, "W": 0} | {shared: 3}
    (launch,) = machine.host.launches
    assert launch.cluster == 2 and {s.over for s in machine.statements() if isinstance(s, Tasks)} == {"clusters"}
    given = [s.object for s in machine.statements() if isinstance(s, Sync) and s.kind == "mbar.arrive"]
    assert given and all(ref is not None and ref.rank == "all" for ref in given)
    tried(machine, source, SMALL, tolerance=1e-2)
    text = emit(machine).source
    assert "multicast::cluster" in text and "mapa.shared::cluster" in text and "barrier.cluster.arrive" in text
    assert emit(machine).launches[-1].cluster == 2


@pytest.mark.parametrize("along", ["rows", "columns"])
def test_turned_operands_and_batches_in_flight(along: str) -> None:
    text = linear("bf16").replace("X: bf16[M, K]", "X: bf16[K, M]")
    source = read(text.replace("bf16[m, k] = load X[m, k]", "bf16[k, m] = load X[k, m]"))
    machine = built(source, SMALL, columns=128, consumers=1, flight=1, staged=False, cluster=along)
    tried(machine, source, SMALL, tolerance=1e-3, seeds=2)
    clean(machine)


def test_pairs_save_traffic_and_cost_arrivals() -> None:
    source = program("linear_bf16")
    family, facts = Streams(), contiguous(source, "cuda:sm_90a", {"M": 4096, "N": 4096, "K": 4096})
    plan = choose(source, facts, [family]).plan
    assert plan.point["cluster"] == "alone"
    best = {c: family.cost(source, facts, {**plan.point, "cluster": c}) for c in ("alone", "rows", "columns")}
    assert all(best["alone"].total < best[way].total < 1.1 * best["alone"].total for way in ("rows", "columns"))


def test_attention_is_not_paired() -> None:
    source = read(attention("bf16"))
    facts = contiguous(source, "cuda:sm_90a", {"B": 1, "H": 2, "Q": 130, "S": 77, "D": 64})
    (axis,) = [a for a in Streams().axes(source, facts) if a.name == "cluster"]
    assert axis.values == ("alone",)
