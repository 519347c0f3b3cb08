"""`ldmatrix`: each lane gives the address of the line that the fragment's distribution says, in both orientations."""

from __future__ import annotations

import re

import pytest
from tests.realise.texts import program

from treadle.machine.form import Load, MachineProgram
from treadle.plan.facts import contiguous
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
