"""Banks and conflicts: against bytes written one by one, and accesses whose conflicts are known."""

from __future__ import annotations

import re

import pytest
from tests.view.plans import drawn, machine

from treadle.driver.show import text_page
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.view.banks import Addresses, addresses, meetings
from treadle.view.facts import scene
from treadle.view.storage import stretches

TEXT = """tdm 1
target cuda:sm_90a
program {
  program none
    dim M
    tensor X: f32[M]
    body
}
guard {
}
host {
  launch main grid 1 threads 32 shared 65536
}
kernel main {
  buffer a DTYPE[32, PITCH] shared align 128 @ 0
  frag x DTYPE[ROWS, COLS] dist (DIST)
  role worker agents 1 threads 32 {
    store a[INDEX] = x
    x = load a[INDEX]
  }
}
"""


ROW = "lane 32 axis 1 stride 1, slot 32 axis 0 stride 1"
COLUMN = "lane 32 axis 0 stride 1, slot 32 axis 1 stride 1"
ONE = "lane 32 axis 0 stride 1, slot 1 axis 1 stride 1"


def parsed(pitch=32, cols=32, dist=COLUMN, dtype="f32"):
    text = TEXT.replace("PITCH", str(pitch)).replace("ROWS", "32").replace("COLS", str(cols))
    return parse_machine(text.replace("INDEX", "$0, $1").replace("DIST", dist).replace("DTYPE", dtype), "x")


@pytest.mark.parametrize(
    ("options", "worst", "width"),
    [
        ({"dist": ROW}, 1, 4),  # each row by 32 lanes
        ({"pitch": 33}, 1, 4),  # a row a lane, rows an odd number of words apart
        ({"pitch": 36}, 1, 16),  # 16 bytes of 8 rows at once, 4 words apart: all banks
        ({"pitch": 34}, 1, 8),
        ({"pitch": 32}, 8, 16),  # 16 bytes a lane, eight lanes, all rows in the same banks
        ({"pitch": 32, "cols": 1, "dist": ONE}, 32, 4),  # a column: all lanes in one bank
        ({"pitch": 34, "cols": 1, "dist": ONE}, 2, 4),
        ({"pitch": 32, "dtype": "bf16"}, 4, 16),  # two rows of 64 bytes lie in different banks
        ({"pitch": 33, "dtype": "bf16"}, 2, 2),  # lanes 0 and 31 meet where the row of 66 bytes has come around
        ({"pitch": 64, "cols": 1, "dist": ONE, "dtype": "bf16"}, 32, 2),
    ],
)
def test_conflicts_that_are_known(options, worst, width):
    program = parsed(**options)
    found = meetings(program.kernels[0], scene(program, {}))
    assert [(m.way, m.worst, m.width) for m in found] == [("write", worst, width), ("read", worst, width)]
    for m in found:
        assert (m.rounds == m.least) == (worst == 1) and max(m.banks.values()) == worst


def brute(at: Addresses, index: tuple[int, ...], version: int) -> int:
    """The bank of an element: memory is walked through, and 16-byte chunks of a row of 128 bytes change places."""
    number = 0
    for coordinate, extent in zip(index, at.shape):
        number = number * extent + coordinate
    byte = at.start + (version % max(1, at.versions)) * at.slot + number * at.size
    row, inside = divmod(byte, 128)
    if at.swizzle:
        chunks = at.swizzle // 16
        chunk, rest = divmod(inside, 16)
        turn = row % chunks
        inside = (chunk // chunks * chunks + (chunk % chunks ^ turn)) * 16 + rest
    return inside // 4


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_banks_are_those_of_memory_walked_through(swizzle):
    at = Addresses("a", (3, 16, 64), 2, start=2048, versions=3, swizzle=swizzle)
    for i in range(0, 3 * 16 * 64, 7):
        index = (i // 1024, i // 64 % 16, i % 64)
        assert at.bank(index, version=i % 5) == brute(at, index, i % 5)


def test_swizzled_operands_of_tensor_cores_have_no_conflict_and_plain_ones_would():
    for name in ("linear", "chain"):
        program = machine(name)
        found = meetings(program.kernels[0], scene(program, {}))
        assert {m.way for m in found} == {"tensor cores", "write"} and {m.worst for m in found} == {1}
    text = re.sub(r" swizzle 128(?= @)", "", print_machine(machine("linear")))
    plain = parse_machine(text, "x")
    found = meetings(plain.kernels[0], scene(plain, {}))
    assert {m.worst for m in found if m.way == "tensor cores"} == {8}


def test_the_page_marks_conflicts(tmp_path):
    program = parsed()
    worst = [m.worst for m in meetings(program.kernels[0], scene(program, {"M": 32}))]
    assert max(worst) > 1
    path = tmp_path / "columns.tdm"
    path.write_text(print_machine(program))
    page = text_page(path, {"M": 32})
    # Once in the table, once behind the line of the text.
    assert page.count("badge clash") == 2 * sum(w > 1 for w in worst)
    assert re.search(r"store a.*badge clash", page)
    for name in ("linear", "blocks"):
        assert drawn(name).count("badge clash") == 0


def test_stretches_lie_apart_and_inside():
    for name in ("linear", "chain", "blocks"):
        program = machine(name)
        (kernel,) = program.kernels
        found = stretches(kernel, scene(program, {}))
        assert all(a.end <= b.begin for a, b in zip(found, found[1:]))
        assert found[-1].end <= program.host.launches[0].shared_bytes
        sizes = {b.name: addresses(b, scene(program, {})).slot for b in kernel.buffers}
        assert all(s.end - s.begin == sizes[s.of] for s in found if s.of in sizes)
