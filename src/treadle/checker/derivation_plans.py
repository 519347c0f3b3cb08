"""Validation of steps on plans: the step decides what it changed and nothing else, and the plan after it is right.

What a plan decided is read from its machine program as *settings*: atoms, versions, flight, cuts, distribution,
agents, order and guard. A step may change those that its kind decides, those that an argument of it decides besides,
and no other, and cuts only on the side of what it names, in parts made of the value (`derivation_cuts`); where an
argument says a value that machine programs show, it is that value. Then the program after is judged again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from treadle.algebra.expr_text import parse_constraint
from treadle.base.errors import UserError
from treadle.checker.derivation_cuts import astray, cuts
from treadle.checker.judge import check
from treadle.checker.verdict import Verdict
from treadle.ir.guard import Bound, Guard
from treadle.ir.printer import print_program
from treadle.machine.form import MachineProgram, Mma, Sync, Tasks
from treadle.plan.plan import Plan
from treadle.plan.steps import PLAN_KINDS, Step, decided_by

CHANGES: Mapping[str, frozenset[str]] = {
    "bind": frozenset({"agents"}),
    "distribute": frozenset({"agents", "cuts", "distribution"}),
    "retime": frozenset({"flight"}),
    "refine": frozenset({"cuts", "distribution"}),
    "guard": frozenset({"guard"}),
}
"""The settings that a kind of step may change, whatever it names. An instruction brings the shapes that it works on,
and a distribution says how much each agent has, so how many agents there are."""

BESIDES: Mapping[str, frozenset[str]] = {
    "atom": frozenset({"atoms"}),
    "versions": frozenset({"versions"}),
    "held": frozenset({"versions"}),
    "raster": frozenset({"order"}),
    "warps": frozenset({"cuts", "distribution"}),
    "consumers": frozenset({"cuts", "distribution"}),
}
"""What an argument decides besides. What is held while others stream may have a second version; more warps in an agent,
or more agents on a block, hold more of the program."""

SHARED_OUT = ("warps", "consumers")
"""Arguments that decide cuts only by changing who shares a block: agents that stay the same hold the same."""

SHAPE = re.compile(r"\.m\d+n\d+k\d+")
"""In an atom's name: the shape that it works on, which is a matter of the distribution."""

ALIKE: Mapping[str, tuple[str, ...]] = {"fma": ("fma", "muladd")}
"""Atoms of one name in steps: multiplied and added, in one rounding where the contract permits it."""


def validate_plan(before: MachineProgram, step: Step, after: MachineProgram) -> Verdict:
    """The verdict on a step between the machine programs of two plans.

    *Ensures*: `verified` only if the second one is right for the program of the first, and their settings differ
    only where the step's kind and arguments say so.
    """
    if step.kind not in PLAN_KINDS:
        return Verdict(
            "unknown", "step", reason=f"steps of the kind {step.kind} are none of plans", missing="a validator"
        )
    programs = [print_program(m.captured or m.program) for m in (before, after)]
    if programs[0] != programs[1] or before.target != after.target:
        return Verdict("rejected", "step", reason="the two plans are not of one program and target")
    wrong = _misnamed(step) or _undecided(before, step, after) or _unlike(before, step, after)
    wrong = wrong or ("" if step.kind == "guard" else astray(before, step, after))
    if wrong:
        return Verdict("rejected", "step", reason=wrong)
    return check(after)


def validate_decisions(before: Plan, step: Step, after: Plan) -> str:
    """Why the plan after a step is not the one before it with what the step says; empty where it is."""
    wrong = _misnamed(step)
    if wrong:
        return wrong
    point, facts = dict(before.point), list(before.guard.facts)
    if step.kind == "guard":
        said = step.args["facts"]
        try:
            facts += [Bound(parse_constraint(str(fact))) for fact in said] if isinstance(said, list) else []
        except UserError:
            return f"{step} names what is no fact"
    else:
        unknown = next((name for name in step.args if name not in point), None)
        if unknown is not None:
            return f"the plan has no axis {unknown}"
        point.update({name: value for name, value in step.args.items() if isinstance(value, int | str)})
    workers = step.args.get("workers", before.workers)
    told = replace(before, point=point, guard=Guard(tuple(facts)), workers=workers if isinstance(workers, int) else 0)
    for part in fields(Plan):
        if part.compare and getattr(told, part.name) != getattr(after, part.name):
            return f"the {part.name} after {step} is {_part(after, part.name)}, not {_part(told, part.name)}"
    return ""


def _part(plan: Plan, name: str) -> str:
    value = getattr(plan, name)
    return "; ".join(str(value).splitlines()) if isinstance(value, Guard) else str(value)


def decided_in(plan: Plan, machine: MachineProgram) -> str:
    """Why a machine program is none of a plan, as far as one shows the other; empty where it may be."""
    program = (machine.captured or machine.program).name
    if (plan.program, plan.target) != (program, machine.target):
        return f"the text is of {program} on {machine.target}, the plan of {plan.program} on {plan.target}"
    said, found = (set(map(str, g.facts)) for g in (plan.guard, machine.guard))
    odd = sorted(said ^ found)
    return f"the text's guard {'lacks' if odd[0] in said else 'has besides'} {odd[0]}" if odd else ""


def _misnamed(step: Step) -> str:
    """Why the arguments are none of the kind."""
    if not step.args:
        return f"a step {step.kind} that names nothing"
    if step.kind == "guard":
        facts = step.args.get("facts")
        return "" if set(step.args) == {"facts"} and isinstance(facts, list) else "a guard's step names facts alone"
    wrong = next((name for name in step.args if decided_by(name) != step.kind), None)
    return "" if wrong is None else f"{wrong} is decided by {decided_by(wrong)}, the step is {step.kind}"


