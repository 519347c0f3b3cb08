"""Writing HTML and SVG: elements are text that is marked as such, everything else is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Union

Child = Union[str, int, float, None, "Markup", Iterable["Child"]]
Attribute = str | int | float | bool | None

_VOID = frozenset(("meta", "br", "hr", "link"))
_EMPTY = frozenset(("rect", "line", "path", "circle", "use", "polygon"))


class Markup(str):
    """Text that is HTML already."""


def element(tag: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """`<tag a="1">children</tag>`.

    Names of attributes lose a trailing underscore, other underscores are hyphens: `class_`, `aria_label`. An attribute
    that is `None` or `False` is left out, one that is `True` has no value. *Ensures*: text and values of attributes
    that are no `Markup` are escaped.
    """
    head = tag + "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{head}>")
    inner = "".join(_flat(children))
    if tag in _EMPTY and not inner:
        return Markup(f"<{head}/>")
    return Markup(f"<{head}>{inner}</{tag}>")


def join(children: Iterable[Child], between: str = "") -> Markup:
    """The children one after another."""
    return Markup(html.escape(between, quote=False).join("".join(_flat((c,))) for c in children))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{html.escape(plain(value))}"'


def plain(value: str | int | float) -> str:
    """A number in at most two decimals; text as it is."""
    if isinstance(value, float):
        text = f"{value:.2f}".rstrip("0").rstrip(".")
        return "0" if text in ("-0", "") else text
    return str(value)


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, (str, int, float)):
            yield html.escape(plain(child), quote=False)
        else:
            yield from _flat(child)
