"""The mechanised core compiles, is checked by Coq's independent checker, and rests on nothing that is not proved."""

from __future__ import annotations

import re
from pathlib import Path

from tests.proof.conftest import CHAPTERS, PROOF, run

UNPROVED = re.compile(r"\b(Admitted|admit|Axiom|Axioms|Conjecture|Parameter|Parameters|Abort|give_up|bypass_check)\b")


def test_every_chapter_is_listed() -> None:
    assert {p.stem for p in PROOF.glob("*.v")} == {*CHAPTERS, "Extract"}


def test_nothing_is_left_unproved() -> None:
    for source in PROOF.glob("*.v"):
        code = re.sub(r"\(\*.*?\*\)", "", source.read_text(), flags=re.DOTALL)
        assert not UNPROVED.search(code), source.name


def test_the_readme_names_theorems_that_exist() -> None:
    text = (PROOF / "README.md").read_text()
    named = set(re.findall(r"`(\w+)\.(\w+)`", text))
    assert len(named) > 25
    for chapter, name in named:
        if name != "v" and (PROOF / f"{chapter}.v").exists():
            assert re.search(
                rf"\b(Theorem|Lemma|Example|Definition|Fixpoint) {name}\b", (PROOF / f"{chapter}.v").read_text()
            ), name


def test_coqchk_accepts_all_of_it_without_axioms(compiled: Path) -> None:
    said = run("coqchk", "-o", "-Q", ".", "Treadle", *(f"Treadle.{c}" for c in CHAPTERS), folder=compiled)
    axioms = re.search(r"\* Axioms:(.*?)\n\s*\n", said + "\n\n", flags=re.DOTALL)
    assert axioms is not None, said
    assert axioms.group(1).split() == ["<none>"], said
