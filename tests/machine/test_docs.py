"""The worked example of the format's page reads, prints, is verified and computes what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from treadle.checker import check
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.machine.verify import form_problems
from treadle.machine.vocabulary import ENGINES, OVER, RASTERS, SYNC
from treadle.simulate.run import run_schedules

PAGE = Path(__file__).parents[2] / "docs" / "machine_format.md"


def example() -> str:
    (text,) = re.findall(r"```tdm\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return text


def test_the_example_reads_and_prints() -> None:
    program = parse_machine(example())
    assert form_problems(program) == []
    assert parse_machine(print_machine(program)).kernels == program.kernels
    assert len(print_machine(program).splitlines()) == len(example().splitlines())


def test_the_example_is_verified() -> None:
    verdict = check(parse_machine(example()))
    assert verdict.status == "verified", str(verdict)


def test_the_example_runs() -> None:
    x = np.random.default_rng(0).integers(-9, 10, (5, 11)).astype(np.float32)
    args = {"X": x, "Y": np.zeros(5, np.float32)}
    trials = run_schedules(parse_machine(example()), args, 4, expected={"Y": np.abs(x).sum(axis=1)})
    assert trials.right, trials.failures


def test_the_page_names_every_word() -> None:
    page = PAGE.read_text()
    for word in (*SYNC, *ENGINES, *OVER, *RASTERS):
        assert f"`{word}" in page, word
