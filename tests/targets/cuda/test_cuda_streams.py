"""Contractions through rings: storage orders, epilogues, chains, ragged ends, and what the text must say."""

from __future__ import annotations

import pytest
from tests.realise.texts import SWIGLU, attention, linear, program
from tests.targets.cuda.cuda_kit import tried

from treadle.checker import check
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.verifier import verify
from treadle.machine.form import Copy, MachineProgram, Mma, Sync
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.pins import tile, versions
from treadle.planner.enumerate import choose
from treadle.targets.cuda.streams import Streams

SMALL = {"M": 136, "N": 72, "K": 72}


def read(text: str) -> Program:
    made = parse_program(text.strip("\n"))
    verify(made)
    return made


def halves(text: str) -> str:
    """The result stored in 16 bits."""
    text = text.replace("tensor Y: f32", "tensor Y: bf16")
    return text.replace("      store Y[m, n] = %y", "      %yb: bf16[m, n] = cast %y\n      store Y[m, n] = %yb")


def gated() -> str:
    text = SWIGLU
    for old in ("[M, K]", "[K, N]"):
        text = text.replace(f"f32{old}", f"bf16{old}")
    for old in ("%a: f32[m, k]", "%b: f32[k, n]", "%c: f32[k, n]"):
        text = text.replace(old, old.replace("f32", "bf16"))
    return text


def built(source: Program, sizes: dict[str, int], **point: int | str | bool) -> MachineProgram:
    family, facts = Streams(), contiguous(source, "cuda:sm_90a", sizes)
    assert family.admits(source, facts) == []
    whole = {a.name: a.values[0] for a in family.axes(source, facts)} | point
    machine = family.build(source, facts, whole, family.guard(source, facts, whole))
    assert check(machine).status == "verified"
    return machine


@pytest.mark.parametrize("stored", ["X[m, k] W[k, n]", "X[m, k] W[n, k]", "X[k, m] W[k, n]", "X[k, m] W[n, k]"])
def test_all_storage_orders(stored: str) -> None:
    text = halves(linear("bf16", gelu=True))
    if "W[n, k]" in stored:
        text = text.replace("W: bf16[K, N]", "W: bf16[N, K]")
        text = text.replace("bf16[k, n] = load W[k, n]", "bf16[n, k] = load W[n, k]")
    if "X[k, m]" in stored:
        text = text.replace("X: bf16[M, K]", "X: bf16[K, M]")
        text = text.replace("bf16[m, k] = load X[m, k]", "bf16[k, m] = load X[k, m]")
    source = read(text)
    tried(built(source, SMALL, columns=64, versions=2), source, SMALL, tolerance=1e-2)


@pytest.mark.parametrize(("flight", "consumers"), [(0, 1), (1, 2)])
def test_direct_results_and_batches_in_flight(flight: int, consumers: int) -> None:
    source = program("linear_bf16")
    machine = built(source, SMALL, columns=128, flight=flight, consumers=consumers, staged=False)
    tried(machine, source, SMALL, tolerance=1e-3, seeds=2)
    assert ("K - 1 >= 0" in str(machine.guard).splitlines()) or not flight


def test_two_contractions_share_an_operand() -> None:
    source = read(gated())
    machine = built(source, SMALL, columns=64, versions=2, staged=False)
    tried(machine, source, SMALL, tolerance=1e-2)
    assert sum(isinstance(s, Mma) for s in machine.statements()) == 2
    loads = {s.src.name for s in machine.statements() if isinstance(s, Copy) and s.engine == "tma.load"}
    assert loads == {"X", "G", "U"}


@pytest.mark.parametrize("causal", [False, True])
def test_a_chain_through_registers(causal: bool) -> None:
    source = read(attention("bf16", causal=causal))
    keys = 130 if causal else 77
    sizes = {"B": 1, "H": 2, "Q": 130, "S": keys, "D": 64}
    tried(built(source, sizes, step=64, versions=2, staged=not causal), source, sizes, tolerance=2e-2)


