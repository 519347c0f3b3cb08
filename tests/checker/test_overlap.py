"""Arguments that overlap: in place by the same view, or in any way; accesses whose order only their executions tell."""

from __future__ import annotations

from collections.abc import Callable

import machines
import pytest
from machine_text import judged, refused, text, verified

from treadle.checker import check
from treadle.ir.guard import Disjoint, Guard, Same
from treadle.ir.parser import parse_program
from treadle.machine import form as f
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.realise.universal import universal


def in_place(program: f.MachineProgram) -> f.MachineProgram:
    """Every pair that was apart is one view."""
    facts = [Same(x.first, x.second) if isinstance(x, Disjoint) else x for x in program.guard.facts]
    program.guard = Guard(tuple(facts))
    return program


@pytest.mark.parametrize("make", [machines.rows_scalar, machines.rows_vector], ids=["rows_scalar", "rows_vector"])
def test_rows_in_place_are_verified(make: Callable[[], f.MachineProgram]) -> None:
    program = in_place(make())
    assert check(program).status == "verified", str(check(program))
    assert print_machine(parse_machine(print_machine(program))) == print_machine(program)


def test_a_product_in_place_is_refused() -> None:
    verdict = check(in_place(machines.gemm_scalar()))
    assert (verdict.status, verdict.judgement) == ("rejected", "J2"), str(verdict)


ELEMENTWISE = "  region R0 parallel (m in M)\n        %x: f32[m] = load X[m]\n        %y: f32[m] = neg %x\n        store Y[m] = %y\n"
SOURCES = {
    "elementwise": "  program p\n    dim M\n    tensor X: f32[M]\n    tensor Y: f32[M] out\n    body\n    "
    + ELEMENTWISE,
    "a row": """
  program p
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        %s: f32[m] = reduce add %x over N
        %y: f32[m, N] = sub %x, %s
        store Y[m, N] = %y
""",
    "everything": """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      %x: f32[M] = load X[M]
      %s: f32[] = reduce add %x over M
      %y: f32[M] = sub %x, %s
      store Y[M] = %y
""",
    "a recurrence": """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      region R0 serial (m in M each)
        %z: f32[] = full 0.0
        %x: f32[] = load X[m]
        %b: f32[] = load Y[m - 1] fill %z
        %y: f32[] = add %x, %b
        store Y[m] = %y
""",
}


PARALLEL = ("elementwise", "a row")


@pytest.mark.parametrize("name", SOURCES)
def test_universal_plans_under_any_overlap(name: str) -> None:
    """Without a word about where the arguments lie, an ordered program is right; instances of a parallel region might
    meet, but not where the arguments are one view."""
    lines = [line for line in SOURCES[name].split("\n") if line.strip()]
    program = universal(parse_program("\n".join(line[2:] for line in lines) + "\n"), "cpu:avx512", disjoint=False)
    assert not any(isinstance(x, Disjoint) for x in program.guard.facts)
    verdict = check(program)
    if name in PARALLEL:
        assert (verdict.status, verdict.missing) == ("unknown", "disjoint(X, Y) or same(X, Y)"), str(verdict)
        program.guard = Guard((*program.guard.facts, Same("X", "Y")))
        verdict = check(program)
    assert verdict.status == "verified", str(verdict)


# A row is read and written element by element: right in place, and for no other overlap.
ROW = text(
    "cpu:avx512",
    """
  program p
    dim N
    tensor X: f32[N]
    tensor Y: f32[N] out
    body
      %x: f32[N] = load X[N]
      %y: f32[N] = neg %x
      store Y[N] = %y
""",
    "  injective(Y)\n  same(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. N step 1 {
      x = load X[i] ; %x[i]
      y = neg x ; %y[i]
      store Y[i] = y ; store 0 [i]
    }
  }
""",
)
SWAPPED = text(
    "cpu:avx512",
    """
  program p
    tensor Y: f32[] out
    tensor Z: f32[] out
    body
      %y: f32[] = load Y[]
      store Z[] = %y
      %five: f32[] = full 5.0
      store Y[] = %five
""",
    "  disjoint(Y, Z)",
    "grid 1 threads 1",
    """
  frag y f32[]
  frag z f32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. 2 step 1 {
      if i <= 0 {
        y = load Y[] ; %y[]
        store Z[] = y ; store 0 []
      } else {
        z = copy 5.0 ; %five[]
        store Y[] = z ; store 1 []
      }
    }
  }
""",
)
REVERSE = ROW.replace("load X[i] ; %x[i]", "load X[N - 1 - i] ; %x[N - 1 - i]").replace("%y[i]", "%y[N - 1 - i]").replace("store Y[i] = y ; store 0 [i]", "store Y[N - 1 - i] = y ; store 0 [N - 1 - i]")  # fmt: skip


@pytest.mark.parametrize("right", [ROW, REVERSE, SWAPPED], ids=["a row", "backwards", "two ways of an if"])
def test_right_texts_are_verified(right: str) -> None:
    verified(right)


# (what is wrong, the right text, what stands there, what stands there instead)
TWINS: list[tuple[str, str, str, str]] = [
    ("an overlap that nothing tells", ROW, "  same(X, Y)", "  0 <= N"),
    ("stored a step late", ROW, "      store Y[i] = y ; store 0 [i]\n", "      if 1 <= i {\n        x = load X[i - 1] ; %x[i - 1]\n        y = neg x ; %y[i - 1]\n        store Y[i - 1] = y ; store 0 [i - 1]\n      }\n"),
    ("the order of the ways", SWAPPED, "if i <= 0", "if 1 <= i"),
    ("two passes", ROW, "loop i = 0 .. N step 1 {", "loop again = 0 .. 2 step 1 {\n    }\n    loop i = 1 .. N step 1 {"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str]) -> None:
    name, right, old, new = twin
    refused(right, old, new, "J1" if name in ("two passes", "stored a step late") else "J2")


def test_an_element_read_after_it_was_overwritten_in_place() -> None:
    late = ROW.replace("    loop i = 0 .. N step 1 {\n", "    loop i = 0 .. N step 1 {\n      s = load X[0] ; %x[0]\n")
    late = late.replace("  frag x f32[]\n", "  frag x f32[]\n  frag s f32[]\n")
    verdict = judged(late)
    assert (verdict.status, verdict.judgement) == ("rejected", "J2"), str(verdict)
