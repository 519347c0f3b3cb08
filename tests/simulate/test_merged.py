"""Trials of contributions that are merged into an output: it begins with numbers, and every task's one arrives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treadle.driver.samples import arguments
from treadle.driver.trial import try_machine
from treadle.machine.parse import parse_machine

TEXT = (Path(__file__).parent.parent / "checker" / "patterns" / "contribution_overwrites.right.tdm").read_text()


def test_an_output_that_is_merged_into_begins_with_numbers() -> None:
    arrays, _ = arguments(parse_machine(TEXT).program, {"M": 3, "N": 5}, 0)
    assert not np.isnan(arrays["Y"]).any()


@pytest.mark.parametrize("tasks", [31, 33, 100, 300])
def test_contributions_of_all_threads_arrive(tasks: int) -> None:
    assert try_machine(TEXT, "counts", {"M": tasks, "N": 68}, 0, 2).clean


@pytest.mark.parametrize("grain", ["warp", "elect"])
def test_a_task_s_one_thread_is_any_part_of_its_agent(grain: str) -> None:
    by = TEXT.replace("effect add ;", f"effect add by {grain} ;")
    assert by != TEXT and try_machine(by, "counts", {"M": 100, "N": 68}, 0, 2).clean


def test_a_lost_contribution_is_seen() -> None:
    lost = TEXT.replace("= x effect", "= x where t < 40 effect")
    assert lost != TEXT and not try_machine(lost, "counts", {"M": 100, "N": 68}, 0, 2).clean
