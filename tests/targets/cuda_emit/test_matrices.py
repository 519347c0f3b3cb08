"""`ldmatrix`: each lane gives the address of the line that the fragment's distribution says, in both orientations."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.marks import assembled
from tests.realise.texts import program
from tests.targets.cuda_emit.kit import built

from treadle.checker import check
from treadle.machine.form import Load, MachineProgram
from treadle.machine.parse import parse_machine
from treadle.plan.facts import contiguous
from treadle.simulate.run import run_schedules
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.emit.fragments import layout
from treadle.targets.cuda.warps import Warps

SIZES = {"M": 256, "N": 256, "K": 256}


def machine(rows: int) -> MachineProgram:
    source = program("linear_bf16")
    family, facts = Warps(), contiguous(source, "cuda:sm_80", SIZES)
    point = {"rows": rows, "columns": 128, "step": 32, "versions": 3, "raster": "row"}
    return family.build(source, facts, point, family.guard(source, facts, point))


def bits(lane: int, warp: int) -> dict[str, int]:
    return {f"@lane{i}": lane >> i & 1 for i in range(5)} | {f"@warp{i}": warp >> i & 1 for i in range(3)}


@pytest.mark.parametrize("rows", [64, 128])
def test_lanes_give_the_addresses_of_their_lines(rows: int) -> None:
    made = machine(rows)
    emitted = emit(made)
    (launch,) = emitted.launches
    loads: dict[str, list[Load]] = {}
    for s in made.statements():
        if isinstance(s, Load) and s.src.name.endswith("s"):
            loads.setdefault(s.dst, []).append(s)
    frags = {f.name: layout(f, 32, 8) for f in made.kernels[0].frags}
    buffers = {b.name: b for b in made.kernels[0].buffers}
    parts = re.findall(r"const int (t\d+) = (.*);", emitted.source)
    starts = dict(re.findall(r"const int (q\d+) = \(int\)(.*);", emitted.source))
    issued = re.findall(r"load_matrix_4(_turned)?\(base \+ \((q\d+)(?: \+ (\d+))?\), f_(\w+)\[(\d+)\]", emitted.source)
    assert len(issued) == launch.counts["LDSM"] > 0
    assert {turned for turned, *_ in issued} == {"", "_turned"}
    for number, (turned, start, distance, name, first) in enumerate(issued):
        f = 0 if number < len(issued) // 2 else 1
        held, load = frags[name], loads[name][min(f, len(loads[name]) - 1)]
        buffer = buffers[load.src.name]
        outer, inner = (int(e.constant or 0) for e in buffer.shape[1:])
        strides = [outer * inner, inner, 1]
        for warp in range(8):
            for lane in range(32):
                env = {"lane": lane, "warp": warp, "x_k0": 0}
                env |= {
                    t: eval(text, {}, dict(env)) for t, text in parts if re.fullmatch(r"[\d\s()&*+>lanewrp]*", text)
                }
                address = eval(re.sub(r"\(u32\)|(?<=\d)u\b", "", starts[start]), {}, env) + int(distance or 0)
                word, line = int(first) + lane // 8, lane % 8
                # The line's first element: of a row, by the lane that holds its first columns; of a column, its row 0.
                slot = held.slots[2 * word]
                holder = bits(line // 2 if turned else 4 * line, warp)
                at = [int(p.evaluate(holder)) + c for p, c in zip(held.parts, slot)]
                if turned:
                    at[1] += line % 2
                place = {"$0": at[0], "$1": at[1], "k0": 0, "f": f}
                index = [int(e.evaluate(place)) for e in load.src.index]
                wanted = 2 * sum(i * s for i, s in zip(index, strides)) + int((buffer.offset or 0).constant or 0)
                assert address == wanted, (name, warp, lane)


WORDS = """tdm 1
target cuda:sm_90a
program {
  program moved
    dim M = 16 static
    dim N = 8 static
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      %x: f32[M, N] = load X[M, N]
      store Y[M, N] = %x
}
guard {
  disjoint(X, Y)
  injective(Y)
}
host {
  launch main grid 1 threads 32 shared 512
}
kernel main {
  buffer S f32[16, 8] shared align 128 @ 0
  frag x f32[16, 8] dist (slot 4 axis 1 stride 1, lane 2 axis 1 stride 4, lane 16 axis 0 stride 1)
  frag y f32[16, 8] dist (DIGITS)
  role all agents 1 threads 32 {
    tasks (t < 1) over grid {
      x = load X[$0, $1] ; %x[$0, $1]
      sync barrier.sync (id = 0, threads = 32)
      version S ; %x[$0, $1]
      store S[$0, $1] = x ; %x[$0, $1]
      sync barrier.sync (id = 0, threads = 32)
      y = load S[$0, $1] ; %x[$0, $1]
      store Y[$0, $1] = y ; store 0 [$0, $1]
    }
  }
}
"""

DIGITS = "slot 2 axis 0 stride 8, slot 2 axis 1 stride 4, lane 4 axis 1 stride 1, lane 8 axis 0 stride 1"


@assembled
def test_words_of_four_lanes_are_a_line() -> None:
    """Elements of 32 bits, one a lane: a line is four of them, a register an 8 x 4 part of the tile."""
    machine = parse_machine(WORDS.replace("DIGITS", DIGITS))
    assert check(machine).status == "verified", str(check(machine))
    x = np.arange(128, dtype=np.float32).reshape(16, 8)
    assert run_schedules(machine, {"X": x, "Y": np.zeros_like(x)}, 2, expected={"Y": x}).right
    made = built(machine)
    assert made.emitted.launches[0].counts["LDSM"] == made.count("LDSM") == 1 and made.count("LDS") == 0
    source = made.emitted.source
    (start,) = re.findall(r"load_matrix_4\(base \+ \((q\d+)\),", source)
    address = re.search(rf"const int {start} = (?:\(int\))?\((.*)\);", source)
    assert address is not None
    frag = layout(next(f for f in machine.kernels[0].frags if f.name == "y"), 32, 1)
    for lane in range(32):
        env = {"lane": lane, "warp": 0}
        for name, text in re.findall(r"const int (t\d+) = (.*);", source):
            env[name] = eval(text, {}, dict(env))
        register, line = lane // 8, lane % 8
        row, column = (int(c.substitute(bits(4 * line, 0)).constant or 0) for c in frag.coords(register))
        assert eval(address[1], {}, env) == 4 * (8 * row + column)
