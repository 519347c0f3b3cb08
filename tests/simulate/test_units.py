"""Single mechanisms: each right, and its usual mistake found."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.machine.parse import parse_machine
from treadle.simulate.run import Simulation, simulate

HEAD = """\
tdm 1
target cuda:sm_90a
program {
  program rows
    dim M
    dim N = 64 static
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        store Y[m, N] = %x
}
guard {
  disjoint(X, Y)
}
host {
"""


def run(host: str, kernel: str, seed: int = 0, rows: int = 3) -> Simulation:
    text = f"{HEAD}{host}\n}}\nkernel main {{\n{kernel}\n}}\n"
    x = np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float32)
    result = simulate(parse_machine(text), {"X": x, "Y": np.zeros_like(x)}, seed=seed)
    result.outputs["X"] = x
    return result


def codes(result: Simulation) -> set[str]:
    return {f.code for f in result.findings}


# Two warps copy a row into shared memory and read it back mirrored.
STAGED = """
  buffer S f32[64] shared align 16 @ 0
  frag x f32[64] dist (lane 32 axis 0 stride 1, warp 2 axis 0 stride 32)
  role all agents 1 threads 64 {
    tasks (t < M) over grid {
      COPY
      WAIT
      JOIN
      x = load S[63 - $0]
      store Y[t, $0] = x
    }
  }"""
GRID = "launch main grid M threads 64 shared 256"
CP = "copy cp.async S[$0] = X[t, $0] box (64)\n      sync cpasync.commit"
CP_WAIT = "sync cpasync.wait (depth = 0)"
BAR = "sync barrier.sync (id = 0, threads = 64)"


def staged(copy: str, wait: str, join: str) -> str:
    return STAGED.replace("COPY", copy).replace("WAIT", wait).replace("JOIN", join)


@pytest.mark.parametrize("seed", range(4))
def test_copies_of_threads(seed: int) -> None:
    good = run(GRID, staged(CP, CP_WAIT, BAR), seed)
    assert good.clean and np.array_equal(good.outputs["Y"], good.outputs["X"][:, ::-1])
    assert codes(run(GRID, staged(CP, "", BAR), seed)) & {"race", "unwritten"}
    assert codes(run(GRID, staged(CP, CP_WAIT, ""), seed)) & {"race", "unwritten"}
    assert codes(run(GRID, staged(CP.split("\n")[0], CP_WAIT, BAR), seed)) & {"race", "unwritten"}


INIT = (
    "sync mbar.init full by elect\n      sync fence.mbar_init by elect\n      sync barrier.sync (id = 0, threads = 64)"
)
EXPECT = "sync mbar.expect full (bytes = 256) by elect"
BULK = f"{INIT}\n      {EXPECT}\n      copy bulk.load S[$0] = X[t, $0] box (64) signal full by elect"


def bulk(wait: str, init: str = INIT) -> str:
    kernel = staged(BULK.replace(INIT, init), wait, "")
    return kernel.replace("  frag x", "  barrier full count 1 versions 1 tx @ 256\n  frag x")


@pytest.mark.parametrize("seed", range(4))
def test_bulk_copies(seed: int) -> None:
    host = "launch main grid M threads 64 shared 264"
    good = run(host, bulk("sync mbar.wait full (phase = 0)"), seed)
    assert good.clean and np.array_equal(good.outputs["Y"], good.outputs["X"][:, ::-1])
    assert codes(run(host, bulk(""), seed)) & {"race", "unwritten", "protocol"}
    unjoined = INIT.replace("\n      sync barrier.sync (id = 0, threads = 64)", "")
    assert codes(run(host, bulk("sync mbar.wait full (phase = 0)", unjoined), seed)) & {"race", "protocol"}


TURNS = """
  buffer S f32[32] shared align 16 @ 0
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  role pair agents 2 threads 32 index w {
    if w < 1 {
      x = load X[0, $0]
      store S[$0] = x
      sync FIRST (id = 1, threads = 64)
    } else {
      sync SECOND (id = 1, threads = 64)
      x = load S[$0]
      store Y[0, $0] = x
    }
  }"""


@pytest.mark.parametrize("seed", range(4))
def test_turns(seed: int) -> None:
    host = "launch main grid 1 threads 64 shared 128"
    good = run(host, TURNS.replace("FIRST", "barrier.arrive").replace("SECOND", "barrier.sync"), seed)
    assert good.clean and np.array_equal(good.outputs["Y"][0, :32], good.outputs["X"][0, :32])
    both = run(host, TURNS.replace("FIRST", "barrier.arrive").replace("SECOND", "barrier.arrive"), seed)
    assert codes(both) & {"race", "unwritten"}
    alone = run(
        host, TURNS.replace("sync FIRST (id = 1", "sync barrier.arrive (id = 2").replace("SECOND", "barrier.sync"), seed
    )
    assert "deadlock" in codes(alone)
    assert "named barrier 1" in str(alone.findings[-1])


ROW = """
  frag x f32[64] dist (slot 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag s f32[]
  frag y f32[64] dist (slot 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  role rows agents 2 threads 32 {
    tasks (t < M) over warps {
      x = load X[t, $0]
      s = fold max x axes (0)
      y = sub x, s
      store Y[t, $0] = y
    }
  }"""


def test_a_subgroup_a_row() -> None:
    good = run("launch main grid (M + 1) // 2 threads 64", ROW)
    x = good.outputs["X"]
    assert good.clean and np.array_equal(good.outputs["Y"], x - x.max(axis=1, keepdims=True))


def test_a_fold_over_warps_needs_memory() -> None:
    spread = ROW.replace("lane 32 axis 0 stride 2", "lane 16 axis 0 stride 2, warp 2 axis 0 stride 32")
    wrong = run(
        "launch main grid M threads 128", spread.replace("threads 32", "threads 64").replace("over warps", "over grid")
    )
    assert "not-held" in codes(wrong)


def test_one_thread_each() -> None:
    each = """
  frag x f32[]
  role threads agents 1 threads 32 {
    tasks (t < M, j < 64) over threads {
      x = load X[t, j]
      store Y[t, INDEX] = x
    }
  }"""
    host = "launch main grid 2 threads 32"
    good = run(host, each.replace("INDEX", "63 - j"))
    assert good.clean and np.array_equal(good.outputs["Y"], good.outputs["X"][:, ::-1])
    assert "race" in codes(run(host, each.replace("INDEX", "j // 2")))


ELEMENT = """
  frag x f32[]
  role r agents 1 threads 32 {
    tasks (t < M, j < 64) over threads {
      x = load SRC
      store DST = x
    }
  }"""


def test_launches_follow_one_another() -> None:
    first = ELEMENT.replace("SRC", "X[t, j]").replace("DST", "T[t, j]")
    second = ELEMENT.replace("SRC", "T[t, 63 - j]").replace("DST", "Y[t, j]")
    host = "buffer T f32[M, 64] workspace align 64\nlaunch main grid 2 threads 32\nlaunch second grid 3 threads 32"
    good = run(host, f"{first}\n}}\nkernel second {{{second}", 5)
    assert good.clean and np.array_equal(good.outputs["Y"], good.outputs["X"][:, ::-1])
    early = run(host, f"{second}\n}}\nkernel second {{{first}", 5)
    assert "unwritten" in codes(early)


# A shared slot is refilled by an engine after its readers released it.
REFILL = """
  buffer S f32[64] shared align 16 @ 0
  barrier full count 1 versions 1 tx @ 256
  barrier empty count 2 versions 1 @ 264
  frag x f32[64] dist (lane 32 axis 0 stride 1, warp 2 axis 0 stride 32)
  frag y f32[64] dist (lane 32 axis 0 stride 1, warp 2 axis 0 stride 32)
  role producer agents 1 threads 32 {
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 96)
    loop t = 0 .. M step 1 {
      sync mbar.wait empty (phase = (t + 1) % 2) by elect
      AFTER
      sync mbar.expect full (bytes = 256) by elect
      copy bulk.load S[$0] = X[t, $0] box (64) signal full by elect
    }
  }
  role consumer agents 1 threads 64 {
    sync barrier.sync (id = 0, threads = 96)
    loop r = 0 .. M step 1 {
      sync mbar.wait full (phase = r % 2)
      x = load S[$0]
      BEFORE
      sync mbar.arrive empty by warp
      store Y[r, $0] = x
    }
  }"""


@pytest.mark.parametrize("seed", range(4))
def test_a_load_is_over_when_its_value_is_used(seed: int) -> None:
    host = "launch main grid 1 threads 96 shared 272"

    def refill(before: str, after: str) -> Simulation:
        return run(host, REFILL.replace("BEFORE", before).replace("AFTER", after), seed)

    early = refill("", "")
    assert codes(early) == {"race"}
    message = str(early.findings[0])
    assert "fence.proxy.async is missing" in message or "may arrive after this" in message
    for good in (
        refill("y = copy x", ""),
        refill("sync fence.proxy.async", ""),
        refill("", "sync fence.proxy.async by elect"),
    ):
        assert good.clean and np.array_equal(good.outputs["Y"], good.outputs["X"])


def test_a_fold_goes_by_halving_then_by_lanes() -> None:
    # Sums of powers far apart tell the order: slots of a thread first, then lane bits from the largest stride.
    kernel = (
        ROW.replace("fold max", "fold add")
        .replace("y = sub x, s", "y = sub x, x")
        .replace("store Y[t, $0] = y", "store Y[t, 0] = s")
    )
    result = run("launch main grid (M + 1) // 2 threads 64", kernel)
    assert result.clean
    for row, got in zip(result.outputs["X"], result.outputs["Y"][:, 0]):
        lanes = row[0::2] + row[1::2]
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        assert got == lanes[0]
