"""`treadle check` on derivations: alone, and between a source and a machine text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.rules import kernels

from treadle.cli.check import run
from treadle.driver.check import SourceDiffers
from treadle.driver.rewriting import rewrite
from treadle.plan.steps import StepUnreadable
from treadle.rules import Derivation, fuse_scopes, split_k
from treadle.rules.nests import split

HERE = "tests/rules/kernels.py:contract"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A saved derivation, and the machine text of the program it ends with."""
    derivation = Derivation(kernels.program(kernels.contract)).then(split_k, "R1", "k", 8)
    derivation.save(tmp_path / "steps.json")
    chunked = rewrite(kernels.contract, lambda d: split_k(d, "R1", "k", 8))
    x, w = (np.ones(s, np.float32) for s in ((8, 10), (10, 9)))
    (tmp_path / "plan.tdm").write_text(chunked.plan(x, w, target="cpu:avx2").machine())
    return tmp_path / "steps.json", tmp_path / "plan.tdm"


def test_a_derivation(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    steps, _ = files
    assert run([str(steps)]) == 0
    assert "step 1, factor(at=R1, arg=k, size=8): verified" in capsys.readouterr().out
    assert run([str(steps), "--source", HERE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "verified"


def test_a_machine_text_by_its_derivation_and_its_source(files: tuple[Path, Path]) -> None:
    steps, machine = files
    assert run([str(machine), "--derivation", str(steps), "--source", HERE]) == 0
    with pytest.raises(SourceDiffers):
        run([str(machine), "--source", HERE])
    Derivation(kernels.program(kernels.contract)).then(split, "R1", "k", 4).save(steps)
    with pytest.raises(SourceDiffers):
        run([str(machine), "--derivation", str(steps)])


def test_a_text_whose_guard_lacks_what_the_steps_need(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sweeps became one, which is right for arguments that are apart; the text would also run for others."""
    fused = rewrite(kernels.siblings, lambda d: d.then(fuse_scopes, "R0", "R1"))
    Derivation(kernels.program(kernels.siblings)).then(fuse_scopes, "R0", "R1").save(tmp_path / "steps.json")
    text = fused.plan(np.ones((8, 9), np.float32), target="cpu:avx2").machine()
    given = [str(tmp_path / "plan.tdm"), "--derivation", str(tmp_path / "steps.json")]
    (tmp_path / "plan.tdm").write_text(text)
    assert run(given) == 0
    assert "verified in" in (out := capsys.readouterr().out) and " for disjoint(" in out
    assert "disjoint(X, Z)" in text
    (tmp_path / "plan.tdm").write_text(text.replace("disjoint(X, Z)", "same(X, Z)"))
    assert run(given[:1]) == 0
    assert run(given) == 2
    assert "missing: disjoint(X, Z) in the guard" in capsys.readouterr().out


def test_a_forged_derivation(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    steps, machine = files
    steps.write_text(steps.read_text().replace("full -0.0", "full 1.0"))
    assert run([str(machine), "--derivation", str(steps)]) == 1
    assert "not the identity of add" in capsys.readouterr().out
    steps.write_text(steps.read_text().replace('"kind": "factor"', '"kind": "hoist"'))
    assert run([str(steps)]) == 2


ALONE = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        rooms = ("rules", "planner", "realise", "targets", "simulate", "toolchain", "runtime")
        if name.startswith("treadle.") and name.split(".")[1] in rooms:
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
from treadle.cli.check import run
sys.exit(run([sys.argv[1]]))
"""


def test_a_derivation_is_judged_without_the_rooms_that_make_it(files: tuple[Path, Path]) -> None:
    steps, _ = files
    done = subprocess.run([sys.executable, "-c", ALONE, str(steps)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "verified" in done.stdout


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"format": [1, 0], "program": 5, "steps": []}'], ids=["deep", "number"]
)
def test_what_is_no_derivation(tmp_path: Path, text: str) -> None:
    (tmp_path / "steps.json").write_text(text)
    with pytest.raises(StepUnreadable):
        run([str(tmp_path / "steps.json")])
