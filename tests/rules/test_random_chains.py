"""Random chains of steps: whatever a rule accepts the checker verifies and means the same, and references keep their
operation.

`python -m tests.rules.test_random_chains COUNT` tries many.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest

from treadle.base.errors import InternalError, TreadleError
from treadle.checker.derivation import validate
from treadle.ir.core import Region
from treadle.ir.ops.access import Extract, Load
from treadle.ir.ops.fold import Reduce
from treadle.ir.paths import paths
from treadle.ir.printer import print_program
from treadle.rules import RULES, Derivation

from . import kernels

KERNELS = [
    *(kernels.contract, kernels.siblings, kernels.tiles, kernels.continued, kernels.neighbours, kernels.owned),
    *(kernels.pure, kernels.ordered_sum, kernels.left_sum, kernels.recurrence, kernels.two_chains, kernels.late_reader),
    *(kernels.sums, kernels.snapshots, kernels.crossed, kernels.largest, kernels.last_one, kernels.backwards),
    *(kernels.in_turn, kernels.counts, kernels.lines),
]


SIZES = (*kernels.SIZES, {"M": 9, "N": 6, "K": 3})


def proposals(d: Derivation, dice: random.Random) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Steps that might be taken, most of them refused."""
    regions = [op for op in d.program.body.walk() if isinstance(op, Region)]
    values = [v.name for op in d.program.body.walk() for v in op.results]
    reads = [op.result.name for op in d.program.body.walk() if isinstance(op, Load | Extract)]
    places = [path for path, _ in paths(d.program)]
    while True:
        kind = dice.choice(list(RULES))
        region, other = dice.choice(regions), dice.choice(regions)
        args = [a.name for a in region.args]
        size = dice.choice([1, 2, 3, 4, 6, 8, "all"])
        match kind:
            case "split" | "factor":
                yield kind, (region.name, dice.choice(args), size if kind == "split" else dice.choice([1, 2, 3, 8]))
            case "fuse" | "serialise":
                yield kind, (region.name,)
            case "permute":
                yield kind, (region.name, dice.sample(args, len(args)), dice.sample(args, dice.randint(0, len(args))))
            case "move":
                yield kind, (dice.choice(places), dice.randint(0, 5))
            case "distribute" | "dematerialise":
                yield kind, (dice.choice(reads or values),)
            case "recompute":
                yield kind, (dice.choice(values), *([region.name] if dice.random() < 0.7 else []))
            case "regroup":
                folds = [op for op in d.program.body.walk() if isinstance(op, Reduce) and len(op.dims) > 1]
                for op in folds:
                    yield kind, (op.result.name, [dice.choice(op.dims).name])
            case "fuse_scopes":
                yield kind, (region.name, other.name)
            case "split_scopes":
                yield kind, (region.name, dice.randint(1, 5))
            case "specialise":
                fact = f"{dice.choice(d.program.dims).name} % {dice.randint(2, 4)} == {dice.randint(0, 1)}"
                yield kind, (region.name, [fact])
            case "reindex" if all(a.kind == "each" and a.size is None for a in region.args):
                yield kind, (region.name, *_turned(region, d, dice))
            case _:
                pass


def _turned(region: Region, d: Derivation, dice: random.Random) -> tuple[object, ...]:
    """Some arguments of a region backwards, shifted, or doubled (which is wrong)."""
    level: list[dict[str, str]] = []
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for number, arg in enumerate(region.args):
        name = f"z{len(d.steps)}_{number}"
        lo, hi = arg.domain.lo, arg.domain.hi
        way = dice.choice(["same", "turned", "wrong"] if dice.random() < 0.3 else ["same", "turned"])
        level.append({"name": name, "dim": arg.domain.dim.name, "lo": str(lo), "hi": str(hi)})
        there[arg.name] = {"same": name, "turned": f"{lo} + {hi} - 1 - {name}", "wrong": f"{lo} + 2*{name}"}[way]
        back[name] = {"same": arg.name, "turned": f"{lo} + {hi} - 1 - {arg.name}", "wrong": arg.name}[way]
    return [level], there, back


def chain(seed: int, most: int, tries: int = 60) -> tuple[Derivation, int]:
    """One chain, every step of it held to the laws; how many proposals were refused."""
    dice = random.Random(seed)
    d = Derivation(kernels.program(dice.choice(KERNELS)))
    refused = 0
    found = proposals(d, dice)
    for _ in range(tries):
        if len(d.steps) == most:
            break
        kind, args = next(found)
        try:
            longer = d.then(RULES[kind], *args)
        except InternalError as broken:
            raise AssertionError(f"{kind}{args} of\n{print_program(d.program)}\n{broken}") from broken
        except TreadleError:
            refused += 1
            continue
        step, before, after = longer.steps[-1], d.program, longer.program
        about = f"{step} of\n{print_program(before)}\ngives\n{print_program(after)}"
        verdict = validate(before, step, after)
        assert verdict.status == "verified", f"{verdict}\n{about}"
        assert kernels.same(before, after, SIZES), about
        now_at = dict(paths(after))
        for path, op in paths(before):
            now = step.moved(path)
            assert now is None or type(now_at[now]) is type(op) or step.kind == "distribute", about
        d, found = longer, proposals(longer, dice)
    return d, refused


@pytest.mark.parametrize("seed", range(8))
def test_random_chains(seed: int) -> None:
    d, _ = chain(seed, 3)
    assert d.replay().to_json() == d.to_json()


if __name__ == "__main__":
    count = int(sys.argv[1])
    taken: dict[str, int] = {}
    turned_down = 0
    for seed in range(count):
        found, refused = chain(1000 + seed, 6)
        turned_down += refused
        for step in found.steps:
            taken[step.kind] = taken.get(step.kind, 0) + 1
    sys.stdout.write(f"{count} chains, {sum(taken.values())} steps, {turned_down} refusals: {taken}\n")
