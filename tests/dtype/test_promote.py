"""The promotion table, against NumPy where the language follows it, and by hand where it does not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from treadle.dtype import formats as f
from treadle.dtype import promote as p
from treadle.dtype.formats import ALL, DType

ARITHMETIC = [d for d in ALL if d.has_arithmetic]
WHOLE = [d for d in ARITHMETIC if not d.is_float]


def test_which_have_arithmetic() -> None:
    assert {d.name for d in ALL} - {d.name for d in ARITHMETIC} == {"i4", "u4", "f8e4m3", "f8e5m2", "f8e8m0", "f4e2m1"}


@pytest.mark.parametrize(("a", "b"), [*itertools.product(WHOLE, WHOLE)], ids=str)
def test_integers_follow_numpy(a: DType, b: DType) -> None:
    if {a.name, b.name} in ({"u64", s} for s in ("i8", "i16", "i32", "i64")):
        with pytest.raises(p.NoCommonDType):
            p.promote(a, b)
        return
    assert p.promote(a, b).numpy == np.result_type(a.numpy, b.numpy)


@pytest.mark.parametrize(("a", "b"), [*itertools.product(WHOLE, [f.f16, f.bf16, f.f32, f.f64])], ids=str)
def test_integer_with_float_is_the_float(a: DType, b: DType) -> None:
    assert p.promote(a, b) == p.promote(b, a) == b


def test_floats() -> None:
    table = {(f.f16, f.bf16): f.f32, (f.f16, f.f32): f.f32, (f.bf16, f.f64): f.f64, (f.f32, f.f64): f.f64}
    for (a, b), want in table.items():
        assert p.promote(a, b) == p.promote(b, a) == want
    assert all(p.promote(a, a) == a for a in ARITHMETIC)


@pytest.mark.parametrize("a", [d for d in ALL if not d.has_arithmetic], ids=str)
def test_small_formats_have_none(a: DType) -> None:
    for other in (a, f.f32):
        with pytest.raises(p.NoArithmetic):
            p.promote(a, other)
    with pytest.raises(p.NoArithmetic):
        p.promote_weak(a, 1)


def test_weak_numbers() -> None:
    for a in ARITHMETIC:
        assert p.promote_weak(a, True) == a
        assert p.promote_weak(a, 1) == (f.i64 if a.is_bool else a)
        assert p.promote_weak(a, 1.5) == (a if a.is_float else f.f32)
    assert [p.weak_alone(v) for v in (True, 1, 1.0)] == [f.bool_, f.i64, f.f32]
    for a, value in ((f.i8, 128), (f.u8, -1), (f.u64, 1 << 64)):
        with pytest.raises(p.WeakOutOfRange):
            p.promote_weak(a, value)


def test_division_functions_and_totals() -> None:
    assert all(p.division(a) == p.function(a) == f.f32 for a in WHOLE)
    assert all(p.division(a) == p.function(a) == a for a in ARITHMETIC if a.is_float)
    want = {
        "bool": "i32",
        "i8": "i32",
        "i16": "i32",
        "i32": "i32",
        "i64": "i64",
        "u8": "u32",
        "u16": "u32",
        "u32": "u32",
    }
    want |= {"u64": "u64", "f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64"}
    assert {a.name: p.total(a).name for a in ARITHMETIC} == want
    assert [p.average(a).name for a in (f.i32, f.bf16, f.f32, f.f64)] == ["f32", "f32", "f32", "f64"]
    assert [p.computing(a).name for a in (f.f16, f.bf16, f.f64, f.i8)] == ["f32", "f32", "f64", "i8"]
