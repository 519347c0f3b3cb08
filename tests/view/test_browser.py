"""Pages in a real browser: nothing overlaps or sticks out at 1280 and 390 pixels, keys work, and they look as they did.

`python -m tests.view.test_browser` draws the small pictures of `pictures/` anew, after somebody has looked at the page.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.view.browser import CHROMIUM, layouts, picture, read_png, write_png
from tests.view.plans import NAMES, drawn

from treadle.machine.parse import parse_machine
from treadle.plan.cost import CostVector
from treadle.view.page import page
from treadle.view.sheet import Alternative, Listing, Opinion, Sheet

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
SHOTS = {"ring-1280-light": (1280, 4000, False), "ring-390-dark": (390, 4400, True)}
WIDTHS = (1280, 390)
FAULTY = """<!doctype html><body>
<section id=a style="height:90px"><p style="width:40px">unbreakablewordofmanyletters</p>
<svg aria-label=x width=90 height=40>
<text x=5 y=20>one text</text><text x=20 y=24>over it</text><text x=80 y=20>out of it</text></svg></section>
<section id=b style="margin-top:-30px;width:600px">b</section>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium)")


def ring() -> str:
    """The page of a text that does not change, with all chapters."""
    machine = parse_machine((HERE / "ring.tdm").read_text(), "ring.tdm")
    source = Listing("first.py", 12, tuple(f"line {n} of the source, of no importance" for n in range(12, 20)))
    plans = (
        Alternative("streams", "taken", "consumers=2 columns=64", CostVector(1e-4, 0, 6e-5, 0, 3e-6), 144),
        Alternative("blocks", "dearer", "rows=128 columns=128", CostVector(9e-4, 1e-5, 6e-5, 0, 3e-6), 16),
        Alternative("rows", "refused", reasons=("it has contractions",)),
    )
    opinion = Opinion("verified", seconds=0.059, permissions=("regroup", "functions"))
    extents = {"M": 1024, "N": 1024, "K": 1024}
    return page(Sheet(machine, opinion, source, "streams consumers=2 columns=64", plans, extents, ("acc: registers",)))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    pages = {name: drawn(name) for name in NAMES} | {"ring": ring(), "faulty": FAULTY}
    return layouts(pages, WIDTHS, tmp_path_factory.mktemp("browser"))


@pytest.mark.parametrize("name", [*NAMES, "ring"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps_and_nothing_sticks_out(measured, name, width):
    found = measured[f"{name}@{width}"]
    assert found["width"] <= width
    assert found["overlaps"] == [] and found["outside"] == [] and found["narrow"] == []
    assert found["texts"] > 20
    boxes = found["sections"]
    assert len(boxes) >= 11
    for before, after in zip(boxes, boxes[1:]):
        assert after[3] >= before[4] - 1, "chapters stand one below the other"
    assert all(left >= 0 and right <= width for _, left, right, _, _ in boxes)


def test_faults_are_found(measured):
    found = measured["faulty@390"]
    assert (
        found["width"] > 390 and found["overlaps"] == ["x: one text / over it"] and found["outside"] == ["x: out of it"]
    )
    assert found["narrow"] == ["unbreakablewordofmanyletters"]
    (_, _, _, _, end), (_, _, _, begin, _) = found["sections"]
    assert begin < end


@pytest.mark.parametrize("name", ["linear", "rows", "tiled", "ring"])
def test_figures_answer_to_keys(measured, name):
    found = measured[f"{name}@1280"]
    assert found["figures"] > 0 and found["said"] == found["figures"]
    assert (found["outlined"] > 0) == (name != "tiled")


@pytest.mark.parametrize("shot", SHOTS)
def test_the_page_looks_as_it_did(measured, shot, tmp_path):
    known = json.loads((PICTURES / "fonts.json").read_text())["ruler"]
    if abs(measured["ring@1280"]["ruler"] - known) > 0.5:
        pytest.skip("needs the fonts of the pictures (Debian's fonts-dejavu-core)")
    width, height, dark = SHOTS[shot]
    now = picture(ring(), width, height, dark, tmp_path)
    then = read_png((PICTURES / f"{shot}.png").read_bytes())[:, :, 0].astype(float)
    assert now.shape == then.shape
    apart = np.abs(now - then)
    # Letters may be drawn a little differently; what moves or changes colour changes many cells.
    assert alike(now, then), f"look at the page, and draw the pictures anew if it is right: {apart.mean():.2f}"
    assert not alike(np.roll(then, 1, axis=0), then) and not alike(then * 0.95, then)


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two small pictures show the same."""
    apart = np.abs(a - b)
    return bool(apart.mean() < 1 and (apart > 24).mean() < 0.005)


def draw() -> None:
    """Draws the pictures anew."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        ruler = layouts({"ring": ring()}, (1280,), Path(folder))["ring@1280"]["ruler"]
        (PICTURES / "fonts.json").write_text(json.dumps({"ruler": ruler}) + "\n")
        for shot, (width, height, dark) in SHOTS.items():
            (PICTURES / f"{shot}.png").write_bytes(write_png(picture(ring(), width, height, dark, Path(folder))))


if __name__ == "__main__":
    draw()
