"""The run behind a timeline: it keeps the program's order, counts barriers right, and does what the simulator does."""

from __future__ import annotations

from collections import defaultdict

import ml_dtypes
import numpy as np
import pytest
from tests.view.plans import NAMES, machine

from treadle.machine.form import Sync
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine, statement_lines
from treadle.simulate.control import order_of_tasks as simulated_order
from treadle.simulate.run import record
from treadle.simulate.tape import Synchronised
from treadle.view.facts import admits, scene, small_scene
from treadle.view.happenings import order_of_tasks
from treadle.view.run import run_kernel
from treadle.view.timeline import uses

BIG = {"M": 2048, "N": 2048, "K": 2048, "B": 2, "H": 4, "Sq": 2048, "Sk": 2048, "D": 128}


def runs(name, extents=None):
    program = machine(name)
    for kernel in program.kernels:
        launch = next(one for one in program.host.launches if one.kernel == kernel.name)
        here = small_scene(program, kernel, BIG) if extents is None else scene(program, extents)
        yield program, kernel, here, run_kernel(program, kernel, launch, here)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_program_is_kept(name):
    for program, kernel, here, run in runs(name):
        assert run.events and run.cut == ""
        assert admits(program.guard, here.values)
        lanes = defaultdict(list)
        for event in run.events:
            assert event.end >= event.begin
            for cause in event.after:
                assert cause < event.number and run.events[cause].end <= event.begin
            lanes[event.lane].append(event)
        agents = [r.name if r.agents == 1 else f"{r.name} {i}" for r in kernel.roles for i in range(r.agents)]
        for lane in (*agents, "tensor cores", *(n for n in lanes if n.startswith("worker "))):
            assert all(a.end <= b.begin for a, b in zip(lanes[lane], lanes[lane][1:])), lane
        if any(isinstance(s, Sync) for s in program.statements()):
            assert set(agents) <= set(lanes)
        # An engine fills a slot again when nobody reads it any more.
        for event in run.events:
            for slot in event.writes if event.kind == "copy" else ():
                assert all(e.end <= event.begin for e in run.events[: event.number] if slot in e.reads)
        for buffer in kernel.buffers:
            if buffer.place == "shared":
                assert {(buffer.name, i) for i in range(max(1, buffer.versions))} <= set(uses(run))
        rings = [b for b in kernel.buffers if b.versions > 1 and any(e.kind == "copy" for e in run.events)]
        assert all(len(uses(run)[b.name, 0]) > 1 for b in rings)


@pytest.mark.parametrize("name", ["linear", "chain"])
def test_waits_end_with_the_phase_that_they_wait_for(name):
    """Arrivals and bytes are counted anew from the events alone."""
    for _, kernel, _, run in runs(name):
        barriers = {b.name: b for b in kernel.barriers}
        told = defaultdict(list)
        for event in run.events:
            stmt = event.statements[0] if event.statements else None
            if event.kind == "sync" and isinstance(stmt, Sync) and stmt.object is not None:
                slot = event.what.split(" ")[1]
                role = next(r for r in kernel.roles if event.lane.startswith(r.name))
                count = {"elect": 1, "warp": role.threads // 32, "": role.threads}[stmt.by]
                told[slot].append((event.end, count))
            if event.kind == "copy" and getattr(stmt, "signal", None) is not None:
                name_of, index = stmt.signal.name, event.writes[0][1]
                slot = f"{name_of}[{index}]" if stmt.signal.version is not None else name_of
                told[slot].append((event.end, 0))
        waits = defaultdict(list)
        for event in run.events:
            if event.kind == "wait" and event.what.startswith("mbar.wait"):
                waits[event.lane, event.what.split(" ")[1]].append(event.end)
        assert waits
        for (lane, slot), ends in waits.items():
            barrier = barriers[slot.split("[")[0]]
            arrivals = sorted((t, c) for t, c in told[slot])
            over, counted = [], 0
            for time, count in arrivals:
                counted += count
                while counted >= barrier.count * (len(over) + 1):
                    over.append(time)
            ahead = 1 if lane.startswith("producer") else 0  # slots are free at first
            for number, end in enumerate(ends):
                if number >= ahead:
                    assert end >= over[number - ahead]


def arguments(shapes):
    random = np.random.default_rng(0)
    return {n: random.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for n, s in shapes.items()}


def test_agents_synchronise_as_simulated_threads_do():
    """The synchronisations of every agent, in order, are those of its first thread in a simulated run."""
    program = parse_machine(print_machine(machine("linear")), "x")
    (kernel,) = program.kernels
    columns = next(int(f.shape[1]) for f in kernel.frags if f.name == "acc")
    extents = {"M": 128, "N": columns, "K": 64 * 6}
    shapes = {"X": (128, 384), "W": (384, columns), "bias": (columns,), "Y": (128, columns)}
    simulation, replayer = record(program, arguments(shapes), seed=2)
    assert simulation.clean and replayer is not None
    lines = statement_lines(program)
    run = run_kernel(program, kernel, program.host.launches[0], scene(program, extents))
    assert run.cut == "" and run.grid == 1
    silent = ("setmaxnreg", "mbar.init", "fence.mbar_init", "fence.proxy.async", "wgmma.fence")
    compared = 0
    for role in kernel.roles:
        for agent in range(role.agents):
            lane = role.name if role.agents == 1 else f"{role.name} {agent}"
            log = replayer.tape.threads[0, 0, role.name, agent, 0]
            wanted = [e.line for e in log.entries if isinstance(e, Synchronised) and e.item.kind not in silent]
            mine = [e for e in run.events if e.lane == lane and len(e.statements) == 1]
            # A named barrier is an arrival and a wait here; commits are the events of what they close.
            found = [
                lines[id(e.statements[0])]
                for e in mine
                if isinstance(s := e.statements[0], Sync) and not (s.kind == "barrier.sync" and e.kind == "wait")
            ]
            commits = {lines[id(s)] for s in program.statements() if isinstance(s, Sync) and s.kind.endswith("commit")}
            assert found == [n for n in wanted if n not in commits]
            compared += len(found)
    assert compared > 40


def test_tasks_come_in_the_simulators_order():
    grouped = [("group", 3), ("group", 16), ("group", 2, "reverse"), ("slow", 3), ("slow", 64)]
    for raster in (("row",), ("row", "reverse"), *grouped):
        for counts in ((5, 7), (4, 3, 2), (6,)):
            total = int(np.prod(counts))
            found = [order_of_tasks(raster, counts, n) for n in range(total)]
            assert found == [simulated_order(raster, counts, n) for n in range(total)]
            assert len(set(found)) == total
