"""Programs for several devices: captured, written out, run on lists of arrays, against NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import treadle as td
from treadle import f32, i32
from treadle.base.errors import TreadleError
from treadle.checker import check
from treadle.driver.devices import on_one_device
from treadle.evaluate.interpreter import evaluate
from treadle.ir.expand import expand
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify
from treadle.runtime.arrays import view

R, M, K, N, T = td.dims("R M K N T")
S, Q = R.alias("S Q")


@td.kernel
def ring(X: td.Tensor[R.device, M], Y: td.Out[R.device, M] = None, *, by=1):
    for r in td.parallel(R.each, scope="device"):
        for m in td.parallel(M):
            Y[r, m] = X[(r + by) % R.extent, m]


@td.kernel
def ring_all_reduce(X: td.Tensor[R.device, M], B: td.Out[R.device, M], Y: td.Out[R.device, M]):
    """Each device adds what its neighbour sent, and sends on what it got: as many steps as there are neighbours."""
    for r in td.parallel(R.each, scope="device"):
        B[r, M] = X[r, M]
        Y[r, M] = X[r, M]
    for step in td.serial(R.extent - 1):
        for r in td.parallel(R.each, scope="device"):
            Y[r, M] = Y[r, M] + X[(r + step + 1) % R.extent, M]
    for r in td.parallel(R.each, scope="device"):
        B[r, M] = Y[(r + 1) % R.extent, M]


@td.kernel
def sharded(A: td.Tensor[R.device, M, K], B: td.Tensor[R.device, K, N], C: td.Out[R.device, M, N] = None):
    """A product whose K is dealt out, with the sum of all parts on every device."""
    for r in td.parallel(R.each, scope="device"):
        for m, n in td.parallel(M, N):
            acc = td.zeros(m, n, dtype=f32)
            for s in td.reduce(S.each):
                for k in td.reduce(K):
                    acc = td.mma(A[s, m, k], B[s, k, n], acc)
            C[r, m, n] = acc


@td.kernel
def picked(X: td.Tensor[R.device, M], W: td.Tensor[T, i32], Y: td.Out[T, M] = None, Z: td.Out[M] = None):
    """Devices picked by loaded numbers: in range, outside, and by a tile."""
    for t in td.parallel(T.each):
        Y[t, M] = X.at(W[t], M, fill=-1.0)
    Z[M] = X.at(M % 5 - 1, M, fill=7.0)


@td.kernel
def spread(X: td.Tensor[R.device, M], W: td.Tensor[T, i32], C: td.Out[R.device, i32], Y: td.Out[R.device, M]):
    """Stores to devices: to all at once, to a loaded one with its old value, to a block of them."""
    td.require(M.extent >= 1)
    x = X[R, M]
    Y[R, M] = x - x.sum(R)
    for t in td.serial(T.each):
        old = C.add_at(td.in_range(W[t], R), 1)
        if old == 1:
            Y[td.in_range(W[t], R), M] = 0.0
    for q in td.serial(Q):
        Y[q, 0] = q * 1.0


@td.kernel
def last_one(X: td.Tensor[R.device, M], Y: td.Out[M] = None):
    """A carried tile, a loop over rows outside one over devices, and branches on the device."""
    best = td.full(M, value=-100.0)
    who = td.full(M, value=-1, dtype=i32)
    for m, r in td.serial(M.each, R.each.reversed):
        if X[r, m] > best[m]:
            best[m] = X[r, m]
            who[m] = td.zeros(dtype=i32) + r.to(i32)
    Y[M] = best + who * 100.0


def arrays(seed: int, *shape: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32))


def native(kernel: td.Kernel, *args: object, **staged: object) -> object:
    """The results of a call that no interpreter ran and whose plan was verified, equal to the reference's."""
    copy = [[a.copy() for a in one] if isinstance(one, list) else one.copy() for one in args]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kernel(*args, **staged)
    assert all(v.verdict["status"] == "verified" for v in kernel.variants)
    expected = kernel.reference(*copy, **staged)
    np.testing.assert_equal(found, expected)
    return found


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_ring_shift(count: int) -> None:
    x = arrays(count, count, 37)
    for by in (1, 3):
        found = native(ring, x, by=by)
        assert isinstance(found, list) and len(found) == count
        np.testing.assert_equal(found, [x[(r + by) % count] for r in range(count)])
    assert ring.sanitize(x) == []


def test_an_all_reduce_in_steps() -> None:
    x = arrays(3, 4, 19)
    b, y = arrays(0, 4, 19), arrays(0, 4, 19)
    native(ring_all_reduce, x, b, y)
    for one in (*b, *y):
        np.testing.assert_equal(one, sum(x))
    assert ring_all_reduce.sanitize(x, b, y) == []


def test_a_sharded_product() -> None:
    a, b = arrays(1, 3, 17, 9), arrays(2, 3, 9, 33)
    for one in native(sharded, a, b):
        np.testing.assert_equal(one, np.einsum("rmk,rkn->mn", np.stack(a), np.stack(b)))


def test_devices_that_are_not_known_before_the_call() -> None:
    x, i = arrays(4, 3, 8), np.array([2, 0, -1, 3, 1], np.int32)
    y, z = native(picked, x, i)
    np.testing.assert_equal(y, [x[k] if 0 <= k < 3 else np.full(8, -1, np.float32) for k in i])
    np.testing.assert_equal(z, [7.0 if not 0 <= m % 5 - 1 < 3 else x[m % 5 - 1][m] for m in range(8)])


