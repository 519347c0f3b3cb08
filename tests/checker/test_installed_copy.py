"""`treadle check` works from an installed copy in which the rooms that plan, build and simulate are deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rules import kernels

import treadle
from treadle.driver.build import choose
from treadle.driver.describe import described_facts
from treadle.dtype.formats import bf16
from treadle.lib.attention import attention
from treadle.machine.text import print_machine
from treadle.rules import Derivation, split_k

GONE = ("planner", "rules", "realise", "targets", "simulate")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, without those rooms."""
    folder = tmp_path_factory.mktemp("site")
    source = Path(treadle.__file__).parent
    shutil.copytree(source, folder / "treadle", ignore=shutil.ignore_patterns("__pycache__", *GONE))
    assert not any((folder / "treadle" / room).exists() for room in GONE)
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the copy, in its folder."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "treadle", *words]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("file", "status", "verdict"),
    [
        (HERE / "patterns" / "box_without_a_fence.right.tdm", 0, "verified"),
        (HERE / "patterns" / "box_without_a_fence.wrong.tdm", 1, "rejected"),
        (HERE / "patterns" / "lanes_never_combined.right.tdm", 0, "verified"),
        (HERE / "patterns" / "tiles_released_too_early.wrong.tdm", 1, "rejected"),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_saved_texts_are_judged(copy: Path, file: Path, status: int, verdict: str) -> None:
    done = run(copy, "check", str(file), "--json")
    assert done.returncode == status, done.stdout + done.stderr
    assert json.loads(done.stdout)["status"] == verdict


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text of the plan of causal attention for a Hopper GPU: rings, products in flight, boxes, tiles with trips of
    their own."""
    dtypes = dict.fromkeys("QKVY", bf16)
    definition = attention.__treadle_definition__
    program = definition.capture(dtypes, {"causal": True}, frozenset(dtypes), extents={"D": 64})
    facts = described_facts(program, {"B": 4, "H": 16, "Sq": 4096, "Sk": 4096})
    file = tmp_path_factory.mktemp("plan") / "attention.tdm"
    file.write_text(print_machine(choose(program, "cuda:sm_90a", facts, ()).machine))
    return file


def test_a_planned_text_of_a_gpu_is_judged(copy: Path, planned: Path) -> None:
    done = run(copy, "check", str(planned), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["status"] == "verified", done.stdout + done.stderr
    text = planned.read_text(encoding="utf-8")
    assert "wgmma" in text and "mbar.wait" in text and "tma.store" in text
    wrong = planned.with_name("wrong.tdm")
    wrong.write_text(text.replace("sync wgmma.wait (depth = 0)", "sync wgmma.wait (depth = 1)", 1))
    assert wrong.read_text() != text
    done = run(copy, "check", str(wrong), "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["status"] == "rejected", done.stdout + done.stderr


def test_a_saved_derivation_is_judged(copy: Path, tmp_path: Path) -> None:
    file = tmp_path / "steps.json"
    Derivation(kernels.program(kernels.contract)).then(split_k, "R1", "k", 8).save(file)
    done = run(copy, "check", str(file), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {step["status"] for step in json.loads(done.stdout)} == {"verified"}
    forged = tmp_path / "forged.json"
    forged.write_text(file.read_text().replace("full -0.0", "full 1.0"))
    assert forged.read_text() != file.read_text()
    assert run(copy, "check", str(forged), "--json").returncode == 1


def test_the_rooms_are_gone_indeed(copy: Path) -> None:
    program = "import treadle, treadle.checker; print(treadle.__file__); import treadle.planner"
    env = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(str(copy)) and "No module named 'treadle.planner'" in done.stderr
