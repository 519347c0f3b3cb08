"""Right steps, one list a kernel, that the tests of this folder share."""

from __future__ import annotations

import treadle as td
from treadle.ir.expand import expand
from treadle.rules import (
    apart,
    dematerialise,
    distribute,
    enclose,
    factor,
    fuse,
    fuse_scopes,
    gather,
    materialise,
    move,
    permute,
    products,
    recompute,
    regroup,
    reindex,
    relayout,
    serialise,
    specialise,
    split,
    split_scopes,
)

from . import kernels

M, N = td.dims("M N")


@td.kernel
def running(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Add)


FLAT = [[{"name": "f", "dim": "F", "extent": "M*N"}]], {"i": "f // N", "j": "f - N*(f // N)"}, {"f": "N*i + j"}
TURNED = (
    [[{"name": "p", "dim": "M"}, {"name": "q", "dim": "N"}]],
    {"i": "M - 1 - p", "j": "q"},
    {"p": "M - 1 - i", "q": "j"},
)
LEVELS = [[{"name": "p", "dim": "M"}], [{"name": "q", "dim": "N"}]], {"i": "M - 1 - p", "j": "q"}, {"p": "M - 1 - i"}

RIGHT = {
    "tiled contraction": (
        kernels.contract,
        [
            (split, ("R0", "m", 4)),
            (split, ("R1", "k", 3)),
            (distribute, ("%0",)),
            (permute, ("R0", ["n", "m_o"])),
            (permute, ("R1", ["k_o"], ["k_o"])),
        ],
    ),
    "chunks of a fold": (kernels.contract, [(factor, ("R1", "k", 4)), (serialise, ("R1_parts",))]),
    "chunks of blocks": (kernels.largest, [(factor, ("R1", "n", 8, "halves")), (split, ("R1", "n", 4))]),
    "chunks in order": (kernels.ordered_sum, [(factor, ("R0", "n", 2))]),
    "chunks of what does not commute": (kernels.lines, [(factor, ("R1", "n", 2))]),
    "a split undone": (kernels.contract, [(split, ("R0", "n", 5)), (fuse, ("R0",)), (specialise, ("R0", ["M >= 2"]))]),
    "blocks from the end": (kernels.backwards, [(split, ("R0", "n", 6)), (fuse, ("R0",))]),
    "colliding stores of nobody's order": (kernels.counts, [(fuse_scopes, ("R0", "R1"))]),
    "a chain in blocks": (kernels.recurrence, [(split, ("R0", "n", 4)), (fuse, ("R0",))]),
    "siblings through memory": (
        kernels.siblings,
        [(fuse_scopes, ("R0", "R1")), (move, ("0.0.1", 0)), (dematerialise, ("%3",))],
    ),
    "siblings through a tile": (kernels.tiles, [(fuse_scopes, ("R0", "R1")), (dematerialise, ("%3",))]),
    "siblings that fill one tile": (kernels.continued, [(fuse_scopes, ("R0", "R1")), (dematerialise, ("%1",))]),
    "a tile computed again": (kernels.tiles, [(recompute, ("%3",))]),
    "chains side by side": (
        kernels.two_chains,
        [(fuse_scopes, ("R0", "R1")), (move, ("0.0.4", 0)), (split, ("R0", "i", 4))],
    ),
    "scopes apart": (kernels.siblings, [(fuse_scopes, ("R0", "R1")), (split_scopes, ("R0", 4))]),
    "neighbours in a row": (
        kernels.neighbours,
        [(split, ("R0", "n", "all")), (split, ("R1", "n_1", "all")), (fuse_scopes, ("R0", "R1"))],
    ),
    "an owner recomputed": (
        kernels.owned,
        [(recompute, ("%s", "R1")), (fuse, ("R0",)), (permute, ("R0", ["j", "i"], ["i"]))],
    ),
    "an owner kept": (kernels.owned, [(reindex, ("R0", *LEVELS)), (serialise, ("R0",))]),
    "a pure nest flattened": (kernels.pure, [(reindex, ("R0", *FLAT)), (split, ("R0", "f", 16))]),
    "a pure nest turned": (kernels.pure, [(reindex, ("R0", *TURNED)), (specialise, ("R0", ["M % 4 == 0", "N >= 3"]))]),
    "a product kept for its epilogue": (kernels.contract, [(materialise, ("%acc.2",))]),
    "an operand turned": (kernels.contract, [(relayout, ("%0", [1, 0])), (split, ("R1", "k", 3))]),
    "operands that share what they are made of": (kernels.strides, [(materialise, ("%5",)), (materialise, ("%8",))]),
    "chunks in a region of their own": (
        kernels.contract,
        [(factor, ("R1", "k", 4)), (materialise, ("%acc.4",)), (dematerialise, ("%acc.7",))],
    ),
    "a contraction as a fold": (kernels.contract, [(products, ("%acc.3",)), (split, ("R1", "k", 4))]),
    "a contraction from zero": (kernels.contract, [(apart, ("%acc.3",)), (split, ("R1", "k", 4))]),
    "a chain that keeps its states": (expand(kernels.program(running)), [(gather, ("scan_loop",))]),
    "whole statements in blocks": (kernels.at_once, [(enclose, (["M", "N"],))]),
    "a fold that all wait for": (kernels.everything, [(enclose, ([],)), (factor, ("R0", "m", 4))]),
    "a fold in two": (kernels.sums, [(regroup, ("%1", ["K"]))]),
}
