"""Streams in clusters of two: which programs can run so, and what a point of them saves and costs."""

from __future__ import annotations

from treadle.plan.family import Point
from treadle.realise.clusters import ALONE, Cluster
from treadle.realise.ring import Stream
from treadle.targets.cuda.stream_facts import chained

REMOTE = 14.0
"""Cycles of an iteration more where slots are given back to two workgroups and come from two (measured on an H200: a
product of 4096 cubed in blocks of 128 x 256 x 64 takes 0.5 % longer, of 8192 cubed 0.6 to 2 %)."""

LONG = 1024.0
LATE = 0.15
"""Cycles of an iteration that hide how late a neighbour gives a slot back, and the part of those missing that shows
(measured: the same products in blocks of 128 x 128 x 64 take 7 to 13 % longer)."""

SPARED = 0.0
"""How much of the traffic that a pair has once instead of twice is felt: nothing where both were measured, but for a
gated product in blocks of 64 columns, 2 to 3 % shorter."""

MEETINGS = 500.0
"""Cycles for the cluster's barrier at the beginning and at the end."""


def clusters(stream: Stream) -> tuple[str, ...]:
    """The values of the axis: workgroups alone, or pairs that share out rows or columns of a task."""
    if chained(stream) or stream.all_rows or stream.more_rows or stream.told:
        return ("alone",)
    return ("alone", "rows", "columns") if stream.columns is not None else ("alone", "rows")


def later(cycles: float) -> float:
    """Cycles that an iteration of so many takes more in a pair."""
    return REMOTE + LATE * max(0.0, LONG - cycles)


def cluster_of(point: Point) -> Cluster:
    """The cluster of a point; points from before there were any are alone."""
    along = str(point.get("cluster", "alone"))
    return ALONE if along == "alone" else Cluster(2, along)
