"""Chains whose consumers are one step ahead in the first of two rings."""

from __future__ import annotations

from math import isinf

import pytest
from tests.realise.texts import attention, linear
from tests.targets.cuda.cuda_kit import clean, tried
from tests.targets.cuda.test_cuda_ends import decode
from tests.targets.cuda.test_cuda_streams import halves, read

from treadle.checker import check
from treadle.machine.form import Compute, FragRef, If, Loop, Mma, Sync
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.realise.onward import only_copied
from treadle.targets.cuda.families import families
from treadle.targets.cuda.streams import Streams

TARGET = "cuda:sm_90a"


@pytest.mark.parametrize(
    ("causal", "settings"),
    [
        (True, {"consumers": 2, "turns": True, "step": 128, "versions": 2}),
        (False, {"consumers": 1, "turns": False, "step": 64, "versions": 2, "held": 2}),
    ],
)
def test_the_next_blocks_product_is_issued_with_the_second_of_this_one(
    causal: bool, settings: dict[str, int | bool]
) -> None:
    source = read(attention("bf16", causal=causal))
    sizes = {"B": 1, "H": 1, "Q": 136, "S": 136, "D": 64}
    family, facts = Streams(), contiguous(source, TARGET, sizes)
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | settings | {"ahead": True}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    (together,) = [
        one
        for loop in machine.statements()
        if isinstance(loop, Loop)
        for one in loop.body
        if isinstance(one, If) and any(isinstance(s, Sync) and s.kind == "wgmma.wait" for s in one.then)
    ]
    assert sum(isinstance(s, Mma) for s in together.then) == 1  # the first of a product, which starts from nothing
    assert check(machine).status == "verified"
    tried(machine, source, sizes, tolerance=2e-2)
    clean(machine)


def test_no_default_is_ahead_before_it_is_timed() -> None:
    source = read(attention("bf16", causal=True))
    facts = contiguous(source, TARGET, {"B": 4, "H": 16, "Q": 4096, "S": 4096, "D": 128})
    assert choose(source, facts, families()).plan.point["ahead"] is False


def test_three_consumers_whose_masks_hang_on_the_task_have_no_room() -> None:
    source = read(attention("bf16", causal=True))
    facts = contiguous(source, TARGET, {"B": 4, "H": 16, "Q": 4096, "S": 4096, "D": 64})
    family = Streams()
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | {"consumers": 3, "step": 128, "versions": 2}
    assert not isinf(family.cost(source, facts, point).total)
    assert isinf(family.cost(source, facts, point | {"ahead": True}).total)
    exceeded = [n for n in family.needs(source, facts, point | {"ahead": True}, ()) if n.total > n.limit]
    assert [n.resource for n in exceeded] == ["a thread's registers"] and ("a step ahead", 4) in exceeded[0].parts


def test_products_that_are_no_chain_have_no_step_ahead() -> None:
    source = read(halves(linear("bf16")))
    facts = contiguous(source, TARGET, {"M": 512, "N": 512, "K": 512})
    assert "ahead" not in [a.name for a in Streams().axes(source, facts)]


def test_chains_whose_number_of_blocks_is_loaded_have_no_step_ahead() -> None:
    _, source, _ = decode()
    facts = contiguous(source, TARGET, {"B": 4, "KV": 2, "R": 4, "KV_R": 8, "D": 64, "DV": 64, "Sk": 512})
    assert Streams().admits(source, facts) == []
    assert "ahead" not in [a.name for a in Streams().axes(source, facts)]


def test_only_a_copy_that_nothing_needs_later_takes_the_accumulators_place() -> None:
    def copy(dst: str, src: str) -> Compute:
        return Compute(dst=dst, fn="copy", args=(FragRef(src),))

    use = Compute(dst="p", fn="exp", args=(FragRef("s"),))
    assert only_copied([copy("s", "acc"), copy("s", "s"), use], [], "acc") == "s"
    assert only_copied([copy("s", "acc"), copy("t", "acc"), use], [], "acc") == "t"  # of `s` acc is read behind
    for body, later in (
        ([copy("s", "acc"), use], [copy("q", "s")]),
        ([copy("s", "acc"), use, Compute(dst="q", fn="neg", args=(FragRef("acc"),))], []),
        ([copy("s", "other"), use], []),
        ([Compute(dst="s", fn="neg", args=(FragRef("acc"),)), use], []),
    ):
        assert only_copied(body, later, "acc") is None
