"""A seeded sample of the mutation study: no mutant that the judge accepts is ever wrong under the simulator.

`./dev mutate` makes the whole table; this is what CI has time for.
"""

from __future__ import annotations

import pytest
from benchmarks.mutate import SUBJECTS, Subject

from treadle.checker import check
from treadle.driver.mutation import study

SAMPLE, SCHEDULES = 16, 40


# The ragged twin of a subject, in the whole study only: it differs in masks.
@pytest.mark.parametrize(
    "subject", [s for s in SUBJECTS if "ragged" not in s.name], ids=lambda s: f"{s.name} {s.target}"
)
def test_accepted_mutants_are_right(subject: Subject) -> None:
    program = subject.program()
    assert check(program).status == "verified"
    result = study(program, subject.shapes[:2], SCHEDULES, SAMPLE, seed=11, show=False)
    assert result.total == SAMPLE
    assert result.holes == []
    assert result.outcomes()["accepted, not run"] == 0  # the shapes are ones that the guard admits
    refused = sum(n for (_, outcome), n in result.counts.items() if not outcome.startswith("accepted"))
    # Most changes matter: a judge that waves half of them through judges nothing.
    assert refused >= SAMPLE // 2, result.text()


def test_a_judge_that_accepts_everything_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.driver.mutation.judged", lambda mutant: "verified")
    subject = SUBJECTS[0]
    result = study(subject.program(), subject.shapes[:2], 3, 40, seed=3, show=False)
    assert result.holes, "wrong mutants must show under the simulator"
