"""Cooperative launches: workgroups that meet, judged phase by phase, simulated whole, and assembled."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.marks import assembled

import treadle as td
from treadle.algebra.expr import const
from treadle.checker import check
from treadle.driver.candidates import families
from treadle.driver.kernel import Kernel
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import close_enough, expected
from treadle.dtype.formats import f32
from treadle.ir.expand import expand
from treadle.machine.form import Launch, MachineProgram, Sync, Tasks, walk
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.simulate.run import run_schedules
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda

TARGET = "cuda:sm_90a"
M, N = td.dims("M N")


@td.kernel
def centred_columns(X: td.Tensor[M, N], Y: td.Out[M, N]):
    total = td.empty(N, dtype=f32)
    for n in td.parallel(N):
        total[n] = X[M, n].sum(M)
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n] - total[n]


def apart(kernel: Kernel = centred_columns, family: str = "universal") -> MachineProgram:
    """The plan of a family: a launch for each nest."""
    program = expand(kernel.definition.capture({"X": f32, "Y": f32}, {}, extents={}))
    facts = contiguous(program, TARGET, {"M": 256, "N": 256})
    found = [f for f in families(TARGET) if f.name == family]
    best = choose(program, facts, found).best
    return found[0].build(program, facts, best.plan.point, best.plan.guard)


def together(machine: MachineProgram, grid: int = 3, meet: bool = True) -> MachineProgram:
    """The same work in one cooperative launch, whose workgroups meet between the nests."""
    first = machine.kernels[0]
    (role,) = first.roles
    body = list(role.body)
    for kernel in machine.kernels[1:]:
        body += [Sync(kind="grid.sync")] if meet else []
        body += kernel.roles[0].body
    body = [s for s in body if not (isinstance(s, Sync) and s.kind in ("grid.wait", "grid.release"))]
    frags = [f for k in machine.kernels for f in k.frags]
    one = replace(first, roles=[replace(role, body=body)], frags=frags)
    threads = role.agents * role.threads
    launch = Launch(first.name, const(grid), threads, cooperative=True)
    return replace(machine, kernels=[one], host=replace(machine.host, launches=[launch]))


def arguments(m: int, n: int) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    x = np.random.default_rng(m * n).integers(-4, 5, (m, n)).astype(np.float32)
    return {"X": x, "Y": np.full_like(x, np.nan)}, {"M": m, "N": n}


def trials(machine: MachineProgram, m: int, n: int, count: int) -> list[str]:
    """What goes wrong under `count` schedules."""
    arrays, extents = arguments(m, n)
    want = expected(machine, arrays, {}, extents)
    return [what for _, what in run_schedules(machine, arrays, count, 0, expected=want, same=close_enough).failures]


@pytest.mark.parametrize("family", ["universal", "rows"])
def test_nests_of_one_launch_that_meet_are_verified(family: str) -> None:
    machine = together(apart(family=family))
    assert len([s for s in machine.statements() if isinstance(s, Sync)]) == 1
    assert check(machine).status == "verified"
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)
    assert check(parse_machine(print_machine(machine))).status == "verified"
    for m, n in ((3, 8), (2, 516)):
        assert not trials(machine, m, n, 4)


def test_without_a_meeting_nests_are_not_ordered() -> None:
    machine = together(apart(), meet=False)
    found = check(machine)
    assert found.status == "rejected" and found.partner is not None, str(found)
    assert found.partner.text.startswith("store b_total"), str(found)
    assert trials(machine, 2, 260, 20)


def test_a_meeting_needs_a_cooperative_launch() -> None:
    machine = together(apart())
    alone = replace(machine.host.launches[0], cooperative=False)
    machine = replace(machine, host=replace(machine.host, launches=[alone]))
    found = check(machine)
    assert (found.status, found.judgement) == ("rejected", "J5")
    assert "may wait for others to end" in found.reason
    assert trials(machine, 1, 260, 4)


def test_registers_are_not_known_behind_a_meeting() -> None:
    """What a thread held before a meeting is its own, but who does which task behind it is another matter."""
    machine = together(apart())
    body = machine.kernels[0].roles[0].body
    first, second = (s for s in body if isinstance(s, Tasks))
    stale = [s for s in second.body if getattr(s, "dst", None) != "total"]
    assert len(stale) == len(second.body) - 1
    changed = [replace(s, body=stale) if s is second else s for s in body]
    (role,) = machine.kernels[0].roles
    kernel = replace(machine.kernels[0], roles=[replace(role, body=changed)])
    assert check(replace(machine, kernels=[kernel])).status != "verified"
    assert any(isinstance(s, Tasks) for s in walk([first]))


def test_a_meeting_in_tasks_that_some_have_more_of_is_refused() -> None:
    machine = together(apart())
    (role,) = machine.kernels[0].roles
    tasks = next(s for s in role.body if isinstance(s, Tasks))
    inside = replace(tasks, body=[*tasks.body, Sync(kind="grid.sync")])
    body = [inside if s is tasks else s for s in role.body]
    kernel = replace(machine.kernels[0], roles=[replace(role, body=body)])
    found = check(replace(machine, kernels=[kernel]))
    assert found.status == "rejected" and "as many for each" in found.reason, str(found)
    assert found.partner is not None and found.partner.text.startswith("tasks (")
    assert trials(replace(machine, kernels=[kernel]), 1, 260, 1)  # not all come: the launch never ends


def test_no_mutant_is_accepted_and_wrong() -> None:
    machine = together(apart(), grid=2)
    own, count = executed(machine), 0
    seen = {own}
    for mutant in list(mutants(machine))[::4]:
        if judged(mutant) != "verified" or executed(mutant.program) in seen:
            continue
        seen.add(executed(mutant.program))
        count += 1
        for m, n in ((3, 5), (2, 130)):
            assert not trials(mutant.program, m, n, 2), mutant
    assert count


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_meetings_are_emitted(arch: str) -> None:
    machine = replace(together(apart()), target=f"cuda:{arch}")
    emitted = emit(machine)
    assert len(re.findall(r"^\s+grid_meet\(arrivals, 1u\);", emitted.source, re.M)) == 1
    (launch,) = emitted.launches
    assert launch.cooperative and [a.kind for a in launch.arguments].count("arrivals") == 1
    assert emitted.cleared == 16 and int(emitted.workspace.evaluate({"M": 3, "N": 5})) % 16 == 0


@assembled
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_meetings_assemble(arch: str) -> None:
    emitted = emit(replace(together(apart(family="rows")), target=f"cuda:{arch}"))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="centred_columns")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert "atom" in emitted.source and not [m for m in compiled.messages if m.code]
