"""Workgroups of a cooperative launch that meet inside loops: right ones, and what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.checker import meeting_products_text as products
from tests.checker.meeting_text import JOIN, MEET, STORES, WAIT, copied, text
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import try_machine
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda


def clean(machine_text: str, m: int, n: int, count: int) -> bool:
    """Whether schedules find nothing."""
    return try_machine(machine_text, "meetings", {"M": m, "N": n}, 0, count).clean


@pytest.mark.parametrize("trips", [0, 1, 2, 3])
def test_meetings_in_a_loop_of_any_number_of_trips(trips: int) -> None:
    verdict = check(parse_machine(text()))
    assert verdict.status == "verified", str(verdict)
    assert clean(text(), trips, 33, 1)


def test_pools_of_workgroups_and_warps_and_rows_of_a_grid() -> None:
    for pool in ("warps", "persistent"):
        other = text().replace("over threads", f"over {pool}")
        verdict = check(parse_machine(other))
        assert verdict.status == "verified", str(verdict)
        assert clean(other, 2, 5, 2)


def test_stores_of_iterations_are_kept_in_order() -> None:
    verdict = check(parse_machine(STORES))
    assert verdict.status == "verified", str(verdict)
    assert clean(STORES, 3, 40, 2)
    other = STORES.replace("load X[i, n] ; %x[n]", "load X[M - 1 - i, n] ; %x[n]")
    assert check(parse_machine(other)).status != "verified" and not clean(other, 3, 40, 2)


def test_copies_of_threads_between_meetings_in_a_loop() -> None:
    verdict = check(parse_machine(copied()))
    assert verdict.status == "verified", str(verdict)
    for m, n in ((0, 8), (2, 72)):
        assert clean(copied(), m, n, 2)


WRONG = {
    "copies not waited for": (copied(wait=""), True),
    # Of one warp the simulator sees one thread.
    "copies met, then waited for": (copied(wait="").replace(JOIN, JOIN + WAIT, 1), False),
    "copies of what others store": (copied(last=""), True),
    "not met before the loop": (text(first=""), True),
    "not met within": (text(middle=""), True),
    "not met before the next iteration": (text(last=""), True),
    "workgroups meet alone": (text(middle="sync barrier.sync (id = 0, threads = 32)\n"), True),
    "not cooperative": (text().replace(" cooperative", ""), True),
    "under a condition": (text(middle="if 1 <= i scope workgroup {\n  sync grid.sync\n}\n"), True),
    "as often as the workgroup says": (text(last=f"loop j = 0 .. cta step 1 {{\n  {MEET}}}\n"), True),
    "tickets, which are drawn once": (STORES.replace("over threads", "over tickets"), False),
    "stores not met": (STORES.replace("      sync grid.sync\n", ""), False),  # each thread has its elements
    "the wrong half": (text().replace("u_2 = load b_u[n1]", "u_2 = load b_v[n1]"), True),
    "stored in place": (text().replace("store b_v[n1] = s ; %v.3", "store b_u[n1] = s ; %v.3"), True),
    "registers behind a meeting": (
        text().replace("        v = load b_v[n3] ; %v.2[n3]\n", "").replace("store b_u[n3] = v", "store b_u[n3] = s"),
        True,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    wrong, seen = WRONG[name]
    assert wrong not in (text(), copied())
    verdict = check(parse_machine(wrong))
    assert verdict.status != "verified", str(verdict)
    assert not seen or not clean(wrong, 2, 72 if "cp.async" in wrong else 33, 8)


def test_no_mutant_is_accepted_and_wrong() -> None:
    machine = parse_machine(text())
    known, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::14]:
        if judged(mutant) != "verified" or executed(mutant.program) in known:
            continue
        known.add(executed(mutant.program))
        count += 1
        assert clean(print_machine(mutant.program), 2, 33, 1), str(mutant)
    assert count


@assembled
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_they_assemble(arch: str) -> None:
    emitted = emit(replace(parse_machine(copied()), target=f"cuda:{arch}"))
    assert compile_cuda(emitted.source, arch=emitted.arch, name="copied").kernels
    emitted = emit(parse_machine(text(arch=arch)))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="smooth")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert emitted.source.count("grid_meet(arrivals, ++met)") == 3 and not [m for m in compiled.messages if m.code]


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_products_between_meetings_in_a_loop(trips: int) -> None:
    told = products.text()
    verdict = check(parse_machine(told))
    assert verdict.status == "verified", str(verdict)
    assert try_machine(told, "products", {"M": trips, "R": 70, "N": 40}, 0, 1).clean


UNMET = {
    "products not waited for": (products.text(wait=""), "J2", True),
    "all products but one waited for": (products.text(wait=products.WAIT.replace("0", "1")), "J2", True),
    "waited for behind the use": (
        products.text(wait="").replace("      }\n      sync grid.sync\n      version b_a", products.WAIT + "      }\n      sync grid.sync\n      version b_a"),
        "J2",
        True,
    ),
    "operands without a fence": (products.text(fence=products.FENCE.splitlines(keepends=True)[1]), "J2", True),
    "operands of threads that have not met": (products.text(fence=products.FENCE.splitlines(keepends=True)[0]), "J2", True),
    "no meeting behind the products": (products.text(middle=""), "J2", False),
    "no meeting at the end": (products.text(last=""), "J2", False),
    "no meeting before the loop": (products.text(first=""), "J2", False),
    "another step's rows": (products.text().replace("load X[i, ", "load X[0, "), "J1", True),
}  # fmt: skip


@pytest.mark.parametrize("name", UNMET)
def test_wrong_products_between_meetings(name: str) -> None:
    """Of the ones without a meeting each workgroup has the same tiles in both nests, so that no run goes wrong."""
    told, judgement, seen = UNMET[name]
    verdict = check(parse_machine(told))
    assert (verdict.status, verdict.judgement) == ("rejected", judgement), str(verdict)
    if seen:
        assert not try_machine(told, "products", {"M": 3, "R": 70, "N": 70}, 0, 3).clean


def test_a_product_on_its_way_where_all_meet_is_refused() -> None:
    """Each task waits for the product of the one before it; of the last one nobody does before all meet."""
    told = products.text(wait="").replace("        xr = load", products.WAIT + "        xr = load")
    store = next(line for line in told.splitlines(keepends=True) if "store b_b" in line)
    verdict = check(parse_machine(told.replace(store, "")))
    assert verdict.status == "rejected" and "on its way" in verdict.reason, str(verdict)
