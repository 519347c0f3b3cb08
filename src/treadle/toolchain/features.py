"""CPU feature flags, and which of them an LLVM IR text needs.

Code is chosen by flags, never by the name of a CPU: virtual machines report names that do not fit their flags. A flag
is spelled as Linux spells it (`avx512_bf16`, `amx_tile`); LLVM's own spelling lives only in this file.

`require_features` exists because LLVM aborts the whole process when it meets an intrinsic whose feature is off. It
reads the text before LLVM does, and what it does not know it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import llvmlite.binding

from treadle.toolchain.errors import FeatureAbsent, FeatureUnknown, IntrinsicUnknown, TextForbidden

llvm: Any = llvmlite.binding  # ships without types

_LLVM_NAMES = {
    "sse3": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "popcnt": "popcnt",
    "cx16": "cx16",
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "lzcnt": "lzcnt",
    "movbe": "movbe",
    "gfni": "gfni",
    "avx_vnni": "avxvnni",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512cd": "avx512cd",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "fp": "fp-armv8",
    "asimd": "neon",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
    "sve": "sve",
}
_ARM = frozenset(("fp", "asimd", "asimdhp", "asimddp", "sve", "sve_256"))
_CANONICAL = {llvm_name: flag for flag, llvm_name in _LLVM_NAMES.items()}

FLAGS: frozenset[str] = frozenset(_LLVM_NAMES) | _ARM
"""Every flag that can be named. `sve_256` is no system's name: SVE with vectors of 256 bits, no more and no fewer."""

_IMPLIES = {
    "avx2": ("avx",),
    "fma": ("avx",),
    "f16c": ("avx",),
    "avx": ("sse4_2",),
    "sse4_2": ("sse4_1",),
    "sse4_1": ("ssse3",),
    "ssse3": ("sse3",),
    "avx_vnni": ("avx2",),
    "avx512f": ("avx2", "fma", "f16c"),
    "avx512bw": ("avx512f",),
    "avx512dq": ("avx512f",),
    "avx512vl": ("avx512f",),
    "avx512cd": ("avx512f",),
    "avx512vbmi": ("avx512bw",),
    "avx512_vbmi2": ("avx512bw",),
    "avx512_vnni": ("avx512f",),
    "avx512_bf16": ("avx512bw",),
    "avx512_fp16": ("avx512bw", "avx512vl"),
    "amx_bf16": ("amx_tile",),
    "amx_int8": ("amx_tile",),
    "asimd": ("fp",),
    "asimdhp": ("asimd",),
    "asimddp": ("asimd",),
    "sve": ("asimdhp",),
    "sve_256": ("sve",),
}

_AVX2_LEVEL = frozenset("sse3 ssse3 sse4_1 sse4_2 popcnt cx16 avx avx2 fma f16c bmi1 bmi2 lzcnt movbe".split())
_AVX512_LEVEL = _AVX2_LEVEL | frozenset("avx512f avx512bw avx512dq avx512vl avx512cd".split())
_DOT_LEVEL = frozenset(("fp", "asimd", "asimdhp", "asimddp"))
LEVELS: dict[str, frozenset[str]] = {
    "avx2": _AVX2_LEVEL,
    "avx512": _AVX512_LEVEL,
    "amx": _AVX512_LEVEL | frozenset(("amx_tile", "amx_bf16", "amx_int8")),
    "neon": frozenset(("fp", "asimd")),
    "neon_dot": _DOT_LEVEL,
    "sve": _DOT_LEVEL | frozenset(("sve", "sve_256")),
}
"""Flags to compile for when a target is named without a machine at hand: `cpu:avx2`, `cpu:avx512`, `cpu:amx`, and of
aarch64 `cpu:neon` (Armv8.0), `cpu:neon_dot` (with FEAT_FP16 and FEAT_DotProd) and `cpu:sve` (vectors of 256 bits)."""


def is_arm(flags: Iterable[str]) -> bool:
    """Whether the flags are those of an aarch64 processor."""
    return not _ARM.isdisjoint(flags)


def closure(flags: Iterable[str]) -> frozenset[str]:
    """`flags` and all that they imply.

    Errors: toolchain/feature-unknown.
    """
    todo, seen = list(flags), set[str]()
    while todo:
        flag = todo.pop()
        if flag not in FLAGS:
            raise FeatureUnknown(
                doing="reading a list of CPU features",
                found=f"the flag {flag!r}",
                expected="one of " + ", ".join(sorted(FLAGS)),
                hint="spell flags as the Linux kernel does: avx2, avx512_bf16, amx_tile",
            )
        if flag not in seen:
            seen.add(flag)
            todo += _IMPLIES.get(flag, ())
    return frozenset(seen)


