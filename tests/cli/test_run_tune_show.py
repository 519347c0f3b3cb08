"""`treadle run`, `treadle tune`, `treadle show`: what they print and write, and what they say to bad input."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import treadle as td
from treadle.cli import BAD_INPUT, main
from treadle.cli.screen import fitted
from treadle.driver.kernel import Kernel

SOURCE = """
import sys

import numpy as np

import treadle as td

M, N, K = td.dims("M N K")


@td.kernel
def scaled(X: td.Tensor[M, N], s: td.Scalar[td.f32], Y: td.Out[M, N] = None, *, twice=False):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n] * s + (X[m, n] if twice else 0.0)


@td.kernel
def product(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, n], acc)
        Y[m, n] = acc


@td.kernel
def chatty(X: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N):
        td.print("x", X[n])
        Y[n] = X[n]


@td.kernel
def binned(X: td.Tensor[N], count: td.Tensor[K, td.i32]):
    for n in td.parallel(N):
        count.add_at(td.in_range((X[n] * K.extent).to(td.i32), K), 1)


@td.kernel
def doubled(X: td.Tensor[N]):
    for n in td.parallel(N):
        X[n] *= 2


@td.kernel
def counted(X: td.Tensor[N], Y: td.Out[(), td.i32]):
    for n in td.parallel(N.each):
        Y.add_at(1)


R = td.dims("R")


@td.kernel
def swapped(X: td.Tensor[R.device, N], Y: td.Out[R.device, N] = None):
    for r in td.parallel(R.each, scope="device"):
        for n in td.parallel(N):
            Y[r, n] = X[R.extent - 1 - r, n]


def main():
    a = np.ones((8, 8), np.float32)
    for _ in range(5):
        a = product(a, a) / 8
    launch = scaled.bind(a, 2.0)
    for _ in range(3):
        launch()
    print("sum", a.sum(), sys.argv[1:])


if __name__ == "__main__":
    main()
    if sys.argv[1:] == ["leave"]:
        sys.exit(7)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "kernels.py"
    path.write_text(SOURCE)
    return path


def run(capsys, *words):
    status = main([str(w) for w in words])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_run_calls_the_kernel(capsys, file, tmp_path):
    status, out, _ = run(capsys, "run", f"{file}:scaled", "--dim", "M=6", "--set", "twice=True", "--out", tmp_path)
    assert status == 0 and re.search(r"scaled at M = 6, N = \d+\n  Y: float32\[6, \d+\] from .* mean ", out)
    assert "verdict: verified" in out and re.search(r"time: \S+ us a call", out) and "plan: scaled on cpu" in out
    y = np.load(tmp_path / "Y.npy")
    assert y.shape[0] == 6 and np.array_equal(y, y.round()) and np.abs(y).max() <= 20
    # Given arrays, exactly: the sum of what is written is what the kernel makes of it.
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    status, out, _ = run(
        capsys, "run", f"{file}:product", "--in", f"A={tmp_path / 'x.npy'}", "--dim", "N=2", "--out", tmp_path
    )
    assert status == 0 and "product at K = 4, M = 3, N = 2" in out and "Y: float32[3, 2]" in out


def test_run_profiles_kernels_and_files(capsys, file):
    status, out, _ = run(
        capsys, "run", f"{file}:product", "--dim", "M=64", "--dim", "N=64", "--dim", "K=64", "--profile"
    )
    row = next(line for line in out.splitlines() if line.startswith("product  "))
    assert status == 0 and "100.0%" in row and ("memory" in row or "compute" in row)
    assert "product: product on" not in out and re.search(r"(?m)^  product: tiled contraction", out)
    status, out, _ = run(capsys, "run", file, "--profile", "a", "b")
    table = out.partition("\nplans\n")[0].splitlines()
    rows = {line.split()[0]: line.split() for line in table if line.split()[:1] in (["product"], ["scaled"])}
    assert status == 0 and "sum 64.0 ['a', 'b']" in out
    assert rows["product"][1] == "5" and rows["scaled"][1] == "3"
    assert re.search(r"kernels \S+ ms of \S+ ms", out)
    with pytest.raises(SystemExit) as left:
        main(["run", str(file), "--profile", "leave"])
    assert left.value.code == 7 and "kernels " in capsys.readouterr().out
    assert Kernel.__call__.__name__ == "__call__" and Kernel.bind.__name__ == "bind", "nothing is timed any more"


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_what_commands_print_fits_the_terminal(capsys, file, monkeypatch, columns):
    """Lines end at the terminal's width, at most 100, and lose no word."""
    monkeypatch.setenv("COLUMNS", str(columns))
    sizes = ("--dim", "M=64", "--dim", "N=64", "--dim", "K=64")
    for command in (("explain",), ("run", "--profile"), ("tune", "--budget", "0.5")):
        status, out, _ = run(capsys, command[0], f"{file}:product", *sizes, *command[1:])
        assert status == 0 and max(map(len, out.splitlines())) <= min(100, columns), out
    _, narrow, _ = run(capsys, "plan", f"{file}:product", *sizes, "--machine")
    assert max(map(len, narrow.splitlines())) > 100, "texts for other programs stay as they are"
    long = "  tiled contraction " + " ".join(f"word{i}=value{i}" for i in range(20))
    text = fitted(f"head\n{long}\nend")
    assert text.split() == f"head {long} end".split()
    assert all(line.startswith("      word") for line in text.splitlines()[2:-1])


