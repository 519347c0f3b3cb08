"""Clusters: a ring that two workgroups fill together, and its wrong twins."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.checker import check
from treadle.driver.samples import arguments
from treadle.driver.trial import try_machine
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.simulate.run import run_schedules
from treadle.targets.cuda.emit import emit

RING = (Path(__file__).parent / "patterns" / "cluster_begins_apart.right.tdm").read_text()
FAREWELL = "    sync cluster.arrive\n    sync cluster.wait\n  }\n"
SLICE = "A{p}[$0 + 4*cta.rank, $1] = X["
BACK = "        sync mbar.arrive empty@(all){c} by elect\n"
WRONG: dict[str, tuple[tuple[str, str], ...]] = {
    "barriers set up behind the arrival": (
        (
            "    sync fence.mbar_init by elect\n    sync cluster.arrive\n",
            "    sync cluster.arrive\n    sync fence.mbar_init by elect\n",
        ),
    ),
    "no fence": (("    sync fence.mbar_init by elect\n", ""),),
    "the producer ends apart": ((FAREWELL + "  role consumer", "  }\n  role consumer"),),
    "an arrival without a wait": ((FAREWELL + "}", "    sync cluster.arrive\n  }\n}"),),
    "half the arrivals": (("empty count 2", "empty count 1"),),
    "twice the arrivals": (("empty count 2", "empty count 4"),),
    "given back to its own": (("empty@(all){c}", "empty{c}"),),
    "given back to the first": (("empty@(all){c}", "empty@(0){c}"),),
    "given back to the other, counted once": (
        ("empty@(all){c}", "empty@(1 - cta.rank){c}"),
        ("empty count 2", "empty count 1"),
    ),
    "sent to the first": (("multicast 3", "multicast 1"),),
    "sent to the second": (("multicast 3", "multicast 2"),),
    "kept": ((" multicast 3", ""), ("bytes = 1024", "bytes = 512")),
    "bytes of one slice": (("bytes = 1024", "bytes = 512"),),
    "one slice twice": ((SLICE, "A{p}[$0, $1] = X["),),
    "the neighbour's slice": (("X[$0 + 4*cta.rank + 8*t", "X[8*t + 4 - 4*cta.rank + $0"),),
    "no fence before it is given back": (("        sync fence.proxy.async\n", ""),),
    "given back before it is read": ((BACK, ""), ("        x = load A", BACK + "        x = load A")),
    "one workgroup gives it back": ((BACK, f"        if 1 <= cta.rank scope workgroup {{\n  {BACK}        }}\n"),),
    "a grid of any size": (("grid 2*max(1, min(2, MT))", "grid max(1, min(MT, 2))"),),
    "clusters of four": ((" cluster 2", " cluster 4"),),
    "the neighbour's factor": (("z = load Z[cta.rank]", "z = load Z[1 - cta.rank]"),),
    "the other parity": (("phase = (c // 2) % 2", "phase = (c // 2 + 1) % 2"),),
    "a slot read in the other workgroup": (("load A{c}[", "load A@(1 - cta.rank){c}["),),
    "tasks of single workgroups": (("over clusters", "over persistent"),),
}


def test_the_ring_is_verified_and_runs() -> None:
    program = parse_machine(RING)
    assert print_machine(parse_machine(print_machine(program))) == print_machine(program)
    assert check(program).status == "verified"
    for sizes in ({"M": 17, "N": 100}, {"M": 1, "N": 4}):
        arrays, scalars = arguments(program.program, sizes, 0)
        wanted = {"Y": arrays["X"][:, None, :] * arrays["Z"][None, :, None]}
        assert run_schedules(program, {**arrays, **scalars}, 6, expected=wanted).right
    assert "multicast::cluster" in emit(program).source


@pytest.mark.parametrize("name", WRONG)
def test_twins_are_refused(name: str) -> None:
    text = RING
    for old, new in WRONG[name]:
        assert old in text, old
        text = text.replace(old, new) if name == "tasks of single workgroups" else text.replace(old, new, 1)
    verdict = check(parse_machine(text))
    assert verdict.status != "verified", str(verdict)


def test_a_schedule_shows_that_a_workgroup_ends_too_early() -> None:
    text = RING.replace(FAREWELL + "}", "  }\n}")
    assert not try_machine(text, "ring", {"M": 9, "N": 100}, 0, 3).clean
