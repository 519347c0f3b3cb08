"""Every primitive of synchronisation in use or planned, with a machine text that uses it and a broken twin.

The page of the memory model lists them (`python -m tests.docs.memory_model_page`); tests/checker/test_primitives.py
holds each to what the page says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tests.checker import copied_ring_text, meeting_text, phase_text, send_text
from tests.checker.counter_text import counted
from tests.checker.gang_text import GANG
from tests.checker.gang_text import MEET as GANG_MEETS
from tests.checker.handover_ring_text import RIGHT as BOXES
from tests.checker.pattern_files import FOLDER, read
from tests.checker.peer_text import MEET, READ, WRITE
from tests.checker.random_machines import SHAPES, Draw
from tests.checker.ring_text import RING
from tests.checker.test_boxes_merged import TEXT as ADDED
from tests.checker.test_reuse import ring as copies
from tests.checker.test_webgpu import MEET as INVOCATIONS_MEET
from tests.checker.test_webgpu import RIGHT as INVOCATIONS

import treadle as td
from treadle.lib import matmul
from treadle.machine.text import print_machine

HOPPER, AMPERE, CPU = ("cuda:sm_90a",), ("cuda:sm_80", "cuda:sm_90a"), ("cpu",)


@dataclass(frozen=True)
class Primitive:
    """`words`: what the text has of it; `rows`: those of the memory model that it rests on; `targets`: for which it is
    emitted; `sizes`: extents to run both texts at; `shows`: whether schedules find out the broken one (none does where
    what is wrong is a matter of the hardware's limits, or of who runs first)."""

    name: str
    words: tuple[str, ...]
    rows: tuple[str, ...]
    right: str
    wrong: str
    targets: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]
    shows: bool = True


def _without(text: str, *lines: str) -> str:
    for line in lines:
        assert line in text, line
        text = text.replace(line, "", 1)
    return text


def _pattern(name: str) -> tuple[str, str]:
    found = read(FOLDER / f"{name}.wrong.tdm")
    return found.right, found.wrong


def _merged(effect: str) -> tuple[str, str]:
    """Boxes of integers that are merged so, and others that are stored."""
    text = ADDED.replace("f32", "i32").replace("] add %x", f"] {effect} %x").replace("tma.add", f"tma.{effect}")
    return text, text.replace(f"tma.{effect}", "tma.store")


@cache
def _tiles() -> str:
    """A plan's text: what the emitter takes goes through local buffers."""
    square = td.like(td.bf16, 64, 64)
    return print_machine(matmul.plan(square, square, square, target="cpu:amx").program)


