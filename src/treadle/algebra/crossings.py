"""Crossings between the three fragments of layouts: integer layouts, bit layouts, placements; and task mappings.

Each crossing says the same map in another fragment, or refuses (`layout/undefined`) where that fragment cannot say it:
an extent that is no power of two has no bits, a swizzle has no strides, a replica has no single value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from treadle.algebra.bits import BitLayout, Space, width
from treadle.algebra.layouts import Layout, LayoutUndefined, coalesce
from treadle.algebra.placements import Placement
from treadle.algebra.tasks import TaskMapping


def bits_of_layout(layout: Layout, outs: Space | None = None, label: str = "index") -> BitLayout:
    """An integer layout as a bit layout from its index (packed as `label`) to its value.

    *Ensures*: `apply(i) == layout(i)` for every i. *Errors*: `layout/undefined` where an extent is no power of two, or
    where two modes add with a carry."""
    doing = f"writing {layout} in bits"
    images: list[int] = []
    for extent, stride in layout.modes:
        if extent & (extent - 1) or stride < 0:
            raise _undefined(doing, f"an extent of {extent} with the stride {stride}", "powers of two")
        images += [stride << k for k in range(extent.bit_length() - 1)]
    for i, x in enumerate(images):
        clash = next((y for y in images[:i] if x & y), None)
        if clash is not None:
            raise _undefined(doing, f"{clash} and {x} in one sum, which carries", "modes whose values share no bit")
    bits = max((x.bit_length() for x in images), default=0)
    found = outs if outs is not None else (("value", bits),)
    return BitLayout(((label, len(images)),), found, tuple(images))


def layout_of_bits(bits: BitLayout) -> Layout:
    """A bit layout as an integer layout of its packed input.

    *Ensures*: `L(i) == bits.apply(i)` for every i. *Errors*: `layout/undefined` where inputs are xored into one output
    bit: a swizzle is no sum of strides."""
    for i, x in enumerate(bits.images):
        clash = next((k for k, y in enumerate(bits.images[:i]) if x & y), None)
        if clash is not None:
            raise _undefined(
                "writing a bit layout with strides", f"input bits {clash} and {i} meet in an output bit", "no xor"
            )
    if not bits.images:
        return Layout(1, 0)
    return coalesce(Layout(tuple(2 for _ in bits.images), tuple(bits.images)))


def bits_of_placement(placement: Placement, axes: Mapping[str, int]) -> BitLayout:
    """A placement as the bit layout from places to elements: `axes` gives the bits of each axis, in order.

    *Ensures*: element x is at a place p exactly when `apply(p) == x`. *Errors*: `layout/undefined` for an offset,
    extents or strides that are no powers of two, a bit of an axis that two digits use, and places that hold nothing."""
    if any(placement.offset.values()):
        raise _undefined("writing a placement in bits", "an offset", "places from 0 on")
    at: dict[str, list[int | None]] = {axis: [None] * count for axis, count in axes.items()}
    element = 1
    for extent, stride, axis in reversed(placement.shard):
        _take(at, extent, stride, axis, element)
        element *= extent
    for extent, stride, axis in placement.replicas:
        _take(at, extent, stride, axis, 0)
    empty = next((f"{axis} bit {k}" for axis, bits in at.items() for k, x in enumerate(bits) if x is None), None)
    if empty is not None:
        raise _undefined("writing a placement in bits", f"{empty}, which moves away from every element", "full axes")
    images = tuple(x for bits in at.values() for x in bits if x is not None)
    return BitLayout(tuple(axes.items()), (("element", element.bit_length() - 1),), images)


def _take(at: Mapping[str, list[int | None]], extent: int, stride: int, axis: str, element: int) -> None:
    doing = "writing a placement in bits"
    if extent & (extent - 1) or stride <= 0 or stride & (stride - 1) or axis not in at:
        raise _undefined(doing, f"{extent} steps of {stride} along {axis}", "powers of two along known axes")
    first = stride.bit_length() - 1
    for k in range(extent.bit_length() - 1):
        if first + k >= len(at[axis]) or at[axis][first + k] is not None:
            raise _undefined(doing, f"bit {first + k} of {axis}", "a bit of the axis for each bit of a digit")
        at[axis][first + k] = element << k


def placement_of_bits(bits: BitLayout) -> Placement:
    """A distribution in bits, from axes to elements, as a placement.

    *Ensures*: `places(x)` are the inputs p with `bits.apply(p) == x`. *Errors*: `layout/undefined` where an element's
    place is a xor, or where elements have no place."""
    digit: dict[int, tuple[int, int, str]] = {}
    replicas: list[tuple[int, int, str]] = []
    at = 0
    for axis, count in bits.ins:
        for k in range(count):
            image = bits.images[at]
            at += 1
            if image == 0:
                replicas.append((2, 1 << k, axis))
            elif image & (image - 1) or image in digit:
                raise _undefined("placing by digits", f"{axis} bit {k} goes to {image:b}", "an element bit of its own")
            else:
                digit[image] = (2, 1 << k, axis)
    missing = next((k for k in range(width(bits.outs)) if 1 << k not in digit), None)
    if missing is not None:
        raise _undefined("placing by digits", f"element bit {missing} at no place", "a distribution onto the tile")
    shard = tuple(digit[1 << k] for k in reversed(range(width(bits.outs))))
    return Placement(shard, tuple(replicas)).canonical()


def placement_of_layout(layout: Layout, axis: str) -> Placement:
    """An integer layout as a placement along one axis.

    *Ensures*: the only place of element i is `layout(i)`."""
    return Placement(tuple((extent, stride, axis) for extent, stride in reversed(layout.modes)))


def layout_of_placement(placement: Placement) -> Layout:
    """A placement along one axis, without replicas and offset, as an integer layout.

    *Ensures*: `L(x)` is the coordinate of element x. *Errors*: `layout/undefined` for other placements."""
    axes = {axis for _, _, axis in placement.shard}
    if len(axes) > 1 or placement.replicas or any(placement.offset.values()):
        raise _undefined("writing a placement with strides", f"axes {sorted(axes)}", "one axis, no replicas or offset")
    if not placement.shard:
        return Layout(1, 0)
    digits = [(extent, stride) for extent, stride, _ in reversed(placement.shard)]
    return Layout(tuple(e for e, _ in digits), tuple(s for _, s in digits))


def layout_of_tasks(tasks: TaskMapping) -> Layout:
    """A task mapping as a layout of two modes, (task of a worker, worker), to the row-major index of its point.

    *Ensures*: `L((k, w))` is the index of `tasks(w)[k]`; the image is the grid, each point once."""
    grid = tasks.extents
    steps = [prod(grid[i + 1 :]) for i in range(len(grid))]
    inside = [1] * len(grid)
    modes: dict[str, list[tuple[int, int]]] = {"spatial": [], "repeat": []}
    for kind, extents in reversed(tasks.factors):
        for i in reversed(range(len(extents))):
            modes[kind].append((extents[i], steps[i] * inside[i]))
        inside = [n * e for n, e in zip(inside, extents, strict=True)]
    parts = [_mode(modes["repeat"]), _mode(modes["spatial"])]
    return Layout(tuple(p.shape for p in parts), tuple(p.stride for p in parts))


def _mode(modes: Sequence[tuple[int, int]]) -> Layout:
    kept = [m for m in modes if m[0] > 1] or [(1, 0)]
    return Layout(tuple(e for e, _ in kept), tuple(s for _, s in kept))


def _undefined(doing: str, found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(
        doing=doing, found=found, expected=expected, hint="keep the map in the fragment that can say it"
    )
