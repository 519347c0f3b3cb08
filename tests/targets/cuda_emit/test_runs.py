"""Computation between conditions is written in one piece for agents that take turns."""

from __future__ import annotations

import re
from functools import cache

import treadle as td
from treadle.lib.attention import attention
from treadle.machine.parse import parse_machine
from treadle.targets.cuda.emit import emit


@cache
def chain(causal: bool, length: int = 4032) -> str:
    """Machine text of a plan with turns; of the usual length blocks of 128 keys do not end with the last one."""
    given = [td.like(td.bf16, 4, 16, length, 128, align=256) for _ in range(4)]
    plan = attention.plan(*given, causal=causal, target="cuda:sm_90a")
    assert plan.decisions.point["turns"]
    assert plan.check().status == "verified"
    return plan.machine()


def source(machine: str) -> str:
    return emit(parse_machine(machine)).source


def test_the_usual_way_has_no_masks() -> None:
    text = source(chain(False))
    masks = re.findall(r"if \(+n_Sk <= [^{]*\{", text)
    assert text.count("exp2_approx(fmaf(") == 2 * 64
    assert len(masks) == 4  # around the run, and the three in its first half


def test_whole_blocks_have_none_at_all() -> None:
    text = source(chain(False, 4096))
    assert text.count("exp2_approx(fmaf(") == 64 and not re.findall(r"if \(+n_Sk <= [^{]*\{", text)


def test_registers_are_ready_before_the_turn() -> None:
    text = source(chain(False))
    before = re.findall(r"tags \(turn\)\n((?: *landed\(\w+\);\n)*) *named_sync\(", text)
    assert [x.count("landed") for x in before] == [0, 2]  # the first contraction begins with nothing in registers


def test_several_conditions_stay_where_they_are() -> None:
    assert source(chain(True)).count("exp2_approx(fmaf(") == 64


def test_without_turns_nothing_is_written_twice() -> None:
    plain = re.sub(r"\n *if [^\n]*\{\n *sync barrier[^\n]*tags \(turn\)\n *\}", "", chain(False))
    plain = re.sub(r"\n[^\n]*tags \(turn\)", "", plain)
    assert source(plain).count("exp2_approx(fmaf(") == 64
