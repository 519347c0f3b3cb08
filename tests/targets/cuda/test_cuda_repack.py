"""Operands whose rows no engine can copy: launches that copy them to workspace, boxes of that; judged, simulated."""

from __future__ import annotations

import pytest
from tests.marks import assembled
from tests.realise.texts import linear
from tests.targets.cuda.cuda_kit import tried
from tests.targets.cuda.test_cuda_streams import halves, read

from treadle.checker import check
from treadle.machine.form import Copy, MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts, contiguous
from treadle.planner.enumerate import choose, realised
from treadle.targets.cuda.emit import Call, emit, prepare, workspace_bytes
from treadle.targets.cuda.streams import Streams
from treadle.toolchain.nvrtc import compile_cuda

SIZES = {"M": 71, "N": 133, "K": 77}


def ragged(sizes: dict[str, int], text: str | None = None, **changes: int | bool) -> MachineProgram:
    """The plan for operands and results whose rows begin anywhere."""
    source = read(halves(linear("bf16")) if text is None else text)
    plain = contiguous(source, "cuda:sm_90a", sizes)
    facts = CallFacts(plain.target, plain.extents, plain.unit, dict.fromkeys(plain.aligned, 2))
    family = Streams()
    assert family.admits(source, facts) == []
    point = dict(choose(source, facts, [family]).plan.point) | changes
    return family.build(source, facts, point, family.guard(source, facts, point))


@pytest.mark.parametrize("turned", [False, True])
def test_verified_and_right_under_adversarial_schedules(turned: bool) -> None:
    machine = ragged(SIZES, turned=turned, columns=64, versions=2, step=64, consumers=1, staged=False)
    assert str(check(machine)).startswith("verified")
    tried(machine, machine.program, SIZES, tolerance=1e-2)
    assert [x.kernel for x in machine.host.launches] == ["repack0", "repack1", "main"]
    moved = {b.name for b in machine.host.workspace}
    assert {s.src.name for s in machine.statements() if isinstance(s, Copy)} == moved


def test_only_what_needs_it_is_copied() -> None:
    source = read(halves(linear("bf16")))
    plain = contiguous(source, "cuda:sm_90a", {"M": 512, "N": 512, "K": 512})
    facts = CallFacts(plain.target, plain.extents, plain.unit, plain.aligned | {"W": 2})
    plan = choose(source, facts, [Streams()]).plan
    machine = realised(plan, source, facts, [Streams()])
    assert check(machine).status == "verified"
    assert [(m.tensor, m.box) for m in machine.host.maps if m.tensor == "X"] and len(machine.host.workspace) == 1
    # A plan that was decided is built from its guard, whatever else is known then.
    later = CallFacts(plan.target, unit=plain.unit)
    assert print_machine(realised(plan, source, later, [Streams()])) == print_machine(machine)
    guard = str(plan.guard)
    assert "pitch(X, 0)" in guard and "pitch(W, 0)" not in guard


WRONG = {
    "contracted before it is copied": ("  launch repack0", "  launch repack9"),
    "rows no multiple of a chunk": ("256*((K + 255) // 256)]", "K + 256]"),
    "a stripe short": (".. (K + 255) // 256 step", ".. (K + 255) // 256 - 1 step"),
    "no zeros behind a row": ("+ 256*k_1 < K fill 0.0", "+ 256*k_1 < K"),
    "a row short": ("(m_1 < M)", "(m_1 < M - 1)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_copies(name: str) -> None:
    text = print_machine(ragged(SIZES, columns=64, versions=2, step=64, consumers=1))
    old, new = WRONG[name]
    assert old in text
    if "repack9" in new:
        first = next(line for line in text.splitlines(keepends=True) if old in line)
        last = next(line for line in text.splitlines(keepends=True) if "launch main" in line)
        text = text.replace(first, "").replace(last, last + first)
    else:
        text = text.replace(old, new)
    assert check(parse_machine(text)).status != "verified"


@assembled
def test_assembled() -> None:
    emitted = emit(ragged({"M": 4095, "N": 4097, "K": 4093}))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="kernel")
    assert [m.text for m in compiled.messages] == []


def test_maps_of_workspace() -> None:
    emitted = emit(ragged(SIZES))
    strides = {"X": (77, 1), "W": (133, 1), "Y": (133, 1), "bias": (1,)}
    call = Call(dict(SIZES), dict.fromkeys(strides, 2), strides, {}, workspace=1 << 20)
    need = workspace_bytes(emitted, call)
    maps = [a for launch in prepare(emitted, call) for a in launch.arguments if hasattr(a, "pitches")]
    assert sorted(m.pitches for m in maps) == [(512,), (512,)] and all(not m.problems() for m in maps)
    assert need == 512 * (71 + 77) and {m.address - (1 << 20) for m in maps} in ({0, 512 * 71}, {0, 512 * 77})
