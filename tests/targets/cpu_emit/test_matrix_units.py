"""Atoms of matrix units: the bf16 dot product runs where the processor has it; tiles are assembled only."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.marks import processor
from tests.targets.cpu_emit.kit import Compiled, S, assembly, integers, program

from treadle.algebra.expr import ceildiv, const, lt, minimum, sym
from treadle.dtype.formats import bf16, f32
from treadle.ir.guard import Unit
from treadle.machine.form import (
    Body,
    Buffer,
    Compute,
    Frag,
    FragRef,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Store,
    Sync,
)
from treadle.targets.cpu.emit import emit
from treadle.targets.cpu.emit.errors import EmitFeature, EmitUnsupported
from treadle.toolchain.features import LEVELS

TENSORS = [("X", bf16, "MK"), ("W", bf16, "KN"), ("Y", f32, "MN")]
FACTS = [Unit("X", 1), Unit("W", 1), Unit("Y", 1)]
M, N, K = sym("M"), sym("N"), sym("K")


def loop(var: str, hi: object, *body: object, step: int = 1) -> Loop:
    high = const(hi) if isinstance(hi, int) else hi
    return Loop(var=var, lo=const(0), hi=high, step=const(step), body=list(body))


def dot_products(rows: int, columns: int) -> MachineProgram:
    """Y = X W with operands packed in pairs of k; the packing is masked, the product is not."""
    i, j, k, r = sym("i"), sym("j"), sym("k"), sym("r")
    pairs = ceildiv(K, 2)

    def pack(dst: str, ref: MemRef, where: tuple[object, ...], at: tuple[object, ...]) -> list[object]:
        return [
            Load(dst=dst, src=ref, where=where, fill=0.0),
            Store(dst=MemRef("bP" if dst[0] == "w" else "aP", at), src=FragRef(dst)),
        ]

    n_inside = lt(j * columns + S[0], N)
    m_row = i * rows + r
    body: Body = [
        loop(
            "j",
            ceildiv(N, columns),
            loop(
                "k",
                pairs,
                *pack("w0", MemRef("W", (2 * k, j * columns + S[0])), (n_inside,), (j, k, S[0], const(0))),
                *pack(
                    "w1",
                    MemRef("W", (2 * k + 1, j * columns + S[0])),
                    (n_inside, lt(2 * k + 1, K)),
                    (j, k, S[0], const(1)),
                ),
            ),
        ),
        loop(
            "i",
            ceildiv(M, rows),
            loop(
                "r",
                rows,
                loop(
                    "k1",
                    K,
                    Load(dst="x", src=MemRef("X", (m_row, sym("k1"))), where=(lt(m_row, M),), fill=0.0),
                    Store(dst=MemRef("aP", (i, sym("k1") // 2, r, sym("k1") % 2)), src=FragRef("x")),
                ),
                loop(
                    "k2",
                    2 * pairs - K,
                    Compute(dst="x", fn="copy", args=(0.0,)),
                    Store(dst=MemRef("aP", (i, pairs - 1, r, const(1))), src=FragRef("x")),
                ),
            ),
        ),
        loop(
            "i2",
            ceildiv(M, rows),
            loop(
                "j2",
                ceildiv(N, columns),
                Compute(dst="acc", fn="copy", args=(0.0,)),
                loop(
                    "kk",
                    pairs,
                    Load(dst="a", src=MemRef("aP", (sym("i2"), sym("kk"), S[0], S[1]))),
                    Load(dst="b", src=MemRef("bP", (sym("j2"), sym("kk"), S[0], S[1]))),
                    Mma(
                        dst="acc",
                        acc=FragRef("acc"),
                        a=FragRef("a", (S[0], S[2])),
                        b=FragRef("b", (S[1], S[2])),
                        atom="dpbf16",
                        contracted=(2,),
                    ),
                ),
                Store(
                    dst=MemRef("Y", (sym("i2") * rows + S[0], sym("j2") * columns + S[1])),
                    src=FragRef("acc"),
                    where=(lt(sym("i2") * rows + S[0], M), lt(sym("j2") * columns + S[1], N)),
                ),
            ),
        ),
    ]
    frags = [
        Frag("x", bf16, ()),
        Frag("w0", bf16, (columns,)),
        Frag("w1", bf16, (columns,)),
        Frag("a", bf16, (rows, 2)),
        Frag("b", bf16, (columns, 2)),
        Frag("acc", f32, (rows, columns)),
    ]
    buffers = [
        Buffer("aP", bf16, (ceildiv(M, rows), pairs, const(rows), const(2)), "workspace"),
        Buffer("bP", bf16, (ceildiv(N, columns), pairs, const(columns), const(2)), "workspace"),
    ]
    return program(TENSORS, body, frags, workspace=buffers, facts=FACTS)


def with_dot() -> frozenset[str]:
    return LEVELS["avx512"] | {"avx512_bf16"}


@processor("avx512_bf16")
def test_dot_products_are_exact_on_whole_numbers() -> None:
    run = Compiled(dot_products(6, 32), features=with_dot(), asm=True)
    assert "vdpbf16ps" in run.asm
    rng = np.random.default_rng(6)
    for m, n, k in ((6, 32, 4), (1, 1, 1), (13, 45, 31), (7, 64, 0), (20, 5, 100)):
        x, w = integers(rng, (m, k), bf16), integers(rng, (k, n), bf16)
        y = np.full((m, n), np.nan, np.float32)
        run(X=x, W=w, Y=y)
        assert (y == x.astype(np.float32) @ w.astype(np.float32)).all(), (m, n, k)


def test_each_vector_of_the_accumulator_takes_one_instruction() -> None:
    emitted = emit(dot_products(14, 32), with_dot())
    assert emitted.text.count("@llvm.x86.avx512bf16.dpbf16ps.512(") == 28 + 1


def test_dot_products_need_the_feature() -> None:
    with pytest.raises(EmitUnsupported, match="avx512_bf16"):
        emit(dot_products(6, 32), LEVELS["avx512"])


def tiles(rows: int, columns: int) -> MachineProgram:
    """One block of accumulator tiles over packed operands in the workspace, and a copy of the scratch to Y."""
    k = sym("k")
    steps = ceildiv(K, 32)
    body: Body = [
        Sync(kind="amx.config"),
        Compute(dst="c", fn="copy", args=(0.0,)),
        loop(
            "k",
            steps,
            Load(dst="a", src=MemRef("aP", (k, S[0], S[1]))),
            Load(dst="b", src=MemRef("bP", (k, S[0], S[1], S[2]))),
            Mma(
                dst="c",
                acc=FragRef("c"),
                a=FragRef("a", (S[0], S[2])),
                b=FragRef("b", (S[2] // 2, S[1], S[2] % 2)),
                atom="amx.bf16",
                contracted=(32,),
            ),
        ),
        Store(dst=MemRef("cS", (S[0], S[1])), src=FragRef("c")),
        loop(
            "r",
            minimum(M, rows),
            Load(dst="y", src=MemRef("cS", (sym("r"), S[0]))),
            Store(dst=MemRef("Y", (sym("r"), S[0])), src=FragRef("y"), where=(lt(S[0], N),)),
        ),
        Sync(kind="amx.release"),
    ]
    frags = [
        Frag("c", f32, (rows, columns), place="tile"),
        Frag("a", bf16, (rows, 32), place="tile"),
        Frag("b", bf16, (16, columns, 2), place="tile"),
        Frag("y", f32, (columns,)),
    ]
    buffers = [
        Buffer("aP", bf16, (steps, const(rows), const(32)), "workspace"),
        Buffer("bP", bf16, (steps, const(16), const(columns), const(2)), "workspace"),
        Buffer("cS", f32, (const(rows), const(columns)), "local"),
    ]
    return program(TENSORS, body, frags, level="amx", workspace=buffers[:2], buffers=buffers[2:], facts=FACTS)


def test_tiles_assemble_to_the_instructions_they_name() -> None:
    asm = assembly(tiles(32, 32))
    counts = {w: len(re.findall(rf"\b{w}\b", asm)) for w in ("ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps")}
    assert counts == {"ldtilecfg": 1, "tilezero": 4, "tileloadd": 4, "tdpbf16ps": 4}
    assert len(re.findall(r"\btilestored\b", asm)) == 4 and "tilerelease" in asm
    products = re.findall(r"tdpbf16ps\s+%tmm(\d), %tmm(\d), %tmm(\d)", asm)
    # Operands in this notation: b, a, c. Accumulators 0 to 3, rows of a 4 and 5, columns of b 6 and 7.
    assert sorted(products) == [("6", "4", "0"), ("6", "5", "2"), ("7", "4", "1"), ("7", "5", "3")]


def test_tiles_need_the_feature_and_room() -> None:
    with pytest.raises(EmitFeature, match="amx_tile"):
        emit(tiles(16, 16), LEVELS["avx512"])
    with pytest.raises(EmitUnsupported, match="tile registers"):
        emit(tiles(48, 48), LEVELS["amx"])