def test_a_whole_dimension_is_contracted_block_by_block() -> None:
    text = """
program product
  dim B
  dim M
  dim N
  dim K
  tensor X: bf16[B, M, K]
  tensor W: bf16[B, K, N]
  tensor Y: f32[B, M, N] out
  body
    region R0 parallel (b in B each, m in M, n in N)
      %zero: f32[m, n] = full 0.0
      %a: bf16[m, K] = load X[b, m, K]
      %w: bf16[K, n] = load W[b, K, n]
      %y: f32[m, n] = mma %a, %w, %zero
      store Y[b, m, n] = %y
"""
    source = read(text)
    sizes = {"B": 2, "M": 70, "N": 40, "K": 72}
    tried(built(source, sizes, columns=64, versions=2, staged=False, consumers=1), source, sizes)


def test_slots_are_released_by_every_consumer_warp() -> None:
    source = read(halves(linear("bf16")))
    machine = built(source, SMALL, columns=64)
    (kernel,) = machine.kernels
    assert {b.name: b.count for b in kernel.barriers} == {"w_x_full": 1, "w_x_empty": 8}
    arrivals = [s for s in machine.statements() if isinstance(s, Sync) and s.kind == "mbar.arrive"]
    assert [s.by for s in arrivals] == ["warp"]


def test_facts_that_are_missing_are_named() -> None:
    chain = read(attention("bf16"))
    sizes = {"B": 1, "H": 2, "Q": 130, "S": 77, "D": 64}
    plain = contiguous(chain, "cuda:sm_90a", sizes)
    odd = CallFacts(plain.target, plain.extents, plain.unit, dict.fromkeys(plain.aligned, 2))
    assert any("pitch(" in reason and "% 8 == 0" in reason for reason in Streams().admits(chain, odd))
    source = program("linear_bf16")
    plain = contiguous(source, "cuda:sm_90a", {"M": 128, "N": 129, "K": 131})
    assert Streams().admits(program("linear"), plain) == ["products of f32 and f32 need the permission tf32"]
    older = contiguous(source, "cuda:sm_80", {"M": 128, "N": 128, "K": 128})
    assert Streams().admits(source, older) == ["cuda:sm_80 has no asynchronous contraction of warpgroups"]


def test_pins() -> None:
    source = program("linear_bf16")
    facts = contiguous(source, "cuda:sm_90a", {"M": 4096, "N": 4096, "K": 4096})
    family = Streams()
    point = {a.name: a.values[0] for a in family.axes(source, facts)}
    assert family.refuses(source, facts, point, [tile(m=128, n=256, k=64), versions("X", 4)]) == []
    assert family.refuses(source, facts, point, [tile(n=96)]) == ["R0.n is cut by 256, not 96"]
    assert family.refuses(source, facts, point, [versions("X", 3)]) == ["versions of blocks of X: 4, not 3"]


def test_turns_are_order_only() -> None:
    source = read(attention("bf16"))
    sizes = {"B": 1, "H": 2, "Q": 130, "S": 77, "D": 64}
    family, facts = Streams(), contiguous(source, "cuda:sm_90a", sizes)
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | {"turns": True, "step": 64, "versions": 2}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    tried(machine, source, sizes, tolerance=2e-2, seeds=3)
    turns = [s for s in machine.statements() if isinstance(s, Sync) and "turn" in s.tags]
    assert [s.kind for s in turns].count("barrier.sync") == [s.kind for s in turns].count("barrier.arrive") == 3
    assert {str(dict(s.args)["threads"]) for s in turns} == {"256"}


@pytest.mark.parametrize("stored", ["W[k, n]", "W[n, k]"])
def test_few_rows_as_columns(stored: str) -> None:
    text = halves(linear("bf16", gelu=True))
    if stored == "W[n, k]":
        text = text.replace("W: bf16[K, N]", "W: bf16[N, K]")
        text = text.replace("bf16[k, n] = load W[k, n]", "bf16[n, k] = load W[n, k]")
    source = read(text)
    sizes = {"M": 5, "N": 136, "K": 200}
    machine = built(source, sizes, turned=True, columns=8, step=128, staged=False, versions=2)
    assert {s.atom for s in machine.statements() if isinstance(s, Mma)} == {"wgmma.m64n8k16.bf16"}
    tried(machine, source, sizes, tolerance=1e-2)
    thin = contiguous(source, "cuda:sm_90a", {"M": 16, "N": 8192, "K": 8192})
    chosen = choose(source, thin, [Streams()]).plan
    assert chosen.point["turned"] and chosen.point["columns"] == 16
