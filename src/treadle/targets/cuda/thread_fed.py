"""Contractions whose blocks the threads of a workgroup bring themselves, whichever unit contracts: what a point decides
of them, and into how many tasks it cuts a call."""

from __future__ import annotations

from math import ceil

from treadle.plan.family import Point
from treadle.realise.blocked import THREADS
from treadle.realise.feeding import Feeding
from treadle.realise.ring import Stream
from treadle.targets.cuda.shape import Shape


def feeding_of(stream: Stream, point: Point, workgroups: int, resident: int, threads: int = THREADS) -> Feeding:
    """The decisions of a point, for so many workgroups at most, some of which share a multiprocessor."""
    panels = point["raster"] == "panels" and len(stream.region.args) == 2
    return Feeding(
        consumers=int(point["rows"]) // 64,
        columns=int(point["columns"]),
        step=int(point["step"]),
        versions=int(point["versions"]),
        flight=0,
        registers=None,
        staged=False,
        raster=("group", 8) if panels else ("row",),
        workgroups=workgroups,
        threads=threads,
        resident=resident,
    )


def cuts_of(shape: Shape, stream: Stream, point: Point) -> dict[str, int]:
    """Block sizes of all open arguments."""
    region = shape.names[id(stream.region)]
    found = {f"{region}.{stream.rows.name}": int(point["rows"])}
    if stream.columns is not None:
        found[f"{region}.{stream.columns.name}"] = int(point["columns"])
    if stream.loop is not None and stream.block is not None:
        found[f"{shape.names[id(stream.loop)]}.{stream.block.name}"] = int(point["step"])
    return found


def tasks_of(shape: Shape, stream: Stream, rows: int, columns: int) -> float:
    """Tasks of blocks of so many rows and columns."""
    tasks = 1.0
    for arg in stream.region.args:
        extent = max(1, shape.facts.value(arg.domain.dim.extent))
        size = rows if arg is stream.rows else columns if arg is stream.columns else 1
        tasks *= ceil(extent / size)
    return tasks
