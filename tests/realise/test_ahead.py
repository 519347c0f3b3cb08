"""Reading ahead: requests for the next row stand in a pass of this one, name its lines, and change nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import treadle as td
from treadle.algebra.expr import const
from treadle.checker.judge import check
from treadle.driver.candidates import families
from treadle.ir.expand import expand
from treadle.ir.parser import parse_program
from treadle.machine.form import Body, Load, Loop, MachineProgram, Sync, Tasks
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts, contiguous

SOFTMAX = """
program softmax
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]
      %0: f32[m] = reduce max %x over N
      %1: f32[m, N] = sub %x, %0
      %e: f32[m, N] = exp %1
      %2: f32[m] = reduce add %e over N
      %3: f32[m, N] = div %e, %2
      store Y[m, N] = %3
"""
TWICE = """
program scaled
  dim M
  dim N
  tensor X: bf16[M, N]
  tensor W: bf16[N]
  tensor Y: bf16[M, N] out
  body
    region R0 parallel (m in M)
      %x: bf16[m, N] = load X[m, N]
      %0: bf16[m] = reduce max %x over N
      %w: bf16[N] = load W[N]
      %1: bf16[m, N] = mul %x, %w
      %2: bf16[m, N] = sub %1, %0
      store Y[m, N] = %2
"""
EQUALS = """
program equals
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[M] out
  body
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]
      %0: f32[m] = reduce max %x over N
      %1: bool[m, N] = eq %x, %0
      %2: f32[m, N] = cast %1
      %3: f32[m] = reduce add %2 over N
      store Y[m] = %3
"""


def planned(text: str, m: int, n: int) -> tuple[CallFacts, MachineProgram]:
    program = expand(parse_program(text))
    facts = contiguous(program, "cpu:avx512", {"M": m, "N": n}, features=frozenset({"avx512f"}))
    family = next(f for f in families("cpu:avx512") if f.name == "vector sweep")
    point = {a.name: a.values[0] for a in family.axes(program, facts)}
    return facts, family.build(program, facts, point, family.guard(program, facts, point))


def passes(machine: MachineProgram) -> list[Loop]:
    tasks = next(i for i in machine.kernels[0].roles[0].body if isinstance(i, Tasks))
    rows = next(i for i in tasks.body if isinstance(i, Loop))
    return [i for i in rows.body if isinstance(i, Loop)]


def asked(one: Loop) -> list[str]:
    return [print_line(i) for i in one.body if isinstance(i, Sync)]


def print_line(stmt: Sync) -> str:
    assert stmt.object is not None and stmt.kind == "prefetch"
    return f"{stmt.object.name}[{', '.join(map(str, stmt.object.index))}]"


def test_the_middle_pass_asks_for_every_line_of_the_next_row() -> None:
    _, machine = planned(SOFTMAX, 4096, 4096)
    first, second, third = passes(machine)
    assert not asked(first) and not asked(third)
    row = "m_1 + 16*t_m + 1"
    assert asked(second) == [f"X[{row}, 64*n_1{f' + {16 * k}' if k else ''}]" for k in range(4)]
    assert check(machine).status == "verified"
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)


def test_passes_ask_for_their_shares_of_the_next_row() -> None:
    """A pass of three simple instructions and one of five: memory is busy in both."""
    _, machine = planned(EQUALS, 4096, 4096)
    first, second = passes(machine)
    row = "X[m_1 + 16*t_m + 1, 64*n"
    assert asked(first) == [f"{row}]"]
    assert asked(second) == [f"{row}_1 + {16 * k}]" for k in (1, 2, 3)]
    assert check(machine).status == "verified"


@pytest.mark.parametrize(("m", "n"), [(16, 64), (64, 1 << 20)])
def test_rows_that_are_near_or_too_long_are_not_asked_for(m: int, n: int) -> None:
    _, machine = planned(SOFTMAX, m, n)
    assert not any(asked(p) for p in passes(machine))


def test_a_pass_that_stores_asks_only_when_its_stores_go_past_the_caches() -> None:
    """Weights, which every row reads again, are asked for by nobody; 32 elements of 16 bits are a line."""
    _, near = planned(TWICE, 1024, 4096)
    assert not any(asked(p) for p in passes(near))
    _, far = planned(TWICE, 16384, 4096)
    first, second = passes(far)
    assert not asked(first)
    assert asked(second) == [f"X[m_1 + 16*t_m + 1, 64*n_1{f' + {32 * k}' if k else ''}]" for k in range(2)]
    assert check(far).status == "verified"


M, N, K = td.dims("M N K")


@td.kernel
def product(X: td.Tensor[M, K], W: td.Tensor[N, K], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=td.f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[n, k], acc)
        Y[m, n] = acc


def innermost(body: Body) -> Iterator[Loop]:
    for item in body:
        if isinstance(item, Loop | Tasks):
            inside = list(innermost(item.body))
            yield from inside or ([item] if isinstance(item, Loop) else [])


@pytest.mark.parametrize(("m", "n", "tensor"), [(12, 384, "W"), (384, 3, "X")])
def test_a_block_asks_for_the_lines_of_the_rows_of_the_next_one(m: int, n: int, tensor: str) -> None:
    """Of the operand whose rows come once: the other one's are read again in every block."""
    program = expand(product.program(*(td.like(td.f32, *shape) for shape in ((m, 384), (n, 384), (m, n)))))
    facts = contiguous(program, "cpu:avx512", {"M": m, "N": n, "K": 384}, features=frozenset({"avx512f"}))
    family = next(f for f in families("cpu:avx512") if f.name == "sums in lanes")
    point = {a.name: a.values[0] for a in family.axes(program, facts)}
    machine = family.build(program, facts, point, family.guard(program, facts, point))
    (inner,) = [one for one in innermost(machine.kernels[0].roles[0].body) if asked(one)]
    load = next(i for i in inner.body if isinstance(i, Load) and i.src.name == tensor)
    shape = next(f.shape for f in machine.kernels[0].frags if f.name == load.dst)
    rows = range(shape[0]) if len(shape) > 1 else range(1)
    first = [str(e.substitute({"$0": const(0), "$1": const(0)})) for e in load.src.index]
    assert len(asked(inner)) == len(rows)
    assert all(line.startswith(f"{tensor}[") and line.endswith(f", {first[-1]}]") for line in asked(inner))
    assert first[0] not in {line.partition("[")[2].partition(",")[0] for line in asked(inner)}
    assert check(machine).status == "verified"
