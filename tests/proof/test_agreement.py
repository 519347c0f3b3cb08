"""The checker's ring judge and the proved judge of `proof/Protocol.v` give the same verdicts on the same texts.

Ours is one rule for every number of trips; the proved one looks at every interleaving of a finite run. Each text is
built twice from one description: as a kernel in the machine program's statements, and as numbers for the extracted
program.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.proof.conftest import run
from tests.proof.ring_texts import CONSERVATIVE, RIGHT_STEPS, RingText, texts

from treadle.algebra.expr import ge, sym
from treadle.algebra.sets import Facts
from treadle.checker.rings import Rings
from treadle.checker.verdict import Refused

CASES = 10_000


@pytest.fixture(scope="session")
def proved(compiled: Path) -> Path:
    """The judge that Coq extracts, as a program."""
    compiler = shutil.which("ocamlopt") or shutil.which("ocamlc")
    if compiler is None:
        pytest.skip("needs OCaml (it comes with Debian's package coq)")
    run("coqc", "-q", "-Q", ".", "Treadle", "Extract.v", folder=compiled)
    run(compiler, "protocol.mli", "protocol.ml", "compare.ml", "-o", "compare", folder=compiled)
    return compiled / "compare"


def ours(text: RingText, least: int = 1) -> str:
    """Our verdict for every number of trips from `least` on."""
    try:
        Rings(text.kernel(), Facts((ge(sym("K"), least),))).check()
    except Refused:
        return "0"
    return "1"


def theirs(program: Path, cases: list[RingText]) -> str:
    return run(str(program), folder=program.parent, text="".join(f"{t.line()}\n" for t in cases)).strip()


def test_ten_thousand_texts_have_one_verdict(proved: Path) -> None:
    cases = list(itertools.islice(texts(seed=1), CASES))
    mine, other = "".join(map(ours, cases)), theirs(proved, cases)
    assert len(other) == CASES
    different = [t for t, a, b in zip(cases, mine, other, strict=True) if a != b]
    assert different == [], (len(different), different[0])
    both = Counter(mine)
    assert both["1"] > 1200 and both["0"] > 1200


def test_loops_that_may_have_no_trip(proved: Path) -> None:
    """What ours accepts for none and more is right at no trip, at one and at more; of the right texts it refuses those
    alone that give a step back behind a loop without one, whose last arrival is one that no step made."""
    filled = (("WaitEmpty", 1), ("Tell", 1), ("Fill", 1))
    pairs = itertools.product((1, 2, 3), itertools.product(RIGHT_STEPS, repeat=2))
    cases = [RingText(slots, 0, 1, 2, 1, filled, steps) for slots, steps in pairs]
    cases += [replace(t, trips=0) for t in itertools.islice(texts(seed=2), 400)]
    mine = "".join(ours(t, least=0) for t in cases)
    accepted = [t for t, a in zip(cases, mine, strict=True) if a == "1"]
    assert len(accepted) > 50 and mine.count("0") > 50
    for trips in (0, 1, 2):
        assert set(theirs(proved, [replace(t, trips=trips) for t in accepted])) == {"1"}
    behind = [t for t in cases if any(last for _, last in t.consumers)]
    assert {ours(t, least=0) for t in behind} == {"0"}
    now = [t for t in cases if t not in behind and ours(t) == "1"]
    assert {ours(t, least=0) for t in now} == {"1"}


def test_a_safe_text_of_another_shape_is_refused_by_ours_only(proved: Path) -> None:
    """The one kind of difference that is allowed: never `verified` where an interleaving fails."""
    assert ours(CONSERVATIVE) == "0"
    assert theirs(proved, [CONSERVATIVE]) == "1"


def test_every_single_fault_is_refused_by_both(proved: Path) -> None:
    """One right text, and each number and order in it changed alone."""
    right = RingText(2, 4, 1, 2, 2, (("WaitEmpty", 1), ("Tell", 2), ("Fill", 2)), (RIGHT_STEPS[0], RIGHT_STEPS[1]))
    changes: list[dict[str, object]] = [
        {"full_count": 2},
        {"empty_count": 1},
        {"empty_count": 3},
        {"producer": (("WaitEmpty", 0), ("Tell", 2), ("Fill", 2))},
        {"producer": (("WaitEmpty", 1), ("Tell", 1), ("Fill", 2))},
        {"producer": (("WaitEmpty", 1), ("Tell", 3), ("Fill", 2))},
        {"producer": (("WaitEmpty", 1), ("Tell", 2), ("Fill", 1))},
        {"producer": (("Tell", 2), ("Fill", 2))},
        {"consumers": (RIGHT_STEPS[0], ((("WaitFull", 0), ("Read", 0)), ()))},
        {"consumers": (RIGHT_STEPS[0], ((("WaitFull", 0), ("Give", 0), ("Read", 0)), ()))},
    ]
    wrong = [RingText(**{**right.__dict__, **change}) for change in changes]
    assert theirs(proved, [right, *wrong]) == "1" + "0" * len(wrong)
    assert [ours(t) for t in (right, *wrong)] == ["1"] + ["0"] * len(wrong)
