"""Dependent launches: they wait before they touch memory, judged, simulated while both run, and assembled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_phases import apart, trials
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.machine.form import Body, MachineProgram, Sync, Tasks
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.realise.chained import chained
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda


def plain(family: str = "universal") -> MachineProgram:
    """Two launches of few workgroups, one after the other; the plan's own are a chain already."""
    machine = apart(family=family)
    kernels = [replace(k, roles=[replace(r, body=without(r.body)) for r in k.roles]) for k in machine.kernels]
    launches = [replace(x, grid=x.grid * 0 + 2, dependent=False) for x in machine.host.launches]
    return replace(machine, kernels=kernels, host=replace(machine.host, launches=launches))


def without(body: Body) -> Body:
    return [s for s in body if not (isinstance(s, Sync) and s.kind in ("grid.wait", "grid.release"))]


def second(machine: MachineProgram, body: Body) -> MachineProgram:
    """The program with another body in its second launch."""
    first, last = machine.kernels
    return replace(machine, kernels=[first, replace(last, roles=[replace(last.roles[0], body=body)])])


@pytest.mark.parametrize("family", ["universal", "rows"])
def test_a_chain_of_launches_is_verified(family: str) -> None:
    machine = chained(plain(family))
    assert [x.dependent for x in machine.host.launches] == [False, True]
    assert check(machine).status == "verified"
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)
    for m, n in ((3, 8), (2, 260)):
        assert not trials(machine, m, n, 8)


def test_families_make_chains_where_the_target_has_them() -> None:
    machine = apart(family="rows")
    assert [x.dependent for x in machine.host.launches] == [False, True]
    assert chained(replace(plain(), target="cuda:sm_80")) == replace(plain(), target="cuda:sm_80")


def test_a_dependent_launch_waits() -> None:
    machine = chained(plain())
    early = second(machine, without(machine.kernels[1].roles[0].body))
    found = check(early)
    assert (found.status, found.judgement) == ("rejected", "J2")
    assert trials(early, 2, 260, 12)


def test_it_waits_before_it_reads() -> None:
    machine = chained(plain())
    body = machine.kernels[1].roles[0].body
    late = second(machine, [*without(body), Sync(kind="grid.wait")])
    found = check(late)
    assert found.status == "rejected" and found.partner is not None, str(found)
    assert found.partner.text.startswith("store b_total"), str(found)
    assert trials(late, 2, 260, 12)


def test_a_wait_inside_the_tasks_is_none() -> None:
    """A workgroup without tasks would be over before the launch before it, for a launch behind both to see."""
    machine = chained(plain())
    body = [
        replace(s, body=[Sync(kind="grid.wait"), *s.body]) if isinstance(s, Tasks) else s for s in plain_body(machine)
    ]
    assert check(second(machine, body)).status == "unknown"


def plain_body(machine: MachineProgram) -> Body:
    return without(machine.kernels[1].roles[0].body)


def test_a_target_without_them_is_told() -> None:
    found = check(replace(chained(plain()), target="cuda:sm_80"))
    assert (found.status, found.judgement) == ("rejected", "J7")


def test_no_mutant_is_accepted_and_wrong() -> None:
    machine = chained(plain())
    seen, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[1::4]:
        if judged(mutant) != "verified" or executed(mutant.program) in seen:
            continue
        seen.add(executed(mutant.program))
        count += 1
        assert not trials(mutant.program, 2, 130, 4), mutant
    assert count


@assembled
def test_chains_assemble() -> None:
    emitted = emit(chained(plain("rows")))
    assert [x.dependent for x in emitted.launches] == [False, True]
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="centred_columns")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0, 0]
    assert not [m for m in compiled.messages if m.code]
