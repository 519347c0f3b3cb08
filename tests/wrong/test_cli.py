"""The command line misused: every mistake is printed with its code and ends with status 3, never with a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from treadle.cli import COMMANDS, main

KERNELS = """
import treadle as td
from treadle import f32

M, N = td.dims("M N")


@td.kernel
def scaled(X: td.Tensor[M, N], s: td.Scalar[f32], bias: td.Tensor[N] = None, Y: td.Out[M, N] = None, *, by=1):
    for m in td.parallel(M):
        t = X[m, N] * s * by
        if bias is not None:
            t = t + bias[N]
        Y[m, N] = t


@td.kernel
def shifted(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m + 1]


@td.kernel
def unrolled(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        t = 0.0
        for n in range(N.extent):
            t = t + X[m, n]
        Y[m] = t


number = 3
"""
FILES: dict[str, bytes] = {
    "kernels.py": KERNELS.encode(),
    "syntax.py": b"x = 1\ndef (:\n",
    "missing_import.py": b"import math\nimport module_that_nobody_has\n",
    "leaves.py": b"raise SystemExit(5)\n",
    "raises.py": b"def f():\n    return 1 / 0\n\n\nf()\n",
    "binary.py": b"\xff\xfe\x00no text",
    "empty.py": b"",
    "text.tdm": b"no machine text\n",
    "binary.tdm": bytes(range(256)),
    "empty.tdm": b"",
    "later.tdm": b"tdm 999\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("commands")
    for name, text in FILES.items():
        (made / name).write_bytes(text)
    (made / "folder.tdm").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        yield made


def run(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str]:
    """Status and everything printed. *Ensures*: a status of the command line, and no traceback."""
    try:
        status = main(words)
    except SystemExit as left:  # argparse, after printing the usage
        status = int(left.code or 0)
    printed = capsys.readouterr()
    assert status in (0, 1, 2, 3), words
    assert "Traceback" not in printed.err + printed.out
    assert "bug in treadle" not in printed.err + printed.out, words
    return status, printed.out + printed.err


PLAN = ["plan", "kernels.py:scaled", "--target", "cpu:avx2"]
WRONG: dict[str, tuple[list[str], str]] = {
    "no file": (["plan", "nowhere.py:scaled"], "cli/kernel"),
    "no kernel of that name": (["plan", "kernels.py:gone"], "cli/kernel"),
    "no kernel but a number": (["plan", "kernels.py:number"], "cli/kernel"),
    "no name": (["plan", "kernels.py"], "cli/kernel"),
    "an empty name": (["plan", "kernels.py:"], "cli/kernel"),
    "a file without kernels": (["plan", "empty.py:scaled"], "cli/kernel"),
    "a file that is no Python": (["plan", "syntax.py:k"], "cli/file"),
    "a file that imports what is missing": (["plan", "missing_import.py:k"], "cli/file"),
    "a file that raises": (["plan", "raises.py:k"], "cli/file"),
    "a file that leaves": (["plan", "leaves.py:k"], "cli/file"),
    "a file that is no text": (["plan", "binary.py:k"], "cli/file"),
    "a wrong kernel": (["plan", "kernels.py:shifted"], "bounds/unproved"),
    "an extent that Python needs": (["plan", "kernels.py:unrolled"], "cli/argument"),
    "arg without dtype": ([*PLAN, "--arg", "X"], "cli/argument"),
    "arg of an unknown dtype": ([*PLAN, "--arg", "X=f33"], "dtype/unknown"),
    "arg of no parameter": ([*PLAN, "--arg", "Q=f32"], "cli/argument"),
    "arg of a scalar": ([*PLAN, "--arg", "s=bf16"], "cli/argument"),
    "arg of a staged value": ([*PLAN, "--arg", "by=f32"], "cli/argument"),
    "arg with other dimensions": ([*PLAN, "--arg", "X=f32[M,K]"], "cli/argument"),
    "arg with a dimension too few": ([*PLAN, "--arg", "X=f32[M]"], "cli/argument"),
    "arg with half a bracket": ([*PLAN, "--arg", "X=f32[M"], "cli/argument"),
    "dim without a number": ([*PLAN, "--dim", "M"], "cli/argument"),
    "dim below zero": ([*PLAN, "--dim", "M=-3"], "cli/argument"),
    "dim of other digits": ([*PLAN, "--dim", "M=²"], "cli/argument"),
    "dim beyond every memory": ([*PLAN, "--dim", "M=" + "9" * 26], "cli/argument"),
    "dim of no dimension": ([*PLAN, "--dim", "Q=3"], "cli/argument"),
    "set without a value": ([*PLAN, "--set", "by="], "cli/argument"),
    "set of what td lacks": ([*PLAN, "--set", "by=td.nothing"], "cli/argument"),
    "set of an expression": ([*PLAN, "--set", "by=__import__('os')"], "cli/argument"),
    "set of endless nesting": ([*PLAN, "--set", "by=" + "1+" * 5000 + "1"], "cli/argument"),
    "set of no parameter": ([*PLAN, "--set", "nothing=1"], "capture/staged"),
    "set of a value that does not fit": ([*PLAN, "--set", "by='text'"], "capture/argument"),
    "absent but needed": ([*PLAN, "--absent", "X"], "cli/argument"),
    "absent but no parameter": ([*PLAN, "--absent", "nothing"], "cli/argument"),
    "an unknown target": (["plan", "kernels.py:scaled", "--target", "cpu:avx9"], "plan/target"),
    "an unknown family": ([*PLAN, "--family", "magic"], "plan/none"),
    "no machine text": (["check", "text.tdm"], "machine/syntax"),
    "an empty machine text": (["check", "empty.tdm"], "machine/syntax"),
    "a machine text of a later version": (["check", "later.tdm"], "machine/syntax"),
    "nothing to simulate": (["simulate", "text.tdm"], "machine/syntax"),
    "an extent of no number": (["simulate", "text.tdm", "--dim", "M=x"], "cli/argument"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str, folder: Path, capsys: pytest.CaptureFixture[str], snapshot: Any) -> None:
    words, code = WRONG[name]
    status, text = run(capsys, words)
    assert status == 3
    assert text.startswith(f"{code}: "), text
    assert re.sub(re.escape(str(folder)) + "/", "", text) == snapshot


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nothing"],
        ["plan"],
        [*PLAN, "--bogus"],
        [*PLAN, "--machine", "--source"],
        ["check", "nowhere.tdm"],
        ["check", "binary.tdm"],
        ["check", "folder.tdm"],
        ["check", "kernels.py:scaled"],
        ["simulate", "text.tdm", "--seed", "x"],
        ["bench", "cpu", "--case", "("],
        ["cache", "--bogus"],
        ["doctor", "--bogus"],
    ],
    ids=lambda w: " ".join(w) or "(none)",
)
def test_misuse_that_argparse_or_the_system_refuses(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = run(capsys, words)
    assert status == 3 and text


def test_the_right_ones_beside_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--arg", "X=bf16[M,N]", "--arg", "bias=f32", "--dim", "M=64", "--set", "by=2"]
    status, text = run(capsys, [*PLAN, *given, "--program"])
    assert status == 0 and "tensor X: bf16[M, N]" in text
    status, text = run(capsys, [*PLAN, "--absent", "bias", "--program"])
    assert status == 0 and "bias" not in text
    status, text = run(capsys, ["sanitize", "kernels.py:unrolled", "--dim", "N=3", "--dim", "M=2"])
    assert status == 0 and "nothing found" in text


words = st.one_of(
    st.sampled_from([*COMMANDS, "--help", "-h", "--version", "cpu"]),
    st.sampled_from(["kernels.py:scaled", "kernels.py:unrolled", *FILES, "kernels.py:", ":", "folder.tdm"]),
    st.sampled_from(["--arg", "--dim", "--set", "--absent", "--target", "--family", "--json", "--source", "--seed"]),
    st.sampled_from(["X=bf16", "M=4", "N=2", "by=3", "bias", "cpu:avx2", "1"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["plan", "explain", "check", "simulate", "sanitize"]), st.lists(words, max_size=5))
@example("plan", ["kernels.py:scaled", "--dim", "M=\n4"])
def test_any_words(folder: Path, capsys: pytest.CaptureFixture[str], command: str, rest: list[str]) -> None:
    if "--mutate" in rest or command == "simulate" and "--schedules" in rest:
        return
    run(capsys, [command, *rest])
