"""The default plans of the rows that docs/status.md's H200 table has timed: no fit of costs may move one unnoticed.

A row says the settings that a device run has timed; the mark `untimed` is for rows whose default no run has timed since
it was last moved. Change a row where a run on the device has timed the new settings beside the old ones.
"""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.device.formats_kernels import product, scaled_weights

import treadle as td
from treadle import lib
from treadle.driver.candidates import plan_facts
from treadle.driver.describe import described_facts
from treadle.driver.locate import captured, dtypes_of, known_dims
from treadle.driver.tiles import wanted_dims
from treadle.ir.expand import expand
from treadle.lib import moe
from treadle.planner.enumerate import choose
from treadle.targets.cuda.families import families

TARGET = "cuda:sm_90a"
FP8 = td.Numerics(fp8_accumulate="hardware")
KERNELS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "gelu": (lib.linear, "X=bf16 W=bf16 bias=bf16 Y=bf16", {"act": td.gelu}),
    "linear": (lib.linear, "X=bf16 W=bf16 Y=bf16 -bias", {}),
    "linear f16": (lib.linear, "X=f16 W=f16 Y=f16 -bias", {}),
    "linear f32": (lib.linear, "X=f32 W=f32 Y=f32 -bias", {}),
    "tf32": (product.under(td.Numerics(tf32=True)), "X=f32 W=f32 Y=f32", {}),
    "i8": (product, "X=i8 W=i8 Y=i32", {"acc": td.i32}),
    "fp8": (product.under(FP8), "X=f8e4m3 W=f8e4m3 Y=bf16", {}),
    "batched": (lib.batched_matmul, "X=bf16 W=bf16 Y=bf16", {}),
    "gated": (lib.gated_linear, "X=bf16 gate=bf16 up=bf16 Y=bf16", {}),
    "attention": (lib.attention, "Q=bf16 K=bf16 V=bf16 Y=bf16", {}),
    "causal": (lib.attention, "Q=bf16 K=bf16 V=bf16 Y=bf16", {"causal": True}),
    "decode": (lib.decode_attention, "q=bf16 K=bf16 V=bf16 y=bf16", {}),
    "softmax f32": (lib.softmax, "X=f32 Y=f32", {}),
    "softmax bf16": (lib.softmax, "X=bf16 Y=bf16", {}),
    "layernorm": (lib.layernorm, "X=bf16 scale=bf16 shift=bf16 Y=bf16", {}),
    "cumsum f32": (lib.cumsum, "X=f32 Y=f32", {}),
    "cumsum bf16": (lib.cumsum, "X=bf16 Y=bf16", {}),
    "conv": (lib.conv2d_nhwc, "X=bf16 W=bf16 Y=bf16 -bias", {"pad": 1}),
    "conv first": (lib.conv2d, "X=bf16 W=bf16 Y=bf16 -bias", {"pad": 1}),
    "conv strided": (lib.conv2d_nhwc, "X=bf16 W=bf16 Y=bf16 -bias", {"pad": 1, "stride": 2}),
    "conv line": (lib.conv1d, "X=bf16 W=bf16 Y=bf16 -bias", {"pad": 2}),
    "window": (lib.grouped_attention, "Q=bf16 K=bf16 V=bf16 Y=bf16 lse=f32 -slope", {"causal": True, "window": 1024}),
    "packed": (lib.varlen_attention, "Q=bf16 K=bf16 V=bf16 Y=bf16 q_start=i32 k_start=i32", {}),
    "up": (moe.experts_up, "X=bf16 gate=bf16 up=bf16 Y=bf16", {"top": 8}),
    "down": (moe.experts_down, "X=bf16 down=bf16 Y=bf16", {}),
    "sums": (lib.rows_sum, "X=f32 Y=f32", {}),
    "total": (lib.total, "X=f32 Y=f32", {}),
    "columns": (lib.columns_sum, "X=f32 Y=f32", {}),
    "i8 weights": (scaled_weights, "X=bf16 W=i8 scale=f32 Y=bf16", {}),
}


