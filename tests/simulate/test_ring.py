"""The asynchronous ring: right under every schedule, and each of its known bugs found."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.machine.programs import RING, ring

from treadle.machine.parse import parse_machine
from treadle.simulate.run import run_schedules, simulate

ARRIVE = "        sync mbar.arrive empty{q} by warp\n"


def arguments(m: int = 150, n: int = 40, k: int = 136) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(m * n * k)
    x = rng.integers(-4, 5, (m, k)).astype(ml_dtypes.bfloat16)
    w = rng.integers(-4, 5, (k, n)).astype(ml_dtypes.bfloat16)
    args = {"X": x, "W": w, "Y": np.zeros((m, n), np.float32)}
    return args, {"Y": x.astype(np.float32) @ w.astype(np.float32)}


@pytest.mark.parametrize("seed", range(4))
def test_the_right_ring_is_clean_and_exact(seed: int) -> None:
    args, expected = arguments()
    run = simulate(ring(), args, seed=seed)
    assert [str(f) for f in run.findings] == []
    assert np.array_equal(run.outputs["Y"], expected["Y"])


def test_program_order_and_no_work() -> None:
    args, expected = arguments(1, 4, 1)
    run = simulate(ring(), args, schedule="program")
    assert run.clean and np.array_equal(run.outputs["Y"], expected["Y"])


def test_a_stored_box_must_end_with_sixteen_bytes() -> None:
    run = simulate(ring(), arguments(1, 3, 1)[0], schedule="program")
    assert {f.code for f in run.findings} == {"out-of-bounds"}


FULL_WAIT = "        sync mbar.wait full{q} (phase = q // 2 % 2)\n"
EMPTY_WAIT = "        sync mbar.wait empty{n} (phase = (n // 2 + 1) % 2) by elect\n"
WGMMA_WAIT = "        sync wgmma.wait (depth = 0)\n"
FENCE = "      sync fence.proxy.async\n"
JOIN = "      sync barrier.sync (id = c + 1, threads = 128)\n"
BULK_WAIT = "sync bulk.wait (depth = 0, read = 1) by elect\n"

# name -> (replacements, codes of which the first finding must have one)
BUGS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "one consumer releases for both": (
        [("barrier empty count 8", "barrier empty count 4"), (ARRIVE, f"        if c < 1 {{\n{ARRIVE}        }}\n")],
        "race",
    ),
    "released before the contraction is over": ([(WGMMA_WAIT + ARRIVE, ARRIVE + WGMMA_WAIT)], "race"),
    "no wait for the contraction": ([(WGMMA_WAIT, "")], "in-flight race"),
    "no wait for a full slot": ([(FULL_WAIT, "")], "race unwritten"),
    "no wait for an empty slot": ([(EMPTY_WAIT, "")], "race protocol"),
    "wrong parity of full": ([("(phase = q // 2 % 2)", "(phase = (q // 2 + 1) % 2)")], "race unwritten deadlock"),
    "wrong parity of empty": ([("(phase = (n // 2 + 1) % 2)", "(phase = n // 2 % 2)")], "deadlock"),
    "too few bytes": ([("(bytes = 9216)", "(bytes = 9215)")], "deadlock race"),
    "too many bytes": ([("(bytes = 9216)", "(bytes = 9217)")], "deadlock"),
    "an arrival more in the count": ([("barrier empty count 8", "barrier empty count 9")], "deadlock"),
    "an arrival less in the count": ([("barrier empty count 8", "barrier empty count 7")], "protocol race"),
    "no fence between the proxies": ([(FENCE, "")], "race"),
    "no join before the staged store": ([(FENCE + JOIN, FENCE)], "race"),
    "staging reused too early": ([("      " + BULK_WAIT, "")], "race"),
    "the end overtakes the last store": ([("    }\n    " + BULK_WAIT, "    }\n")], "protocol"),
    "barriers not fenced": ([("    sync fence.mbar_init by elect\n", "")], "fence"),
    "registers not fenced": ([("        sync wgmma.fence\n", "")], "fence"),
    "consumers share a named barrier": ([("id = c + 1", "id = 1")], "protocol deadlock race unwritten"),
    "the ring is counted wrongly": ([("(n // 2 + 1) % 2", "(n // 3 + 1) % 2")], "deadlock race protocol"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    edits, codes = BUGS[name]
    text = RING
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    args, expected = arguments()
    trials = run_schedules(parse_machine(text), args, 6, expected=expected)
    assert not trials.right
    assert any(f": {code}:" in trials.failures[0][1] for code in codes.split()), trials.failures
