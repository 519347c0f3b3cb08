"""Steps on plans change what they name: right ones are verified, each wrong one is refused for what it changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import pytest

import treadle as td
from treadle.checker.derivation_plans import settings, validate_plan
from treadle.driver.build import restore
from treadle.driver.candidates import families, saved_facts
from treadle.driver.errors import PlanUnverified
from treadle.driver.plan import Plan
from treadle.driver.rewriting import redecide
from treadle.ir.expand import expand
from treadle.ir.guard import Bound
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.plan.steps import Argument, Step, decided_by
from treadle.rules import narrow

from . import kernels

STRIPS = """tdm 1
target cpu:avx2
program {
  program absolute
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        %a: f32[m, N] = abs %x
        store Y[m, N] = %a
}
guard {
  unit(X, 1)
  unit(Y, 1)
  disjoint(X, Y)
  injective(Y)
}
host {
  launch main grid 1 threads 1
}
kernel main {
  frag x f32[4]
  frag a f32[4]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      loop i = 0 .. N step 4 {
        x = load X[t, i + $0] where i + $0 < N ; %x[t, i + $0] where i + $0 < N
        a = abs x where i + $0 < N ; %a[t, i + $0] where i + $0 < N
        store Y[t, i + $0] = a where i + $0 < N ; store 0 [t, i + $0]
      }
    }
  }
}
"""


def planned(target: str, *where: object) -> Plan:
    x, w = td.like(td.bf16, 4096, 4096, align=256), td.like(td.bf16, 4096, 4096, align=256)
    return kernels.contract.plan(x, w, target=target, where=where)


@pytest.fixture(scope="module")
def stream() -> Plan:
    return planned("cuda:sm_90a")


@pytest.fixture(scope="module")
def made(stream: Plan) -> Mapping[str, MachineProgram]:
    """Machine programs of plans that are one right step away, which `redecide` validates."""
    tiles = planned("cpu:amx")
    point = stream.decisions.point
    found = {
        "stream": stream.program,
        "tiles": tiles.program,
        "consumers": redecide(stream, "bind", consumers=1)[0].program,
        "raster": redecide(stream, "bind", raster="row")[0].program,
        "columns": redecide(stream, "distribute", columns=128)[0].program,
        "turned": redecide(stream, "distribute", turned=True)[0].program,
        "cluster": redecide(stream, "distribute", cluster="columns")[0].program,
        "versions": redecide(stream, "retime", versions=3)[0].program,
        "flight": redecide(stream, "retime", flight=1)[0].program,
        "atom": redecide(tiles, "refine", atom="fma")[0].program,
    }
    assert (point["consumers"], point["columns"], point["versions"]) == (2, 256, 4)
    return found


def test_right_steps_change_what_they_name(made: Mapping[str, MachineProgram]) -> None:
    base, tiles = settings(made["stream"]), settings(made["tiles"])
    changed = {
        name: {s for s, words in settings(machine).items() if words != (tiles if name == "atom" else base)[s]}
        for name, machine in made.items()
        if name not in ("stream", "tiles")
    }
    assert changed == {
        "consumers": {"agents", "cuts"},
        "raster": {"order"},
        "columns": {"cuts", "distribution"},
        "turned": {"cuts"},
        "cluster": {"agents", "cuts"},
        "versions": {"versions"},
        "flight": {"flight"},
        "atom": {"atoms", "cuts", "distribution"},
    }


WRONG: list[tuple[str, dict[str, Argument], str, str]] = [
    ("bind", {"workers": 1}, "atom", "changes the atoms: amx.tdpbf16ps before, fma after"),
    ("bind", {"consumers": 1}, "versions", "changes the versions: main.Ws=4, main.Xs=4 before"),
    ("bind", {"consumers": 3}, "consumers", "main.consumer has 1 agents"),
    ("bind", {"turns": True}, "raster", "changes the order: group 16 before, row after"),
    ("bind", {"columns": 128}, "columns", "columns is decided by distribute, the step is bind"),
    ("retime", {"versions": 2}, "versions", "main.Ws has 3 versions"),
    ("retime", {"flight": 1}, "versions", "changes the versions"),
    ("retime", {"versions": 3}, "columns", "changes the cuts: R0.n:256 before, R0.n:128 after"),
    ("retime", {"flight": 1}, "consumers", "changes the cuts"),
    ("refine", {"atom": "avx"}, "atom", "and the atom is fma"),
    ("refine", {"exact": True}, "atom", "changes the atoms"),
    ("refine", {"atom": "fma"}, "consumers", "changes the agents"),
    ("distribute", {"columns": 128}, "versions", "changes the versions"),
    ("distribute", {"columns": 128}, "raster", "changes the order"),
    ("distribute", {"columns": 32}, "atom", "changes the atoms"),
    ("distribute", {"columns": 96}, "columns", "cuts R0.n in 128 instead of R0.n in 256"),
    ("distribute", {"columns": 128}, "turned", "cuts R0.n in 128 instead of R0.n in 256"),
    ("distribute", {"columns": 96}, "cluster", "cuts R0.n in 512"),
    ("distribute", {"step": 128}, "columns", "cuts R0.n in 128"),
    ("distribute", {"staged": True}, "columns", "cuts R0.n in 128"),
    ("distribute", {"turned": True}, "columns", "cuts R0.n in 128"),
    ("distribute", {}, "columns", "a step distribute that names nothing"),
    ("guard", {"facts": ["M >= 8"]}, "stream", "lacks M - 8 >= 0"),
    ("guard", {"facts": []}, "columns", "changes the cuts"),
    ("guard", {"columns": 128}, "columns", "a guard's step names facts alone"),
]


@pytest.mark.parametrize(("kind", "args", "name", "reason"), WRONG)
def test_wrong_steps(
    made: Mapping[str, MachineProgram], kind: str, args: dict[str, Argument], name: str, reason: str
) -> None:
    before = made["tiles" if name == "atom" else "stream"]
    verdict = validate_plan(before, Step(kind, args), made[name])
    assert (verdict.status, verdict.judgement) == ("rejected", "step")
    assert reason in verdict.reason


def test_steps_back_are_steps(made: Mapping[str, MachineProgram]) -> None:
    """Going back is a step of the same kind, to the value that was."""
    for step, name in ((Step("retime", {"versions": 4}), "versions"), (Step("bind", {"consumers": 2}), "consumers")):
        assert validate_plan(made[name], step, made["stream"]).status == "verified"
    assert validate_plan(made["columns"], Step("bind", {"consumers": 1}), made["stream"]).status == "rejected"


def test_loops_that_enter_no_region_are_cuts() -> None:
    """A text whose strips are cut otherwise is a distribution, whatever else is as before."""
    strips = parse_machine(STRIPS, "strips")
    other = parse_machine(STRIPS.replace("step 4", "step 8"), "strips")
    verdict = validate_plan(strips, Step("bind", {"workers": 2}), other)
    assert (verdict.status, verdict.reason) == ("rejected", "bind(workers=2) changes the cuts: by 4 before, by 8 after")
    assert validate_plan(strips, Step("bind", {"workers": 2}), strips).status == "verified"
    for args in ({"vector": 3}, {"rows": 8}, {"stream": True}):
        astray = validate_plan(strips, Step("distribute", args), other)
        assert (astray.status, astray.judgement) == ("rejected", "step")
        assert "cuts other loops by 8 instead of other loops by 4" in astray.reason
    forged = validate_plan(strips, Step("distribute", {"vector": 8}), other)  # may be cut so, but drops elements
    assert forged.status == "rejected" and forged.judgement != "step"


def test_every_axis_of_a_plan_changes_what_its_step_may() -> None:
    """Whatever value of an axis a family offers for a plan, the step there and the step back are verified.

    But of a plan that holds its sums in registers another atom cuts the fold otherwise, which is another step's to say.
    """
    x, w = td.like(td.bf16, 300, 512), td.like(td.bf16, 512, 768)
    moves = 0
    for target in ("cpu:avx512", "cuda:sm_80"):
        plan = kernels.contract.plan(x, w, target=target)
        point = plan.decisions.point
        family = next(f for f in families(target) if f.name == plan.decisions.family)
        for axis in family.axes(expand(plan.captured), saved_facts(plan.decisions)):
            values = [v for v in axis.values if v != point.get(axis.name)]
            for value in values[:1] if axis.name in point else ():
                kind = decided_by(axis.name)
                if axis.name == "atom" and point.get("held"):
                    with pytest.raises(PlanUnverified, match=r"step: refine\(atom=fma\) cuts R1.k in 1 instead of"):
                        redecide(plan, kind, **{axis.name: value})
                    continue
                other, _ = redecide(plan, kind, **{axis.name: value})
                back = validate_plan(other.program, Step(kind, {axis.name: point[axis.name]}), plan.program)
                assert back.status == "verified", f"{axis.name} from {value}: {back}"
                moves += 1
    assert moves >= 10


def test_guards(stream: Plan) -> None:
    less, step = narrow(stream.decisions, "M >= 8")
    machine = restore(less, stream.captured).machine
    assert validate_plan(stream.program, step, machine).status == "verified"
    back = validate_plan(machine, Step("guard", {"facts": ["K >= 8"]}), stream.program)
    assert (back.status, back.judgement) == ("rejected", "step") and "lacks K - 8 >= 0" in back.reason
    for kind, args in (("bind", {"consumers": 2}), ("retime", {"versions": 4}), ("distribute", {"columns": 256})):
        verdict = validate_plan(stream.program, Step(kind, args), machine)
        assert (verdict.status, verdict.judgement) == ("rejected", "step") and "changes the guard" in verdict.reason
    unread = validate_plan(stream.program, Step("guard", {"facts": ["M >"]}), machine)
    assert unread.status == "rejected" and "no fact" in unread.reason
    more = copy.copy(machine)
    (fact,) = [f for f in machine.guard.facts if f not in stream.program.guard.facts]
    assert isinstance(fact, Bound)
    more.guard = replace(
        machine.guard, facts=(*machine.guard.facts, Bound(replace(fact.constraint, expr=fact.constraint.expr - 1)))
    )
    assert "has besides" in validate_plan(stream.program, step, more).reason


def test_a_block_without_coordinates_is_no_share_of_another() -> None:
    """A saved text may say what no plan does: that is a verdict, and no error."""
    wide, empty = (parse_machine(STRIPS.replace("t .. t + 1", f"t .. {stop}"), "strips") for stop in ("t + 128", "t"))
    verdict = validate_plan(wide, Step("distribute", {"cluster": "rows"}), empty)
    assert (verdict.status, verdict.judgement) == ("rejected", "step")
    assert "cuts R0.m in 0 instead of R0.m in 128" in verdict.reason
