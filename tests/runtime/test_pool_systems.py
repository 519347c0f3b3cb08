"""The pool on every platform: its text assembles there, and takes from the process what is listed and nothing else."""

from __future__ import annotations

import os
import platform

import pytest

from treadle.runtime import host
from treadle.runtime.objects import KINDS, kind_of, symbols
from treadle.runtime.pool_ir import SYMBOLS, pool_ir
from treadle.runtime.pool_systems import SYSTEMS
from treadle.toolchain.llvm import baseline_object

NAMES = [" ".join(place) for place in SYSTEMS]


def assembled(place: tuple[str, str]) -> bytes:
    system = SYSTEMS[place]
    return baseline_object(pool_ir(system), "treadle_pool", system.triple)


@pytest.mark.parametrize("place", SYSTEMS, ids=NAMES)
def test_the_pool_assembles_and_takes_what_is_listed(place: tuple[str, str]) -> None:
    code = assembled(place)
    assert kind_of(code) == KINDS[place]
    found = symbols(code)
    assert found.undefined == SYSTEMS[place].symbols
    assert found.defined == frozenset(SYMBOLS)


def test_a_symbol_too_many_is_seen() -> None:
    for place, system in SYSTEMS.items():
        text = (
            pool_ir(system) + "\ndeclare void @another()\ndefine void @more() {\n call void @another()\n ret void\n}\n"
        )
        found = symbols(baseline_object(text, "treadle_pool", system.triple))
        assert found.undefined - system.symbols == {"another"}, place
        assert found.defined - set(SYMBOLS) == {"more"}, place


def test_bytes_that_are_no_object() -> None:
    assert kind_of(b"") is None and kind_of(bytes(200)) is None and kind_of(b"\x7fELF" + bytes(100)) is None
    for place in SYSTEMS:
        code = assembled(place)
        assert kind_of(code[:63]) is None
        assert kind_of(b"\1\2" + code[2:]) is None


def test_a_thread_bound_by_openmp_bounds_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs, and a system with masks of them")
    cpus = frozenset(os.sched_getaffinity(0))
    one = frozenset([min(cpus)])
    try:
        os.sched_setaffinity(0, one)
        monkeypatch.delenv("OMP_PROC_BIND", raising=False)
        assert host.allowed_cpus() == one, "the user's own mask holds"
        monkeypatch.setenv("OMP_PROC_BIND", "true")
        assert host.allowed_cpus() >= cpus
    finally:
        os.sched_setaffinity(0, cpus)


def test_placement_needs_another_cpu_and_a_system_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    two = frozenset((0, 1))
    for name, machine, cpus, workers, want in (
        ("Linux", "x86_64", two, 2, True),
        ("Linux", "x86_64", two, 3, False),
        ("Linux", "aarch64", frozenset([0]), 1, False),
        ("Darwin", "arm64", two, 2, False),
        ("Windows", "AMD64", two, 2, True),
        ("Windows", "AMD64", frozenset(range(80)), 2, False),
    ):
        monkeypatch.setattr(platform, "system", lambda name=name: name)
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert host.can_place(cpus, workers) is want