def test_run_of_a_kernel_that_prints_calls_it_once(capsys, file):
    status, out, _ = run(capsys, "run", f"{file}:chatty", "--dim", "N=3")
    assert status == 0 and out.count("x[N = ") == 3 and "no others" in out


def test_run_tells_of_what_a_call_changes_in_place(capsys, file, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3, dtype=np.float32))
    given = f"X={tmp_path / 'x.npy'}"
    status, out, _ = run(capsys, "run", f"{file}:doubled", "--in", given, "--out", tmp_path)
    assert status == 0 and "X: float32[3] from 0 to 4" in out
    assert np.load(tmp_path / "X.npy").tolist() == [0, 2, 4], "as one call leaves it"


def test_run_makes_up_an_output_that_is_read(capsys, file):
    status, out, _ = run(capsys, "run", f"{file}:counted", "--dim", "N=5")
    assert status == 0 and "Y: int32[] from 5 to 5" in out


def test_run_makes_up_an_array_for_each_device(capsys, file, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    given = f"X={tmp_path / 'x.npy'}"
    status, out, _ = run(capsys, "run", f"{file}:swapped", "--in", given, "--dim", "R=2", "--out", tmp_path)
    assert status == 0 and np.load(tmp_path / "Y.npy").tolist() == [[3, 4, 5], [0, 1, 2]]
    assert run(capsys, "run", f"{file}:swapped", "--dim", "R=2")[0] == 0
    status, _, err = run(capsys, "run", f"{file}:swapped")
    assert status == BAD_INPUT and "for example --dim R=2\n" in err


@pytest.mark.parametrize("command", ["run", "tune"])
def test_made_up_arrays_that_break_a_promise_are_refused(capsys, file, command):
    status, out, err = run(capsys, command, f"{file}:binned")
    assert status == BAD_INPUT and "bounds/out-of-range" in out + err


def test_tune_prints_and_saves(capsys, file, tmp_path):
    saved = tmp_path / "product.plan"
    words = ("--dim", "M=32", "--dim", "N=32", "--dim", "K=32", "--budget", "0.01", "--save", saved)
    status, out, _ = run(capsys, "tune", f"{file}:product", *words)
    assert status == 0 and "us a call" in out and "points tried" in out and "tiled contraction" in out
    assert td.load(saved).check().status == "verified" and out.splitlines()[0].startswith("product on cpu")


def test_show_writes_a_page(capsys, file, tmp_path):
    page, text = tmp_path / "plan.html", tmp_path / "product.tdm"
    status, out, _ = run(capsys, "show", f"{file}:product", "--target", "cpu:avx2", "-o", page)
    assert status == 0 and str(page) in out and "<title>product on cpu:avx2: plan</title>" in page.read_text("utf-8")
    words = ("plan", f"{file}:product", "--target", "cuda:sm_90a", "--machine")
    status, out, _ = run(capsys, *words, "-o", text)
    assert status == 0 and out.startswith(f"{text}: ") and text.read_text("utf-8") == run(capsys, *words)[1]
    status, out, _ = run(capsys, "show", text, "-o", "-")
    assert status == 0 and out.startswith("<!doctype html>") and "product on cuda:sm_90a" in out
    # The page of a wrong text says so; what is no text is bad input.
    text.write_text(text.read_text().replace("store Y[$0", "store Y[1 + $0", 1))
    status, out, _ = run(capsys, "show", text, "-o", "-")
    assert status == 0 and "badge rejected" in out
    text.write_text("tdm 1\nnonsense")
    assert run(capsys, "show", text, "-o", "-")[0] == BAD_INPUT


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{file}:nobody"),
        ("run", "{file}:product", "--in", "A=missing.npy"),
        ("run", "{file}:product", "--in", "Q=missing.npy"),
        ("run", "{file}:product", "--dim", "M=100000", "--dim", "N=100000"),
        ("tune", "{file}:product", "--budget", "0"),
        ("tune", "{file}:product", "--budget", "nan"),
        ("show", "{file}:product", "--dim", "Q=3"),
        ("show", "missing.tdm"),
        ("run",),
    ],
)
def test_bad_input(capsys, file, words):
    try:
        status, _, err = run(capsys, *(w.format(file=file) for w in words))
    except SystemExit as left:
        status, err = left.code, capsys.readouterr().err
    assert status == BAD_INPUT and err
