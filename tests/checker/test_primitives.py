"""Each primitive of synchronisation has a text that is judged, run and emitted, and a broken twin that is refused."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
from tests.checker.primitives import Primitive, primitives

from treadle.checker import check
from treadle.driver.trial import try_machine
from treadle.hardware.memory_model import ROWS, find_ordering
from treadle.machine.form import Copy, Store, Sync
from treadle.machine.parse import parse_machine
from treadle.machine.vocabulary import ENGINES, SYNC
from treadle.targets.cpu.emit import emit as emit_cpu
from treadle.targets.cuda.emit import emit
from treadle.toolchain.features import LEVELS
from treadle.toolchain.nvrtc import compile_cuda

BUILT = importlib.util.find_spec("nvidia") is not None


@pytest.mark.parametrize("p", primitives(), ids=lambda p: p.name)
def test_a_text_is_verified_and_its_broken_twin_is_not(p: Primitive) -> None:
    assert all(word in p.right for word in p.words), p.words
    assert p.right != p.wrong
    verdict = check(parse_machine(p.right))
    assert verdict.status == "verified", str(verdict)
    assert check(parse_machine(p.wrong)).status != "verified"
    assert try_machine(p.right, p.name, dict(p.sizes), 0, 2).clean
    assert try_machine(p.wrong, p.name, dict(p.sizes), 0, 4).clean != p.shows


@pytest.mark.parametrize("p", [p for p in primitives() if p.targets], ids=lambda p: p.name)
def test_it_is_emitted(p: Primitive) -> None:
    for target in p.targets:
        if target == "cpu":
            machine = parse_machine(p.right)
            assert emit_cpu(machine, LEVELS[machine.target.split(":")[1]])
            continue
        emitted = emit(replace(parse_machine(p.right), target=target))
        assert emitted.arch == target.removeprefix("cuda:")
        if BUILT:
            compiled = compile_cuda(emitted.source, arch=emitted.arch, name="primitive")
            assert compiled.kernels and not [m for m in compiled.messages if m.code]


def test_every_word_of_synchronisation_is_one_of_them() -> None:
    told = {row for p in primitives() for row in p.rows}
    assert told <= {r.kind for r in ROWS}
    hints = {"prefetch", "fence.gpu"}  # no order rests on the one; the other comes with counters
    words = {*SYNC, *ENGINES} - hints
    assert words <= told, sorted(words - told)


def test_no_text_changes_a_tensor_map() -> None:
    """Maps are encoded by the host before the launches: no statement can name one as memory, and the fence that would
    make a change known is no word of a text."""
    right = next(p.right for p in primitives() if "tma.load" in p.words[0])
    machine = parse_machine(right)
    maps = {m.name for m in machine.host.maps}
    named = {getattr(s, n).name for s in machine.statements() if isinstance(s, Store | Copy) for n in ("dst", "src")}
    assert maps and not maps & named
    store = right.replace("        store S[$0] = x where", "        store mX[$0] = x where", 1)
    assert store != right and check(parse_machine(store)).status != "verified"
    assert "fence.proxy.tensormap" not in SYNC and find_ordering("fence.proxy.tensormap", "cuda") is None
    fenced = right.replace("        sync fence.proxy.async\n", "        sync fence.proxy.tensormap\n", 1)
    assert any(isinstance(s, Sync) and "tensormap" in s.kind for s in parse_machine(fenced).statements())
    assert check(parse_machine(fenced)).status != "verified"