TIMED = """
gelu | M=2048 N=2048 K=2048 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels
gelu | M=4096 N=4096 K=4096 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels
gelu | M=8192 N=8192 K=8192 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels
linear | M=512 N=512 K=512 | timed
    streams consumers=1 columns=32 step=128 versions=4 raster=panels turned=True
linear | M=1024 N=1024 K=1024 | timed
    streams consumers=1 columns=128 step=128 versions=4 staged=True raster=panels
linear | M=16 N=8192 K=8192 | timed
    streams consumers=1 columns=16 step=256 versions=4 raster=panels turned=True
linear | M=64 N=8192 K=8192 | timed
    streams consumers=1 columns=64 step=256 versions=3 staged=True raster=panels
linear | M=512 N=512 K=8192 | timed
    streams consumers=1 columns=128 step=64 versions=4 raster=row parts=4
linear | M=64 N=1024 K=8192 | timed
    streams consumers=1 columns=32 step=256 versions=4 raster=row turned=True parts=4
linear | M=4095 N=4097 K=4093 | timed
    streams consumers=2 columns=256 step=64 versions=4 raster=panels turned=True
linear | M=2047 N=2049 K=2051 | timed
    streams consumers=1 columns=256 step=64 versions=4 flight=1 raster=panels turned=True
linear | M=2048 N=2304 K=8192 | timed
    streams consumers=2 columns=256 step=64 versions=4 raster=row parts=8 of those left
linear | M=2048 N=2304 K=16384 | timed
    streams consumers=2 columns=256 step=64 versions=4 raster=row parts=8 of those left
linear f16 | M=1 N=1792 K=5120 | timed
    streams consumers=1 columns=8 step=256 versions=6 raster=row turned=True parts=4
linear f32 | M=4096 N=4096 K=4096 | timed
    blocks rows=128 columns=256 step=32 versions=2 raster=panels
linear f32 | M=1024 N=1024 K=1024 | timed
    blocks rows=64 columns=128 step=32 versions=2 raster=panels
tf32 | M=4096 N=4096 K=4096 | timed
    streams consumers=2 columns=256 step=32 versions=4 raster=panels
i8 | M=4096 N=4096 K=4096 | timed
    streams consumers=2 columns=256 step=128 versions=4 raster=panels
fp8 | M=4096 N=4096 K=4096 | timed
    streams consumers=2 columns=256 step=128 versions=4 staged=True raster=panels
i8 weights | M=16 N=8192 K=8192 | timed
    streams consumers=2 columns=16 step=256 versions=4 raster=row turned=True parts=2 operands=in registers
batched | B=32 M=512 N=512 K=64 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels
batched | B=4 M=128 N=128 K=8192 | timed
    streams consumers=1 columns=64 step=128 versions=6 raster=row parts=8
gated | M=4096 N=11008 K=4096 | timed
    streams consumers=2 columns=128 step=64 versions=4 staged=True raster=panels
attention | B=4 H=16 Sq=4096 Sk=4096 D=128 | timed
    streams consumers=2 step=128 versions=2 turns=True staged=True raster=panels
attention | B=4 H=16 Sq=4096 Sk=4096 D=64 | timed
    streams consumers=3 step=128 versions=4 staged=True raster=panels held=2
causal | B=4 H=16 Sq=4096 Sk=4096 D=128 | timed
    streams consumers=2 step=128 versions=2 turns=True staged=True raster=drawn 8
causal | B=4 H=16 Sq=4096 Sk=4096 D=64 | timed
    streams consumers=2 step=128 versions=2 turns=True staged=True raster=drawn 8
causal | B=1 H=16 Sq=16384 Sk=16384 D=64 | timed
    streams consumers=3 step=128 versions=4 staged=True raster=heavy first 16 held=2
decode | B=64 KV=8 R=4 Sk=8192 D=128 DV=128 | timed
    streams consumers=1 step=64 versions=2 raster=panels resident=2 held=2
decode | B=8 KV=8 R=4 Sk=8192 D=128 DV=128 | timed
    streams consumers=1 step=128 versions=3 raster=panels held=2
softmax f32 | M=4096 N=1024 | timed
    rows warps=1 held=True exact=True
softmax f32 | M=4096 N=4096 | timed
    rows warps=4 held=True exact=True
softmax f32 | M=4096 N=8192 | timed
    rows warps=4 held=True exact=True
softmax f32 | M=4096 N=32768 | timed
    rows warps=16 held=True exact=True
softmax bf16 | M=4096 N=1024 | timed
    rows warps=1 held=True exact=True
softmax bf16 | M=4096 N=4096 | timed
    rows warps=4 held=True exact=True
softmax bf16 | M=4096 N=8192 | timed
    rows warps=4 held=True exact=True close=True
softmax bf16 | M=4096 N=32768 | timed
    rows warps=16 held=True exact=True slots=2 stages=1
layernorm | M=4096 N=1024 | timed
    rows warps=1 held=True exact=True
layernorm | M=4096 N=4096 | timed
    rows warps=4 held=True exact=True
layernorm | M=4096 N=8192 | timed
    rows warps=4 held=True exact=True
layernorm | M=4096 N=32768 | timed
    rows warps=16 held=True exact=True
cumsum f32 | M=4096 N=4096 | timed
    rows warps=4 held=True exact=True
cumsum f32 | M=4096 N=32768 | timed
    rows warps=16 held=True exact=True
cumsum f32 | M=64 N=1048576 | timed
    rows warps=16 next=True
cumsum f32 | M=8 N=1048576 | timed
    rows warps=4 stretches=132
cumsum bf16 | M=4096 N=4096 | timed
    rows warps=4 held=True exact=True close=True
sums | M=4096 N=4096 | timed
    rows warps=1
sums | M=4096 N=1024 | timed
    rows warps=1 held=True exact=True
sums | M=32768 N=512 | timed
    rows warps=1 held=True exact=True
total | M=4096 N=4096 | timed
    rows warps=8 held=True exact=True
total | M=1 N=16777216 | timed
    rows warps=4 stretches=1024
total | M=1000000 N=16 | timed
    rows warps=1 together=4
columns | M=4096 N=4096 | timed
    rows warps=1 held=True together=4
columns | M=65536 N=1024 | timed
    rows warps=1 held=True together=4
conv | B=32 H=56 V=56 Ho=56 Vo=56 KH=3 KV=3 G=1 P=256 Q=256 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels box=8x2x8
conv | B=32 H=28 V=28 Ho=28 Vo=28 KH=3 KV=3 G=1 P=512 Q=512 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels box=32x1x4
conv | B=32 H=64 V=64 Ho=64 Vo=64 KH=3 KV=3 G=1 P=128 Q=128 | timed
    streams consumers=2 columns=128 step=64 versions=4 staged=True raster=panels box=1x4x32
conv first | B=32 H=56 V=56 Ho=56 Vo=56 KH=3 KV=3 G=1 P=256 Q=256 | timed
    streams consumers=1 columns=256 step=64 versions=4 flight=1 raster=panels turned=True operands=copied before
conv strided | B=32 H=56 V=56 Ho=28 Vo=28 KH=3 KV=3 G=1 P=256 Q=512 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels box=32x1x4 operands=copied before
conv line | B=32 L=4096 Lo=4096 KL=5 G=1 P=256 Q=256 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=panels operands=copied before
window | B=2 KV=4 R=4 Sq=8192 Sk=8192 D=128 | timed
    streams consumers=2 step=64 versions=2 turns=True staged=True raster=drawn 8
packed | T=26000 U=26000 KV=16 R=1 D=128 B1=13 | timed
    streams consumers=1 step=128 versions=3 staged=True raster=row shares=4
up | T=8192 L=8 K=2048 N=1024 E=64 E1=65 | timed
    streams consumers=2 columns=128 step=64 versions=4 staged=True raster=drawn shares=8
down | C=65536 K=2048 N=1024 E=64 E1=65 | timed
    streams consumers=2 columns=256 step=64 versions=4 staged=True raster=drawn shares=8
"""
"""Kernel, extents, whether a device run has timed the settings below; settings that rest are left out."""

