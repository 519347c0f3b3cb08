"""This machine read two ways, and the host's clock."""

from __future__ import annotations

import pytest

from treadle.runtime import host, timing
from treadle.runtime.errors import TilesRefused
from treadle.toolchain import features


def test_two_readers_agree() -> None:
    assert host._CODE_FLAGS == features.FLAGS - {"sve_256"}, "no system has the length of vectors among its flags"
    assert host.host_features() == features.host_features()
    assert host._llvm_flags() & features.FLAGS == features.host_features()


def test_tiles_are_permitted_only_where_they_are() -> None:
    if "amx_tile" not in host.host_features():
        assert not host.amx_permission()
        with pytest.raises(TilesRefused):
            host.require_tiles("testing")
    else:
        assert isinstance(host.amx_permission(), bool)


def test_cores() -> None:
    assert host.available_cores() >= 1


def test_timing_is_interleaved() -> None:
    order: list[str] = []
    sides = {name: (lambda name=name: order.append(name)) for name in ("a", "b")}
    done = timing.interleaved(sides, rounds=10, warmup=1, calls=1)
    assert set(done) == {"a", "b"} and all(len(row.samples) == 10 for row in done.values())
    timed = order[2:]
    assert all(sorted(timed[i : i + 2]) == ["a", "b"] for i in range(0, 20, 2))
    assert timed != ["a", "b"] * 10, "the order changes"


def test_timing_numbers() -> None:
    row = timing.Timing((1.0, 2.0, 3.0, 4.0, 100.0))
    assert row.median == 3.0 and row.spread > 0
    assert timing.Timing((1.0, 1.0)).spread == 0
    counted: list[int] = []
    timing.interleaved({"a": lambda: counted.append(1)}, rounds=2, warmup=0, calls={"a": 3})
    assert len(counted) == 6