@cache
def primitives() -> tuple[Primitive, ...]:
    """All of them, in the order of the page."""
    runs = SHAPES["channel"](Draw(2, 1.0)).text
    rows, small = (("M", 3), ("N", 132)), (("M", 3), ("N", 50))
    merged = (("K", 2), ("M", 33), ("N", 36))
    products = (("M", 9), ("N", 16), ("K", 72))
    return (
        Primitive(
            "copies of threads, in groups", ("copy cp.async", "cpasync.commit", "cpasync.wait"),
            ("cp.async", "cpasync.commit", "cpasync.wait"),
            copies(3), _without(copies(3), "        sync cpasync.wait (depth = 1)\n"), AMPERE, (("M", 5), ("N", 92)),
        ),
        Primitive(
            "copies of threads that arrive at a phased barrier", ("cpasync.arrive",), ("cpasync.arrive",),
            copied_ring_text.ring(2), _without(copied_ring_text.ring(2), copied_ring_text.ALONE), AMPERE, rows,
        ),
        Primitive(
            "phased barriers with transaction counts", ("mbar.init", "mbar.expect", "mbar.arrive", "mbar.wait"),
            ("mbar.init", "mbar.expect", "mbar.arrive", "mbar.wait", "fence.mbar_init"),
            BOXES, BOXES.replace("(bytes = 256)", "(bytes = 252)"), HOPPER, rows,
        ),
        Primitive(
            "boxes that an engine loads", ("copy tma.load",), ("tma.load",),
            BOXES, BOXES.replace("X[v, 64 * h + $1] box", "X[v, 64 * h + $1 + 4] box"), HOPPER, rows,
        ),
        Primitive(
            "boxes that an engine stores, in groups", ("copy tma.store", "bulk.commit", "bulk.wait"),
            ("tma.store", "bulk.commit", "bulk.wait"), *_pattern("box_without_a_fence"), HOPPER, products,
        ),
        Primitive(
            "runs that an engine loads and stores", ("copy bulk.load", "copy bulk.store"),
            ("bulk.load", "bulk.store"),
            runs, _without(runs, "    sync bulk.wait (depth = 0) by elect\n"), HOPPER, (("M", 5), ("N", 40)),
        ),
        Primitive(
            "boxes that an engine adds", ("copy tma.add",), ("tma.add",),
            ADDED, ADDED.replace("copy tma.add", "copy tma.store"), HOPPER, merged,
        ),
        Primitive("boxes that leave the greater", ("copy tma.max",), ("tma.max",), *_merged("max"), HOPPER, merged),
        Primitive("boxes that leave the lesser", ("copy tma.min",), ("tma.min",), *_merged("min"), HOPPER, merged),
        Primitive(
            "boxes for several workgroups", ("multicast 3", "empty@(all)"), ("tma.multicast", "mbar.arrive.far"),
            *_pattern("cluster_begins_apart"), HOPPER, rows,
        ),
        Primitive(
            "asynchronous products: groups, registers", ("wgmma.fence", "wgmma.commit", "wgmma.wait", "mma wgmma"),
            ("wgmma", "wgmma.fence", "wgmma.commit", "wgmma.wait"),
            RING, _without(RING, "      sync wgmma.wait (depth = 0)\n"), HOPPER, products,
        ),
        Primitive(
            "registers dealt anew", ("setmaxnreg",), ("setmaxnreg",),
            RING, RING.replace("(registers = 232)", "(registers = 240)"), HOPPER, products, False,
        ),
        Primitive(
            "named barriers", ("barrier.sync", "barrier.arrive"), ("barrier.sync", "barrier.arrive"),
            *_pattern("named_barrier_counts_one_side"), AMPERE, small,
        ),
        Primitive(
            "the barrier of a cluster", ("cluster.arrive", "cluster.wait"),
            ("cluster.arrive", "cluster.wait", "launch.cluster", "clusters"),
            READ, READ.replace(MEET, "", 1), HOPPER, small,
        ),
        Primitive(
            "shared memory of other workgroups", ("S@(0)", "S@(1)"), ("dsmem",),
            WRITE, WRITE.replace("S@(0)[cta.rank]", "S@(0)[0]"), HOPPER, small,
        ),
        Primitive(
            "stores to other workgroups that signal", ("signal full@(0){c}", "cluster = 1"), ("st.async", "mbar.wait"),
            send_text.text(), send_text.text(wait=send_text.WAIT.replace(", cluster = 1", "")), HOPPER, small,
        ),
        Primitive(
            "proxies and their fence", ("fence.proxy.async",), ("fence.proxy.async",),
            *_pattern("box_without_a_fence"), HOPPER, products,
        ),
        Primitive(
            "counters in global memory", ("if last",), ("counter.last",),
            counted(), counted().replace("of S id", "of S - 1 id"), AMPERE, (("M", 2), ("N", 70)),
        ),
        Primitive(
            "counters that tasks wait at, tickets", ("counter.add", "counter.wait", "over tickets"),
            ("counter.add", "counter.wait", "tickets"),
            *_pattern("owner_waits_for_tasks_not_begun"), AMPERE, small, False,
        ),
        Primitive(
            "cooperative launches", ("grid.sync", "cooperative"), ("grid.sync", "launch.cooperative"),
            meeting_text.text(), meeting_text.text(middle=""), AMPERE, (("M", 1), ("N", 34)),
        ),
        Primitive(
            "cooperative launches in clusters", ("cluster 2 cooperative",), ("launch.cooperative.clusters",),
            phase_text.clusters(), phase_text.clusters(flags=""), HOPPER, small,
        ),
        Primitive(
            "dependent launches", ("dependent", "grid.wait", "grid.release"),
            ("launch.dependent", "grid.wait", "grid.release"),
            *_pattern("dependent_launch_without_a_wait"), HOPPER, small,
        ),
        Primitive(
            "the barrier of a WebGPU workgroup", ("workgroup.barrier",), ("workgroup.barrier",),
            INVOCATIONS, _without(INVOCATIONS, INVOCATIONS_MEET), (), (("N", 64),),
        ),
        Primitive(
            "tasks of CPU workers", ("over workers",), ("tasks", "workers"),
            *_pattern("lanes_never_combined"), CPU, small,
        ),
        Primitive(
            "gangs of CPU workers", ("gang.sync", "over gangs"), ("gang.sync", "gangs"),
            GANG, _without(GANG, GANG_MEETS), (), small,
        ),
        Primitive(
            "tiles of a CPU", ("amx.config", "amx.release"), ("amx.config", "amx.release"),
            _tiles(), re.sub(r" *sync amx.config[^\n]*\n", "", _tiles()), CPU, products,
        ),
    )  # fmt: skip
