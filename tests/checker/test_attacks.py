"""Programs that try to slip through: repeated execution, wrong instances, values that no agent holds, vacuous facts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import machines
import machines_more as more
import pytest
from machines import S0, ref
from twins import all_bodies

from treadle.algebra.expr import Fn, const, ge, lt, of, sym
from treadle.checker import check
from treadle.dtype.formats import f32
from treadle.ir.guard import Bound, Guard
from treadle.machine import form as f

Attack = Callable[[f.MachineProgram], None]


def tasks(program: f.MachineProgram) -> f.Tasks:
    return next(s for s in program.statements() if isinstance(s, f.Tasks))


def loop(program: f.MachineProgram, var: str) -> f.Loop:
    return next(s for s in program.statements() if isinstance(s, f.Loop) and s.var == var)


def store_in_the_fold(program: f.MachineProgram) -> None:
    """The store repeats with every step of the region that it stands after."""
    body = tasks(program).body
    inner = loop(program, "k0")
    inner.body += body[2:]
    del body[2:]


def loop_around_a_store(program: f.MachineProgram) -> None:
    body = tasks(program).body
    body[:] = [f.Loop(var="again", lo=const(0), hi=const(2), step=const(1), body=list(body))]


def loop_around_tasks(program: f.MachineProgram) -> None:
    body = program.kernels[0].roles[0].body
    body[:] = [f.Loop(var="again", lo=const(0), hi=const(2), step=const(1), body=list(body))]


def loop_that_may_not_run(program: f.MachineProgram) -> None:
    body = tasks(program).body
    body[:] = [f.Loop(var="once", lo=const(0), hi=sym("K"), step=sym("K"), body=list(body))]


def store_under_a_condition(program: f.MachineProgram) -> None:
    body = tasks(program).body
    body[-1:] = [f.If(conds=(ge(sym("M"), 2),), then=[body[-1]])]


def overridden_instance(program: f.MachineProgram) -> None:
    """Each pair of tasks claims the even one's instance."""
    even = sym("m") // 2 * 2
    for s in program.statements():
        if isinstance(s, f.Load):
            s.src = f.MemRef(s.src.name, (even, *s.src.index[1:]))
            s.claim = replace(s.claim, instance=(("m", even),))
        elif isinstance(s, f.Store):
            s.dst = f.MemRef(s.dst.name, (even, *s.dst.index[1:]))
            s.claim = replace(s.claim, instance=(("m", even),))
        elif isinstance(s, f.Compute | f.Fold) and s.claim is not None:
            s.claim = replace(s.claim, instance=(("m", even),))
        elif isinstance(s, f.Loop):
            s.invariants = tuple(replace(i, claim=replace(i.claim, instance=(("m", even),))) for i in s.invariants)


def value_that_nobody_holds(program: f.MachineProgram) -> None:
    y = next(s for s in program.statements() if isinstance(s, f.Compute) and s.dst == "y3")
    y.args = (y.args[0], f.FragRef("%5"))


def index_of_a_source_value(program: f.MachineProgram) -> None:
    s = next(s for s in program.statements() if isinstance(s, f.Load) and s.dst == "e")
    s.src = f.MemRef("E", (of(Fn("%0", (4 * sym("tt") + S0,))), s.src.index[1]))


def symbol_out_of_scope(program: f.MachineProgram) -> None:
    loop(program, "k").hi = sym("i")


def condition_of_another_instance(program: f.MachineProgram) -> None:
    """The test is of the next element, the ways are this one's."""
    v = next(s for s in program.statements() if isinstance(s, f.Load))
    body = tasks(program).body
    program.kernels[0].frags += [f.Frag("n", f32, ())]
    body.insert(1, f.Load(dst="n", src=f.MemRef("X", (const(0),)), claim=replace(v.claim, instance=(("m", const(0)),))))
    test = next(s for s in program.statements() if isinstance(s, f.Compute) and s.dst == "c")
    test.args = (ref("n"), 0.0)


