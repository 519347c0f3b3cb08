"""Rings that threads fill by copies which arrive when they are complete: right ones, and each fault refused."""

from __future__ import annotations

import pytest
from tests.checker.copied_ring_text import ALONE, BOTH, ring
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import try_machine
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda


@pytest.mark.parametrize("arrive", [ALONE, BOTH], ids=["alone", "both"])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_ring_of_any_length_is_verified(slots: int, arrive: str) -> None:
    program = parse_machine(ring(slots, arrive))
    assert print_machine(parse_machine(print_machine(program))) == print_machine(program)
    verdict = check(program)
    assert verdict.status == "verified", str(verdict)


@pytest.mark.parametrize("arrive", [ALONE, BOTH], ids=["alone", "both"])
@pytest.mark.parametrize("blocks", [0, 1, 2, 3, 4])  # none, one, V - 1, V, V + 1
def test_every_number_of_blocks_is_right_under_schedules(blocks: int, arrive: str) -> None:
    assert try_machine(ring(3, arrive), "ring", {"M": 9, "N": max(0, 32 * blocks - 4)}, 0, 4).clean


def swapped(text: str, first: str, second: str) -> str:
    return text.replace(first, "@@").replace(second, first).replace("@@", second)


WAIT = "        sync mbar.wait empty{p} (phase = (p // 3 + 1) % 2)\n"
FULL = "        sync mbar.wait full{c} (phase = c // 3 % 2)\n"
FREE = "        sync mbar.arrive empty{c}\n"
COPY = "        copy cp.async A{p}[$0 + 2, $1] = X[4 * u + 2 + $0, 32 * i + $1] box (2, 32)\n"
LOAD = "        x = load A{c}[$0, $1] ; %x[4 * t + $0, 32 * j + $1] where 4 * t + $0 < M, 32 * j + $1 < N\n"
RIGHT = ring(3)
WRONG = {
    "arrivals of threads, not of their copies": (ring(3, "        sync mbar.arrive full{p}\n"), True),
    "arrivals before the copies": (ring(3).replace(ALONE, "").replace(WAIT, WAIT + ALONE), True),
    "arrivals before one of the copies": (swapped(ring(3), COPY, ALONE), True),
    "no wait for the slot": (ring(3).replace(WAIT, ""), True),
    "one thread waits for the slot": (ring(3).replace(WAIT, WAIT.replace("\n", " by elect\n")), True),
    "another turn's phase": (ring(3).replace("p // 3 + 1", "p // 3"), True),
    "another slot": (ring(3).replace("copy cp.async A{p}[$0, $1]", "copy cp.async A{p + 1}[$0, $1]"), True),
    "arrivals at another slot": (ring(3).replace("arrive full{p}", "arrive full{p + 1}"), True),
    "read before it is full": (swapped(ring(3), LOAD, FULL), True),
    "never waited for": (ring(3).replace(FULL, ""), True),
    "given back before it is read": (swapped(ring(3), LOAD, FREE), True),
    "never given back": (ring(3).replace(FREE, ""), True),
    "given back twice": (ring(3).replace(FREE, FREE + FREE), True),
    "a count of one": (ring(3).replace("full count 64", "full count 1"), True),
    "a count of both": (ring(3, BOTH).replace("full count 64", "full count 128"), True),
    "counted more, and nobody arrives": (ring(3, BOTH.splitlines(keepends=True)[0]), True),
    "arrivals of both, not counted more": (ring(3, BOTH.replace(" (more = 1)", "")), True),
    "bytes": (ring(3).replace("full count 64 versions 3", "full count 64 versions 3 tx"), False),
    "barriers with other slots": (ring(3).replace("empty count 64 versions 3", "empty count 64 versions 2"), True),
    "set up by all": (ring(3).replace("mbar.init full by elect", "mbar.init full"), True),
    "not met": (ring(3).replace("    sync barrier.sync (id = 0, threads = 128)\n", ""), True),
    "a block less": (ring(3).replace("i = 0 .. NT", "i = 0 .. NT - 1"), True),
    "a copy twice": (ring(3).replace(COPY, COPY + COPY), True),
    "copies that overlap": (ring(3).replace("32 * i + $1] box (2, 32)", "32 * i + $1] box (3, 32)", 1), True),
    "half of the box": (ring(3).replace(COPY, ""), True),
    "other rows": (ring(3).replace("X[4 * u + 2 + $0", "X[4 * u + 1 + $0"), True),
    "unaligned rows": (ring(3).replace("  pitch(X, 0) % 4 == 0\n", ""), False),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_refused(name: str) -> None:
    text, seen = WRONG[name]
    assert text != ring(3)
    verdict = check(parse_machine(text))
    assert verdict.status != "verified", str(verdict)
    if seen:
        assert not try_machine(text, "wrong", {"M": 9, "N": 160}, 0, 30).clean


def test_no_mutant_is_accepted_and_wrong() -> None:
    machine = parse_machine(ring(2))
    seen, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::3]:
        if judged(mutant) != "verified" or executed(mutant.program) in seen:
            continue
        seen.add(executed(mutant.program))
        count += 1
        for extents in ({"M": 5, "N": 100}, {"M": 1, "N": 4}):
            assert try_machine(print_machine(mutant.program), "mutant", extents, 0, 3).clean, str(mutant)
    assert count


@assembled
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("arrive", [ALONE, BOTH], ids=["alone", "both"])
def test_they_assemble(arch: str, arrive: str) -> None:
    emitted = emit(parse_machine(ring(3, arrive, arch)))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="rows")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert "cp.async.mbarrier.arrive" in emitted.source and not [m for m in compiled.messages if m.code]
