"""A fragment picked under another distribution in its warp: judged, simulated, and its shuffles run as emitted, lane by
lane."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from tests.algebra.distributions import distribution
from tests.marks import assembled
from tests.targets.cuda_emit.kit import built

from treadle.algebra.bits import BitLayout
from treadle.algebra.conversions import convert, images_of
from treadle.checker import check
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.simulate.run import run_schedules
from treadle.targets.cuda.emit import emit

TEXT = """tdm 1
target cuda:sm_90a
program {{
  program moved
    dim N = {n} static
    tensor X: {dtype}[N]
    tensor Y: {dtype}[N] out
    body
      %x: {dtype}[N] = load X[N]
      store Y[N] = %x
}}
guard {{
  disjoint(X, Y)
  injective(Y)
}}
host {{
  launch main grid 1 threads {threads}
}}
kernel main {{
  frag x {dtype}[{n}] dist ({first})
  frag y {dtype}[{n}] dist ({second})
  role all agents 1 threads {threads} {{
    tasks (t < 1) over grid {{
      x = load X[$0] ; %x[$0]
      y = pick x[$0] ; %x[$0]
      store Y[$0] = y ; store 0 [$0]
    }}
  }}
}}
"""


def digits(layout: BitLayout) -> str:
    """A distribution of single bits in the words of the text."""
    found: list[str] = []
    for who, _ in layout.ins:
        for image in images_of(layout, who):
            found.append(f"{who} 2 axis 0 stride {image}" if image else f"{who} 2 axis - stride 0")
    return ", ".join(found)


def program(first: BitLayout, second: BitLayout, dtype: str = "f32") -> MachineProgram:
    """What one distribution holds, stored by another."""
    sizes = dict(first.ins)
    n = 1 << dict(first.outs)["element"]
    made = {"n": n, "dtype": dtype, "threads": 32 << sizes["warp"], "first": digits(first), "second": digits(second)}
    return parse_machine(TEXT.format(**made))


def run(source: str, held: np.ndarray, count: int) -> np.ndarray:
    """Runs the text between the loads and the stores for all threads at once: what `f_y` has then (thread, slot)."""
    threads = len(held)
    env: dict[str, Any] = {"lane": np.arange(threads) % 32, "warp": np.arange(threads) // 32}
    registers: dict[str, list[np.ndarray]] = {"x": list(held.T), "y": [np.full(threads, -1)] * count}

    def shuffled(value: np.ndarray, where: np.ndarray) -> np.ndarray:
        assert (where >= 0).all() and (where < 32).all()
        return value[np.arange(threads) // 32 * 32 + where]

    def value(text: str) -> Any:
        text = re.sub(r"f_(\w)\[(\d+)\]", r"registers['\1'][\2]", text.strip())
        if " ? " in text:
            test, rest = text.split(" ? ")
            one, other = rest.split(" : ")
            return np.where(np.asarray(value(test)).astype(bool), value(one), value(other))
        text = re.sub(r"\((?:float|int|u32|u16|double|i64|u8)\)", "", text)
        text = re.sub(r"__shfl_sync\(~0u, (.*), ([^,]*)\)", r"shuffled(\1, \2)", text)
        names = {**env, "registers": registers, "shuffled": shuffled}
        return eval(text, {}, names) + np.zeros(threads, dtype=np.int64)

    for line in source.splitlines():
        line = line.strip().rstrip(";")
        if match := re.fullmatch(r"(?:const )?(?:int|bool|float|double|u16|u32|i64) (\w+) = (.*)", line):
            env[match[1]] = value(match[2])
        elif match := re.fullmatch(r"if \((.*)\) (\w+) = (.*)", line):
            env[match[2]] = np.where(value(match[1].replace("==", "-")) == 0, value(match[3]), env[match[2]])
        elif match := re.fullmatch(r"f_y\[(\d+)\] = (.*)", line):
            registers["y"][int(match[1])] = value(match[2])
        elif match := re.fullmatch(r"for \(int i = 0; i < (\d+); i\+\+\) f_y\[i\] = (.*)", line):
            registers["y"] = [value(match[2])] * int(match[1])
    return np.stack(registers["y"], 1)


def picking(source: str) -> str:
    """The lines of the statement."""
    return source.split("// y = pick")[1].split("// store Y")[0]


def in_one_warp(dice: random.Random) -> tuple[BitLayout, BitLayout]:
    """Distributions between which shuffles convert. Of some, a warp has all in few lanes and wants a part in many."""
    while True:
        warps, bits = dice.randint(0, 2), dice.randint(3, 9)
        most = max(0, bits - 5 - warps)
        first, second = (distribution(dice, dice.randint(min(most, 4), 4), 5, warps, bits) for _ in range(2))
        if warps and dice.random() < 0.5:
            bits = 6 + warps
            first = distribution(dice, 3, 5, 0, bits)
            second = distribution(dice, dice.randint(1, 2), 5, 0, bits - warps)
            assert first is not None and second is not None
            ins = (("slot", 3), ("lane", 5), ("warp", warps))
            first = BitLayout(ins, first.outs, (*first.images, *[0] * warps))
            parts = [1 << bits - 1 - i for i in range(warps)]
            ins = (second.ins[0], *ins[1:])
            second = BitLayout(ins, first.outs, (*second.images, *parts))
        if first is not None and second is not None and convert(first, second).way == "shuffle":
            return first, second


def held_by(layout: BitLayout) -> np.ndarray:
    sizes = dict(layout.ins)
    return np.array(
        [
            [layout(slot=s, lane=lane, warp=w)["element"] for s in range(1 << sizes["slot"])]
            for w in range(1 << sizes["warp"])
            for lane in range(32)
        ]
    )


def test_random_pairs_as_emitted() -> None:
    dice = random.Random(12)
    uneven = 0
    for _ in range(60):
        first, second = in_one_warp(dice)
        found = convert(first, second)
        emitted = emit(program(first, second)).source
        assert emitted.count("__shfl_sync(") == found.rounds
        uneven += found.shuffles is not None and not found.shuffles.everyone
        got = run(picking(emitted), held_by(first), 1 << dict(second.ins)["slot"])
        assert (got == held_by(second)).all()
    assert uneven > 3


MORE = (
    BitLayout((("slot", 3), ("lane", 5), ("warp", 3)), (("element", 6),), (1, 2, 4, 8, 16, 32, 0, 0, 0, 0, 0)),
    BitLayout((("slot", 0), ("lane", 5), ("warp", 3)), (("element", 6),), (1, 2, 4, 0, 0, 8, 16, 32)),
)
"""Lanes that give more than others get."""
ROTATED = (
    BitLayout((("slot", 2), ("lane", 5), ("warp", 1)), (("element", 8),), tuple(1 << i for i in range(8))),
    BitLayout((("slot", 2), ("lane", 5), ("warp", 1)), (("element", 8),), (32, 64, 1, 2, 4, 8, 16, 128)),
)


def test_lanes_that_give_more_than_others_get() -> None:
    got = run(picking(emit(program(*MORE)).source), held_by(MORE[0]), 1)
    assert (got == held_by(MORE[1])).all()


def test_they_are_judged_and_simulated() -> None:
    dice = random.Random(2)
    for first, second in [MORE, ROTATED, *(in_one_warp(dice) for _ in range(6))]:
        machine = program(first, second)
        assert check(machine).status == "verified", str(check(machine))
        x = np.arange(1 << dict(first.outs)["element"], dtype=np.float32)
        assert run_schedules(machine, {"X": x, "Y": np.zeros_like(x)}, 2, expected={"Y": x}).right


def test_elements_of_other_warps_are_refused() -> None:
    first, second = (
        BitLayout((("slot", 0), ("lane", 5), ("warp", 1)), (("element", 6),), images)
        for images in ((1, 2, 4, 8, 16, 32), (2, 4, 8, 16, 32, 1))
    )
    assert check(program(first, second)).status != "verified"


@assembled
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "i8"])
def test_they_assemble(dtype: str) -> None:
    made = built(program(*ROTATED, dtype))
    assert made.cubin.messages == ()
    assert made.count("SHFL") == 4 * (2 if dtype == "f64" else 1) and made.count("LDL") == made.count("STL") == 0
