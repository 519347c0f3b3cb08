"""The exact texts of this room's errors, and of what `sanitize` reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion
from tests.evaluate.programs import scatter

from treadle.base.errors import TreadleError
from treadle.base.source import Span, keep_text
from treadle.evaluate.interpreter import evaluate
from treadle.evaluate.sanitize import sanitize
from treadle.ir.core import Op, Program
from treadle.ir.parser import parse_program

SOURCE = """\
for t in td.parallel(T):
    Y[td.in_range(ids[t], V)] = X[t]
    td.check(X[t] >= 0, "X is not negative")
"""
ROOT = """
program root
  dim M
  tensor X: f32[M]
  tensor Y: f32[M] out
  body
    region R0 parallel (m in M)
      %x: f32[m] = load X[m]
      %zero: f32[] = full 0.0
      %ok: bool[m] = ge %x, %zero
      check %ok "X is not negative"
      store Y[m] = %x
"""


@dataclass(eq=False, kw_only=True)
class Unheard(Op):
    """An operation that the interpreter was never told of."""


def at(op: Op, line: int) -> Op:
    keep_text("kernel.py", SOURCE)
    end = len(SOURCE.splitlines()[line - 1])
    op.span = Span("kernel.py", line, 4, line, end)
    return op


def arrays(*ids: int) -> dict[str, Any]:
    count = len(ids)
    return {"X": np.ones(count, np.float32), "ids": np.array(ids, np.int32), "Y": np.zeros(5, np.float32)}


def scattering() -> Program:
    program = scatter()
    at(program.body.ops[0].blocks[0].ops[-1], 2)
    return program


def out_of_range() -> None:
    evaluate(scattering(), arrays(3, 9), extents={"T": 2, "V": 5})


def check_failed() -> None:
    root = parse_program(ROOT)
    at(root.body.ops[0].blocks[0].ops[3], 3)
    x = np.array([4, -9, 1], np.float32)
    evaluate(root, {"X": x, "Y": np.zeros(3, np.float32)}, extents={"M": 3})


def no_meaning() -> None:
    program = scatter()
    program.body.ops.insert(0, at(Unheard(), 1))
    evaluate(program, arrays(3), extents={"T": 1, "V": 5})


CASES: dict[str, Callable[[], None]] = {
    "bounds/out-of-range": out_of_range,
    "check/failed": check_failed,
    "evaluate/no-meaning": no_meaning,
}


@pytest.mark.parametrize("code", CASES)
def test_text(code: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TreadleError) as caught:
        CASES[code]()
    assert caught.value.code == code
    assert str(caught.value) == snapshot


def test_findings(snapshot: SnapshotAssertion) -> None:
    found = sanitize(scattering(), arrays(3, 0, 3, 1), {}, {"T": 4, "V": 5})
    assert [str(f) for f in found] == snapshot
