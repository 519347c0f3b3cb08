"""`kernel.reference` under debuggers: the user's lines are stepped, with the names as NumPy arrays."""

from __future__ import annotations

import bdb
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.base.errors import TreadleError

M, N, K = td.dims("M N K")
X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.ones((4, 2), np.float32)


def halved(t, by):
    u = t / by
    return u + 1.0


@td.kernel
def product(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None, *, factor=4.0):
    for m, n in td.parallel(M.by(2), N):
        acc = td.zeros(m, n, dtype=td.f32)
        for k in td.reduce(K.by(2)):
            acc = td.mma(X[m, k], W[k, n], acc)
        by = factor / 2
        Y[m, n] = halved(acc, by)


@td.kernel
def branched(X: td.Tensor[M, K], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        s = X[m, K].sum(K)
        if s > 10:
            s = s * 2
        else:
            s = s - 1
        Y[m] = s


@td.kernel
def picked(X: td.Tensor[M], at: td.Tensor[N, td.i32], Y: td.Out[N] = None):
    for n in td.parallel(N.each):
        i = at[n]
        Y[n] = X[td.in_range(i, M)]


@td.kernel
def stopped(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        t = X[m] * 2
        breakpoint()
        Y[m] = t


@td.kernel
def unused(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        t = X[m] * 2
        u = X[m] + 1
        Y[m] = u


def merged(a, b):
    top = td.maximum(a[0], b[0])
    return (top, a[1] * td.exp(a[0] - top) + b[1] * td.exp(b[0] - top))


log_sum = td.Monoid((-float("inf"), 0.0), merged, lift=lambda x: (x, 1.0), commutative=True)


@td.kernel
def folded(X: td.Tensor[M, K], Y: td.Out[M] = None, Z: td.Out[M] = None, S: td.Out[M, K] = None):
    for m in td.parallel(M.by(2)):
        top, total = td.fold(X[m, K], K, log_sum)
        state = (td.full(m, value=-1e30), td.zeros(m))
        for k in td.reduce(K.each):
            state = log_sum(state, X[m, k])
        Y[m] = top + td.log(total)
        Z[m] = state[0] + td.log(state[1])
        S[m, K] = td.scan(X[m, K], K, td.Add)


class Watch(bdb.Bdb):
    """A debugger that steps by itself and keeps what it sees: event, function, line in it, names."""

    def __init__(self, move: Callable[[Watch, FrameType], None] | None = None) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, int, dict[str, Any]]] = []
        self.move = move or (lambda me, frame: me.set_step())

    def note(self, event: str, frame: FrameType) -> None:
        if frame.f_code.co_name == "run":
            self.set_continue()
            return
        if frame.f_code.co_filename == __file__:
            shown = {k: v for k, v in frame.f_locals.items() if not k.startswith(".")}
            self.seen.append((event, frame.f_code.co_name, line_in(frame), shown))
        elif "treadle" in frame.f_globals.get("__name__", ""):
            self.seen.append((event, "treadle's own", 0, {}))
        self.move(self, frame)

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        self.note("call", frame)

    def user_line(self, frame: FrameType) -> None:
        self.note("line", frame)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        self.note("return", frame)


def line_in(frame: FrameType) -> int:
    """The line, counted from the function's `def`."""
    return frame.f_lineno - frame.f_code.co_firstlineno


def stepped(kernel: Any, *args: Any) -> tuple[Any, Watch]:
    """Runs a kernel's reference with a debugger that stops at its first line and steps from there."""
    watch = Watch()
    return watched(watch, kernel, *args), watch


def watched(watch: Watch, kernel: Any, *args: Any) -> Any:
    """The result of a kernel's reference under a debugger with a breakpoint on the kernel's first line."""

    def run() -> Any:
        y = kernel.reference(*args)
        return y

    watch.reset()
    watch.set_break(__file__, kernel.definition.span.line + 1)
    sys.settrace(watch.trace_dispatch)
    try:
        return run()
    finally:
        sys.settrace(None)
        watch.clear_all_breaks()


def lines(watch: Watch) -> list[tuple[str, int]]:
    return [(name, line) for event, name, line, _ in watch.seen if event == "line"]


def test_lines_run_in_the_order_of_python() -> None:
    y, watch = stepped(product, X, W)
    assert np.array_equal(y, X @ W / 2 + 1)
    inner = [("product", n) for n in (3, 4, 3, 4, 3)]
    block = [("product", 2), *inner, ("product", 5), ("product", 6), ("halved", 1), ("halved", 2), ("product", 1)]
    assert lines(watch) == [("product", 1), *block, *block]


def test_stepping_never_enters_treadle() -> None:
    for kernel, args in ((product, (X, W)), (branched, (X,)), (unused, (X[0],))):
        _, watch = stepped(kernel, *args)
        names = [name for _, name, _, _ in watch.seen]
        assert kernel.definition.name in names
        # After the kernel's frame has returned, the next stop is the line of the caller.
        assert "treadle's own" not in names
        assert watch.seen[-1][:2] == ("return", kernel.definition.name)


def test_names_hold_what_they_hold_in_the_run() -> None:
    _, watch = stepped(product, X, W)
    at = {(name, line): names for event, name, line, names in watch.seen if event == "line"}
    before_store = at["product", 6]
    assert np.array_equal(before_store["acc"], (X @ W)[2:])
    assert before_store["m"] == range(2, 3) and before_store["n"] == range(2)
    assert before_store["by"] == 2.0 and before_store["factor"] == 4.0
    assert np.shares_memory(before_store["X"], X) and np.shares_memory(before_store["W"], W)
    assert np.array_equal(before_store["Y"][:2], (X @ W / 2 + 1)[:2])
    assert np.array_equal(at["halved", 2]["u"], (X @ W)[2:] / 2)
    assert "acc" not in at["halved", 2] and "k" not in before_store


def test_only_the_branch_taken_is_stepped() -> None:
    y, watch = stepped(branched, X)
    sums = X.sum(1)
    assert np.array_equal(y, np.where(sums > 10, sums * 2, sums - 1))
    body = [n for _, n in lines(watch)]
    assert body == [1, 2, 3, 6, 7, 1, 2, 3, 4, 7, 1, 2, 3, 4, 7, 1]


def test_monoids_are_stepped_like_any_function() -> None:
    expected = folded.reference(X)
    y, watch = stepped(folded, X)
    assert all(np.array_equal(a, b) for a, b in zip(expected, y, strict=True))
    assert ("merged", 1) in lines(watch) and ("merged", 2) in lines(watch) and ("folded", 5) in lines(watch)
    inside = next(names for _, name, line, names in watch.seen if name == "merged" and line == 2)
    assert set(inside) == {"a", "b", "top"} and len(inside["a"]) == 2


def test_a_name_that_nothing_uses_says_so() -> None:
    _, watch = stepped(unused, X[0])
    last = next(names for _, _, line, names in watch.seen if line == 4)
    assert "no later statement uses it" in repr(last["t"]) and np.array_equal(last["u"], X[0] + 1)


def test_an_error_is_raised_on_the_line_of_the_user() -> None:
    at = np.array([0, 7], np.int32)
    watch = Watch(lambda me, frame: me.set_continue())
    with pytest.raises(TreadleError) as caught:
        watched(watch, picked, X[0], at)
    assert caught.value.code == "bounds/out-of-range"
    frames = list(traceback.walk_tb(caught.value.__traceback__))
    mine = [(f, line) for f, line in frames if f.f_code.co_name == "picked"]
    assert [line - picked.definition.span.line for _, line in mine] == [3]
    assert mine[0][0].f_locals["i"] == 7 and mine[0][0].f_locals["n"] == 1


def test_breakpoint_in_a_kernel_stops_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(sys._getframe(1).f_locals["t"].copy()))
    assert np.array_equal(stopped.reference(X[0]), X[0] * 2)
    assert len(seen) == 1 and np.array_equal(seen[0], X[0] * 2)
    assert np.array_equal(stopped(X[0]), X[0] * 2) and len(seen) == 1


