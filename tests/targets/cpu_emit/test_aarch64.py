"""Kernels for aarch64: planned, judged and assembled, with the instructions of their level and the symbols that are
listed; and for what they are worth without such a processor, the emitted texts are run here.

A text has vectors of a fixed number of lanes and few instructions by name. Those get stand-ins with the meaning that
the Arm manual gives them, and everything else LLVM compiles for this machine as well.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import Compiled

import treadle as td
from treadle import lib
from treadle.driver.errors import TargetAbsent
from treadle.driver.plan import Plan
from treadle.driver.targets import features_of, level_runs
from treadle.runtime.objects import KINDS, kind_of, symbols
from treadle.targets.cpu.emit import emit
from treadle.toolchain.errors import FeatureAbsent, IntrinsicUnknown
from treadle.toolchain.features import LEVELS, require_features
from treadle.toolchain.llvm import CompiledObject, compile_ir

LINUX, MACOS = "aarch64-unknown-linux-gnu", "arm64-apple-macosx11.0"

TAKES = {
    "Linux": {"memset"},
    "Darwin": {"memset", "bzero", "__bzero", "memset_pattern16"},
    "Windows": {"memset", "__chkstk", "_fltused"},
}
"""What kernels may take from the process, whatever plan a machine's workers and caches lead to: what LLVM makes of
filled memory, of large frames and of floats."""

Q, X, W = td.like(td.f32, 2, 2, 32, 8), td.like(td.f32, 24, 64), td.like(td.f32, 64, 48)
KERNELS: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
    "product": (lib.matmul, [X, W], {}),
    "softmax": (lib.softmax, [X, X], {}),
    "layernorm": (lib.layernorm, [X, td.like(td.f32, 64), td.like(td.f32, 64), X], {}),
    "erf": (lib.activation, [X, X], {"act": td.erf}),
    "attention": (lib.attention, [Q, Q, Q, Q], {}),
    "sort": (lib.sort, [td.like(td.f32, 8, 8)], {}),
    "int8": (
        lib.int8_matmul,
        [td.like(td.i8, 24, 64), td.like(td.i8, 64, 48), *(td.like(td.f32, n) for n in (24, 48))],
        {},
    ),
}


@functools.cache
def planned(name: str, level: str) -> Plan:
    kernel, given, staged = KERNELS[name]
    return kernel.plan(*given, target=f"cpu:{level}", **staged)


def assembled(name: str, level: str, triple: str, effort: int = 3) -> CompiledObject:
    emitted = emit(planned(name, level).program, features_of(f"cpu:{level}"))
    flags = emitted.features
    return compile_ir(emitted.text, cpu_features=flags, opt_level=effort, name=name, want_asm=True, triple=triple)


MULTIPLIES, SCALABLE = r"\tfmla(\.4s\tv|\tv\d+\.4s)", r"\tfml?ad?\tz\d+\.s"
VECTORS, WIDE = r"\tf\w+\tv\d+\.4s", r"\tf\w+\tz\d+\.s"
DOTS, MOVES, LOOKS = r"\tsdot(\.4s\tv|\tv\d+\.4s, v\d+\.16b)", r"\tldr\tz\d+|\tld1\w*\t\{ z", r"\ttbl\tv\d+\.16b"
INTEGERS = r"\tml?[al]a?d?\tv\d+\.4s|\tmul\tv\d+\.4s|\tsmlal"
CASES = [
    ("product", "neon", LINUX, MULTIPLIES, 3),
    ("product", "sve", LINUX, SCALABLE, 3),
    ("softmax", "neon", MACOS, MULTIPLIES, 3),
    ("softmax", "sve", LINUX, SCALABLE, 3),
    ("layernorm", "neon_dot", LINUX, VECTORS, 3),
    ("layernorm", "sve", LINUX, WIDE, 3),
    ("erf", "neon", LINUX, LOOKS, 3),
    ("attention", "neon", MACOS, MULTIPLIES, 0),
    ("attention", "sve", LINUX, SCALABLE, 3),
    ("sort", "neon", LINUX, VECTORS, 3),
    ("sort", "sve", LINUX, MOVES, 0),
    ("int8", "neon", LINUX, INTEGERS, 0),
    ("int8", "neon_dot", MACOS, DOTS, 0),
    ("int8", "sve", LINUX, DOTS, 3),
]
"""Kernel, level, platform, what its assembly has, and how hard LLVM tries: the longest texts are only made into
instructions, for the time it takes."""


@pytest.mark.parametrize(("name", "level", "triple", "has", "effort"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_kernels_are_judged_and_assembled(name: str, level: str, triple: str, has: str, effort: int) -> None:
    assert planned(name, level).check().status == "verified"
    done = assembled(name, level, triple, effort)
    place = ("Linux", "aarch64") if triple == LINUX else ("Darwin", "arm64")
    assert kind_of(done.object) == KINDS[place]
    assert symbols(done.object).undefined <= TAKES[place[0]]
    assert done.asm is not None and re.search(has, done.asm) and not re.search(r"%[xyz]mm\d|\bvfmadd", done.asm)
    assert "treadle_" in "".join(symbols(done.object).defined)


OTHERS = [
    ("product", "avx512", "x86_64-pc-windows-msvc", ("Windows", "AMD64")),
    ("softmax", "avx2", "x86_64-pc-windows-msvc", ("Windows", "AMD64")),
    ("softmax", "amx", "x86_64-apple-macosx11.0", ("Darwin", "x86_64")),
]


@pytest.mark.parametrize(("name", "level", "triple", "place"), OTHERS, ids=[f"{c[0]}-{c[1]}" for c in OTHERS])
def test_kernels_assemble_for_other_systems(name: str, level: str, triple: str, place: tuple[str, str]) -> None:
    done = assembled(name, level, triple)
    assert kind_of(done.object) == KINDS[place]
    assert symbols(done.object).undefined <= TAKES[place[0]]


# ---- the texts, run here


def looked_up(count: int) -> str:
    """TBL: byte i of the result is the byte of the table that byte i of the last operand numbers, 0 beyond its end."""
    bytes_, params = 16 * count, "".join(f"<16 x i8> %t{i}, " for i in range(count))
    lines = [
        f"define internal <16 x i8> @stood.tbl{count}.v16i8({params}<16 x i8> %at) {{",
        f"  %m = alloca [{bytes_} x i8]",
    ]
    for i in range(count):
        lines += [f"  %p{i} = getelementptr i8, ptr %m, i64 {16 * i}", f"  store <16 x i8> %t{i}, ptr %p{i}, align 1"]
    last = "poison"
    for i in range(16):
        lines += [
            f"  %x{i} = extractelement <16 x i8> %at, i64 {i}",
            f"  %in{i} = icmp ult i8 %x{i}, {bytes_}",
            f"  %c{i} = select i1 %in{i}, i8 %x{i}, i8 0",
            f"  %n{i} = zext i8 %c{i} to i64",
            f"  %q{i} = getelementptr i8, ptr %m, i64 %n{i}",
            f"  %l{i} = load i8, ptr %q{i}",
            f"  %v{i} = select i1 %in{i}, i8 %l{i}, i8 0",
            f"  %r{i} = insertelement <16 x i8> {last}, i8 %v{i}, i64 {i}",
        ]
        last = f"%r{i}"
    return "\n".join([*lines, f"  ret <16 x i8> {last}", "}", ""])


def dotted() -> str:
    """SDOT: element i of the first operand and the products of bytes 4 i .. 4 i + 3 of the others, all signed."""
    lines = [
        "define internal <4 x i32> @stood.sdot.v4i32.v16i8(<4 x i32> %s, <16 x i8> %a, <16 x i8> %b) {",
        *(f"  %{x}w = sext <16 x i8> %{x} to <16 x i32>" for x in "ab"),
        "  %p = mul <16 x i32> %aw, %bw",
    ]
    last = "%s"
    for k in range(4):
        places = ", ".join(f"i32 {4 * i + k}" for i in range(4))
        lines += [
            f"  %k{k} = shufflevector <16 x i32> %p, <16 x i32> poison, <4 x i32> <{places}>",
            f"  %s{k} = add <4 x i32> {last}, %k{k}",
        ]
        last = f"%s{k}"
    return "\n".join([*lines, f"  ret <4 x i32> {last}", "}", ""])


def stood_in(text: str) -> str:
    """The text with functions in the place of the instructions that it names."""
    text = re.sub(r"^declare .*@llvm\.aarch64\..*\n", "", text, flags=re.M).replace(" vscale_range(2,2)", "")
    text = text.replace("@llvm.aarch64.neon.", "@stood.")
    assert "aarch64" not in text
    return "\n".join([text, *(looked_up(n) for n in (1, 2, 4)), dotted()])


def run(name: str, level: str, **arrays: Any) -> None:
    Compiled(planned(name, level).program, stand_in=stood_in)(**arrays)


def test_texts_compute_what_kernels_mean() -> None:
    rng = np.random.default_rng(7)
    x, w = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((29, 70), (70, 51)))
    y, z = np.full((29, 51), np.nan, np.float32), np.full_like(x, np.nan)
    run("product", "neon", A=x, B=w, Y=y)
    np.testing.assert_array_equal(y, x @ w)
    run("erf", "neon", X=x / 3, Y=z)
    np.testing.assert_array_equal(z, lib.activation.reference(x / 3, act=td.erf))
    run("softmax", "sve", X=x, Y=z)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(z, e / e.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("level", ["neon_dot", "sve"])
def test_fours_of_signed_bytes_are_summed_exactly(level: str) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((29, 70), (70, 51)))
    p, q = (rng.integers(1, 5, n).astype(np.float32) for n in (29, 51))
    y = np.full((29, 51), np.nan, np.float32)
    run("int8", level, X=a, W=b, x_scale=p, w_scale=q, Y=y)
    np.testing.assert_array_equal(y, (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32) * np.outer(p, q))


def test_a_sort_of_four_lanes() -> None:
    rng = np.random.default_rng(7)
    x = rng.permutation(13 * 8).reshape(13, 8).astype(np.float32)
    y, at = np.zeros_like(x), np.zeros(x.shape, np.int64)
    staged = planned("sort", "neon").program
    given = {"X": x, "Y": y, "at": at}
    names = {t.name for t in staged.program.tensors}
    Compiled(staged, stand_in=stood_in)(**{n: given[n] for n in names & given.keys()})
    np.testing.assert_array_equal(y, np.sort(x, 1))


# ---- refusals


def test_no_plan_for_another_processor_runs_here() -> None:
    x = np.ones((24, 64), np.float32)
    with pytest.raises(TargetAbsent, match="cpu:neon"):
        planned("softmax", "neon")(x, x.copy())
    assert level_runs("neon", "neon_dot") and not level_runs("sve", "neon_dot")
    assert not level_runs("avx2", "sve") and not level_runs("neon", "amx")


def test_texts_are_read_for_the_processor_they_are_for() -> None:
    call = "  %x = call <4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8(<4 x i32> %a, <16 x i8> %b, <16 x i8> %b)"
    assert require_features(call, LEVELS["neon_dot"]) == {"asimddp"}
    with pytest.raises(FeatureAbsent, match="asimddp"):
        require_features(call, LEVELS["neon"])
    for text, level in ((call, "avx512"), ("  call void @llvm.x86.sse.sfence()", "sve")):
        with pytest.raises(IntrinsicUnknown):
            require_features(text, LEVELS[level])
