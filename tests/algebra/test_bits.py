"""Bit layouts against brute force over all inputs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.algebra.bits import BitLayout, Space, pack, unpack, width
from treadle.algebra.layouts import LayoutUndefined


@st.composite
def spaces(draw: st.DrawFn, names: str) -> Space:
    """Up to three labels of up to three bits."""
    count = draw(st.integers(1, 3))
    return tuple((names[i], draw(st.integers(0, 3))) for i in range(count))


@st.composite
def layouts(draw: st.DrawFn, ins: Space | None = None, outs: Space | None = None) -> BitLayout:
    """Any linear map between two such spaces."""
    ins = draw(spaces("abc")) if ins is None else ins
    outs = draw(spaces("xyz")) if outs is None else outs
    top = (1 << width(outs)) - 1
    images = draw(st.lists(st.integers(0, top), min_size=width(ins), max_size=width(ins)))
    return BitLayout(ins, outs, tuple(images))


@given(layouts(), st.data())
def test_linear(layout: BitLayout, data: st.DataObject) -> None:
    top = (1 << width(layout.ins)) - 1
    x, y = data.draw(st.integers(0, top)), data.draw(st.integers(0, top))
    assert layout.apply(x ^ y) == layout.apply(x) ^ layout.apply(y)
    assert layout(**unpack(layout.ins, x)) == unpack(layout.outs, layout.apply(x))
    assert pack(layout.ins, unpack(layout.ins, x)) == x


@given(st.data())
def test_compose(data: st.DataObject) -> None:
    inner = data.draw(layouts())
    outer = data.draw(layouts(ins=inner.outs, outs=(("p", 2), ("q", 3))))
    both = outer.compose(inner)
    assert all(both.apply(x) == outer.apply(inner.apply(x)) for x in range(1 << width(inner.ins)))


@given(layouts(), layouts())
def test_product_and_division(a: BitLayout, b: BitLayout) -> None:
    both = a.product(b)
    low_in, low_out = dict(a.ins), dict(a.outs)
    for x in range(1 << width(a.ins)):
        assert {k: v for k, v in both(**unpack(a.ins, x)).items() if v} == {
            k: v for k, v in unpack(a.outs, a.apply(x)).items() if v
        }
    for x in range(1 << width(b.ins)):
        shifted = {k: v << low_in.get(k, 0) for k, v in unpack(b.ins, x).items()}
        want = {k: v << low_out.get(k, 0) for k, v in unpack(b.outs, b.apply(x)).items()}
        assert {k: v for k, v in both(**shifted).items() if v} == {k: v for k, v in want.items() if v}
    assert a.product(both.divide(a)) == both


def test_division_by_what_is_no_factor_is_refused() -> None:
    swapped = BitLayout((("a", 2),), (("x", 2),), (2, 1))
    with pytest.raises(LayoutUndefined):
        swapped.divide(BitLayout.identity((("a", 1),)).ordered(["a"], ["a"]))


@given(layouts())
def test_rank_kernel_and_inverse(layout: BitLayout) -> None:
    values = [layout.apply(x) for x in range(1 << width(layout.ins))]
    assert 1 << layout.rank == len(set(values))
    assert layout.injective == (len(set(values)) == len(values))
    assert layout.surjective == (set(values) == set(range(1 << width(layout.outs))))
    assert all(layout.apply(k) == 0 and k for k in layout.kernel())
    assert len(layout.kernel()) == width(layout.ins) - layout.rank
    for y in range(1 << width(layout.outs)):
        x = layout.solve(y)
        assert (x is None) == (y not in values)
        assert x is None or layout.apply(x) == y
    if layout.surjective:
        inverse = layout.right_inverse()
        assert all(layout.apply(inverse.apply(y)) == y for y in range(1 << width(layout.outs)))
    else:
        with pytest.raises(LayoutUndefined):
            layout.right_inverse()


def test_ordering_labels_keeps_the_map() -> None:
    layout = BitLayout.of((("row", 2), ("column", 1)), lane=[{"row": 1}, {"column": 1}], slot=[{"row": 2, "column": 1}])
    turned = layout.ordered(["slot", "lane"], ["column", "row"])
    assert all(turned(lane=i, slot=j) == layout(lane=i, slot=j) for i in range(4) for j in range(2))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: BitLayout((("a", 2),), (("x", 1),), (1,)),
        lambda: BitLayout((("a", 1),), (("x", 1),), (2,)),
        lambda: BitLayout.identity((("a", 1),)).compose(BitLayout.identity((("b", 1),))),
        lambda: BitLayout.identity((("a", 1),)).ordered(["b"], ["a"]),
        lambda: pack((("a", 1),), {"b": 1}),
        lambda: pack((("a", 1),), {"a": 2}),
    ],
)
def test_refusals(wrong: object) -> None:
    with pytest.raises(LayoutUndefined):
        wrong()