RESTING = {"cluster=alone", "together=1", "resident=1", "held=1", "parts=1", "stretches=1", "threads=256"}


def default(name: str, extents: dict[str, int]) -> str:
    """Family and settings of the default plan of a call."""
    kernel, args, staged = KERNELS[name]
    definition = kernel.definition
    absent = [a[1:] for a in args.split() if a.startswith("-")]
    dtypes = dtypes_of(definition, [a for a in args.split() if not a.startswith("-")], absent)
    program = captured(definition, dtypes, staged, extents, absent)
    known_dims(program, extents)
    sides = {n: extents[n] for n in wanted_dims(program, extents)}
    program = expand(captured(definition, dtypes, staged, extents, absent, specialised=sides))
    plan = choose(program, plan_facts(program, TARGET, described_facts(program, extents)), families()).plan
    told = [f"{name}={value}" for name, value in plan.point.items() if value not in ("", False)]
    return " ".join([plan.family, *(text for text in told if text not in RESTING)])


def rows() -> list[tuple[str, str, str, str]]:
    """Kernel, extents, mark and settings of each row."""
    lines = TIMED.strip("\n").split("\n")
    heads = [[word.strip() for word in line.split("|")] for line in lines[::2]]
    return [(kernel, extents, mark, plan.strip()) for (kernel, extents, mark), plan in zip(heads, lines[1::2])]


@pytest.mark.parametrize(("kernel", "extents", "mark", "settings"), rows())
def test_defaults_are_what_was_timed(kernel: str, extents: str, mark: str, settings: str) -> None:
    numbers = dict(word.split("=") for word in extents.split())
    found = default(kernel, {name: int(n) for name, n in numbers.items()})
    assert found == settings, f"{mark}: time the new settings beside the old ones, then write them here"


def test_every_kernel_has_a_row() -> None:
    assert {kernel for kernel, *_ in rows()} == KERNELS.keys()