def test_quitting_leaves_no_thread_behind() -> None:
    def leave(me: Watch, frame: FrameType) -> None:
        if frame.f_code.co_name == "halved":
            me.set_quit()
        else:
            me.set_step()

    before = threading.active_count()
    with pytest.raises(bdb.BdbQuit):
        watched(Watch(leave), product, X, W)
    assert threading.active_count() == before
    assert np.array_equal(product.reference(X, W), X @ W / 2 + 1)


SCRIPT = """
import numpy as np
import treadle as td

M = td.dims("M")


@td.kernel
def doubled(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        t = X[m] + X[m]
        Y[m] = t


print(doubled.reference(np.arange(3, dtype=np.float32)))
"""


def test_pdb_itself(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    commands = f"b {script}:12\nc\np t.tolist(), m\nn\np Y.tolist()\nb doubled\nc\nq\n"
    done = subprocess.run(
        [sys.executable, "-m", "pdb", str(script)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    text = done.stdout
    assert "script.py(12)doubled()\n-> Y[m] = t" in text, text + done.stderr
    assert "([0.0, 2.0, 4.0], range(0, 3))" in text
    assert "script.py(10)doubled()\n-> for m in td.parallel(M):" in text
    assert text.count("[0.0, 2.0, 4.0]") == 2 and "[0. 2. 4.]" in text


def test_the_program_is_the_same_with_and_without_a_trail() -> None:
    source = textwrap.dedent(SCRIPT)
    assert "breakpoint" not in source
    text = str(stopped.plan(X[0]).source_program())
    assert "breakpoint" not in text