def parse_flags(text: str | Iterable[str]) -> frozenset[str]:
    """Canonical flags from `"avx2,fma"`, from LLVM's `"+avx2,+avx512bf16"`, or from an iterable of either; closed.

    Errors: toolchain/feature-unknown.
    """
    words = text.split(",") if isinstance(text, str) else list(text)
    names = [word.strip().removeprefix("+") for word in words if word.strip()]
    return closure(_CANONICAL.get(name, name) for name in names)


def host_features() -> frozenset[str]:
    """The canonical flags of this machine, as LLVM reads them from the processor and the operating system."""
    return frozenset(_CANONICAL[name] for name, on in llvm.get_host_cpu_features().items() if on and name in _CANONICAL)


def llvm_target(flags: Iterable[str]) -> tuple[str, str]:
    """`(cpu, features)` for LLVM's target machine.

    The CPU is a generic level, used for its scheduling model, and only a level whose every flag is in `flags`; what
    code may contain is said by the feature list alone. The 256-bit preference of the generic level is switched off:
    the emitter states its vector width itself.
    """
    on = closure(flags)
    if is_arm(on):
        return "generic", ",".join(f"+{_LLVM_NAMES[flag]}" for flag in sorted(on & _LLVM_NAMES.keys()))
    cpu = "x86-64-v4" if on >= _AVX512_LEVEL else "x86-64-v3" if on >= _AVX2_LEVEL else "x86-64"
    features = [f"+{_LLVM_NAMES[flag]}" for flag in sorted(on)]
    if "avx512f" in on:
        features.append("-prefer-256-bit")
    return cpu, ",".join(features)


_DQ = r"avx512\..*(cvt.*qq|cvt.*uqq|range|reduce|fpclass|insert.*x[28]|broadcastf.*x[28]|vextract.*x[28])"
_F = r"avx512\.(?!vpmadd52|vp2intersect|vpshufbitqmb|pmultishift|4fmaps|4vnniw)"
# What each x86 intrinsic needs; the first pattern that matches the name after `llvm.x86.` decides.
_NEEDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(sse2\.(pause|mfence|lfence|clflush)|sse\.sfence|rdtscp?|rdtsc|flags\..*)$", ()),
    (r"sse2?\.", ()),
    (r"sse3\.", ("sse3",)),
    (r"ssse3\.", ("ssse3",)),
    (r"sse41\.", ("sse4_1",)),
    (r"sse42\.", ("sse4_2",)),
    (r"fma\.|vfmadd", ("fma",)),
    (r"vcvtp[sh]2p[sh]\.", ("f16c",)),
    (r"bmi\.(bextr)", ("bmi1",)),
    (r"bmi\.(bzhi|pdep|pext)", ("bmi2",)),
    (r"avx2\.", ("avx2",)),
    (r"avx\.", ("avx",)),
    (r"avx512bf16\..*\.(128|256)$", ("avx512_bf16", "avx512vl")),
    (r"avx512bf16\.", ("avx512_bf16",)),
    (r"avx512fp16\..*\.(128|256)$", ("avx512_fp16", "avx512vl")),
    (r"avx512fp16\.", ("avx512_fp16",)),
    (r"avx512\.vpdp(bus|wss)ds?\.(128|256)$", ("avx512_vnni", "avx512vl")),
    (r"avx512\.vpdp(bus|wss)ds?\.512$", ("avx512_vnni",)),
    (r"avx512\.vpermi2var\.qi\.(128|256)$|avx512\.permvar\.qi\.(128|256)$", ("avx512vbmi", "avx512vl")),
    (r"avx512\.vpermi2var\.qi\.512$|avx512\.permvar\.qi\.512$", ("avx512vbmi",)),
    (
        r"avx512\..*\.(dbpsadbw|pmul\.hr\.sw|pmulh|pmulhu|pmaddw|pmaddubs|packss|packus|pshuf\.b|pavg|psad|pmov\.wb).*"
        r"\.512$|avx512\.(pmul|pmadd|packss|packus|pshuf|psad|psll|psra|psrl)[a-z.]*\.(w|b|bw|wb|wd|dw|hr\.sw)\.512$",
        ("avx512bw",),
    ),
    (r"avx512\..*\.(b|w|qi|hi|bw|wb|dw|wd)\.512$", ("avx512bw",)),
    (r"avx512\..*\.(b|w|qi|hi|bw|wb|dw|wd)\.(128|256)$", ("avx512bw", "avx512vl")),
    (r"avx512\.conflict\.[dq]\.(128|256)$", ("avx512cd", "avx512vl")),
    (r"avx512\.conflict\.", ("avx512cd",)),
    (_DQ + r".*\.(128|256)$", ("avx512dq", "avx512vl")),
    (_DQ, ("avx512dq",)),
    (_F + r".*\.(128|256)$", ("avx512f", "avx512vl")),
    (_F, ("avx512f",)),
    (r"(ldtilecfg|sttilecfg|tilerelease|tilezero|tileload|tilestore|tilestored64|cast\.)", ("amx_tile",)),
    (r"tdpbf16ps", ("amx_bf16",)),
    (r"tdpb[su][su]d", ("amx_int8",)),
)
_ARM_NEEDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"neon\.tbl[1-4]\.", ("asimd",)),
    (r"neon\.sdot\.", ("asimddp",)),
)
_NEED_PATTERNS = tuple((re.compile(pattern), needs) for pattern, needs in _NEEDS)
_TABLES = {
    "x86": _NEED_PATTERNS,
    "aarch64": tuple((re.compile(pattern), needs) for pattern, needs in _ARM_NEEDS),
}
_TARGETS = "x86|aarch64|arm|nvvm|amdgcn|r600|wasm|ppc|riscv|hexagon|bpf|spv|ptrauth"
_INTRINSIC = re.compile(rf'@"?llvm\.({_TARGETS})\.([\w.]*)')
_FORBIDDEN = (
    (re.compile(r'"(target-features|target-cpu|tune-cpu)"'), "an attribute that changes the target of one function"),
    (re.compile(r"^\s*module\s+asm\b", re.MULTILINE), "module-level assembly"),
    (re.compile(r"^\s*target\s+(triple|datalayout)\b", re.MULTILINE), "a target triple or data layout of its own"),
)
_INLINE_ASM = re.compile(r"\basm\s+(sideeffect|alignstack|inteldialect|unwind|\")")
_LITERAL = re.compile(r'c"(?:[^"\\]|\\.)*"|;[^\n]*')