def two_conditions_as_one(program: f.MachineProgram) -> None:
    """A fragment assigned in one way of one test and the other way of another is not always assigned."""
    branch = next(s for s in program.statements() if isinstance(s, f.If))
    other = f.If(cond=branch.cond, source=branch.source, then=[], orelse=[branch.orelse.pop()])
    for body in all_bodies(program):
        for i, s in enumerate(body):
            if s is branch:
                body.insert(i + 1, other)
                return


def atom_without_permission(program: f.MachineProgram) -> None:
    program.program.numerics["contract"] = False


def transposed_pair_of_tasks(program: f.MachineProgram) -> None:
    task = tasks(program)
    task.counts = task.counts[::-1]


def kernel_launched_twice(program: f.MachineProgram) -> None:
    program.host.launches.append(program.host.launches[0])


def kernel_never_launched(program: f.MachineProgram) -> None:
    program.host.launches.clear()


def workspace_read_by_the_next_task(program: f.MachineProgram) -> None:
    first = next(s for s in program.statements() if isinstance(s, f.Load) and s.dst == "first")
    first.src = f.MemRef("T", (sym("qq"), sym("N") - 1))


def negative_step(program: f.MachineProgram) -> None:
    loop(program, "k0").step = const(-1)


CASES: list[tuple[Callable[[], f.MachineProgram], Attack, str]] = [
    (machines.gemm_scalar, store_in_the_fold, "J1"),
    (machines.gemm_scalar, loop_around_a_store, "J1"),
    (machines.gemm_scalar, loop_around_tasks, "J1"),
    (machines.gemm_scalar, loop_that_may_not_run, "J1"),
    (machines.gemm_scalar, store_under_a_condition, "J1"),
    (machines.rows_scalar, overridden_instance, "J1"),
    (machines.rows_scalar, value_that_nobody_holds, "J1"),
    (more.gather, index_of_a_source_value, "J1"),
    (machines.rows_scalar, symbol_out_of_scope, "J1"),
    (more.conditional, condition_of_another_instance, "J1"),
    (more.conditional, two_conditions_as_one, "J1"),
    (machines.gemm_packed, atom_without_permission, "J6"),
    (machines.gemm_scalar, transposed_pair_of_tasks, "J1"),
    (machines.gemm_scalar, kernel_launched_twice, "J1"),
    (machines.gemm_scalar, kernel_never_launched, "J7"),
    (more.two_regions, workspace_read_by_the_next_task, "J1|J4"),
    (machines.gemm_scalar, negative_step, "J1"),
]


@pytest.mark.parametrize(("make", "attack", "judgement"), CASES, ids=[a.__name__ for _, a, _ in CASES])
def test_attacks_are_refused(make: Callable[[], f.MachineProgram], attack: Attack, judgement: str) -> None:
    program = make()
    assert check(program).status == "verified"
    attack(program)
    verdict = check(program)
    assert verdict.status != "verified", str(verdict)
    assert verdict.judgement is not None and re.fullmatch(judgement, verdict.judgement), str(verdict)


def test_a_stronger_guard_admits_a_program_without_masks() -> None:
    program = machines.rows_vector()
    for s in program.statements():
        if isinstance(s, f.Load | f.Store | f.Compute):
            s.where = ()
            if isinstance(s.claim, f.Claim):
                s.claim = replace(s.claim, where=())
    assert check(program).status == "rejected"
    sixteenth = Guard((*program.guard.facts, Bound(ge(sym("N") % 16, 0)), Bound(lt(sym("N") % 16, 1))))
    program.guard = sixteenth
    verdict = check(program)
    assert verdict.status == "verified", str(verdict)


def test_verdicts_say_where_and_what() -> None:
    program = machines.gemm_scalar()
    loop(program, "k0").hi = sym("K") - 1
    verdict = check(program)
    assert verdict.statement is not None
    assert list(program.statements())[verdict.statement] is loop(program, "k0")
    assert verdict.missing is not None and "K" in verdict.missing
    assert verdict.counterexample is not None and verdict.counterexample["K"] >= 1