def _undecided(before: MachineProgram, step: Step, after: MachineProgram) -> str:
    """Which setting differs that the step does not decide."""
    old, new = settings(before), settings(after)
    named = {name for name in step.args if name not in SHARED_OUT or old["agents"] != new["agents"]}
    may = CHANGES[step.kind].union(*(BESIDES.get(name, frozenset()) for name in named))
    for name in ("versions", "flight"):  # what one of the two has not comes with the distribution
        both = _names(old[name]) & _names(new[name])
        old[name], new[name] = (frozenset(w for w in side[name] if _names({w}) <= both) for side in (old, new))
    if not old["order"] or not new["order"]:  # where nothing is dealt out there is no order
        may |= {"order"}
    for name in old:
        if name not in may and old[name] != new[name]:
            gone, come = old[name] - new[name], new[name] - old[name]
            return f"{step} changes the {name}: {_words(gone)} before, {_words(come)} after"
    return ""


def _names(words: Iterable[str]) -> set[str]:
    return {word.rpartition("=")[0] for word in words}


def _words(found: frozenset[str]) -> str:
    return ", ".join(sorted(found)) or "nothing"


def _unlike(before: MachineProgram, step: Step, after: MachineProgram) -> str:
    """Which value differs from what the step says."""
    if step.kind == "guard":
        facts = step.args["facts"]
        assert isinstance(facts, list)
        try:
            said = settings(before)["guard"] | {str(parse_constraint(str(fact))) for fact in facts}
        except UserError:
            return f"{step} names what is no fact"
        found = settings(after)["guard"]
        odd = sorted(said ^ found)
        return f"the guard after {step} {'lacks' if odd[0] in said else 'has besides'} {odd[0]}" if odd else ""
    roles = [{f"{k.name}.{r.name}": r for k in m.kernels for r in k.roles} for m in (before, after)]
    said = (
        ("versions", "versions", [_rings(before), _rings(after)]),
        ("consumers", "agents", [{name: r.agents for name, r in side.items()} for side in roles]),
        ("warps", "warps", [{name: r.threads // 32 for name, r in side.items()} for side in roles]),
    )
    for argument, what, (old, new) in said:
        value = step.args.get(argument)
        odd = sorted(name for name in old.keys() & new.keys() if old[name] != new[name] != value)
        if value is not None and odd:
            return f"{step}, and {odd[0]} has {new[odd[0]]} {what}"
    atom = step.args.get("atom")
    if isinstance(atom, str):
        come = _atoms(after) - _atoms(before) - {SHAPE.sub("", name) for name in ALIKE.get(atom, (atom,))}
        if come:
            return f"{step}, and the atom is {min(come)}"
    return ""


def settings(machine: MachineProgram) -> dict[str, frozenset[str]]:
    """What the plan of a machine program decided, by name, as sets of words."""
    tasks = [s for s in machine.statements() if isinstance(s, Tasks)]
    roles = {f"{r.name} {r.agents}*{r.threads}" for k in machine.kernels for r in k.roles}
    launches = {f"{n.kernel} {n.threads}/{n.cluster}/{n.resident}" for n in machine.host.launches}
    return {
        "guard": frozenset(map(str, machine.guard.facts)),
        "atoms": _atoms(machine),
        "versions": frozenset(f"{name}={n}" for name, n in _rings(machine).items()),
        "flight": frozenset(f"{kind}={n}" for kind, n in _depths(machine).items()),
        "order": frozenset(" ".join(map(str, t.raster)) for t in tasks if len(t.vars) > 1),
        "cuts": frozenset(
            f"{at[0]}.{at[1]}:{n}" if at[0] else f"by {n}" for at, widths in cuts(machine).items() for n in widths
        ),
        "distribution": _held(machine),
        "agents": frozenset({t.over for t in tasks} | roles | launches),
    }


def _atoms(machine: MachineProgram) -> frozenset[str]:
    return frozenset(SHAPE.sub("", s.atom) for s in machine.statements() if isinstance(s, Mma))


def _held(machine: MachineProgram) -> frozenset[str]:
    """Shapes of fragments with who holds which digit, and the shapes of atoms."""
    digits = {
        f"{f.place}{list(f.shape)}" + "".join(f" {m.who}:{m.size}*{m.stride}@{m.axis}" for m in f.dist)
        for k in machine.kernels
        for f in k.frags
    }
    shapes = {m[0] for s in machine.statements() if isinstance(s, Mma) for m in [SHAPE.search(s.atom)] if m}
    return frozenset(digits | shapes)


def _rings(machine: MachineProgram) -> dict[str, int]:
    """How many versions each buffer has: one where it is no ring."""
    found = {f"{k.name}.{b.name}": max(1, b.versions) for k in machine.kernels for b in k.buffers}
    return {**found, **{b.name: max(1, b.versions) for b in machine.host.workspace}}


def _depths(machine: MachineProgram) -> dict[str, int]:
    """How much each kind of wait leaves unfinished at most."""
    found: dict[str, int] = {}
    for s in machine.statements():
        depth = dict(s.args).get("depth") if isinstance(s, Sync) else None
        if isinstance(s, Sync) and depth is not None and depth.constant is not None:
            found[s.kind] = max(found.get(s.kind, 0), depth.constant)
    return found
