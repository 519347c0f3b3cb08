"""The generated parts of docs/numerics.md are what the code and the newest measurement say."""

from __future__ import annotations

import itertools
import re

import pytest
from benchmarks.accuracy import domains, measure, page

from treadle.base.errors import UserError
from treadle.dtype import promote as rules
from treadle.dtype.formats import ALL, BY_NAME, DType
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.math.table import FUNCTIONS

TEXT = page.PAGE.read_text()


def part(name: str) -> list[list[str]]:
    """The rows of a generated table, the heading first."""
    found = re.search(page._PART.format(name), TEXT, flags=re.S)
    assert found is not None
    lines = [line for line in found[0].splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_is_up_to_date() -> None:
    assert page.written(TEXT) == TEXT, "run python -m benchmarks.accuracy.page"


def test_every_dtype_is_on_the_page() -> None:
    assert [row[0].strip("`") for row in part("formats")[1:]] == [d.name for d in ALL]


HEAD, *ROWS = part("promotion")
ENTRIES = [
    pytest.param(row[0].strip("*`"), name.strip("`"), cell, id=f"{row[0].strip('*`')}-{name.strip('`')}")
    for row in ROWS
    for name, cell in zip(HEAD[1:], row[1:], strict=True)
]


@pytest.mark.parametrize(("a", "b", "entry"), ENTRIES)
def test_the_table_is_the_rule(a: str, b: str, entry: str) -> None:
    """Entry by entry, in either order of the operands, as the page prints it."""

    def rule(x: DType, other: str) -> DType:
        if other.startswith("Python"):
            return rules.promote_weak(x, 1 if other.endswith("int") else 1.0)
        return rules.promote(x, BY_NAME[other])

    if entry == "mistake":
        for pair in ((a, b), (b, a)):
            with pytest.raises(UserError) as caught:
                rule(BY_NAME[pair[0]], pair[1])
            assert caught.value.code == "dtype/no-common"
        return
    assert str(rule(BY_NAME[a], b)) == entry
    if b in BY_NAME:
        assert str(rule(BY_NAME[b], a)) == entry


def test_mistakes_are_u64_with_signed_integers() -> None:
    wrong = {(p.values[0], p.values[1]) for p in ENTRIES if p.values[2] == "mistake"}
    signed = ("i8", "i16", "i32", "i64")
    assert wrong == {*itertools.product(("u64",), signed), *itertools.product(signed, ("u64",))}


def test_every_function_is_measured() -> None:
    assert set(domains.FUNCTIONS) == set(FUNCTIONS)
    assert {row[0].strip("`") for row in part("accuracy")[1:]} == set(FUNCTIONS)
    measured = page.results()["measured"]
    for name in FUNCTIONS:
        kinds = {"2ulp", "reference"} if name in ELEMENTWISE else {"2ulp"}
        for d in ("f16", "bf16", "f32"):
            assert kinds <= set(measured[d][name]), (name, d)


def test_no_measurement_is_above_what_the_table_states() -> None:
    """Nor above the class: 2 ulp; half an ulp for what is rounded once from a wider format, and a little."""
    measured = page.results()["measured"]
    for name, row in FUNCTIONS.items():
        for accuracy, expansion in row.classes.items():
            found = measured["f32"][name].get(accuracy)
            assert found is None or found["ulp"] <= expansion.ulp, (name, accuracy)
        assert measured["f32"][name]["2ulp"]["ulp"] <= 2.0 or name not in ELEMENTWISE
        if row.wide is not None:
            assert measured["f64"][name]["2ulp"]["ulp"] <= row.wide.ulp <= 2.0, name
            assert measured["f32"][name]["exact"]["ulp"] <= 0.5 + 2.0**-20, name
        for d in ("f16", "bf16"):
            assert measured[d][name]["2ulp"]["ulp"] <= 0.501, (name, d)
        for d in ("f16", "bf16", "f32"):
            reference = measured[d][name].get("reference")
            assert reference is None or reference["ulp"] <= 0.5 + 2.0**-8, (name, d)


@pytest.mark.parametrize("name", domains.FUNCTIONS)
def test_a_few_samples(name: str) -> None:
    """What the long measurement does, on 2^9 arguments of each dtype but the exhaustive ones."""
    tried = domains.FUNCTIONS[name]
    for accuracy, d, compute in measure.computers(name):
        if d.bits == 16:
            continue
        error = measure.Error(d)
        drawn = (tried.draw_wide if d.bits == 64 else tried.draw)(measure.np.random.default_rng(1), 1 << 9)
        given = tuple(p.astype(d.numpy) for p in (drawn if name == "pow" else (drawn,)))
        keep = measure.inside(d) if (name, accuracy) in domains.NORMAL_ONLY else None
        error.add(tried, given, compute(*given), keep)
        error.worst = error.worst[:8]
        limit = 3.0 if accuracy == "fast" else 2.3 if accuracy in ("2ulp", "picked") or d.bits == 64 else 0.5 + 2.0**-20
        assert error.summary(tried)["ulp"] <= limit, (accuracy, d)
