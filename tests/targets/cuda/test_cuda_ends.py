"""Ends that a run decides: blocks that pass them bring further elements of the tensor, which the consumer clears."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.targets.cuda.cuda_kit import arguments, clean, tried

import treadle as td
from treadle import lib
from treadle.checker.judge import check
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.machine.parse import parse_machine


@cache
def decode() -> tuple[Any, Program, str]:
    """The library's kernel at 64 columns: its plan, its program, the machine text."""

    def like(*s, dtype=td.bf16):
        return td.like(dtype, *s, align=256)

    keys = like(4, 2, 512, 64)
    plan = lib.decode_attention.plan(like(4, 8, 64), keys, keys, like(4, dtype=td.i32), target="cuda:sm_90a")
    return plan, parse_program(plan.source_program().strip("\n")), plan.machine()


def test_decode_is_contracted_by_tensor_cores_up_to_lengths_of_the_run() -> None:
    plan, source, text = decode()
    assert "streams" in plan.explain().splitlines()[0]
    machine = parse_machine(text)
    for sizes, length in (
        ({"B": 2, "KV": 2, "R": 3, "Sk": 300}, [77, 300]),
        ({"B": 1, "KV": 1, "R": 64, "Sk": 9}, [1]),
    ):
        args = arguments(source, sizes)
        args["length"] = np.array(length, np.int32)
        for b, n in enumerate(length):
            args["K"][b, :, n:] = np.nan
            args["V"][b, :, n:] = np.nan
        tried(machine, source, sizes, args=args, tolerance=2e-2)
    clean(machine)


STORE = "store Vs{v_at}["
TWINS = [
    ("no fence", "sync fence.proxy.async\n", "", "J2"),
    ("no barrier", "sync barrier.sync (id = w + 1, threads = 128)\n", "", "J2"),
    ("the barrier first", "sync fence.proxy.async\n        sync barrier.sync (id = w + 1, threads = 128)\n",
     "sync barrier.sync (id = w + 1, threads = 128)\n        sync fence.proxy.async\n", "J2"),
    ("another slot", STORE, "store Vs{v_at + 1}[", "J2"),
    ("one key too many", " <= $0 + 16*group + k0\n", " <= $0 + 16*group + k0 + 1\n", "J1"),
    ("one key left", " <= $0 + 16*group + k0\n", " <= $0 + 16*group + k0 - 1\n", "J1"),
    ("not cleared", "loop group = 0 ..", "loop group = 1 ..", "J1"),
    ("ones", "nothing = copy 0.0", "nothing = copy 1.0", "J1"),
    ("no version of its own", "version Vs fill 0 ;", "version Ks fill 0 ;", "J"),
    ("another length for the producer", "load length[t_b]", "load length[t_b - t_b]", "J"),
]  # fmt: skip


@pytest.mark.parametrize(("_", "right", "wrong", "judgement"), TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins(_: str, right: str, wrong: str, judgement: str) -> None:
    text = decode()[2]
    assert right in text
    verdict = check(parse_machine(text.replace(right, wrong, 1)))
    assert verdict.status != "verified" and (verdict.judgement or "").startswith(judgement), str(verdict)


def test_two_readers_do_not_clear() -> None:
    text = decode()[2]
    late = "sync mbar.arrive v_empty{v_at} by warp\n"
    before = text.index("version Vs fill 0")
    cleared = text[before : text.index("sync wgmma.fence", before)]
    moved = text.replace(cleared, "", 1)
    at = moved.index(late)
    for place in (at, at + len(late)):  # behind the product, and behind the release
        verdict = check(parse_machine(moved[:place] + cleared + moved[place:]))
        assert verdict.status != "verified", str(verdict)
