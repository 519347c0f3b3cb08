"""Plans for Hopper, assembled: the cubin has what the machine text states, and nothing spilled or serialised."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tests.marks import assembled
from tests.targets.cuda_assembled.kernels import gather, ranges

import treadle as td
from treadle.driver.plan import Plan
from treadle.lib.attention import attention
from treadle.lib.linear import gated_linear, linear
from treadle.lib.rows import softmax
from treadle.targets.cuda.emit import EmittedCuda, emit
from treadle.toolchain.nvrtc import CompiledCubin, compile_cuda
from treadle.toolchain.sass import disassemble

TARGET = "cuda:sm_90a"
ENGINES = ("HGMMA", "UTMALDG", "UTMASTG")


def bf(*shape: int, flipped: bool = False) -> Any:
    """A bf16 matrix; `flipped`: its first axis is the contiguous one."""
    return td.like(td.bf16, *shape, strides=(1, shape[0]) if flipped else None, align=256)


def linear_case(m: int, n: int, k: int, x: bool, w: bool, bias: bool, act: Any) -> Plan:
    given = [bf(m, k, flipped=x), bf(k, n, flipped=w), bf(n) if bias else None, bf(m, n)]
    return linear.plan(*given, act=act, target=TARGET)


def attention_case(d: int, causal: bool) -> Plan:
    return attention.plan(*(bf(4, 16, 4096, d) for _ in range(4)), causal=causal, target=TARGET)


def gated_case(m: int, n: int, k: int) -> Plan:
    return gated_linear.plan(bf(m, k), bf(k, n), bf(k, n), bf(m, n), target=TARGET)


def rows_case(dtype: Any, m: int, n: int) -> Plan:
    return softmax.plan(td.like(dtype, m, n), td.like(dtype, m, n), target=TARGET)


def gather_case() -> Plan:
    given = td.like(td.i32, 300), td.like(td.f32, 1000, 64), td.like(td.f32, 300, 64)
    return gather.plan(*given, target=TARGET)


def ranges_case() -> Plan:
    bounds = td.like(td.i32, 7)
    return ranges.plan(bounds, bounds, td.like(td.f32, 100, 64), td.like(td.f32, 7, 64), target=TARGET)


CASES: dict[str, tuple[str, Callable[[], Plan]]] = {
    "rows f32": ("rows", lambda: rows_case(td.f32, 4096, 1000)),
    "rows bf16": ("rows", lambda: rows_case(td.bf16, 4096, 8192)),
    "rows odd": ("rows", lambda: rows_case(td.bf16, 31, 4099)),
    "product mk kn": ("streams", lambda: linear_case(4096, 4096, 4096, False, False, True, td.gelu)),
    "product km kn": ("streams", lambda: linear_case(4096, 4096, 4096, True, False, False, None)),
    "product mk nk": ("streams", lambda: linear_case(4096, 4096, 4096, False, True, False, None)),
    "product km nk": ("streams", lambda: linear_case(264, 1000, 136, True, True, True, None)),
    "product odd pitch": ("streams", lambda: linear_case(257, 513, 1031, False, False, True, None)),
    "gated": ("streams", lambda: gated_case(257, 520, 1032)),
    "chain 64 full": ("streams", lambda: attention_case(64, False)),
    "chain 128 full": ("streams", lambda: attention_case(128, False)),
    "chain 128 causal": ("streams", lambda: attention_case(128, True)),
    "gather": ("", gather_case),
    "ranges": ("", ranges_case),
}


@cache
def planned(name: str) -> Plan:
    return CASES[name][1]()


@cache
def compiled_plan(name: str) -> tuple[EmittedCuda, CompiledCubin]:
    emitted = emit(planned(name).program)
    return emitted, compile_cuda(emitted.source, arch=emitted.arch, name="kernel")


@pytest.mark.parametrize("name", CASES)
def test_planned_and_verified(name: str) -> None:
    family = CASES[name][0]
    plan = planned(name)
    assert plan.check().status == "verified"
    assert plan.decisions.family == family if family else plan.decisions.family in ("rows", "universal")
    assert plan.decisions.target == TARGET


@assembled
@pytest.mark.parametrize("name", CASES)
def test_what_ptxas_made(name: str) -> None:
    emitted, compiled = compiled_plan(name)
    assert [m.text for m in compiled.messages] == []
    for launch in emitted.launches:
        resources = compiled.kernel(launch.kernel)
        assert resources.registers * launch.threads <= 65536
        assert (resources.spill_stores, resources.spill_loads) == (0, 0)


@assembled
@pytest.mark.parametrize("name", CASES)
def test_instructions_are_those_of_the_text(name: str) -> None:
    emitted, compiled = compiled_plan(name)
    found = disassemble(compiled.cubin)
    for launch in emitted.launches:
        counted = {o: found.count(launch.kernel, o) for o in ENGINES}
        assert counted == {o: launch.counts[o] for o in ENGINES}
    engines = sum(launch.counts["HGMMA"] for launch in emitted.launches)
    assert (engines > 0) == (CASES[name][0] == "streams")


def test_the_head_dimension_is_a_number() -> None:
    """A dimension that contractions take whole is the side of a tile: the program for a GPU has it as a number."""
    text = planned("chain 64 full").source_program()
    assert "dim D = 64" in text
    assert "dim Sq\n" in text and "dim Sk\n" in text
