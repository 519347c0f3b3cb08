"""The exact texts of this room's errors; every code of the room has one."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.base.errors import TreadleError
from treadle.toolchain import errors, features, isolation, llvm, nvrtc, sass


def feature_unknown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(features, "FLAGS", frozenset(("avx2", "fma")))
    features.parse_flags("avx2,avx1024")


def feature_absent(patch: pytest.MonkeyPatch) -> None:
    features.require_features("declare void @llvm.x86.tilerelease()", "avx")


def intrinsic_unknown(patch: pytest.MonkeyPatch) -> None:
    features.require_features("\ndeclare void @llvm.nvvm.barrier0()", "avx2")


def text_forbidden(patch: pytest.MonkeyPatch) -> None:
    features.require_features('module asm "nop"', "avx2")


def ir_rejected(patch: pytest.MonkeyPatch) -> None:
    llvm.compile_ir("define i32 @f( {", cpu_features="avx2", name="linear")


def compiler_died(patch: pytest.MonkeyPatch) -> None:
    ended = types.SimpleNamespace(wait=lambda timeout: -6)
    worker: Any = types.SimpleNamespace(process=ended, last_words=lambda: "Cannot select: intrinsic")
    raise isolation._death("compiling the LLVM IR of linear", worker, 60)


def nvrtc_missing(patch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError("No module named 'cuda'")

    patch.setattr(nvrtc.importlib, "import_module", absent)
    nvrtc.compile_cuda("", arch="sm_80", name="linear")


def status(name: str) -> tuple[Any, Any]:
    bindings = types.SimpleNamespace(
        nvrtcResult=types.SimpleNamespace(NVRTC_SUCCESS=0, NVRTC_ERROR_COMPILATION=6),
    )
    return bindings, types.SimpleNamespace(name=name)


def cuda_rejected(patch: pytest.MonkeyPatch) -> None:
    bindings, _ = status("")
    raise nvrtc._rejection(bindings, 6, "linear", "sm_90a", "int x = ;", "linear.cu(1): error: expected an expression")


def nvrtc_failed(patch: pytest.MonkeyPatch) -> None:
    bindings, failed = status("NVRTC_ERROR_OUT_OF_MEMORY")
    nvrtc._expect(bindings, failed, "reading NVRTC's CUBIN")


def disassembler_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sass.importlib.util, "find_spec", lambda name: None)
    patch.setattr(sass.shutil, "which", lambda name: None)
    sass.find_disassembler()


def disassembler_failed(patch: pytest.MonkeyPatch) -> None:
    def run(command: Any, **options: Any) -> Any:
        return types.SimpleNamespace(returncode=1, stdout="", stderr="nvdisasm fatal: not a cubin\n")

    patch.setattr(sass, "find_disassembler", lambda: Path("nvdisasm"))
    patch.setattr(sass.subprocess, "run", run)
    sass.disassemble(b"")


CASES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "toolchain/feature-unknown": feature_unknown,
    "toolchain/feature-absent": feature_absent,
    "toolchain/intrinsic-unknown": intrinsic_unknown,
    "toolchain/text-forbidden": text_forbidden,
    "toolchain/ir-rejected": ir_rejected,
    "toolchain/compiler-died": compiler_died,
    "toolchain/nvrtc-missing": nvrtc_missing,
    "toolchain/cuda-rejected": cuda_rejected,
    "toolchain/nvrtc-failed": nvrtc_failed,
    "toolchain/disassembler-missing": disassembler_missing,
    "toolchain/disassembler-failed": disassembler_failed,
}


@pytest.mark.parametrize("code", list(CASES))
def test_text(code: str, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TreadleError) as caught:
        CASES[code](monkeypatch)
    assert caught.value.code == code
    assert str(caught.value) == snapshot


def test_every_code_has_a_text() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TreadleError)]
    assert {value.code for value in classes if value.__module__ == errors.__name__} == set(CASES)
