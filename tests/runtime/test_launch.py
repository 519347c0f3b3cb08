"""Argument blocks, launches, workspace and outputs, against NumPy, on code that follows the entry convention."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from treadle.runtime import launch, memory, pool
from treadle.runtime.arrays import overlaps
from treadle.runtime.cpu import LoadedObject, load_object
from treadle.runtime.errors import (
    ArgumentCount,
    DtypeMismatch,
    HostLacksFeatures,
    KernelFailed,
    NotAnArray,
    ObjectUnusable,
    OutOfMemory,
    OutputOverlapsItself,
    RankMismatch,
    ReadOnly,
    SymbolMissing,
)
from treadle.runtime.host import host_features
from treadle.runtime.signature import ScalarParam, Signature, TensorParam, scalar_word

# y[i, j] = s * x[i, j] on the pool, one task a row. Words: x 0..4, s 5, y 6..10, workspace 11, workers 12, run 13.
SCALE = """
define internal void @row(ptr %b, i64 %i, i64 %worker) {
entry:
  %x = load ptr, ptr %b
  %columns.p = getelementptr i64, ptr %b, i64 2
  %columns = load i64, ptr %columns.p
  %xs0.p = getelementptr i64, ptr %b, i64 3
  %xs0 = load i64, ptr %xs0.p
  %xs1.p = getelementptr i64, ptr %b, i64 4
  %xs1 = load i64, ptr %xs1.p
  %s.p = getelementptr i64, ptr %b, i64 5
  %s = load float, ptr %s.p
  %y.p = getelementptr i64, ptr %b, i64 6
  %y = load ptr, ptr %y.p
  %ys0.p = getelementptr i64, ptr %b, i64 9
  %ys0 = load i64, ptr %ys0.p
  %ys1.p = getelementptr i64, ptr %b, i64 10
  %ys1 = load i64, ptr %ys1.p
  br label %check
check:
  %j = phi i64 [ 0, %entry ], [ %j.next, %body ]
  %more = icmp slt i64 %j, %columns
  br i1 %more, label %body, label %done
body:
  %xa = mul i64 %i, %xs0
  %xb = mul i64 %j, %xs1
  %xo = add i64 %xa, %xb
  %xp = getelementptr float, ptr %x, i64 %xo
  %v = load float, ptr %xp
  %w = fmul float %v, %s
  %ya = mul i64 %i, %ys0
  %yb = mul i64 %j, %ys1
  %yo = add i64 %ya, %yb
  %yp = getelementptr float, ptr %y, i64 %yo
  store float %w, ptr %yp
  %j.next = add i64 %j, 1
  br label %check
done:
  ret void
}

define i32 @scale(ptr %b) {
  %rows.p = getelementptr i64, ptr %b, i64 1
  %rows = load i64, ptr %rows.p
  %workers.p = getelementptr i64, ptr %b, i64 12
  %workers = load i64, ptr %workers.p
  %run.p = getelementptr i64, ptr %b, i64 13
  %run = load ptr, ptr %run.p
  call void %run(ptr @row, ptr %b, i64 %rows, i64 %workers)
  ret i32 0
}

; y[0] = the workspace's first word before and after it is written, the number of workers
define i32 @workspace(ptr %b) {
  %y = load ptr, ptr %b
  %w.p = getelementptr i64, ptr %b, i64 3
  %w = load i64, ptr %w.p
  store i64 %w, ptr %y
  %n.p = getelementptr i64, ptr %b, i64 4
  %n = load i64, ptr %n.p
  %y1 = getelementptr i64, ptr %y, i64 1
  store i64 %n, ptr %y1
  %has = icmp ne i64 %w, 0
  br i1 %has, label %write, label %done
write:
  %p = inttoptr i64 %w to ptr
  store i64 77, ptr %p
  br label %done
done:
  ret i32 0
}

define i64 @workspace_size(ptr %b) {
  %n.p = getelementptr i64, ptr %b, i64 1
  %n = load i64, ptr %n.p
  %bytes = mul i64 %n, 1000
  ret i64 %bytes
}

