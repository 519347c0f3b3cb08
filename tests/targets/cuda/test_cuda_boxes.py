"""Rows that are boxes of several dimensions: every box is verified and right, at ends of each dimension."""

from __future__ import annotations

import functools
from math import prod

import pytest
from tests.targets.cuda.cuda_kit import clean, tried

import treadle as td
from treadle import lib
from treadle.checker.judge import check
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.machine.form import Copy
from treadle.plan.facts import contiguous
from treadle.targets.cuda.stream_boxes import factored
from treadle.targets.cuda.streams import Streams

SIZES = {"B": 3, "H": 9, "V": 10, "KH": 3, "KV": 3, "Ho": 9, "Vo": 10, "G": 1, "P": 64, "Q": 64}


def windows(channels: int, out: int) -> tuple[str, Program]:
    """The library's convolution: how it is planned, its program."""
    like = functools.partial(td.like, td.bf16, align=256)
    given = like(4, 28, 28, channels), like(3, 3, channels, out), None, like(4, 28, 28, out)
    plan = lib.conv2d_nhwc.plan(*given, pad=1, target="cuda:sm_90a")
    return plan.explain().splitlines()[0], parse_program(plan.source_program().strip("\n"))


@pytest.mark.parametrize(
    ("box", "consumers", "staged", "flight"), [("2x8x8", 2, True, 1), ("2x4x8", 1, False, 0), ("32x1x4", 2, True, 0)]
)
def test_boxes(box: str, consumers: int, staged: bool, flight: int) -> None:
    first, source = windows(64, 64)
    assert "streams" in first and "box=" in first
    facts, family = contiguous(source, "cuda:sm_90a", SIZES), Streams()
    assert family.admits(source, facts) == []
    point = {a.name: a.values[0] for a in family.axes(source, facts)}
    point |= {"box": box, "consumers": consumers, "staged": staged, "flight": flight, "columns": 64, "versions": 2}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified"
    loads = [s for s in machine.statements() if isinstance(s, Copy) and s.src.name == "X"]
    assert {prod(s.box) for s in loads} == {64 * 64 * consumers}
    tried(machine, source, SIZES)
    clean(machine)


def test_channels_beyond_a_tile_are_numbers_too() -> None:
    first, source = windows(512, 512)
    assert "streams" in first
    assert {d.name: d.extent.constant for d in source.dims if d.name in ("P", "Q")} == {"P": 512, "Q": 512}


def test_boxes_are_powers_of_two() -> None:
    found = list(factored(64, 3))
    assert all(prod(way) == 64 and way[-1] >= 4 for way in found) and len(found) == len(set(found))
