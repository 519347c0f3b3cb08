"""The cache on disk: a second process runs without what planned and compiled; a damaged entry is made again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.driver import record as records
from treadle.driver import settling
from treadle.driver.record import Record, fetch, keep, record_key

PROGRAM = """
import json, sys, time
import numpy as np
import treadle as td
from treadle.driver.record import fingerprint

M, N, K = td.dims("M N K")

@td.kernel
def product(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, n], acc)
        Y[m, n] = acc

@td.kernel
def double(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] + X[m]

a, b = np.ones((33, 17), np.float32), np.ones((17, 65), np.float32)
start = time.perf_counter()
right = bool((product(a, b) == 17).all() and (double(a[0]) == 2).all())
seconds = time.perf_counter() - start
print(json.dumps({"right": right, "seconds": seconds, "modules": sorted(sys.modules),
                  "treadle": fingerprint(), "plans": [v.plan for v in product.variants]}))
"""
NEEDLESS = ("planner", "checker", "realise", "rules", "simulate", "evaluate", "targets", "toolchain")


def run(folder: Path, **env: str) -> dict[str, object]:
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, "TREADLE_CACHE": str(folder / "cache"), **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_second_process_runs_without_planner_judge_and_compiler(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    while first["treadle"] != second["treadle"]:  # someone edited treadle in between: its cache begins anew
        first, second = second, run(tmp_path)
    assert first["right"] and second["right"] and first["plans"] == second["plans"]
    loaded = [str(m) for m in second["modules"]]
    heavy = [m for m in loaded if m.startswith("treadle.") and m.split(".")[1] in NEEDLESS]
    # The table of instruction levels is data, shared with whoever asks what this machine can run.
    data = {"treadle.toolchain", "treadle.toolchain.features", "treadle.toolchain.errors"}
    assert [m for m in heavy if m not in data] == []
    assert [m for m in loaded if m.split(".")[0] in ("islpy", "ortools", "torch", "rich")] == []


def test_the_cache_may_be_off(tmp_path: Path) -> None:
    assert run(tmp_path, TREADLE_CACHE="off")["right"]
    assert not (tmp_path / "cache").exists()


def test_a_damaged_entry_is_made_again(tmp_path: Path) -> None:
    run(tmp_path)
    for path in (tmp_path / "cache").rglob("code.bin"):
        path.write_bytes(b"\0" * 64)
    for path in (tmp_path / "cache").rglob("machine.tdm"):
        path.write_text(path.read_text().replace("+", "-", 1))
    assert run(tmp_path)["right"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Record:
    kept: list[Record] = []
    monkeypatch.setattr(settling, "keep", lambda key, record: kept.append(record))
    monkeypatch.setattr(settling, "fetch", lambda key: None)
    td.kernel(k.double.definition.fn)(np.ones(5, np.float32))
    return kept[0]


def test_a_record_comes_back_whole(made: Record) -> None:
    keep("a" * 16, made)
    found = fetch("a" * 16)
    assert found is not None
    assert (found.machine, found.source, found.code) == (made.machine, made.source, made.code)
    assert found.plan == made.plan and found.verdict["status"] == "verified" and found.digest == made.digest
    assert "verified" in repr(found)


def test_a_record_whose_machine_text_is_not_the_judged_one_is_not_used(made: Record) -> None:
    other = Record(made.machine + "\n", made.source, made.code, made.meta)
    keep("b" * 16, made)
    place = next(Path(os.environ["TREADLE_CACHE"]).rglob("b" * 16))
    assert fetch("b" * 16) is not None
    keep("c" * 16, other)
    assert fetch("c" * 16) is not None  # its own text, its own digest
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["meta"]["digest"] = other.digest
    (place / "manifest.json").write_text(json.dumps(manifest))
    assert fetch("b" * 16) is None
    assert fetch("d" * 16) is None


def test_keys_depend_on_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    base = record_key("program", "cpu:avx2", "class")
    others = [
        record_key("program2", "cpu:avx2", "class"),
        record_key("program", "cpu:avx512", "class"),
        record_key("program", "cpu:avx2", "class2"),
        record_key("program", "cpu:avx2", "class", "pin"),
    ]
    monkeypatch.setattr(records, "fingerprint", lambda: "another treadle")
    others.append(record_key("program", "cpu:avx2", "class"))
    assert len({base, *others}) == 6