; the extent of y is the number of the check that fails
define i32 @fail(ptr %b) {
  %n.p = getelementptr i64, ptr %b, i64 1
  %n = load i64, ptr %n.p
  %r = trunc i64 %n to i32
  ret i32 %r
}
"""
SCALED = Signature((TensorParam("x", "f32", 2), ScalarParam("s", "f32"), TensorParam("y", "f32", 2, out=True)))
ONE = Signature((TensorParam("y", "i64", 1, out=True),))


@pytest.fixture(scope="module")
def code(load: Callable[..., LoadedObject]) -> LoadedObject:
    return load(SCALE, "scale", "workspace", "workspace_size", "fail")


@pytest.fixture(params=["machine code", "python"])
def packer(request: pytest.FixtureRequest) -> Callable[[Signature], launch.Packer]:
    """Both ways to read arguments."""

    def make(signature: Signature) -> launch.Packer:
        made = launch.Packer(signature)
        assert made._walk is not None
        if request.param == "python":
            made._walk = None
        return made

    return make


def arrays() -> dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    room = np.arange(600, dtype=np.float32).reshape(20, 30)
    aside = np.zeros((20, 30), np.float32)
    return {
        "plain": (room, aside),
        "slices": (room[3:12:2, 4::3], aside[:5, 1:10]),
        "negative": (room[::-1, ::-1], aside[::-2, ::3][:, :]),
        "transposed": (room.T, aside.reshape(30, 20)),
        "broadcast": (np.broadcast_to(room[0], (20, 30)), aside),
        "one": (room[4:5, 7:8], aside[:1, :1]),
        "no rows": (room[:0], aside[:0]),
        "no columns": (room[:, :0], aside[:, :0]),
        "read-only input": (np.frombuffer(room.tobytes(), np.float32).reshape(20, 30), aside),
    }


@pytest.mark.parametrize("which", list(arrays()))
def test_any_strides(code: LoadedObject, packer: Callable[[Signature], launch.Packer], which: str) -> None:
    x, y = arrays()[which]
    x = x[: y.shape[0], : y.shape[1]]
    y = y[: x.shape[0], : x.shape[1]]
    kernel, pack = launch.CpuKernel(code, "scale", SCALED), packer(SCALED)
    assert launch.call(kernel, pack, (x, 3.0, y)) is y
    assert np.array_equal(y, x * np.float32(3))
    y[...] = -1
    bound = launch.bind(kernel, pack, (x, np.float32(0.5), y))
    assert bound() is y and bound.launch() is y
    assert np.array_equal(y, x * np.float32(0.5))


def test_words_are_the_convention(packer: Callable[[Signature], launch.Packer]) -> None:
    x = np.zeros((4, 6), np.float32)[::-1, 1::2]
    y = np.zeros((4, 3), np.float32)
    block = packer(SCALED).pack((x, 1.0, y))
    one = struct.unpack("<I", struct.pack("<f", 1.0))[0]
    assert list(block.words[:11]) == [x.ctypes.data, 4, 3, -6, 2, one, y.ctypes.data, 4, 3, 3, 1]
    assert SCALED.offset("y") == 6 and SCALED.tail == 11 and SCALED.words == 14 and SCALED.outs == (2,)


@pytest.mark.parametrize(
    ("x", "y", "apart"),
    [
        ((slice(0, 3), slice(None)), (slice(3, 6), slice(None)), True),
        ((slice(0, 4), slice(None)), (slice(3, 6), slice(None)), False),
        ((slice(None, None, -1), slice(None)), (slice(None), slice(None)), False),
        ((slice(None), slice(0, 2)), (slice(None), slice(2, 5)), False),
        ((slice(0, 0), slice(None)), (slice(None), slice(None)), True),
        ((slice(2, None, -1), slice(None)), (slice(5, 2, -1), slice(None)), True),
    ],
)
def test_blocks_tell_whether_outputs_lie_apart(
    packer: Callable[[Signature], launch.Packer], x: Any, y: Any, apart: bool
) -> None:
    room = np.zeros((6, 5), np.float32)
    pack = packer(SCALED)
    block = pack.pack((room[x], 1.0, room[y]))
    assert block.apart == apart
    seen = pack.views(block)
    assert set(seen) == {"x", "y"}
    if apart:
        assert overlaps(seen["x"], seen["y"]) == "disjoint"


def test_out_of_memory_is_an_error() -> None:
    with pytest.raises(OutOfMemory, match="runtime/out-of-memory"):
        memory.take_workspace(1 << 60)


def test_narrow_formats_are_read_by_machine_code() -> None:
    signature = Signature((TensorParam("x", "bf16", 1), TensorParam("q", "f8e4m3", 2), TensorParam("m", "bool", 1)))
    made = launch.Packer(signature)
    arguments = (
        np.ones(5, ml_dtypes.bfloat16)[::2],
        np.ones((2, 3), ml_dtypes.float8_e4m3fn).T,
        np.ones(4, np.bool_),
    )
    block = made.pack(arguments)
    assert list(block.words[1:3]) == [3, 2] and list(block.words[4:8]) == [3, 2, 1, 3] and block.words[9] == 4
    assert made._walk is not None
    assert made._walk(arguments, 3, made._records_address, block.address) == -1


def test_what_machine_code_cannot_read_python_does(code: LoadedObject) -> None:
    kernel, pack = launch.CpuKernel(code, "scale", SCALED), launch.Packer(SCALED)

    class Own(np.ndarray):
        pass

    x = np.arange(6, dtype=np.float32).reshape(2, 3).view(Own)
    y = memoryview(bytearray(24)).cast("B").cast("f", (2, 3))
    launch.call(kernel, pack, (x, 2.0, y))
    assert y.tolist() == [[0, 2, 4], [6, 8, 10]]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((np.zeros((2, 2), np.float32), 1.0), ArgumentCount),
        ((np.zeros((2, 2), np.float64), 1.0, np.zeros((2, 2), np.float32)), DtypeMismatch),
        ((np.zeros(2, np.float32), 1.0, np.zeros((2, 2), np.float32)), RankMismatch),
        (([[1.0]], 1.0, np.zeros((2, 2), np.float32)), NotAnArray),
        ((np.zeros((2, 2), np.float32), "1", np.zeros((2, 2), np.float32)), DtypeMismatch),
        ((np.zeros((2, 2), np.float32), 1.0, np.broadcast_to(np.float32(0), (2, 2))), ReadOnly),
        (
            (
                np.zeros((2, 2), np.float32),
                1.0,
                np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 2), (0, 4)),
            ),
            OutputOverlapsItself,
        ),
        (
            (
                np.zeros((3, 2), np.float32),
                1.0,
                np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 2), (4, 4)),
            ),
            OutputOverlapsItself,
        ),
    ],
)
def test_wrong_arguments(
    packer: Callable[[Signature], launch.Packer], arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        packer(SCALED).pack(arguments)
    assert str(caught.value).startswith("array/")


@pytest.mark.parametrize(
    ("dtype", "value", "word"),
    [
        ("f32", 1.5, 0x3FC00000),
        ("f32", 1e300, 0x7F800000),
        ("f32", -1e300, 0xFF800000),
        ("f64", -2.0, -0x4000000000000000),
        ("f16", 1.0, 0x3C00),
        ("bf16", 1.0, 0x3F80),
        ("i32", -1, -1),
        ("i64", -(1 << 63), -(1 << 63)),
        ("u64", (1 << 64) - 1, -1),
        ("u8", 255, 255),
        ("bool", True, 1),
        ("f32", np.float64(2.0), 0x40000000),
        ("i32", np.int8(-3), -3),
        ("f32", 3, 0x40400000),
    ],
)
def test_scalar_words(dtype: str, value: Any, word: int) -> None:
    assert scalar_word(value, ScalarParam("s", dtype)) == word


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("i32", 1 << 31), ("u8", -1), ("u64", 1 << 64), ("i32", 1.0), ("f32", "x"), ("f32", None), ("bool", 0.5)],
)
def test_wrong_scalars(dtype: str, value: Any) -> None:
    with pytest.raises(DtypeMismatch):
        scalar_word(value, ScalarParam("s", dtype))


@pytest.mark.parametrize("need", [5000, "workspace_size", lambda words: words[1] * 1000, 0])
def test_workspace(code: LoadedObject, need: Any) -> None:
    kernel = launch.CpuKernel(code, "workspace", ONE, workspace=need, parallel=False)
    y = np.zeros(5, np.int64)
    launch.call(kernel, launch.Packer(ONE), (y,))
    assert (y[0] != 0) == (need != 0) and y[0] % 64 == 0 and y[1] == 1
    first = int(y[0])
    launch.call(kernel, launch.Packer(ONE), (y,))
    assert y[0] == first, "workspace is kept and used again"


def test_bound_launches_do_not_share_workspace(code: LoadedObject) -> None:
    kernel = launch.CpuKernel(code, "workspace", ONE, workspace=5000)
    a, b = np.zeros(5, np.int64), np.zeros(5, np.int64)
    first, second = (launch.bind(kernel, launch.Packer(ONE), (y,)) for y in (a, b))
    first()
    second()
    assert a[0] != b[0] and a[1] == pool.workers()


def test_failed_checks_are_named(code: LoadedObject) -> None:
    kernel = launch.CpuKernel(code, "fail", ONE, checks={3: "lengths must be sorted"}, parallel=False)
    pack = launch.Packer(ONE)
    launch.call(kernel, pack, (np.zeros(0, np.int64),))
    with pytest.raises(KernelFailed, match="runtime/check-failed") as caught:
        launch.call(kernel, pack, (np.zeros(3, np.int64),))
    assert caught.value.found == "lengths must be sorted"
    with pytest.raises(KernelFailed) as other:
        launch.bind(kernel, pack, (np.zeros(4, np.int64),))()
    assert "check number 4" in other.value.found


def test_one_kernel_from_several_threads(code: LoadedObject) -> None:
    kernel, pack = launch.CpuKernel(code, "scale", SCALED), launch.Packer(SCALED)
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((8, 9), seed, np.float32)
        for turn in range(100):
            y = launch.call(kernel, pack, (x, float(turn), np.empty((8, 9), np.float32)))
            if not (y == seed * turn).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_launch_keeps_arguments_and_code_alive(load: Callable[..., LoadedObject]) -> None:
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    kernel = launch.CpuKernel(load(SCALE, "scale"), "scale", SCALED)
    bound = launch.bind(kernel, launch.Packer(SCALED), (x.copy(), 4.0, y))
    del kernel
    gc.collect()
    bound()
    assert (y == 4).all()


def test_empty_is_aligned_and_memory_is_used_again() -> None:
    for shape in ((3, 5), (700, 900), (0, 4), ()):
        made = memory.empty(shape, "f32")
        assert made.shape == shape and made.dtype == np.float32 and made.flags.c_contiguous and made.flags.writeable
        assert made.ctypes.data % 64 == 0
        made[...] = 1
        assert made.sum() == made.size
    assert memory.empty((4,), "bf16").dtype == ml_dtypes.bfloat16
    large = memory.empty((700, 900), "f32")
    address, view = large.ctypes.data, large[5:, ::2]
    del large
    gc.collect()
    assert memory.empty((700, 900), "f32").ctypes.data != address, "a view keeps its memory"
    del view
    gc.collect()
    assert memory.empty((700, 900), "f32").ctypes.data == address
    memory.release_kept()


@pytest.mark.parametrize("size", [1, 64, 65, 1000, 4096, 100_000, 1 << 20, (1 << 20) + 1])
def test_size_classes(size: int) -> None:
    actual = memory.size_class(size)
    assert size <= actual <= max(size * 1.25, 128) and actual % 64 == 0
    assert memory.size_class(actual) == actual


def test_objects_that_cannot_be_loaded(load: Callable[..., LoadedObject]) -> None:
    with pytest.raises(ObjectUnusable):
        load_object(b"\x7fELF but not really, and not long enough", ["f"])
    with pytest.raises(ObjectUnusable):
        load_object(bytes(4096), ["f"])
    with pytest.raises(SymbolMissing):
        load("define i32 @g() {\n  ret i32 0\n}", "f")
    with pytest.raises(SymbolMissing):
        load("declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}", "f")
    if "amx_fp8_of_tomorrow" not in host_features():
        with pytest.raises(HostLacksFeatures):
            load_object(b"", ["f"], features=["amx_fp8_of_tomorrow"])
