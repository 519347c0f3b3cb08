"""What the costs of the streams family believe: cycles, bytes and registers, measured where they say so."""

from __future__ import annotations

AHEAD = 4
"""Registers that a chain a step ahead takes more where its masks hang on the task (assembled: 12 bytes spilled without
them, three consumers of 64 columns)."""

TOLD_APART = 9
"""Registers that results which leave through shared memory take more where an iteration compares places with loaded
numbers, 64 bits each (assembled: 24 bytes spilled beside 192, none without; two workgroups a multiprocessor always
spill some)."""

NO_FASTER = 1.0
"""Cycles by which a chain a step ahead is held for slower: where blocks are kept whole it gained nothing at 128 columns
and lost 3 to 13 % at 64 (benchmarks/results/2026-11-30-chains-whole.json)."""

SLACK = 1024
"""Bytes lost to rounding the base of shared memory up."""

WIDEST = 256
"""Columns of the widest instruction."""

TURNS = 168
"""Registers for accumulators and operands of a thread that takes turns: its computation is scheduled in one piece,
which needs more for itself."""

RESERVED = 1024
"""Bytes of shared memory that a multiprocessor keeps for each workgroup."""

ARRIVAL = 1.3e-6
"""Seconds from the start of a box's load to its arrival while the memory is busy (measured on thin products: 4 MB in
flight on all multiprocessors together read 3.2 TB/s, 8 MB as much as the memory gives)."""

HANDOVER = 170.0
"""Cycles of an iteration in which a consumer contracts nothing: it waits for its products, gives the slot back and
finds the next one (measured on products of 1024 cubed, in steps of 64 and of 128)."""

BEHIND = 70.0
"""The same where the products of an iteration are waited for in the next one."""

LAST = 300.0
"""Cycles that the last wait of such a task takes more."""

FIRST = 12.0 / 1024
"""Cycles for each byte of a task's first slot, which must be there before anything is contracted."""

COMPANY = 1300.0
"""Cycles of a task for each consumer after the first: they start, share registers out and store beside one another."""

ODD = 40
"""Registers of a thread for each tile beside the results of which it reads element after element, each under a
mask."""

GATHERED = 64
"""Registers of a thread that takes its elements of an operand from slots one by one: their depth is not contiguous."""

SLOW_START = 0.1e-6
"""Seconds for each time that the memory's bytes are as many as are in flight."""

SHARING = 1.7
"""How much longer an iteration takes beside another workgroup's on the multiprocessor."""

CLEARING = 120.0
"""Cycles of an iteration in which a consumer puts zeros beyond the end of its blocks, and meets."""

TAKEN, NEAR = 32.0, 56.0
"""Bytes a cycle that one multiprocessor takes from memory (measured on 28 that read 18 MB together), and from the
second cache (measured on 16 and 64 that contract to depths of 16384 and 8192)."""

SLOT = 10.0
"""Cycles that a slot costs one consumer beyond its bytes. Too few (1024 cubed takes 11.1 us in steps of 64 and
10.2 to 10.5 of 128: some 60 or more), but more moves 512x512x8192 to settings that no run has timed
(benchmarks/results/2026-11-30-chain-points-again.json)."""

HELD_NEAR = 200e6
"""Bytes of a call of which the second cache keeps enough for any order of tasks."""

DRAWN = 1.015
"""What tasks take more that workgroups draw than heavy ones dealt out first, in turns (measured on causal chains)."""

DRAWN_TOGETHER, DRAWN_IN_TURNS = 1.02, 0.99
"""The same of tasks of several combinations, the heaviest of all first, beside such that are dealt as evenly: of three
consumers, and of two that take turns (measured on causal chains of 4096 and 16384)."""

ONE_PIECE = 0.78
"""Part of the shorter of contractions and computation that shows where consumers take turns and nothing in an iteration
is masked for the ends of blocks (else 0.88)."""

NARROW = 34.0
"""The fewest cycles of an instruction, however few its columns."""

SECTORS = 8.0
"""Cycles for each column and consumer of a number that a warp reads across memory: four warps read a quarter of the
columns at a time, each from another line (measured on groups of weights of 4 bits)."""

SCATTERED = 95.0
"""Issue slots of an element that threads find by a computed place, between products (measured on scales of 32)."""

UNDER_WAY = 0.25
"""Part of the contractions' time in which operands made in registers cost nothing (measured on max(X, 0) W)."""

NARROW_FLOAT, NARROW_INT = 14.0, 11.0
"""Issue slots of a conversion from a float, or an integer, of 8 bits or fewer, between products (measured on weights of
4 and 8 bits that meet 16 and 4096 rows)."""

FETCHED = 1900.0
"""Cycles in which consumers wait for the tiles of their next task, where these have no second version (measured on
chains of three consumers; those that take turns have others' products to wait for meanwhile)."""
