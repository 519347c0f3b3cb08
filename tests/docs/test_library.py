"""The pages of the library: each one's Python is one program, and runs; the index is what the docstrings say."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import warnings
from pathlib import Path

import pytest
from tests.docs.library_index import FOLDER, index
from tests.lib.ways import WAITS

from treadle.driver.kernel import Kernel
from treadle.lib import CONTENTS

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PAGES = sorted(p for p in FOLDER.glob("*.md") if p.stem != "index")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_runs(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert any("assert" in block for block in blocks), "a page shows what comes out"
    file = tmp_path / f"{page.stem}_page.py"
    file.write_text("\n".join(blocks))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a plan that is not verified, so that the interpreter runs
        for name in WAITS:
            warnings.filterwarnings("ignore", rf"{name} runs in the reference interpreter")
        runpy.run_path(str(file))


def test_the_index_is_what_the_docstrings_say() -> None:
    assert (FOLDER / "index.md").read_text() == index(), "run: python -m tests.docs.library_index"


def test_every_chapter_has_a_page() -> None:
    assert sorted(CONTENTS) == sorted(p.stem for p in PAGES)


@pytest.mark.parametrize("chapter", CONTENTS)
def test_contents(chapter: str) -> None:
    """Every kernel of a chapter is in the contents, and has a docstring that gives its shapes."""
    module = importlib.import_module(f"treadle.lib.{chapter}")
    kernels = {
        n for n, v in vars(module).items() if isinstance(v, Kernel) and v.definition.fn.__module__ == module.__name__
    }
    listed = set(CONTENTS[chapter])
    assert kernels <= listed and all(hasattr(module, n) for n in listed)
    assert all("*Shapes*" in (inspect.getdoc(getattr(module, n).definition.fn) or "") for n in kernels)
    assert all((inspect.getdoc(getattr(module, n)) or "").strip() for n in listed - kernels)


def test_names_are_exported() -> None:
    library = importlib.import_module("treadle.lib")
    for chapter, names in CONTENTS.items():
        for name in names:
            assert getattr(library, name) is getattr(importlib.import_module(f"treadle.lib.{chapter}"), name)
    with pytest.raises(AttributeError, match=r"docs/library/index\.md"):
        library.nothing
