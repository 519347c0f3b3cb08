"""Contracts of atoms: what an instruction computes, on which shapes and formats, and how it associates and rounds.

Emission and simulation use the same rows under the same `emit` key. `refuses` is the whole of an atom's shape contract.
`status` is that of the weakest thing that a row says: `assumes` names what its document leaves open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from treadle.hardware.orderings import PTX, Status

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Atom:
    """`dst += a * b`.

    `operands` maps (dtype of dst, a, b) that are admitted; `tile` is the (rows, columns, depth) of one instruction, 0
    for any; the destination and the contracted extents must be multiples. `fused`: products are not rounded before
    they are added. `order` is how contributions of one instruction associate. `flushes`: subnormal operands and results
    of the operand formats become zero. `place`: where the destination lives. `status`: "assumed" where the document
    leaves open what `assumes` names; "observed" where a run showed it, which `measured` names. `spends`: the numerical
    permission without which a program may not be given it ("": none beside those that the other fields tell).
    """

    name: str
    targets: tuple[str, ...]
    operands: tuple[tuple[str, str, str], ...]
    tile: tuple[int, int, int]
    order: str
    fused: bool
    flushes: bool
    place: str
    emit: str
    source: str
    status: Status
    assumes: str = ""
    measured: str = ""
    spends: str = ""

    def refuses(self, dst: str, have: tuple[str, ...], shape: Shape, contracted: Shape, place: str) -> str | None:
        """Why these operands do not fit the contract, or None."""
        fits = [o for o in self.operands if o[0] == dst and (len(have) < 2 or o[1:] == have)]
        if not fits:
            return f"{dst} += {' * '.join(have)} is none of its formats"
        if place != self.place:
            return f"the destination is in a {place}, not a {self.place}"
        rows, columns, depth = self.tile
        if not rows:
            return None
        if self.place == "register" and rows == 1:
            # A vector of results by itself: its factors may both be vectors.
            if not shape or shape[-1] % columns:
                return f"a destination of {shape} has no vectors of {columns}"
        elif len(shape) != 2 or shape[0] % rows or shape[1] % columns:
            return f"a destination of {shape} is no multiple of {rows} x {columns}"
        total = 1
        for extent in contracted:
            total *= extent
        if depth and total % depth:
            return f"a depth of {total} is no multiple of {depth}"
        return None


KEPT = "that subnormal operands keep their values: the document says nothing of them"
SEEN = "that subnormal operands keep their values: products on an H200, results/2026-11-30-values.json"
"""Of bf16 and f16 operands: `benchmarks/device/values.py`."""

_AMX = "Intel SDM volume 2, {}; flushing and rounding: volume 1, chapter on AMX"
_ARM_MANUAL = "Arm Architecture Reference Manual (DDI 0487), C7.2, {}"
_PTX = PTX.format("instruction {}")
_FLOATS = (("f32", "f32", "f32"), ("f64", "f64", "f64"))
_INTS = (("i32", "i32", "i32"), ("i64", "i64", "i64"), ("u32", "u32", "u32"), ("u64", "u64", "u64"))
_CPU = ("cpu:avx2", "cpu:avx512", "cpu:amx")
_ARM = ("cpu:neon", "cpu:neon_dot", "cpu:sve")
_CUDA = ("cuda:sm_80", "cuda:sm_90a")

# What the rows of a kind have in common; a row states the rest.
_scalar = partial(
    Atom, tile=(0, 0, 0), order="one contribution after another", flushes=False, place="register", status="documented"
)
_bytes = partial(Atom, operands=(("i32", "i8", "i8"),), order="exact", fused=False, flushes=False, status="documented")
_halves = partial(Atom, operands=(("f32", "bf16", "bf16"),), fused=True, flushes=True, status="documented")
_tensor = partial(
    Atom, order="unspecified", fused=True, flushes=False, place="register", status="assumed", assumes=KEPT
)

ATOMS: tuple[Atom, ...] = (
    _scalar(
        name="fma",
        targets=_CPU,
        operands=_FLOATS + _INTS,
        fused=True,
        emit="fma",
        source="Intel SDM volume 2, VFMADD132PS: one rounding of a*b+c",
    ),
    _scalar(
        name="fma",
        targets=_ARM,
        operands=_FLOATS + _INTS,
        fused=True,
        emit="fmla",
        source=_ARM_MANUAL.format("FMLA (vector): one rounding of a*b+c"),
    ),
    _scalar(
        name="muladd",
        targets=_ARM,
        operands=_FLOATS,
        fused=False,
        emit="fmul, fadd",
        source=_ARM_MANUAL.format("FMUL, FADD (vector): the product is rounded, then the sum"),
    ),
    _bytes(
        name="dpbssd",
        targets=("cpu:neon_dot", "cpu:sve"),
        tile=(1, 4, 4),
        place="register",
        emit="sdot",
        source=_ARM_MANUAL.format("SDOT (vector): four signed products a sum, modulo 2^32"),
    ),
    _scalar(
        name="muladd",
        targets=_CPU + _CUDA,
        operands=_FLOATS,
        fused=False,
        emit="mul, add",
        source="Intel SDM volume 2, MULPS and ADDPS; PTX ISA 9.0, mul.rn and add.rn: "
        "the product is rounded, then the sum",
    ),
    _halves(
        name="amx.tdpbf16ps",
        targets=("cpu:amx",),
        tile=(16, 16, 32),
        order="pairs of the depth, ascending",
        place="tile",
        emit="amx.tdpbf16ps",
        source=_AMX.format("TDPBF16PS"),
    ),
    _bytes(
        name="amx.tdpbssd",
        targets=("cpu:amx",),
        tile=(16, 16, 64),
        place="tile",
        emit="amx.tdpbssd",
        source=_AMX.format("TDPBSSD/TDPBSUD/TDPBUSD/TDPBUUD"),
    ),
    _halves(
        name="dpbf16",
        targets=("cpu:avx512", "cpu:amx"),
        tile=(1, 16, 2),
        order="the odd member of a pair, then the even one",
        place="register",
        emit="vdpbf16ps",
        source="Intel SDM volume 2, VDPBF16PS",
    ),
    _bytes(
        name="dpbssd",
        targets=("cpu:avx512", "cpu:amx"),
        tile=(1, 16, 4),
        place="register",
        emit="vpdpbusd",
        source="Intel SDM volume 2, VPDPBUSD: a b = (a + 128) b - 128 b, "
        "the first factor unsigned, all of it modulo 2^32",
    ),
    _scalar(
        name="ffma",
        targets=_CUDA,
        operands=_FLOATS + _INTS,
        fused=True,
        emit="fma.rn",
        source=_PTX.format("fma"),
    ),
    _tensor(
        name="mma.sync.m16n8k16.bf16",
        targets=_CUDA,
        operands=(("f32", "bf16", "bf16"), ("f32", "f16", "f16")),
        tile=(16, 8, 16),
        emit="mma.sync.aligned.m16n8k16",
        source=_PTX.format("mma.sync"),
        status="observed",
        assumes="",
        measured=SEEN,
    ),
    _tensor(
        name="mma.sync.m16n8k8.tf32",
        targets=_CUDA,
        operands=(("f32", "f32", "f32"),),
        tile=(16, 8, 8),
        emit="mma.sync.aligned.m16n8k8",
        source=_PTX.format("mma.sync; .tf32: of f32 operands the 13 lowest bits are ignored"),
        spends="tf32",
    ),
    _tensor(
        name="mma.sync.m16n8k8.f64",
        targets=_CUDA,
        operands=(("f64", "f64", "f64"),),
        tile=(16, 8, 8),
        emit="mma.sync.aligned.m8n8k4",
        source=_PTX.format("mma.sync; four of m8n8k4: both halves of the rows, both halves of the depth"),
        status="documented",
        assumes="",
    ),
)
"""Rows without a free number in the name."""

_ALIASES = {"amx.bf16": "amx.tdpbf16ps", "amx.i8": "amx.tdpbssd"}
_WGMMA = re.compile(r"wgmma\.m64n(\d+)k(\d+)(?:\.(bf16|f16|tf32|i8|fp8))?$")
_PTX_WGMMA = _PTX.format("wgmma.mma_async")


def _wgmma(columns: int, depth: int, kind: str) -> Atom | None:
    """The contraction of a warpgroup: 32 bytes of the depth an instruction."""
    if kind == "i8" and columns > 32 and columns % 16:
        return None
    row = partial(
        _tensor,
        name=f"wgmma.m64n{columns}k{depth}" + (f".{kind}" if kind else ""),
        targets=("cuda:sm_90a",),
        tile=(64, columns, depth),
        emit="wgmma.mma_async.sync.aligned",
        source=_PTX_WGMMA,
    )
    match depth, kind:
        case 16, ("" | "bf16" | "f16"):
            pairs = tuple(("f32", k, k) for k in ("bf16", "f16") if kind in ("", k))
            return row(operands=pairs, status="observed", assumes="", measured=SEEN)
        case 8, "tf32":
            source = f"{_PTX_WGMMA}; .tf32: of f32 operands the 13 lowest bits are ignored"
            return row(operands=(("f32", "f32", "f32"),), source=source, spends="tf32")
        case 32, "i8":
            pairs = tuple(("i32", a, b) for a in ("i8", "u8") for b in ("i8", "u8"))
            return row(operands=pairs, order="exact", fused=False, status="documented", assumes="")
        case 32, "fp8":
            pairs = tuple(("f32", a, b) for a in ("f8e4m3", "f8e5m2") for b in ("f8e4m3", "f8e5m2"))
            source = f"{_PTX_WGMMA}; sums of .e4m3 and .e5m2 products: precision not stated"
            return row(operands=pairs, source=source, spends="fp8_accumulate")
        case _:
            return None


def warpgroup_atom(a: str, b: str, columns: int) -> Atom | None:
    """The contraction of a warpgroup on these operand formats, where there is one."""
    rows = (_wgmma(columns, depth, kind) for depth, kind in ((16, a), (8, "tf32"), (32, "i8"), (32, "fp8")))
    return next((row for row in rows if row is not None and any(o[1:] == (a, b) for o in row.operands)), None)


def find_atom(target: str, name: str) -> Atom | None:
    """The row of an atom, if the target has it."""
    wanted = _ALIASES.get(name, name)
    match = _WGMMA.match(wanted)
    if match is not None:
        columns = int(match[1])
        fits = columns % 8 == 0 and 8 <= columns <= 256
        row = _wgmma(columns, int(match[2]), match[3] or "") if fits else None
        return row if row is not None and target in row.targets else None
    if target.startswith("cuda") and wanted == "fma":
        wanted = "ffma"
    return next((a for a in ATOMS if a.name == wanted and target in a.targets), None)
