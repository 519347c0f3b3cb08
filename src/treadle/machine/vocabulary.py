"""The closed words of machine text: kinds of synchronisation, copy engines, atoms, places, grains.

What a synchronisation *means* is a row of the memory-model table in room `hardware`; here stands its shape: whether it
has an object, and the names of its numbers. Parser, verifier of form, simulator and emitters read this one table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SyncShape:
    """Whether a kind of synchronisation names a phased barrier, and its numbers (`optional` ones have a default).

    `whole`: it is executed by all threads of the agent together (`by` is empty). `memory`: the object is an element of
    memory, not a barrier."""

    has_object: bool = False
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    whole: bool = False
    memory: bool = False


SYNC: dict[str, SyncShape] = {
    # A phased barrier: set up (no version: every barrier of the ring), one arrival that announces bytes, arrivals, a
    # wait for the phase of parity `phase` to be over; `cluster` 1: what came from other workgroups is visible then.
    "mbar.init": SyncShape(True),
    "mbar.expect": SyncShape(True, ("bytes",)),
    "mbar.arrive": SyncShape(True, (), ("count",)),
    "mbar.wait": SyncShape(True, ("phase",), ("cluster",)),
    # A named barrier of the workgroup: `threads` arrivals, counted by whole warps.
    "barrier.sync": SyncShape(False, ("id", "threads"), whole=True),
    "barrier.arrive": SyncShape(False, ("id", "threads"), whole=True),
    # The barrier of a cluster, of all threads of its workgroups: each arrives once and waits once a phase.
    "cluster.arrive": SyncShape(whole=True),
    "cluster.wait": SyncShape(whole=True),
    # All threads of all workgroups of a cooperative launch arrive and wait.
    "grid.sync": SyncShape(whole=True),
    # The launch that depends on this one may begin; the launch that this one depends on is over.
    "grid.release": SyncShape(whole=True),
    "grid.wait": SyncShape(whole=True),
    # A counter in global memory: one more, of each executing thread; until it has reached `count`.
    "counter.add": SyncShape(True, memory=True),
    "counter.wait": SyncShape(True, ("count",), memory=True),
    "fence.gpu": SyncShape(),
    # All invocations of a WebGPU workgroup arrive and wait.
    "workgroup.barrier": SyncShape(whole=True),
    # All workers of a gang arrive and wait.
    "gang.sync": SyncShape(whole=True),
    "fence.proxy.async": SyncShape(),
    "fence.mbar_init": SyncShape(),
    "wgmma.fence": SyncShape(whole=True),
    "wgmma.commit": SyncShape(whole=True),
    "wgmma.wait": SyncShape(False, ("depth",), whole=True),
    # Groups of bulk stores of one thread: wait until at most `depth` are unfinished; `read` 1: until sources are free.
    "bulk.commit": SyncShape(),
    "bulk.wait": SyncShape(False, ("depth",), ("read",)),
    "cpasync.commit": SyncShape(whole=True),
    "cpasync.wait": SyncShape(False, ("depth",), whole=True),
    # An arrival of each thread at a phased barrier when its copies are complete; `more` 1: it counts as many more.
    "cpasync.arrive": SyncShape(True, (), ("more",), whole=True),
    "setmaxnreg": SyncShape(False, ("registers",), whole=True),
    "amx.config": SyncShape(),
    "amx.release": SyncShape(),
    # The line of memory around an element is wanted soon, in the cache of that `level` (1): no access, any address.
    "prefetch": SyncShape(True, (), ("level",), memory=True),
}

ENGINES: dict[str, bool] = {
    "tma.load": True,
    "tma.store": False,
    "tma.add": False,
    "tma.max": False,
    "tma.min": False,
    "cp.async": False,
    "bulk.load": True,
    "bulk.store": False,
}
"""Copy engines, and whether their completion is counted in bytes by a phased barrier (else by a group of the
thread)."""

BOX_EFFECTS: dict[str, str] = {"tma.store": "set", "tma.add": "add", "tma.max": "max", "tma.min": "min"}
"""Engines that take a box out of shared memory -> what they do to elements of the tensor, atomically but for "set"."""

ATOMS: tuple[str, ...] = ("fma", "muladd", "ffma", "dpbf16", "dpbssd", "amx", "mma", "wgmma")
"""First parts of atom names (`wgmma.m64n256k16`); the part says how operands are read and when the result is there."""

ASYNC_ATOMS: tuple[str, ...] = ("wgmma",)

GRAINS: tuple[str, ...] = ("", "warp", "elect")
OVER: tuple[str, ...] = ("workers", "grid", "persistent", "clusters", "tickets", "threads", "warps", "gangs")
PLACES: tuple[str, ...] = ("local", "shared", "workspace")
FRAGMENT_PLACES: tuple[str, ...] = ("register", "tile")
DIGITS: tuple[str, ...] = ("slot", "lane", "warp", "replica")
EFFECTS: tuple[str, ...] = ("set", "add", "max", "min")
MONOIDS: tuple[str, ...] = ("add", "mul", "max", "min", "and", "or", "xor")
RASTERS: dict[str, int] = {"row": 0, "group": 1, "slow": 1, "reverse": 0, "snake": 0}
"""Words of a raster and how many numbers follow each."""

APPROXIMATE = "approx"
TAGS: dict[str, str] = {
    APPROXIMATE: "the function is the hardware's approximation",
    "saturate": "the conversion clamps to finite numbers",
    "stream": "the elements are not wanted in a cache",
    "ahead": "may be loaded for the next task while this one ends",
    "whole": "tested once whether it has all of its elements",
    "turn": "orders for speed alone",
}
"""Words behind `tags`: the first two say what is computed, which the checker reads; the others how."""

RANK = "cta.rank"
SYMBOLS: tuple[str, ...] = ("cta", RANK)
"""Symbols that every role knows: the number of its workgroup in the launch, and in its cluster."""

RESERVED: frozenset[str] = frozenset(
    (
        "where fill by tags origin over at index load store copy fold mma sync version let advance tasks loop if else "
        "invariant role kernel buffer frag barrier host guard program min max enters step raster signal map box onto "
        "axes contract nan true false inf undef effect mask tdm target numerics workspace launch cond source scope "
        "dist place counters expr within counter last"
    ).split()
)
"""Words of the text that no fragment, buffer, barrier, variable or counter may be named."""
