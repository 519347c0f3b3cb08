"""The hardware tables: names resolve, every row has a source, contracts refuse what does not fit."""

from __future__ import annotations

import re

import pytest
from tests.docs.memory_model_page import FILE, atoms, page, results

from treadle.hardware.atoms import ATOMS, Atom, find_atom
from treadle.hardware.layouts import LAYOUTS
from treadle.hardware.memory_model import ROWS, Ordering, find_ordering
from treadle.hardware.targets import TARGETS, find_target
from treadle.machine.vocabulary import ASYNC_ATOMS, EFFECTS, ENGINES, OVER, SYNC


@pytest.mark.parametrize("atom", ATOMS, ids=lambda a: a.name)
def test_every_atom_names_its_source_and_known_targets(atom: Atom) -> None:
    assert len(atom.source) > 10 and atom.emit and atom.order
    assert all(t in TARGETS for t in atom.targets)
    for target in atom.targets:
        assert find_atom(target, atom.name) == atom


def test_atoms_belong_to_their_targets() -> None:
    assert find_atom("cpu:avx512", "amx.tdpbf16ps") is None
    assert find_atom("cpu:amx", "amx.bf16") == find_atom("cpu:amx", "amx.tdpbf16ps")
    assert find_atom("cuda:sm_80", "wgmma.m64n128k16.bf16") is None
    row = find_atom("cuda:sm_90a", "wgmma.m64n128k16.bf16")
    assert row is not None and row.tile == (64, 128, 16)
    assert find_atom("cuda:sm_90a", "wgmma.m64n260k16.bf16") is None
    assert find_atom("cuda:sm_90a", "wgmma.m64n100k16.bf16") is None


@pytest.mark.parametrize(
    ("name", "target", "dst", "have", "shape", "contracted", "place", "fits"),
    [
        ("fma", "cpu:avx2", "f32", ("f32", "f32"), (4, 16), (), "register", True),
        ("fma", "cpu:avx2", "f32", ("bf16", "bf16"), (4, 16), (), "register", False),
        ("amx.tdpbf16ps", "cpu:amx", "f32", ("bf16", "bf16"), (16, 16), (32,), "tile", True),
        ("amx.tdpbf16ps", "cpu:amx", "f32", ("bf16", "bf16"), (32, 32), (32,), "tile", True),
        ("amx.tdpbf16ps", "cpu:amx", "f32", ("bf16", "bf16"), (16, 8), (32,), "tile", False),
        ("amx.tdpbf16ps", "cpu:amx", "f32", ("bf16", "bf16"), (16, 16), (16,), "tile", False),
        ("amx.tdpbf16ps", "cpu:amx", "f32", ("bf16", "bf16"), (16, 16), (32,), "register", False),
        ("wgmma.m64n64k16", "cuda:sm_90a", "f32", ("bf16", "bf16"), (64, 64), (16,), "register", True),
        ("wgmma.m64n64k16", "cuda:sm_90a", "bf16", ("bf16", "bf16"), (64, 64), (16,), "register", False),
    ],
)
def test_contracts(
    name: str,
    target: str,
    dst: str,
    have: tuple[str, ...],
    shape: tuple[int, ...],
    contracted: tuple[int, ...],
    place: str,
    fits: bool,
) -> None:
    atom = find_atom(target, name)
    assert atom is not None
    assert (atom.refuses(dst, have, shape, contracted, place) is None) == fits


def test_targets() -> None:
    assert find_target("cpu") is TARGETS["cpu:avx2"] and find_target("vax") is None
    assert TARGETS["cuda:sm_90a"].shared_bytes == 227 * 1024 and TARGETS["cpu:amx"].tiles == 8


DOCUMENTS = (
    *("Intel SDM", "Intel 64 and IA-32", "PTX ISA 9.0, ", "CUDA C++ Programming Guide 13.0, "),
    *("LLVM Language Reference, ", "WGSL (", "Arm Architecture Reference Manual", "WebGPU ("),
)


def test_every_row_has_a_source_and_a_status() -> None:
    """Of every table of the room: a row is documented where it names a document, and says what it assumes otherwise;
    one that was observed names the runs."""
    rows = [*atoms(), *LAYOUTS, *TARGETS.values(), *ROWS]
    assert len({type(row) for row in rows}) == 4
    for row in rows:
        assert row.status in ("documented", "observed", "assumed"), row
        assert len(row.source) > 10, row
        if row.status == "documented":
            assert row.source.startswith(DOCUMENTS) and not getattr(row, "assumes", ""), row
        if row.status == "observed":
            assert row.measured or getattr(row, "litmus", ""), row
        if row.status == "assumed" and isinstance(row, Atom):
            assert row.assumes, row


def test_every_atom_of_a_warp_or_warpgroup_has_its_layout() -> None:
    for row in atoms():
        laid = [x for x in LAYOUTS if row.name.startswith(x.atoms)]
        assert len(laid) == row.name.startswith(("wgmma", "mma.sync")), row.name


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.kind)
def test_every_ordering_has_a_source_and_a_promise(row: Ordering) -> None:
    assert len(row.source) > 10 and row.promises and row.grains
    assert row.status in ("documented", "observed", "assumed")
    assert row.status != "observed" or row.measured or row.litmus
    for kind in row.targets.split():
        assert find_ordering(row.kind, kind) is (row if row.judged else None)
    assert sum(r.kind == row.kind for r in ROWS) == 1


def test_every_word_of_machine_text_has_its_row() -> None:
    kinds = {r.kind for r in ROWS}
    words = {*SYNC, *ENGINES, *ASYNC_ATOMS, *OVER, "load", "store", "launch", "launch.cooperative", "launch.cluster"}
    words |= {"effect"} if len(EFFECTS) > 1 else set()
    assert words <= kinds, sorted(words - kinds)


def test_the_page_of_the_memory_model_is_the_table() -> None:
    assert FILE.read_text() == page(), "run python -m tests.docs.memory_model_page"


def test_litmus_tests_are_named_by_rows() -> None:
    script = (FILE.parents[1] / "benchmarks" / "device" / "litmus.py").read_text()
    written = set(re.findall(r'^    Litmus\(\n        "(\w+)"', script, flags=re.M))
    named = {name for row in ROWS for name in row.litmus}
    assert all(outcome["kept"]["wrong"] == 0 == outcome["kept"]["stuck"] for outcome in results().values())
    ran = set(results())
    assert ran <= written and len(written - ran) < 5  # some are written and have not run yet: no row names them
    assert ran and named == ran, (sorted(named - ran), sorted(ran - named))


def test_orderings_belong_to_their_targets() -> None:
    assert find_ordering("wgmma.wait", "cpu") is None and find_ordering("amx.config", "cuda") is None
    assert find_ordering("no.such", "cuda") is None
    row = find_ordering("fence.proxy.async", "cuda")
    assert row is not None and "298 of 300" in row.measured
