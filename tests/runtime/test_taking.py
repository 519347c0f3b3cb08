"""Calls of known layouts taken by a builtin: it gives the object of exactly their layout, and fills in the block."""

from __future__ import annotations

import array
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from treadle.runtime import taking
from treadle.runtime.launch import Packer
from treadle.runtime.signature import Signature, TensorParam
from treadle.runtime.taking import MISS, Known, can_take

SIGNATURE = Signature((TensorParam("x", "f32", 2), TensorParam("y", "f32", 1, out=True), TensorParam("z", "f32", 1)))
GIVEN = Signature((TensorParam("x", "f32", 2), TensorParam("y", "f32", 1, out=True)))
MASKS = [63, -1, -1, -1, -1, 63, -1, -1, *[0] * 3, *[0] * 3]


class Found:
    """What a layout leads to."""


def layout(x: Any, y: Any, rest: int) -> array.array[int]:
    block = Packer(GIVEN).pack((x, y))
    words = array.array("q", bytes(8 * SIGNATURE.words))
    words[: GIVEN.tail] = block.words[: GIVEN.tail]
    words[GIVEN.tail :] = array.array("q", [rest] * (SIGNATURE.words - GIVEN.tail))
    return words


def known(*found: tuple[tuple[Any, Any], Found]) -> Known:
    assert can_take()
    records = Packer(GIVEN).records
    assert records is not None
    made = Known(2, records, MASKS, [8])
    for number, ((x, y), one) in enumerate(found):
        made.add(layout(x, y, 100 + number), one)
    return made


def aligned(*shape: int) -> np.ndarray:
    raw = np.zeros(int(np.prod(shape)) + 16, np.float32)
    skip = (-raw.__array_interface__["data"][0] % 64) // 4
    return raw[skip : skip + int(np.prod(shape))].reshape(shape)


def test_the_object_of_a_layout_and_its_words() -> None:
    first, second = Found(), Found()
    x, y = aligned(3, 4), aligned(4)
    wide = aligned(3, 8)[:, ::2]
    made = known(((x, y), first), ((wide, y), second))
    slot = made.slot()
    assert slot.take((x, y)) is first
    assert list(slot.words[:8]) == [x.ctypes.data, 3, 4, 4, 1, y.ctypes.data, 4, 1]
    assert list(slot.words[8:]) == [100] * 6
    assert slot.take((wide, y)) is second
    assert list(slot.words[1:5]) == [3, 4, 8, 2] and list(slot.words[8:]) == [101] * 6
    # Other memory of the same layout, but not another alignment of it.
    assert slot.take((aligned(3, 4), aligned(4))) is first
    assert slot.take((x, aligned(5)[1:])) is MISS


@pytest.mark.parametrize(
    "odd",
    [
        lambda x, y: (x,),
        lambda x, y: (x, y, y),
        lambda x, y: (x.astype(np.float64), y),
        lambda x, y: (x.T, y),
        lambda x, y: (x[:2], y),
        lambda x, y: (y, x),
        lambda x, y: (x, x[0]),
        lambda x, y: (x, None),
        lambda x, y: (x, 1.0),
        lambda x, y: (x.view(np.ma.MaskedArray), y),
        lambda x, y: (x, np.broadcast_to(y[:1], (4,))),
    ],
)
def test_anything_else_takes_the_long_way(odd: Any) -> None:
    x, y = aligned(3, 4), aligned(4)
    slot = known(((x, y), Found())).slot()
    assert slot.take(odd(x, y)) is MISS


def test_references_are_counted() -> None:
    found, x, y = Found(), aligned(3, 4), aligned(4)
    made = known(((x, y), found))
    slot = made.slot()
    counts = [sys.getrefcount(found), sys.getrefcount(MISS)]
    for _ in range(1000):
        slot.take((x, y))
        slot.take((y, x))
    assert [sys.getrefcount(found), sys.getrefcount(MISS)] == counts
    held = slot.take((x, y))
    assert sys.getrefcount(found) == counts[0] + 1 and held is found


def test_an_output_is_placed_at_the_next_aligned_address() -> None:
    slot = known().slot()
    raws = [np.empty(192, np.uint8)[k:] for k in range(64)]
    for raw in raws:
        skip = slot.place[8](raw)
        assert slot.words[8] == raw.ctypes.data + skip and slot.words[8] % 64 == 0 and 0 <= skip < 64


def test_as_many_layouts_as_are_compared() -> None:
    y = aligned(4)
    xs = [aligned(n, 4) for n in range(1, taking.MOST + 2)]
    objects = [Found() for _ in xs]
    made = known(*(((x, y), o) for x, o in zip(xs[:-1], objects, strict=False)))
    assert made.full
    slot = made.slot()
    assert [slot.take((x, y)) for x in xs] == [*objects[:-1], MISS]
    made.add(layout(xs[-1], y, 0), objects[-1])  # another thread was faster
    assert slot.take((xs[-1], y)) is MISS and slot.take((xs[0], y)) is objects[0]


def at_once(*calls: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def test_two_threads_add_two_layouts() -> None:
    class Slow(list[Any]):
        def __len__(self) -> int:
            found = super().__len__()
            time.sleep(0.05)
            return found

    y = aligned(4)
    xs, objects = [aligned(n, 4) for n in (1, 2)], [Found(), Found()]
    made = known()
    made._objects = Slow()
    at_once(*(lambda x=x, o=o: made.add(layout(x, y, 0), o) for x, o in zip(xs, objects, strict=True)))
    slot = made.slot()
    taken = [slot.take((x, y)) for x in xs]
    assert all(got in (MISS, o) for got, o in zip(taken, objects, strict=True)) and taken != [MISS, MISS]
    made._objects = list(made._objects)
    for x, got, o in zip(xs, taken, objects, strict=True):
        if got is MISS:  # another time
            made.add(layout(x, y, 0), o)
    assert [slot.take((x, y)) for x in xs] == objects


def test_nobody_waits_for_who_adds() -> None:
    """It may be the same thread, before a signal, or one that is not in a forked process."""
    x, y, made = aligned(3, 4), aligned(4), known()
    with made._adding:
        made.add(layout(x, y, 0), Found())
    assert made.slot().take((x, y)) is MISS


def test_methods_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What builtins are made of stays where it is while another thread asks for them, too."""
    calls: list[int] = []
    methods = taking._methods

    def slow() -> Any:
        calls.append(1)
        time.sleep(0.05)
        return methods()

    monkeypatch.setattr(taking, "_methods", slow)
    fresh = taking._Builtins()
    at_once(fresh.ready, fresh.ready)
    assert len(calls) == 1 and fresh.ready()


def test_builtins_that_count_wrongly_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    one = "%more = add i64 %many, 1"
    assert one in taking.WALKER_IR
    monkeypatch.setattr(taking, "WALKER_IR", taking.WALKER_IR.replace(one, "%more = add i64 %many, 2"))
    assert not taking._Builtins().ready()
