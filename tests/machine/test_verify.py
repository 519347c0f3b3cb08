"""Form: the programs by hand are well formed, and each kind of mistake is named with its line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.machine.programs import PACKED, RING, ROWS_VECTOR, TEXTS, edited

from treadle.algebra.expr import const
from treadle.dtype.formats import bf16
from treadle.ir.guard import Aligned, Fact, Guard, Injective, Pitch, Unit
from treadle.machine.form import Buffer
from treadle.machine.parse import parse_machine
from treadle.machine.verify import FormError, form_problems, verify


@pytest.mark.parametrize("name", TEXTS)
def test_the_programs_are_well_formed(name: str) -> None:
    program = parse_machine(TEXTS[name])
    assert form_problems(program) == []
    verify(program)


WRONG = {
    "fragment": (ROWS_VECTOR, "frag t f32[16]\n", "", "no fragment t"),
    "twice": (ROWS_VECTOR, "frag t f32[16]\n", "frag t f32[16]\n  frag t f32[16]\n", "t is declared twice"),
    "variable": (ROWS_VECTOR, "loop k = 0 .. N", "loop j = 0 .. N", "j is declared twice"),
    "word": (ROWS_VECTOR, "frag t f32", "frag where f32", "where is a word of the text"),
    "symbol": (ROWS_VECTOR, "i + $0 < N fill", "i + $0 < L fill", "L has no value here"),
    "scope": (ROWS_VECTOR, "store row[j + $0]", "store row[i + $0]", "i has no value here"),
    "coordinates": (ROWS_VECTOR, "e = load row[k + $0]", "e = load row[k + $1]", "$1 where there are 1 coordinates"),
    "rank": (ROWS_VECTOR, "e = load row[k + $0]", "e = load row[k, $0]", "row has 1 axes and is indexed by 2"),
    "dtype": (ROWS_VECTOR, "frag e f32[16]", "frag e i32[16]", "a load does not convert"),
    "axes": (ROWS_VECTOR, "top = fold max t axes (0)", "top = fold max t", "where [] is needed"),
    "arity": (ROWS_VECTOR, "d = sub x, top", "d = sub x", "sub of 1 operands: it takes 2"),
    "monoid": (ROWS_VECTOR, "t = fold max x", "t = fold most x", "no monoid most"),
    "region": (ROWS_VECTOR, "enters R0(m", "enters R7(m", "no region R7"),
    "argument": (ROWS_VECTOR, "enters R0(m =", "enters R0(n =", "no argument n"),
    "value": (ROWS_VECTOR, "axes (0) ; %s[m]", "axes (0) ; %zz[m]", "no value %zz"),
    "claim rank": (ROWS_VECTOR, "axes (0) ; %s[m]", "axes (0) ; %s[m, 0]", "%s has 1 axes and the claim 2"),
    "store": (ROWS_VECTOR, "; store 0 [m", "; store 1 [m", "the program has 1 stores"),
    "step": (ROWS_VECTOR, "loop i = 0 .. N step 16", "loop i = 0 .. N step 0", "a step of 0"),
    "kernel": (ROWS_VECTOR, "launch main", "launch other", "0 kernels are called other"),
    "pool": (ROWS_VECTOR, "over workers", "over people", "no pool people"),
    "nested": (PACKED, "      loop kp = 0 .. K step 1 {", "      tasks (kp < K) over workers {", "tasks inside tasks"),
    "version": (RING, "A{n}[$0, $1]", "A[$0, $1]", "is a ring and needs a version"),
    "signal": (RING, " signal full{n} map mX", " map mX", "tma.load signals a barrier"),
    "map": (RING, "signal full{n} map mX", "signal full{n} map mY", "needs a map of X"),
    "numbers": (RING, "sync wgmma.wait (depth = 0)", "sync wgmma.wait", "wgmma.wait needs depth"),
    "kind": (RING, "sync wgmma.fence", "sync wgmma.hedge", "no synchronisation wgmma.hedge"),
    "whole": (RING, "sync wgmma.fence", "sync wgmma.fence by warp", "by all threads of an agent together"),
    "counter": (RING, "advance q", "advance z", "no counter z"),
    "distribution": (RING, "frag acc f32[64, 16]", "frag acc f32[64, 17]", "make 16 coordinates of 17"),
    "grain": (RING, "by warp", "by half", "no grain half"),
    "function on the host": (RING, "grid ", "grid elect() + ", "elect has no value on the host"),
    "barrier": (RING, "sync mbar.arrive empty{q}", "sync mbar.arrive none{q}", "no barrier none"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_forms(name: str) -> None:
    text, old, new, message = WRONG[name]
    problems = form_problems(edited(text, old, new))
    assert any(message in p.text for p in problems), [str(p) for p in problems]
    assert all(p.line > 0 for p in problems)


def test_workspace_is_aligned_to_a_power_of_two() -> None:
    program = parse_machine(RING)
    room = Buffer("room", bf16, (const(8),), "workspace", 0)
    wrong = replace(program, host=replace(program.host, workspace=[*program.host.workspace, room]))
    assert any("an alignment of 0" in p.text for p in form_problems(wrong))


@pytest.mark.parametrize(
    "fact", [Unit("X", 2), Unit("Z", 0), Pitch("X", -1, 8), Aligned("Z", 16), Injective("Z")], ids=str
)
def test_facts_are_about_tensors_of_the_program(fact: Fact) -> None:
    program = parse_machine(RING)
    wrong = replace(program, guard=Guard((*program.guard.facts, fact)))
    assert any("no axis of a tensor" in p.text for p in form_problems(wrong))


def test_the_error_names_the_line(snapshot: SnapshotAssertion) -> None:
    text, old, new, _ = WRONG["rank"]
    with pytest.raises(FormError) as caught:
        verify(edited(text, old, new))
    assert str(caught.value) == snapshot
