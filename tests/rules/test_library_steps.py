"""Over the library: whatever step a rule proposes, its validator accepts.

`python -m tests.rules.test_library_steps [KIND,...]` tries every proposal on every kernel; the test a sample of them.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator

from tests.checker.every_kernel import captured, kernels

from treadle.base.errors import InternalError, TreadleError
from treadle.checker.derivation import validate
from treadle.ir.core import Program, Region
from treadle.ir.expand import expand
from treadle.ir.ops.access import Extract, Load
from treadle.ir.ops.fold import Mma, Reduce
from treadle.ir.paths import paths
from treadle.plan.steps import PROGRAM_KINDS
from treadle.rules import RULES

Proposal = tuple[str, tuple[object, ...]]


def on_values(p: Program) -> Iterator[Proposal]:
    """Steps that name a value: each kind with every operation that it might be for."""
    regions = [op.name for op in p.body.walk() if isinstance(op, Region)]
    for op in p.body.walk():
        for value in op.results:
            yield "materialise", (value.name,)
            if isinstance(op, Extract | Load | Region):
                yield "dematerialise", (value.name,)
            if isinstance(op, Extract):
                yield "recompute", (value.name,)
            if isinstance(op, Load):
                yield "distribute", (value.name,)
                yield "relayout", (value.name, [*range(1, len(op.subs)), 0][: len(op.subs)])
            if isinstance(op, Mma):
                yield "products", (value.name,)
                yield "apart", (value.name,)
            if isinstance(op, Reduce) and len(op.dims) > 1:
                yield "regroup", (value.name, [op.dims[-1].name])
            if not isinstance(op, Region):
                yield from (("recompute", (value.name, name)) for name in regions)


def on_regions(p: Program) -> Iterator[Proposal]:
    """Steps that name regions, or places of statements."""
    regions = [op for op in p.body.walk() if isinstance(op, Region)]
    for region in regions:
        args = [a.name for a in region.args]
        for arg in args:
            yield "split", (region.name, arg, 4)
            yield "split", (region.name, arg, "all")
            yield "factor", (region.name, arg, 4)
        for kind in ("fuse", "serialise", "gather"):
            yield kind, (region.name,)
        yield "permute", (region.name, args[::-1], args[:1])
        yield "split_scopes", (region.name, len(region.body.ops) // 2)
        yield "specialise", (region.name, [f"{p.dims[0].name} % 2 == 0"])
        yield from (("fuse_scopes", (region.name, other.name)) for other in regions if other is not region)
        if region.args and all(a.kind == "each" and a.size is None for a in region.args):
            levels = [
                [
                    {"name": f"z{a.name}", "dim": a.domain.dim.name, "lo": str(a.domain.lo), "hi": str(a.domain.hi)}
                    for a in region.args
                ]
            ]
            turned = {a.name: f"{a.domain.lo} + {a.domain.hi} - 1 - z{a.name}" for a in region.args}
            back = {f"z{a.name}": f"{a.domain.lo} + {a.domain.hi} - 1 - {a.name}" for a in region.args}
            yield "reindex", (region.name, levels, turned, back)
    for dims in ([], *([x.name] for x in p.dims)):
        yield "enclose", (dims,)
    for path, _ in paths(p):
        place = int(path.rpartition(".")[2])
        yield from (("move", (path, to)) for to in (place - 1, place + 1) if to >= 0)


def proposals(p: Program) -> list[Proposal]:
    """Every step that is tried on a program."""
    return [*on_values(p), *on_regions(p)] if p.dims else []


def outcome(p: Program, kind: str, args: tuple[object, ...]) -> str:
    """ "refused" by the rule, or the validator's verdict on what it made."""
    try:
        after, step = RULES[kind](p, *args)
    except InternalError as broken:
        return f"the rule made nonsense: {broken}"
    except TreadleError:
        return "refused"
    return str(validate(p, step, after)).partition(" in ")[0]


def programs(dice: random.Random | None = None) -> Iterator[Program]:
    """The programs of the library's kernels, as captured and expanded; shuffled."""
    found = list(kernels("src/treadle/lib"))
    if dice is not None:
        dice.shuffle(found)
    for _, definition in found:
        program = captured(definition)
        if program is not None:
            yield program
            yield expand(program)


def test_every_step_that_a_rule_proposes_is_accepted() -> None:
    dice = random.Random(11)
    taken: Counter[str] = Counter()
    for number, program in enumerate(programs(dice)):
        found = proposals(program)
        for kind, args in dice.sample(found, min(len(found), 24)):
            answer = outcome(program, kind, args)
            assert answer in ("refused", "verified"), f"{kind}{args} of {program.name}: {answer}"
            taken[kind] += answer == "verified"
        if number > 40:
            break
    assert sum(taken.values()) > 250 and len(+taken) >= 9, taken


def main(kinds: set[str]) -> int:
    """Tries everything; prints what a rule proposed and its validator did not accept. How many that were."""
    count: Counter[tuple[str, str]] = Counter()
    wrong, known = 0, list(programs())
    for program in known:
        for kind, args in proposals(program):
            if kind in kinds:
                answer = outcome(program, kind, args)
                count[kind, answer if answer in ("refused", "verified") else "wrong"] += 1
                if answer not in ("refused", "verified"):
                    wrong += 1
                    sys.stdout.write(f"{kind}{args} of {program.name}: {answer}\n")
    for kind in sorted(kinds):
        sys.stdout.write(f"{kind}: {count[kind, 'verified']} verified, {count[kind, 'refused']} refused\n")
    sys.stdout.write(f"{len(known)} programs, {wrong} steps not accepted\n")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(set(sys.argv[1].split(",")) if len(sys.argv) > 1 else set(PROGRAM_KINDS))))
