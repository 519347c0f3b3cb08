"""Wrong programs beside their right twins.

A file of this folder collects pairs of one family:

    pairs = Pairs()

    @pairs.wrong("bounds/unproved")
    def next_element(X: td.Tensor[M], Y: td.Out[M]):
        for m in td.parallel(M.each):
            Y[m] = X[m + 1]  # wrong

    @pairs.right
    def next_element_or_zero(X: td.Tensor[M], Y: td.Out[M]):
        for m in td.parallel(M.each):
            Y[m] = X.at(m + 1, fill=0)

    test_wrong, test_right = pairs.tests()

The wrong one is refused with that code at the line that says `# wrong`, in exactly the text of the snapshot; the right
one is captured, and nothing is found when the checked interpreter runs it on random arguments.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import pytest

from treadle.base.errors import TreadleError
from treadle.base.source import shown_path
from treadle.driver.samples import arguments, default_extents
from treadle.evaluate.sanitize import sanitize
from treadle.lang.definition import Definition


@dataclass
class Pair:
    """A wrong program and its twin. `marked` is the function whose text has the comment, where it is a called one."""

    code: str
    wrong: FunctionType
    marked: Callable[..., Any]
    options: Mapping[str, Any]
    right: FunctionType | None = None
    extents: Mapping[str, int] = field(default_factory=dict[str, int])


class Pairs:
    """The pairs of a file, in order."""

    def __init__(self) -> None:
        self.all: list[Pair] = []

    def wrong(self, code: str, *, marked: Callable[..., Any] | None = None, **options: Any) -> Callable[[Any], Any]:
        """A program that `capture(**options)` refuses with this code."""

        def keep(fn: Any) -> Any:
            self.all.append(Pair(code, fn, marked or fn, options))
            return fn

        return keep

    def right(self, fn: Any = None, **extents: int) -> Any:
        """The twin of the wrong program above it; `extents` where it states facts about them."""

        def keep(fn: Any) -> Any:
            pair = self.all[-1]
            assert pair.right is None, f"{pair.wrong.__name__} has two twins"
            pair.right, pair.extents = fn, extents
            return fn

        return keep(fn) if fn is not None else keep

    def tests(self) -> tuple[Any, Any]:
        """The two tests of a file."""

        @pytest.mark.parametrize("pair", self.all, ids=lambda p: p.wrong.__name__)
        def wrong(pair: Pair, snapshot: Any) -> None:
            with pytest.raises(TreadleError) as caught:
                Definition(pair.wrong).capture(**pair.options)
            check(caught.value, pair)
            assert shown(caught.value, pair.wrong) == snapshot

        @pytest.mark.parametrize("pair", self.all, ids=lambda p: f"beside_{p.wrong.__name__}")
        def right(pair: Pair) -> None:
            assert pair.right is not None, f"{pair.wrong.__name__} has no twin"
            program = Definition(pair.right).capture()
            extents = default_extents(program, pair.extents)
            arrays, scalars = arguments(program, extents, seed=0)
            assert sanitize(program, arrays, scalars, extents, seeds=1) == []

        return wrong, right


def check(error: TreadleError, pair: Pair) -> None:
    """The code, and the line of the comment."""
    assert error.code == pair.code, str(error)
    assert error.family in ("mistake", "not supported"), str(error)
    assert error.span is not None, str(error)
    lines, first = inspect.getsourcelines(pair.marked)
    here = [first + i for i, line in enumerate(lines) if "# wrong" in line]
    assert len(here) == 1, f"{pair.wrong.__name__}: one line is marked"
    assert (error.span.file, error.span.line) == (inspect.getfile(pair.marked), here[0]), str(error)


def shown(error: TreadleError, fn: Callable[..., Any]) -> str:
    """The message, its lines counted from the first of `fn`, so that a change above leaves the snapshot alone."""
    first = inspect.getsourcelines(fn)[1]
    text = str(error).replace(shown_path(inspect.getfile(fn)), "FILE")
    text = re.sub(r"(?<=FILE:)\d+", lambda m: f"{int(m.group()) - first:+d}", text)
    text = re.sub(r"(?m)^ +(\d+)(?= \| )", lambda m: f"{int(m.group(1)) - first:+8d}", text)
    return re.sub(r"(?m)^ +(?= \| )", " " * 8, text)
