"""Views whose rows run backwards, repeat or begin anywhere: the guard of a call's plan holds for that call."""

from __future__ import annotations

import math
from typing import Any

import pytest

from treadle import lib
from treadle.driver.build import choose
from treadle.driver.facts import ArrayFacts, CallFacts, first_broken
from treadle.driver.locate import captured
from treadle.driver.plan import Plan
from treadle.dtype.formats import named
from treadle.ir.expand import expand

ROWS, COLUMNS = 256, 512
STRIDES = {"contiguous": (COLUMNS, 1), "backwards": (-COLUMNS, 1), "both backwards": (-COLUMNS, -1)} | {
    "repeated": (0, 1),
    "odd": (COLUMNS + 1, 1),
    "apart": (2 * COLUMNS, 2),
}


@pytest.mark.parametrize("view", STRIDES)
@pytest.mark.parametrize("kernel", [lib.matmul, lib.softmax, lib.rows_sum], ids=lambda k: k.definition.name)
def test_the_guard_holds_for_the_call_that_was_planned(kernel: Any, view: str) -> None:
    """*Ensures*: holds(plan.guard, facts) for the facts that the plan was made for."""
    definition = kernel.definition
    given = {"X": named("bf16"), "A": named("bf16"), "B": named("bf16"), "Y": named("bf16")}
    dtypes = {n: d for n, d in given.items() if n in definition.parameters}
    program = expand(captured(definition, dtypes, {}, {}, ["C"] if "C" in definition.parameters else []))
    extents = {s: ROWS if s == "M" else COLUMNS for d in program.dims for s in d.extent.symbols}
    arrays: dict[str, ArrayFacts] = {}
    for tensor in program.tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in tensor.dims)
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        arrays[tensor.name] = ArrayFacts(4096, shape, strides)
    first = program.tensors[0].name
    arrays[first] = ArrayFacts(4096 + 2 * (view == "odd"), arrays[first].shape, STRIDES[view])
    facts = CallFacts(extents, arrays, lambda a, b: True)
    guard = Plan(choose(program, "cuda:sm_90a", facts, ())).guard
    assert first_broken(guard, facts) is None
    told = {type(f).__name__ for f in guard.facts if getattr(f, "tensor", None) == first}
    assert ("Pitch" in told) == (view in ("contiguous", "repeated"))
