"""Every operator case at small sizes: ours is right, and a row can be made of it. Times are never asserted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from treadle.bench.case import Case
from treadle.bench.operators import (
    conv_case,
    decode_case,
    int8_case,
    linear_case,
    operator_cases,
    reduction_cases,
    rope_case,
    row_cases,
)
from treadle.bench.selecting import selecting_cases
from treadle.bench.stencils import stencil_cases
from treadle.bench.suite import run_case
from treadle.bench.torch_peers import OPERATORS
from treadle.dtype.formats import bf16, f32


def small() -> Iterator[Case]:
    yield from row_cases(f32, 37, 300)
    yield rope_case(bf16, 3, 2, 8)
    yield decode_case(f32, 2, 4, 2, 19, 8)
    yield linear_case(f32, 4, 33, 65, turned=True)
    yield from reduction_cases(33, 129)
    yield conv_case(1, 4, 1, 5, 3)
    yield int8_case(9, 17, 33)
    yield from stencil_cases(29)


@pytest.mark.parametrize("case", small(), ids=lambda c: c.name)
def test_a_small_case_is_right(case: Case) -> None:
    (row,) = run_case(case, peers=[], rounds=1)
    assert row.verdict == "verified" and row.case == case.name


def test_every_family_has_a_peer() -> None:
    assert {c.family for c in (*operator_cases(), *stencil_cases(), *selecting_cases())} == set(OPERATORS)
