"""What the emitter refuses, with its exact words."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.targets.cpu_emit.kit import S, program

from treadle.algebra.expr import Fn, const, of, sym
from treadle.dtype.formats import f32, i32
from treadle.machine.form import (
    Compute,
    Copy,
    Frag,
    FragRef,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Scan,
    Stmt,
    Store,
    Sync,
    Tasks,
)
from treadle.targets.cpu.emit import emit
from treadle.targets.cpu.emit.errors import EmitFeature, EmitIllFormed, EmitUnsupported
from treadle.toolchain.features import LEVELS

FRAGS = [Frag("x", f32, (16,)), Frag("n", i32, (16,)), Frag("t", f32, (16, 16), place="tile")]


def tried(*body: object, level: str = "avx512") -> MachineProgram:
    return program([("X", f32, "N"), ("Y", f32, "N"), ("I", i32, "N")], list(body), FRAGS, level=level)


X = MemRef("X", (S[0],))

UNSUPPORTED: dict[str, Stmt | Tasks] = {
    "a copy engine": Copy(engine="tma.load", dst=X, src=X, box=(16,)),
    "a synchronisation": Sync(kind="mbar.wait", object=X),
    "a grid": Tasks(vars=("g",), counts=(const(4),), over="grid"),
    "an unknown atom": Mma(dst="x", acc=None, a=FragRef("x", (S[0],)), b=FragRef("x", (S[0],)), atom="wgmma.m64n64k16"),
    "a scan of registers": Scan(dst="x", monoid="add", src=FragRef("x"), axes=(0,)),
    "a way by other slots of what is loaded": Load(dst="n", src=MemRef("I", (of(Fn("n", (15 - S[0],))),))),
    "a tile from a tensor": Load(dst="t", src=MemRef("X", (S[0] + S[1],))),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(EmitUnsupported) as caught:
        emit(tried(UNSUPPORTED[name], level="amx"), LEVELS["amx"])
    assert str(caught.value) == snapshot


def test_a_level_above_the_features(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(EmitFeature) as caught:
        emit(tried(), LEVELS["avx2"])
    assert str(caught.value) == snapshot


ILL_FORMED: dict[str, Stmt | Loop] = {
    "a symbol without a value": Load(dst="x", src=MemRef("X", (S[0] + sym("nowhere"),))),
    "a memory without a declaration": Store(dst=MemRef("Z", (S[0],)), src=FragRef("x")),
    "two dtypes": Compute(dst="x", fn="add", args=(FragRef("x"), FragRef("n"))),
    "a loop that does not move": Loop(var="i", lo=const(0), hi=const(4), step=const(0), body=[]),
    "an element outside a fragment": Compute(dst="x", fn="copy", args=(FragRef("x", (S[0] + 1,)),)),
}


@pytest.mark.parametrize("name", ILL_FORMED)
def test_ill_formed(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(EmitIllFormed) as caught:
        emit(tried(ILL_FORMED[name]), LEVELS["avx512"])
    assert str(caught.value) == snapshot
