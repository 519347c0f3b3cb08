"""Peers: each gives the right result on small cases where its library is installed, and is named where it is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import treadle as td
from treadle.bench import halide_peers, jax_peers, onnx_peers
from treadle.bench.case import Case, Finished
from treadle.bench.cases import attention_case, linear_case, softmax_case
from treadle.bench.operators import decode_case, int8_case, reduction_cases, rope_case, row_cases
from treadle.bench.operators import linear_case as plain_linear
from treadle.bench.peers import PEERS, NoPeer, everywhere, peers_of
from treadle.bench.ports import count, ports, table
from treadle.bench.selecting import int4_case, pool_case, sort_case, topk_case
from treadle.bench.stencils import stencil_cases
from treadle.dtype.formats import bf16, f32

M, N = td.dims("M N")


def small() -> Iterator[Case]:
    yield linear_case(f32, 33, 17, 40)
    yield softmax_case(f32, 5, 33)
    yield attention_case(f32, 1, 2, 32, 16, True)
    yield from row_cases(f32, 6, 48)
    yield rope_case(f32, 5, 2, 16)
    yield decode_case(f32, 2, 4, 2, 16, 16)
    yield plain_linear(f32, 3, 20, 24, turned=True)
    yield from reduction_cases(6, 32)
    yield int8_case(16, 16, 32)
    yield sort_case(3, 40)
    yield topk_case(3, 40)
    yield pool_case(1, 2, 12)
    yield int4_case(2, 32, 256)
    yield from stencil_cases(64)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_right(name: str) -> None:
    """In the development environment only NumPy is; `treadle[bench]` has the others."""
    module = {"numpy": "numpy", "onnxruntime": "onnx"}.get(name, name.partition("-")[0])
    pytest.importorskip(module, reason=f"needs the peer {module} (the extra treadle[bench])")
    tried = 0
    for case in small():
        inputs = case.make(np.random.default_rng(0))
        want = case.oracle(inputs)
        for make in peers_of(case, [name], 1).values():
            out = case.room()
            out[...] = np.nan if (case.result or case.dtype).is_float else -1
            run = make(inputs, out)
            run()
            if isinstance(run, Finished):
                run.finish()
            assert (np.abs(out.astype(np.float64) - want) <= 2 * case.tolerance(inputs, want)).all(), case.name
            tried += 1
    assert tried >= (2 if name == "halide" else 8)


def test_dtypes_that_a_peer_lacks_are_left_out() -> None:
    assert not peers_of(softmax_case(bf16, 4, 8), ["numpy", "onnxruntime"], 1)
    assert not peers_of(linear_case(f32, 4, 8, 8), ["halide"], 1)


def test_a_peer_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for module, room in (("jax", jax_peers), ("onnx", onnx_peers), ("halide", halide_peers)):
        monkeypatch.setitem(sys.modules, module, None)  # an import of it fails
        assert room.load(1) is None
    assert not peers_of(softmax_case(f32, 4, 8), ["jax"], 1)
    assert capsys.readouterr().err == "no jax: jax is not installed\n"
    assert "jax" not in peers_of(softmax_case(f32, 4, 8), None, 1) and capsys.readouterr().err == ""


def test_an_unknown_peer(snapshot) -> None:
    with pytest.raises(NoPeer) as caught:
        peers_of(softmax_case(f32, 4, 8), ["tensorflow"], 1)
    assert str(caught.value) == snapshot


def test_lines_of_ports() -> None:
    @td.kernel
    def scaled(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
        """Twice X."""
        for m in td.parallel(M.by(4)):
            # a block at a time

            Y[m, N] = X[m, N] * 2

    ours = count("treadle", "scaled", scaled.definition.fn)
    assert (ours.lines, ours.annotations) == (2, 1)
    found = {(p.family, p.library): p for p in ports({c.family: c.kernel for c in stencil_cases(8)})}
    assert found["blur", "halide"].annotations == 2 and found["blur", "treadle"].annotations == 0
    assert found["harris", "numpy"].lines == 11 and found["harris", "numpy"].annotations is None
    assert "blur" in table(list(found.values()))


def test_peers_start_their_threads_where_every_core_is_allowed() -> None:
    cores = os.sched_getaffinity(0)
    bound = {min(cores)}
    os.sched_setaffinity(0, bound)  # as torch's OpenMP leaves the thread that loads it
    try:
        for name, inside in (("jax", cores), ("torch", bound), ("torch-compile", bound)):
            with everywhere(name):
                assert os.sched_getaffinity(0) == inside
            assert os.sched_getaffinity(0) == bound
    finally:
        os.sched_setaffinity(0, cores)
