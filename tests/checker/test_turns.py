"""Turns: two consumers that hand the tensor cores to each other. Right texts are verified, wrong twins are not."""

from __future__ import annotations

import re
from functools import cache

import pytest

import treadle as td
from treadle.checker.judge import check
from treadle.checker.verdict import Verdict
from treadle.lib.attention import attention
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.targets.cuda.streams import Streams

TARGET = "cuda:sm_90a"


@cache
def text(depth: int = 64, causal: bool = False, versions: int = 2) -> str:
    """The machine text of a chain of contractions with turns."""
    given = [td.like(td.bf16, 2, 2, 512, depth, align=256) for _ in range(4)]
    program = attention.plan(*given, causal=causal, target=TARGET).program.program
    facts = contiguous(program, TARGET, {"B": 2, "H": 2, "Sq": 512, "Sk": 512})
    point = {
        "consumers": 2,
        "columns": 0,
        "step": 128,
        "versions": versions,
        "flight": 0,
        "turns": True,
        "staged": False,
        "raster": "heavy first" if causal else "panels",
    }
    family = Streams()
    return print_machine(family.build(program, facts, point, family.guard(program, facts, point)))


def verdict(machine: str) -> Verdict:
    return check(parse_machine(machine))


@pytest.mark.parametrize(("depth", "causal"), [(64, False), (64, True), (128, False)])
def test_turns_are_verified(depth: int, causal: bool) -> None:
    machine = text(depth, causal)
    assert machine.count("tags (turn)") == 6
    assert verdict(machine).status == "verified"


def once(machine: str, pattern: str, replacement: str, number: int = 0) -> str:
    """One match of a pattern, the `number`-th, replaced."""
    found = list(re.finditer(pattern, machine))
    spot = found[number]
    return machine[: spot.start()] + spot.expand(replacement) + machine[spot.end() :]


WAIT = r"( *)sync barrier\.sync \(id = w \+ 3, threads = 256\) tags \(turn\)\n"
GIVE = r"( *)sync barrier\.arrive \(id = -w \+ 4, threads = 256\) tags \(turn\)\n"
FIRST = r"barrier\.arrive \(id = 3, threads = 256\)"
LAST = r"barrier\.sync \(id = 3, threads = 256\)"

TWINS = {
    "nobody begins": lambda m: once(m, r" *if 1 <= w \{\n.*\n *\}\n", ""),
    "the last arrival is left": lambda m: once(m, r" *if w <= 0 \{\n.*\n *\}\n", ""),
    "agent 0 begins for itself": lambda m: m.replace("if 1 <= w", "if w <= 0", 1),
    "both hand over first": lambda m: m.replace("if 1 <= w", "if 0 <= w", 1),
    "agent 1 takes the last turn": lambda m: once(m, r"if w <= 0", "if 1 <= w"),
    "a wait before the loop is gone": lambda m: once(m, WAIT, ""),
    "a wait in the loop is gone": lambda m: once(m, WAIT, "", 1),
    "a turn is not handed over in the loop": lambda m: once(m, GIVE, ""),
    "a turn is not handed over after the loop": lambda m: once(m, GIVE, "", 1),
    "a turn is handed over twice": lambda m: once(m, GIVE, r"\g<0>\g<0>"),
    "an agent waits twice": lambda m: once(m, WAIT, r"\g<0>\g<0>", 1),
    "an agent hands over to itself": lambda m: once(m, r"id = -w \+ 4", "id = w + 3"),
    "an agent waits for the other's turn": lambda m: once(m, r"id = w \+ 3", "id = -w + 4"),
    "half the threads wait": lambda m: once(m, r"(id = w \+ 3, threads = )256", r"\g<1>128"),
    "the first arrival is at another barrier": lambda m: re.sub(FIRST, "barrier.arrive (id = 5, threads = 256)", m),
    "the last wait is at the other's barrier": lambda m: re.sub(LAST, "barrier.sync (id = 4, threads = 256)", m),
    "turns at the barrier of everyone": lambda m: (
        m.replace("w + 3", "w").replace("-w + 4", "-w + 1").replace("id = 3", "id = 0")
    ),
    "turns at barriers that there are not": lambda m: (
        m.replace("w + 3", "w + 15").replace("-w + 4", "-w + 16").replace("id = 3", "id = 15")
    ),
    "one thread waits": lambda m: once(m, r"(id = w \+ 3, threads = 256\))", r"\g<1> by elect"),
    "an arrival that is no turn": lambda m: once(m, r"(id = -w \+ 4, threads = 256\)) tags \(turn\)", r"\g<1>"),
    "a fence that is a turn": lambda m: once(m, r"sync wgmma\.fence", "sync wgmma.fence tags (turn)"),
}


@pytest.mark.parametrize("twin", TWINS)
def test_wrong_twins_are_not_verified(twin: str) -> None:
    machine = TWINS[twin](text())
    assert machine != text()
    found = verdict(machine)
    assert found.status != "verified"
    assert found.judgement in ("J4", "J5")


def test_the_number_of_turns_is_the_same_for_both() -> None:
    machine = once(text(), r"(loop k0 = 0 \.\. )Sk( step 128 enters)", r"\g<1>min(Sk, 128 + 128*w)\g<2>")
    assert verdict(machine).status != "verified"


def late(machine: str) -> str:
    """Slots of the first contraction given back after the wait for the next turn."""
    lines = machine.split("\n")
    give = next(i for i, line in enumerate(lines) if "mbar.arrive k_empty{k_at} by warp" in line)
    release, advance = lines.pop(give), lines.pop(give)
    assert "advance k_at" in advance
    waits = [i for i, line in enumerate(lines) if re.fullmatch(WAIT, line + "\n")]
    lines[waits[1] + 1 : waits[1] + 1] = [release, advance]
    return "\n".join(lines)


def test_a_slot_that_is_held_while_waiting_for_a_turn() -> None:
    """With one slot agent 0 waits in its turn for a step that needs the slot agent 1 holds while it waits for its own
    turn: nobody goes on. With two slots there is always another."""
    assert verdict(late(text(versions=2))).status == "verified"
    one = text(versions=2)
    for ring in ("k", "v"):
        one = one.replace(f"({ring}_at // 2)", f"{ring}_at").replace(f"({ring}_at // 2 + 1)", f"({ring}_at + 1)")
    one = re.sub(r"versions 2( swizzle| tx)", r"versions 1\g<1>", one)
    one = re.sub(r"(barrier [kv]_empty count \d+ versions )2", r"\g<1>1", one)
    assert verdict(one).status == "verified"
    found = verdict(late(one))
    assert (found.status, found.judgement) == ("rejected", "J5")
    assert "inside its turn" in found.reason
