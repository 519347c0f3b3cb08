"""What the lowering engine is told: the decisions of a plan, resolved to region arguments, dimensions and values.

A family turns its point into `Choices`; the engine turns a program and `Choices` into a machine program. Everything
here is data about names of the program; nothing is about an operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from treadle.base.errors import InternalError, LimitError
from treadle.realise.bands import Band

Digit = tuple[str, Literal["all", "panel", "lane"], int]
"""One axis of a packed layout: a dimension's coordinate whole, the number of its panel of that many coordinates, or its
place within the panel."""


class NotLowered(LimitError):
    """A program form that the lowering engine has no rule for."""

    code = "realise/unsupported"


class LoweringBroken(InternalError):
    """The lowering engine met a state that its own analysis excludes."""

    code = "realise/broken"


@dataclass(frozen=True)
class Pack:
    """Elements of `value` copied once, on entry to an instance of the region `level` ("" the whole program).

    `layout` lists the axes of the buffer. Panels are padded to their width, and the padding is zero. `wide`: converted
    exactly to the dtype of the contraction that reads it.
    """

    value: str
    level: str
    layout: tuple[Digit, ...]
    slots: tuple[tuple[str, int], ...]
    """Fragment shape of the copy: dimension and slots, the one along vector registers last."""
    wide: bool = True
    whole: tuple[tuple[str, int], ...] = ()
    """Dimensions filled up with zeros to a multiple."""
    instances: tuple[str, ...] = ()
    """Arguments of regions inside `level`, one coordinate each of a whole dimension, of which the value is told: the
    buffer has an axis for each of them, in front of the layout's, and elements of every instance."""


@dataclass(frozen=True)
class Choices:
    """Decisions for one program.

    `cuts`: "REGION.arg" -> block size (1 when absent). `tasks`: parallel regions handed to workers. `sweep`, `tile`:
    dimension -> slots of a fragment along it, in groups without and with a contraction. `vector`: dimensions that lie
    along the lanes when present (the last one present wins). `wrap`: regions executed inside a nest over fragments, so
    that their carried values stay in registers. `keep`: values stored once instead of computed at every use;
    `fuse`: neighbouring operations share their loops.
    """

    cuts: Mapping[str, int] = field(default_factory=dict[str, int])
    tasks: frozenset[str] = frozenset()
    sweep: Mapping[str, int] = field(default_factory=dict[str, int])
    tile: Mapping[str, int] = field(default_factory=dict[str, int])
    slots: int = 256
    """The most slots of a fragment without a contraction: dimensions beside the leading one get what it leaves."""
    vector: tuple[str, ...] = ()
    wrap: frozenset[str] = frozenset()
    keep: frozenset[str] = frozenset()
    laid_out: tuple[Pack, ...] = ()
    """Kept values that only contractions read, stored where they are made in the layout that these want."""
    packs: tuple[Pack, ...] = ()
    join: bool = True
    """Contractions over the same axes share a nest (and its registers)."""
    fuse: bool = False
    snapshots: bool = False
    """Loads are copied where they stand (arguments may overlap); otherwise read at each use."""
    depth: Mapping[str, int] = field(default_factory=dict[str, int])
    """Dimension -> how many coordinates of it the atom contracts at once (1 when absent)."""
    whole_tiles: frozenset[str] = frozenset()
    """Values whose buffers have whole tiles of `tile`: the padding is read and written with the rest, never used."""
    row_order: tuple[str, ...] = ()
    """Loop order of the rows of groups with a contraction."""
    sweep_order: tuple[str, ...] = ()
    """Loop order of the rows of other groups: these first, then the rest as their items have them."""
    along: Mapping[str, int] = field(default_factory=dict[str, int])
    """Result of a contraction whose lanes lie along what it sums -> how many neighbouring coordinates its atom sums in
    each lane. Each lane has a partial sum; these are joined at the end. What it accumulates onto is zero."""
    alone: frozenset[str] = frozenset()
    """Values that are made in a nest of their own, in loops of their own order and fragments of their own shape."""
    share: tuple[int, int] | None = None
    """Statements outside parallel regions are handed to workers, so many coordinates of their outermost dimension a
    task: along the lanes (the second number), or not."""
    bands: tuple[Band, ...] = ()
    """Regions that instances of a later one make for themselves, as far as they need."""
    unroll: int = 1
    atoms: Mapping[str, str] = field(default_factory=dict[str, str])
    """Result of a contraction -> its instruction ("fma" when absent)."""
    store_tags: tuple[str, ...] = ()
    numerics: tuple[str, ...] = ()
