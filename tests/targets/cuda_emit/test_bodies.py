"""Facts about bodies: what lands at which wait, where counters may wrap."""

from __future__ import annotations

import copy

from tests.targets.cuda_emit.kit import text

from treadle.algebra.expr import sym
from treadle.machine.form import Loop, Role, Sync, walk
from treadle.targets.cuda.emit.counters import periods, private
from treadle.targets.cuda.emit.flight import landings


def waits(role: Role) -> list[tuple[str, ...]]:
    found = landings(role.body)
    return [found[id(s)] for s in walk(role.body) if isinstance(s, Sync) and s.kind == "wgmma.wait"]


def test_an_accumulator_lands_when_its_last_group_has() -> None:
    _, consumer = text("k2_gemm").kernels[0].roles
    # Inside the loop the newest group still writes the accumulator: a pin there would serialise.
    assert waits(consumer) == [(), ("acc",)]


def test_two_accumulators_land_one_after_the_other() -> None:
    _, consumer = text("k3_ahead").kernels[0].roles
    assert waits(consumer) == [("s",), ("s",), ("out", "p"), ("out", "p")]


def test_rings_let_counters_wrap() -> None:
    kernel = text("k3_plain").kernels[0]
    rings = {b.name: b.versions for b in (*kernel.buffers, *kernel.barriers)}
    producer, consumer = kernel.roles
    assert periods(producer, rings) == {"t": 2, "a": 4}
    assert periods(consumer, rings) == {"t": 2, "x": 4, "z": 4}


def test_a_counter_that_is_counted_with_does_not_wrap() -> None:
    kernel = copy.deepcopy(text("k3_plain").kernels[0])
    producer = kernel.roles[0]
    loop = next(s for s in walk(producer.body) if isinstance(s, Loop))
    loop.hi = loop.hi + next(e for s in walk(producer.body) if isinstance(s, Sync) for n, e in s.args if n == "phase")
    rings = {b.name: b.versions for b in (*kernel.buffers, *kernel.barriers)}
    assert periods(producer, rings)["t"] == 2  # the phase itself is a remainder
    loop.hi = loop.hi + sym("t")
    assert periods(producer, rings)["t"] is None


def test_counters_of_the_elected_thread_are_private() -> None:
    producer, consumer = text("k2_gemm").kernels[0].roles
    assert private(producer) == {"p"}
    assert "c" not in private(consumer)
