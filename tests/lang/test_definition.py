"""Specialising kernels: dtypes, staged values, presence, extents, signatures, the cache."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import treadle.lang.api as td
from treadle.base.errors import TreadleError, registry
from treadle.dtype.formats import bf16, f32, f64, i4, i32, u8
from treadle.ir.core import If, Region
from treadle.ir.printer import print_program

M, N, K = td.dims("M N K")
S = td.dims("S", static=True)
P = td.dims("P")


def refused(code: str, action) -> TreadleError:
    with pytest.raises(TreadleError) as caught:
        action()
    assert caught.value.code == code, str(caught.value)
    return caught.value


@td.kernel
def affine(X: td.Tensor[M, N], w: td.Tensor[N] = None, Y: td.Out[M, N] = None, *, scale=2.0, shift):
    for m, n in td.parallel(M, N):
        y = X[m, n] * scale + shift
        Y[m, n] = y if w is None else y * w[n]


def test_one_program_for_each_specialisation():
    first = affine.capture({"X": f32}, {"shift": 1})
    assert affine.capture({"X": f32}, {"shift": 1}) is first
    assert affine.capture({"X": f32}, {"shift": 1.0}) is not first
    assert affine.capture({"X": bf16}, {"shift": 1}) is not first
    with_w = affine.capture({"X": f32, "w": f32}, {"shift": 1})
    assert [t.name for t in first.tensors] == ["X", "Y"]
    assert [t.name for t in with_w.tensors] == ["X", "w", "Y"]
    assert affine.capture({"X": f32}, {"shift": 1}, {"X", "w"}).tensors[1].name == "w"
    assert first.staged == {"scale": "2.0", "shift": "1"}


def test_out_takes_the_stored_dtype():
    def dtype(**args) -> object:
        return affine.capture(args, {"shift": 1}).tensor("Y").dtype

    assert dtype(X=bf16) == bf16
    assert dtype(X=bf16, w=f32) == f32
    assert dtype(X=f64) == f64
    assert dtype(X=i32) == f32
    assert dtype(X=f64, Y=bf16) == bf16


def test_staged_and_present_mistakes():
    assert "shift" in refused("capture/staged", lambda: affine.capture({"X": f32})).found
    refused("capture/staged", lambda: affine.capture({"X": f32}, {"shift": 1, "other": 2}))
    assert "X" in refused("capture/argument", lambda: affine.capture({}, {"shift": 1}, {"w"})).found


@td.kernel
def packed(W: td.Tensor[M, N, i4], Y: td.Out[M, N] = None):
    Y[M, N] = W[M, N].to(f32)


def test_declared_dtypes():
    assert packed.capture({"W": u8}).tensor("W").dtype == i4
    refused("dtype/argument", lambda: packed.capture({"W": f32}))


@td.kernel
def unrolled(X: td.Tensor[M, K], Y: td.Out[M] = None):
    for m in td.parallel(M):
        total = td.zeros(m)
        for k in range(K.extent):
            total = total + X[m, k]
        Y[m] = total


@td.kernel
def specialised(X: td.Tensor[S], Y: td.Out[S] = None):
    Y[S] = X[S] * (1 if S.extent > 3 else 2)


def test_python_needs_an_extent():
    wanted = refused("dims/needs-extent", unrolled.capture)
    assert wanted.name == "K"
    program = unrolled.capture(extents={"K": 3})
    assert sum("load X" in line for line in print_program(program).splitlines()) == 3
    assert program.staged["K.extent"] == "3"
    assert "dim K = 3 static" in print_program(program)
    assert refused("dims/needs-extent", specialised.capture).name == "S"
    assert "full 2.0" not in print_program(specialised.capture(extents={"S": 4}))


def test_signatures():
    def unannotated(X):
        pass

    def positional_default(X: td.Tensor[M] = 3):
        pass

    def starred(*X: td.Tensor[M]):
        pass

    for fn in (unannotated, positional_default, starred):
        error = refused("capture/signature", lambda fn=fn: td.kernel(fn))
        assert error.span is not None and error.span.file == __file__


def test_strings_name_local_dimensions():
    A, B = td.dims("A B")

    @td.kernel
    def local(X: td.Tensor[A, B], Y: td.Out[A] = None):
        Y[A] = X[A, B].sum(B)

    assert [d.name for d in local.capture().dims] == ["A", "B"]


def test_annotations():
    refused("dims/twice", lambda: td.Tensor[M, M])
    refused("capture/argument", lambda: td.Tensor[M, 3])
    refused("capture/argument", lambda: td.Scalar[M])
    refused("capture/argument", lambda: td.Numerics(functions="sloppy"))
    refused("capture/outside", lambda: M.extent)
    assert td.dims("D", 64).extent == 64
    refused("dims/definition", lambda: td.dims("1M"))
    assert 'td.dims("M N")' in refused("dims/definition", lambda: td.dims("M", "N")).hint


def test_no_source():
    space = {"td": td, "M": M}
    exec("def made(X: td.Tensor[M], Y: td.Out[M]):\n    Y[M] = X[M]", space)
    refused("capture/no-source", lambda: td.kernel(space["made"]).capture())

    @td.kernel
    def calls_it(X: td.Tensor[M], Y: td.Out[M]):
        space["made"](X, Y)

    error = refused("capture/no-source", calls_it.capture)
    assert error.span is not None and error.span.file == __file__


@td.kernel
def same_names(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        inner = td.dims("N", 1)
        one = td.zeros(inner)
        for n in td.serial(N):
            s = 0.0
            for _k in td.serial(2):
                s = s + X[m, n].sum(n)
            Y[m, n] = s + one.sum()


def test_names_are_unique_and_trials_leave_none():
    program = same_names.capture()
    assert [d.name for d in program.dims] == ["M", "N", "N_1", "_k_range"]
    args = [a.name for op in program.body.walk() if isinstance(op, Region) for a in op.args]
    assert args == ["m", "n", "_k"]


@td.kernel
def twice_m(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M, name="first"):
        Y[m] = X[m]
    for m in td.parallel(M):
        Y[m] = Y[m] + 1


def test_loop_names_are_kept_beside_unique_ones():
    regions = [op for op in twice_m.capture().body.walk() if isinstance(op, Region)]
    assert [(r.name, r.args[0].name, r.args[0].source) for r in regions] == [("first", "m", "m"), ("R0", "m_1", "m")]


at_least_three = functools.partial(max, 3)


def test_staged_values_take_part_in_python():
    @td.kernel
    def staged(X: td.Tensor[M], Y: td.Out[M] = None, *, table=(1, 2), fn=at_least_three, kind="a"):
        names = {f"{kind}{i}": v for i, v in enumerate(table)}
        total = sum(v for v in names.values() if v > 1)
        assert total == 2 and not isinstance(total, float)
        Y[M] = X[M] * fn(total) + np.float32(0.5)

    text = print_program(staged.capture())
    assert "full 3.0" in text and "full 0.5" in text


@td.kernel
def conjunction(X: td.Tensor[M], n: td.Scalar[i32], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        y = 0.0
        if 0 <= n < M.extent and X[n] > 0:
            y = X[n]
        Y[m] = y


@td.kernel
def promised(X: td.Tensor[M, N], ids: td.Tensor[M, i32], Y: td.Out[M] = None):
    for m in td.parallel(M):
        pair = td.in_range(ids[m], N)
        Y[m] = X[m, td.in_range(0, N)] + X[m, pair] + X[m, pair // 2] + X[m, 0]


def test_promises_are_marked_where_a_proof_needs_them():
    text = print_program(promised.capture())
    assert text.count("in_range(") == 4 and "load X[m, in_range(0)]" in text


@td.kernel
def strided(X: td.Tensor[N], W: td.Tensor[K], Y: td.Out[M] = None, *, step=2):
    td.let(M, (N.extent - K.extent) // step + 1)
    for m in td.parallel(M):
        Y[m] = (X.at(m * step + K, fill=0) * W[K]).sum(K)


def test_an_extent_that_only_an_out_has_is_given_and_checked():
    program = strided.capture()
    assert list(program.lets) == ["M"] and len(program.requires) == 1


def test_facts_of_conditions_prove_subscripts():
    program = conjunction.capture()
    assert any(isinstance(op, If) for op in program.body.walk())


def test_every_code_has_a_wrong_program(request):
    here = {"capture/no-source", "capture/signature", "capture/staged", "dims/needs-extent", "dtype/argument"}
    here |= {"capture/endless"}  # test_loops
    text = (request.path.parent / "test_wrong_programs.py").read_text()
    mine = {code for code, cls in registry.items() if cls.__module__ == "treadle.lang.errors"}
    assert mine == {code for code in mine if code in here or f"wrong: {code}" in text or f'"{code}"' in text}