def intrinsic_needs(name: str, arch: str = "x86") -> tuple[str, ...] | None:
    """The flags that the intrinsic `llvm.<arch>.<name>` needs; None when no row of the tables matches."""
    for pattern, needs in _TABLES.get(arch, ()):
        if pattern.match(name):
            return needs
    return None


def require_features(text: str, features: str | Iterable[str], *, inline_asm: bool = False) -> frozenset[str]:
    """The flags that the intrinsics of `text` need, after checking that `features` has them all.

    Ensures: result <= parse_flags(features). Call it before LLVM sees the text: LLVM aborts on what this refuses.
    Errors: toolchain/feature-absent, toolchain/intrinsic-unknown, toolchain/text-forbidden, toolchain/feature-unknown.
    """
    on = parse_flags(features)
    code = _LITERAL.sub('""', text)
    _refuse_forbidden(code, inline_asm)
    own = "aarch64" if is_arm(on) else "x86"
    needed: set[str] = set()
    for match in _INTRINSIC.finditer(code):
        arch, name = match.groups()
        needs = intrinsic_needs(name, arch) if arch == own else None
        if needs is None:
            raise IntrinsicUnknown(
                doing="checking LLVM IR for the CPU",
                found=f"the intrinsic llvm.{arch}.{name} in line {_line(code, match.start())}",
                expected=f"an {own} intrinsic that treadle.toolchain.features has a row for",
                pass_name="toolchain.require_features",
            )
        _require(needs, on, f"llvm.{arch}.{name}", _line(code, match.start()))
        needed.update(needs)
    tile = re.search(r"\bx86_amx\b", code)
    if tile is not None:
        _require(("amx_tile",), on, "the type x86_amx", _line(code, tile.start()))
        needed.add("amx_tile")
    return frozenset(needed)


def _require(needs: Iterable[str], on: frozenset[str], what: str, line: int) -> None:
    missing = sorted(set(needs) - on)
    if missing:
        raise FeatureAbsent(
            doing="checking LLVM IR for the CPU",
            found=f"{what} in line {line}, which needs {', '.join(missing)}",
            expected="only instructions of " + (", ".join(sorted(on)) or "the x86-64 baseline"),
            pass_name="toolchain.require_features",
        )


def _refuse_forbidden(code: str, inline_asm: bool) -> None:
    rows = _FORBIDDEN if inline_asm else (*_FORBIDDEN, (_INLINE_ASM, "inline assembly, which can abort the process"))
    for pattern, what in rows:
        match = pattern.search(code)
        if match is not None:
            raise TextForbidden(
                doing="checking LLVM IR for the CPU",
                found=f"{what} in line {_line(code, match.start())}",
                expected="a text whose target is given by compile_ir's arguments alone",
                hint="state features through cpu_features; compile inline assembly with isolated=True",
                pass_name="toolchain.require_features",
            )


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
