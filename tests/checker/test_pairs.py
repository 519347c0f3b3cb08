"""Reports of races and protocols name both statements: where a rule looks them up (`checker/pairs.py`)."""

from __future__ import annotations

import pytest
from tests.checker.copied_ring_text import ring
from tests.checker.pattern_files import patterns
from tests.checker.random_handovers import take
from tests.checker.random_handovers import text as handover
from tests.checker.send_text import EXPECT, WAIT
from tests.checker.send_text import text as sends

from treadle.checker import check
from treadle.checker.pairs import conflict, named, touches_of, updated
from treadle.machine.form import Load, Stmt, Store, Tasks, walk
from treadle.machine.parse import parse_machine
from treadle.machine.text import statement_text

TAKE = "        sync mbar.wait full{c} (phase = c // 2 % 2)\n"
CASES = {
    "a wait for the own workgroup": (sends(wait=WAIT.replace(", cluster = 1", "")), "sync mbar.wait", "store S@"),
    "sent again too early": (sends(last=""), "store S@", "sync mbar.wait"),
    "fewer bytes told than sent": (sends(first=EXPECT.replace("= 8", "= 4")), "sync mbar.expect", "store S@"),
    "two copies into one row": (ring(2).replace("[$0 + 2, $1] =", "[$0, $1] ="), "copy cp.async", "copy cp.async"),
    "some threads wait": (ring(2).replace(TAKE, TAKE.replace(")\n", ") by elect\n")), "sync mbar.wait", "x = load A"),
    "a barrier counts others": (
        handover(one2=[take.replace("96", "64")], two1=[take]),
        "sync barrier.sync (id = 1, threads = 64)",
        "sync barrier.sync (id = 1, threads = 96)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_both_statements_are_named(name: str) -> None:
    text, at, against = CASES[name]
    machine = parse_machine(text)
    verdict = check(machine)
    assert verdict.status == "rejected" and verdict.judgement in ("J2", "J3"), str(verdict)
    assert verdict.statement is not None and verdict.partner is not None, str(verdict)
    said = [statement_text(s) if isinstance(s, Stmt) else "" for s in machine.statements()]
    assert said[verdict.statement].startswith(at), str(verdict)
    assert verdict.partner.text.startswith(against), str(verdict)
    assert said[verdict.partner.statement].startswith(verdict.partner.text)


def test_memory_is_looked_up_by_name() -> None:
    machine = parse_machine(next(p.wrong for p in patterns() if p.name == "partials_read_by_another_workgroup"))
    body = machine.kernels[0].roles[0].body
    first, second = (s for s in body if isinstance(s, Tasks))
    pair = conflict(second.body, [first.body])
    assert pair is not None
    assert (type(pair[0][0]), pair[0][1].name, type(pair[1][0])) == (Load, "b_total", Store)
    assert conflict(second.body, [first.body], frozenset({"b_total"})) is None
    assert named(first.body, "b_total") is named(first.body, "b_total", writes=True)
    assert named(first.body, "b_total", writes=False) is None
    load, store = updated(second)
    assert load is store and isinstance(store, Store)  # nothing of what it stores is loaded there
    assert {ref.name for _, ref, _ in touches_of(body)} == {"X", "Y", "b_total"}
    assert [s for s, _, writes in touches_of(body) if writes] == [s for s in walk(body) if isinstance(s, Store)]
