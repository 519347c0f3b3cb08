"""Mutants: every line has some, each differs from the original, and a sample of them is found wrong by running."""

from __future__ import annotations

import numpy as np
import pytest
from tests.machine.programs import PACKED, TEXTS, rows_vector

from treadle.machine.form import Claim, Loop, Stmt
from treadle.machine.mutate import mutants, without_claims
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine, statement_lines
from treadle.simulate.run import run_schedules


@pytest.mark.parametrize("name", TEXTS)
def test_every_statement_has_mutants_and_each_is_another_text(name: str) -> None:
    program = parse_machine(TEXTS[name])
    original = print_machine(program)
    found = list(mutants(program))
    assert len({print_machine(m.program) for m in found} - {original}) > 0.9 * len(found)
    assert original == print_machine(program)
    touched = {m.line for m in found}
    lines = statement_lines(program)
    for item in program.statements():
        text = original.splitlines()[lines[id(item)] - 1].strip()
        assert lines[id(item)] in touched or text.startswith("version"), text


def test_each_kind_is_there() -> None:
    kinds = {m.kind for name in ("ring", "rows_vector") for m in mutants(parse_machine(TEXTS[name]))}
    assert kinds == {
        "permute", "delete", "double", "swap", "number", "mask", "fill", "word", "role", "resource", "host", "guard",
        "claim", "ledger",
    }  # fmt: skip


def test_claims_can_be_dropped() -> None:
    bare = without_claims(rows_vector())
    assert all(s.claim is None for s in bare.statements() if isinstance(s, Stmt))
    assert all(not s.invariants for s in bare.statements() if isinstance(s, Loop))
    some = next(mutants(rows_vector(), claims=False))
    assert not any(isinstance(getattr(s, "claim", None), Claim) for s in some.program.statements())


def test_a_sample_is_found_wrong() -> None:
    rng = np.random.default_rng(5)
    x, w = (rng.integers(-8, 9, s).astype(np.float32) for s in ((11, 37), (37, 19)))
    args = {"X": x, "W": w, "Y": np.zeros((11, 19), np.float32)}
    every = [m for m in mutants(parse_machine(PACKED)) if m.kind in ("permute", "delete", "number", "mask")]
    sample = [every[i] for i in rng.choice(len(every), 25, replace=False)]
    alive = [str(m) for m in sample if run_schedules(m.program, args, 2, expected={"Y": x @ w}).right]
    # What may live: bounds that this one shape cannot tell apart.
    assert len(alive) <= 4, alive
