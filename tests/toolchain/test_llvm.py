"""LLVM IR to objects: what compiles, what is refused before LLVM sees it, and that an abort stays in its process."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from treadle.toolchain import features, isolation
from treadle.toolchain.errors import (
    CompilerDied,
    FeatureAbsent,
    FeatureUnknown,
    IntrinsicUnknown,
    IrRejected,
    TextForbidden,
)
from treadle.toolchain.llvm import compile_ir

INCREMENT = "define i32 @f(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"
TILE = "define void @f() {\n  call void @llvm.x86.tilezero(i8 0)\n  ret void\n}\ndeclare void @llvm.x86.tilezero(i8)\n"
WIDE_LOOP = """
define void @f(ptr noalias %x, ptr noalias %y, i64 %n) "prefer-vector-width"="512" {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %p = getelementptr float, ptr %x, i64 %i
  %q = getelementptr float, ptr %y, i64 %i
  %a = load float, ptr %p
  %b = fadd float %a, 1.0
  store float %b, ptr %q
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def test_object_is_elf_and_says_what_it_was_made_for() -> None:
    done = compile_ir(INCREMENT, cpu_features="avx2,fma", name="increment", want_asm=True)
    assert done.object[:4] == b"\x7fELF"
    assert done.features >= {"avx", "avx2", "fma"} and "avx512f" not in done.features
    assert done.asm is not None and "f:" in done.asm
    assert set(done.seconds) == {"parse", "optimise", "emit"}


def test_same_text_gives_same_bytes() -> None:
    first = compile_ir(INCREMENT, cpu_features="avx2", name="increment")
    assert compile_ir(INCREMENT, cpu_features="avx2", name="increment") == first


def test_width_follows_the_flags() -> None:
    wide = compile_ir(WIDE_LOOP, cpu_features=features.LEVELS["avx512"], name="loop", want_asm=True)
    half = compile_ir(WIDE_LOOP, cpu_features=features.LEVELS["avx2"], name="loop", want_asm=True)
    scalar = compile_ir(WIDE_LOOP, cpu_features=features.LEVELS["avx2"], name="loop", want_asm=True, vectorize=False)
    assert wide.asm and "zmm" in wide.asm
    assert half.asm and "ymm" in half.asm and "zmm" not in half.asm
    assert scalar.asm and "ymm" not in scalar.asm


def test_amx_compiles_where_it_cannot_run() -> None:
    done = compile_ir(TILE, cpu_features=features.LEVELS["amx"], name="tile", want_asm=True)
    assert done.asm is not None and "tilezero" in done.asm


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("text", ["define i32 @f( {", "define i32 @f(i32 %x) {\n  ret i64 0\n}"])
def test_rejected_text_names_the_line(text: str, isolated: bool) -> None:
    with pytest.raises(IrRejected) as caught:
        compile_ir(text, cpu_features="avx2", name="wrong", isolated=isolated)
    assert "error:" in caught.value.found and caught.value.before == text


def test_verifier_errors_are_rejections() -> None:
    text = "define i32 @f() {\nentry:\n  br label %a\na:\n  %x = phi i32 [0, %a]\n  ret i32 %x\n}"
    with pytest.raises(IrRejected):
        compile_ir(text, cpu_features="avx2", name="wrong")


@pytest.mark.parametrize("isolated", [False, True])
def test_intrinsic_without_its_feature_is_refused(isolated: bool) -> None:
    with pytest.raises(FeatureAbsent) as caught:
        compile_ir(TILE, cpu_features=features.LEVELS["avx512"], name="tile", isolated=isolated)
    assert "line 2" in caught.value.found and "amx_tile" in caught.value.found


def test_llvm_really_aborts_on_what_the_guard_refuses() -> None:
    """The reason for the guard. If this ever stops failing, the guard may become a plain error of LLVM's."""
    program = (
        "from treadle.toolchain.llvm import compile_here\n"
        f"compile_here({TILE!r}, ['avx2'], 3, 'tile', False, True)\n"
        "print('survived')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "survived" not in done.stdout


def test_abort_in_the_worker_is_an_error_and_the_next_request_works() -> None:
    text = 'define void @f() {\n  call void asm sideeffect "bogus %zmm99", ""()\n  ret void\n}'
    with pytest.raises(CompilerDied) as caught:
        compile_ir(text, cpu_features="avx2", name="bogus", isolated=True)
    assert "invalid register" in caught.value.found
    assert compile_ir(INCREMENT, cpu_features="avx2", name="f", isolated=True).object[:4] == b"\x7fELF"


def test_a_compilation_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(CompilerDied, match="no answer within"):
        compile_ir(INCREMENT, cpu_features="avx2", name="slow", isolated=True, timeout=0.0)
    assert compile_ir(INCREMENT, cpu_features="avx2", name="f", isolated=True).object[:4] == b"\x7fELF"


def test_an_answer_is_that_of_its_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the worker compiles: its answer comes when nobody waits for it."""
    wanted = compile_ir(WIDE_LOOP, cpu_features="avx2", name="loop")
    compile_ir(INCREMENT, cpu_features="avx2", name="f", isolated=True)

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(isolation, "read_within", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compile_ir(INCREMENT, cpu_features="avx2", name="f", isolated=True)
    assert compile_ir(WIDE_LOOP, cpu_features="avx2", name="loop", isolated=True) == wanted


def test_an_interrupt_of_all_processes_leaves_the_worker() -> None:
    """A terminal sends it to the worker too, whose parent may go on."""
    compile_ir(INCREMENT, cpu_features="avx2", name="f", isolated=True)
    worker = isolation._worker
    assert worker is not None
    worker.process.send_signal(signal.SIGINT)
    assert compile_ir(INCREMENT, cpu_features="avx2", name="f", isolated=True).object[:4] == b"\x7fELF"
    assert isolation._worker is worker and worker.process.poll() is None


def test_pipes_of_a_process_with_many_files() -> None:
    """Numbers of descriptors above 1023, which `select` does not take."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1500:
        pytest.skip("needs 1500 open files")
    reader, writer = os.pipe()
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, 1200)
    try:
        assert isolation.read_within(high, 1, time.monotonic() + 0.05) is None
        os.write(writer, b"told")
        assert high > 1023 and isolation.read_within(high, 4, time.monotonic() + 5) == b"told"
    finally:
        for descriptor in (reader, writer, high):
            os.close(descriptor)


def test_compilations_in_several_threads() -> None:
    alone = compile_ir(WIDE_LOOP, cpu_features="avx2", name="loop")
    with ThreadPoolExecutor(4) as crowd:
        turns = [
            crowd.submit(compile_ir, WIDE_LOOP, cpu_features="avx2", name="loop", isolated=bool(i % 2))
            for i in range(8)
        ]
    assert all(turn.result() == alone for turn in turns)


def test_isolated_gives_the_same_object() -> None:
    here = compile_ir(INCREMENT, cpu_features="avx2", name="f")
    assert compile_ir(INCREMENT, cpu_features="avx2", name="f", isolated=True) == here


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('define void @f() {\n  call void asm sideeffect "pause", ""()\n  ret void\n}', TextForbidden),
        ('define void @f() "target-features"="+amx-tile" {\n  ret void\n}', TextForbidden),
        ('target triple = "x86_64-pc-windows"\n', TextForbidden),
        ('module asm ".globl x"\n', TextForbidden),
        ("declare void @llvm.nvvm.barrier0()\n", IntrinsicUnknown),
        ("declare void @llvm.x86.never.heard.of()\n", IntrinsicUnknown),
        ("define void @f(x86_amx %t) {\n  ret void\n}\n", FeatureAbsent),
    ],
)
def test_refused_before_llvm_sees_it(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        features.require_features(text, "avx2,fma")


def test_text_in_strings_and_comments_is_not_code() -> None:
    text = '; @llvm.x86.tilezero\n@s = constant [20 x i8] c"@llvm.x86.tilezero.."\n'
    assert features.require_features(text, "avx2") == frozenset()


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("sse2.pause", ()),
        ("avx512bf16.mask.cvtneps2bf16.128", ("avx512_bf16", "avx512vl")),
        ("avx512.conflict.d.512", ("avx512cd",)),
        ("avx512.vpmadd52l.uq.512", None),
        ("avx512bf16.dpbf16ps.512", ("avx512_bf16",)),
        ("avx512bf16.dpbf16ps.256", ("avx512_bf16", "avx512vl")),
        ("avx512.vpdpbusd.512", ("avx512_vnni",)),
        ("avx512.pmul.hr.sw.512", ("avx512bw",)),
        ("avx512.rcp14.ps.512", ("avx512f",)),
        ("avx2.gather.d.ps.256", ("avx2",)),
        ("vcvtps2ph.256", ("f16c",)),
        ("tdpbf16ps.internal", ("amx_bf16",)),
        ("tdpbssd", ("amx_int8",)),
        ("tileloadd64", ("amx_tile",)),
    ],
)
def test_intrinsic_table(name: str, needs: tuple[str, ...] | None) -> None:
    assert features.intrinsic_needs(name) == needs


def test_flags() -> None:
    assert features.parse_flags("+avx2,+avx512bf16") >= {"avx2", "avx512_bf16", "avx512f"}
    assert features.llvm_target(features.LEVELS["avx512"])[0] == "x86-64-v4"
    assert features.llvm_target(features.LEVELS["avx2"])[0] == "x86-64-v3"
    assert features.llvm_target(["avx2"])[0] == "x86-64"
    assert features.host_features() <= features.FLAGS
    with pytest.raises(FeatureUnknown):
        features.parse_flags("avx1024")