def test_stores_to_all_devices_and_to_one() -> None:
    x, i = arrays(5, 3, 6), np.array([1, 2, 1, 1], np.int32)
    c, y = [np.zeros((), np.int32) for _ in range(3)], arrays(6, 3, 6)
    native(spread, x, i, c, y)
    assert [int(n) for n in c] == [0, 3, 1]
    wanted = np.stack(x) - sum(x)
    wanted[1] = 0
    wanted[:, 0] = [0, 1, 2]
    np.testing.assert_equal(np.stack(y), wanted)


def test_carried_tiles_and_branches() -> None:
    x = arrays(7, 4, 11)
    every = np.stack(x)
    best = every.max(0)
    who = 3 - (every[::-1] == best).argmax(0)
    np.testing.assert_equal(native(last_one, x), best + who * 100)


@pytest.mark.parametrize("kernel", [ring, ring_all_reduce, sharded, picked, spread, last_one], ids=lambda k: k.__name__)
def test_the_program_as_text_and_written_out(kernel: td.Kernel) -> None:
    program = kernel.definition.capture({"W": i32, "C": i32}, extents={"R": 3})
    text = print_program(program)
    read = parse_program(text)
    assert print_program(read) == text and "devices" in text
    whole = expand(program)
    verify(whole)
    assert not any(t.devices for t in whole.tensors) and expand(whole) is whole
    assert print_program(expand(read)) == print_program(whole)
    assert print_program(parse_program(print_program(whole))) == print_program(whole)
    extents = {"M": 7, "K": 5, "N": 4, "T": 3}
    stacks: dict[str, np.ndarray] = {}
    for t in program.tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in t.dims)
        stacks[t.name] = np.random.default_rng(len(stacks)).integers(0, 3, shape).astype(t.dtype.numpy)
    lists = {t.name: np.array(stacks[t.part[0]][t.part[1]] if t.part else stacks[t.name]) for t in whole.tensors}
    evaluate(program, stacks, extents=extents)
    evaluate(whole, lists, extents=extents)
    for t in whole.tensors:
        np.testing.assert_equal(lists[t.name], stacks[t.part[0]][t.part[1]] if t.part else stacks[t.name])


def test_a_saved_plan_runs_and_names_are_free(tmp_path) -> None:
    @td.kernel
    def added(X: td.Tensor[R.device, M], X_1: td.Tensor[M], Y: td.Out[M] = None):
        Y[M] = X[0, M] + X[1, M] * X_1[M]

    x, w = arrays(8, 2, 13), arrays(9, 1, 13)[0]
    plan = added.plan(x, w)
    assert check(plan.program).status == "verified" and "X__1" in plan.machine()
    plan.save(tmp_path / "plan.json")
    restored = td.load(tmp_path / "plan.json", added)
    np.testing.assert_equal(restored(x, w), x[0] + x[1] * w)
    bound = added.bind(x, w)
    x[0][...] = 1
    np.testing.assert_equal(bound(), 1 + x[1] * w)


def test_an_output_among_the_inputs() -> None:
    """Device r of the output is device r of the input: each instance reads before it stores, and no other's."""

    @td.kernel
    def doubled(X: td.Tensor[R.device, M], Y: td.Out[R.device, M]):
        for r in td.parallel(R.each, scope="device"):
            Y[r, M] = X[r, M] * 2

    x = arrays(10, 3, 21)
    wanted = [a * 2 for a in x]
    doubled(x, x)
    np.testing.assert_equal(x, wanted)
    doubled.reference(x, x)
    np.testing.assert_equal(x, [a * 2 for a in wanted])


def test_two_devices_that_store_to_one() -> None:
    @td.kernel
    def crowded(X: td.Tensor[R.device, M], Y: td.Out[R.device, M] = None):
        for r in td.parallel(R.each, scope="device"):
            Y[0, M] = X[r, M]

    assert {f.code for f in crowded.sanitize(arrays(11, 2, 4))} == {"parallel/interference"}


@pytest.mark.parametrize(
    "code, found, call",
    [
        ("call/devices", "X: one object of type ndarray", lambda x: ring(np.stack(x))),
        ("call/devices", "X: an empty list", lambda x: ring([])),
        ("call/devices", "X[2] of f32 and shape (5,), but X[0] of f32 and shape (6,)", lambda x: ring([*x, x[0][1:]])),
        ("call/devices", "X[1] of f64", lambda x: ring([x[0], x[1].astype(np.float64)])),
        ("call/extent-conflict", "3 elements along the list Y", lambda x: ring(x, arrays(1, 3, 6))),
        ("call/rank", "X, whose arrays have 2 axes, shape (2, 3)", lambda x: ring([a.reshape(2, 3) for a in x])),
        ("call/overlap", "the outputs Y_0 and Y_1 share memory", lambda x: ring(x, [x[0].copy()] * 2)),
    ],
)  # fmt: skip
def test_lists_that_do_not_fit(code: str, found: str, call) -> None:
    with pytest.raises(TreadleError) as caught:
        call(arrays(12, 2, 6))
    assert caught.value.code == code and found in str(caught.value), str(caught.value)


def test_arrays_of_several_gpus_are_refused() -> None:
    here = view(np.zeros(3, np.float32), name="X")
    views = {f"X_{k}": type(here)(here.ptr, (3,), (1,), "f32", f"cuda:{k}", True, None) for k in range(2)}
    with pytest.raises(TreadleError) as caught:
        on_one_device(ring.definition, views)
    assert caught.value.code == "limit/devices" and "cuda:0, cuda:1" in str(caught.value)


def test_on_one_gpu_it_is_planned() -> None:
    arguments = [td.like(f32, 64), td.like(f32, 64)]
    assert ring.plan(arguments, target="cuda:sm_90a").check().status == "verified"
