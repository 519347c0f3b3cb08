"""LLVM IR text to object bytes, in this process or in one that may die.

The whole use of LLVM's compiler is here: parse, verify, optimise, emit. The target is made from explicit feature flags
(`features.py`). Objects are position independent and use the small code model, so that a loader may put them anywhere.

In this process, text is first read by `require_features`; LLVM's parse and verify errors become treadle errors. What
is left can still abort (inline assembly, a bug of LLVM): `isolated=True` compiles in a worker process, whose death is
an error here and nothing more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding

from treadle.toolchain.errors import IrRejected
from treadle.toolchain.features import is_arm, llvm_target, parse_flags, require_features
from treadle.toolchain.isolation import compile_apart

llvm: Any = llvmlite.binding  # ships without types


@dataclass(frozen=True, slots=True)
class CompiledObject:
    """Object code and what is known about it.

    Units: `seconds` maps the steps parse, optimise, emit to seconds; it takes no part in comparison.
    """

    name: str
    object: bytes
    features: frozenset[str]
    llvm_version: str
    asm: str | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float], compare=False)


def llvm_version() -> str:
    """LLVM's version, as part of cache keys: `"22.1.0"`."""
    return ".".join(str(part) for part in llvm.llvm_version_info)


def compile_ir(
    text: str,
    *,
    cpu_features: str | Iterable[str],
    opt_level: int = 3,
    name: str,
    want_asm: bool = False,
    vectorize: bool = True,
    isolated: bool = False,
    timeout: float = 120.0,
    triple: str | None = None,
) -> CompiledObject:
    """Object code of the LLVM IR `text` for the processors that have `cpu_features`.

    `vectorize` lets LLVM turn scalar loops into vector loops; it never regroups floating-point arithmetic by itself.
    `triple` is LLVM's name of the platform: by default this one, or Linux for flags of another processor than this.
    Units: `timeout` is in seconds and holds in the isolated mode only.
    Errors: toolchain/ir-rejected, toolchain/feature-absent, toolchain/intrinsic-unknown, toolchain/text-forbidden,
    toolchain/feature-unknown; isolated also toolchain/compiler-died.
    """
    flags = parse_flags(cpu_features)
    require_features(text, flags, inline_asm=isolated)
    if isolated:
        request = (text, sorted(flags), opt_level, name, want_asm, vectorize, triple)
        return compile_apart(f"compiling the LLVM IR of {name}", request, timeout)
    return compile_here(text, sorted(flags), opt_level, name, want_asm, vectorize, triple)


def compile_here(
    text: str,
    flags: Iterable[str],
    opt_level: int,
    name: str,
    want_asm: bool,
    vectorize: bool,
    triple: str | None = None,
) -> CompiledObject:
    """`compile_ir` without the guard: what the worker process runs.

    Errors: toolchain/ir-rejected.
    """
    flags = frozenset(flags)
    _initialize()
    start = time.perf_counter()
    machine = _machine(flags, opt_level, triple or _platform(flags))
    module = _parse(text, name, machine)
    parsed = time.perf_counter()
    _optimise(module, machine, opt_level, vectorize)
    optimised = time.perf_counter()
    asm = machine.emit_assembly(module) if want_asm else None
    code = machine.emit_object(module)
    end = time.perf_counter()
    seconds = {"parse": parsed - start, "optimise": optimised - parsed, "emit": end - optimised}
    return CompiledObject(name, bytes(code), flags, llvm_version(), asm, seconds)


def baseline_object(text: str, name: str, triple: str | None = None) -> bytes:
    """Object code of an LLVM IR text of this house for every processor of a platform, by default of this one.

    `triple` is LLVM's name of the platform, which need not be this one. The text may use what the platform's baseline
    has and is not read for features first.
    Errors: toolchain/ir-rejected.
    """
    _initialize_all()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    machine = target.create_target_machine(opt=3, reloc="pic", codemodel="small")
    module = _parse(text, name, machine)
    _optimise(module, machine, 3, False)
    return bytes(machine.emit_object(module))


_initialized = threading.Event()


def _initialize() -> None:
    if not _initialized.is_set():
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        _initialized.set()


def _initialize_all() -> None:
    _initialize()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _platform(flags: frozenset[str]) -> str:
    """This platform's triple where the flags are of its kind of processor, else Linux's on the other kind."""
    here: str = llvm.get_process_triple()
    kinds = ("aarch64", "arm64") if is_arm(flags) else ("x86_64", "amd64")
    return here if here.startswith(kinds) else f"{kinds[0]}-unknown-linux-gnu"


def _machine(flags: frozenset[str], opt_level: int, triple: str) -> Any:
    cpu, features = llvm_target(flags)
    if triple != llvm.get_process_triple():
        _initialize_all()
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=opt_level, reloc="pic", codemodel="small")


def _parse(text: str, name: str, machine: Any) -> Any:
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.name = name
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        message = str(error).strip()
        raise IrRejected(
            doing=f"compiling the LLVM IR of {name}",
            found=message,
            expected="text that LLVM parses and verifies",
            pass_name="emit",
            before=text,
        ) from error
    return module


def _optimise(module: Any, machine: Any, opt_level: int, vectorize: bool) -> None:
    tuning = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    tuning.loop_vectorization = vectorize
    # Straight-line vector code is written by the emitter; packing scalars into vectors around it only spills.
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
