"""The source program read pointwise: the meaning of one element, and when a bool element holds."""

from __future__ import annotations

from collections.abc import Callable

from treadle.algebra.expr import Constraint, Expr, le, lt
from treadle.algebra.expr import eq as equals
from treadle.checker.meaning import Meaning
from treadle.checker.scopes import View, argument_symbols
from treadle.checker.terms import App, Num, Term
from treadle.checker.verdict import Unsure
from treadle.dtype.formats import bool_, u64


class Source(Meaning):
    """The embedded program."""

    def one_name_each(self) -> None:
        """*Errors*: unsure where regions have arguments of one name: what is known by it would be of the last one."""
        symbols = [s for r in self.regions.values() for a in r.args for s in argument_symbols(a)]
        if len(symbols) != len(self.by_argument):
            twice = next(s for s in symbols if symbols.count(s) > 1)
            raise Unsure("J1", f"two regions have an argument {twice}", missing="a name of its own for each argument")

    def truth(self, term: Term, view: View, wanted: bool = True) -> tuple[tuple[Constraint, ...], ...] | None:
        """When a bool term is `wanted`, as alternatives of index constraints; None where it is not index arithmetic."""
        term = self.settle(term, view)
        if isinstance(term, Num) and term.dtype == bool_:
            return ((),) if bool(term.value) == wanted else ()
        if not isinstance(term, App):
            return None
        if term.fn == "not":
            return self.truth(term.args[0], view, not wanted)
        if term.fn in ("and", "or"):
            sides = [self.truth(a, view, wanted) for a in term.args]
            if sides[0] is None or sides[1] is None:
                return None
            if (term.fn == "and") == wanted:
                return tuple((*a, *b) for a in sides[0] for b in sides[1])
            return (*sides[0], *sides[1])
        if term.fn in _COMPARE:
            a, b = (self._as_index(x) for x in term.args)
            if a is None or b is None:
                return None
            return _COMPARE[term.fn if wanted else _OPPOSITE[term.fn]](a, b)
        return None

    def consequences(self, term: Term, view: View, wanted: bool = True) -> tuple[Constraint, ...]:
        """Index constraints that hold wherever a bool term is `wanted`: some of them, by its parts that are index
        arithmetic."""
        term = self.settle(term, view)
        exact = self.truth(term, view, wanted)
        if exact is not None:
            return exact[0] if len(exact) == 1 else ()
        if not isinstance(term, App):
            return ()
        if term.fn == "not":
            return self.consequences(term.args[0], view, not wanted)
        if term.fn == ("and" if wanted else "or"):
            return tuple(c for a in term.args for c in self.consequences(a, view, wanted))
        if term.fn == "where":
            cond, yes, no = term.args
            ways = [(taken, way) for taken, way in ((True, yes), (False, no)) if self._may(cond, taken, way, wanted)]
            if len(ways) == 1:
                ((taken, way),) = ways
                return (*self.consequences(cond, view, taken), *self.consequences(way, view, wanted))
        return ()

    def _may(self, cond: Term, taken: bool, way: Term, wanted: bool) -> bool:
        """Whether a selection can be `wanted` by this way: not if the way is a number that is not, or the condition
        itself, which is `taken` there."""
        if isinstance(way, Num):
            return bool(way.value) == wanted
        return way != cond or taken == wanted

    def _as_index(self, term: Term) -> Expr | None:
        dtype = self.dtype(term)
        if dtype is None or not dtype.is_int or dtype == u64:  # machines compare indices as signed words
            return None
        return self.index_of(term)


def _lt(a: Expr, b: Expr) -> tuple[tuple[Constraint, ...], ...]:
    return ((lt(a, b),),)


def _le(a: Expr, b: Expr) -> tuple[tuple[Constraint, ...], ...]:
    return ((le(a, b),),)


_Alternatives = tuple[tuple[Constraint, ...], ...]
_COMPARE: dict[str, Callable[[Expr, Expr], _Alternatives]] = {
    "lt": _lt,
    "le": _le,
    "gt": lambda a, b: _lt(b, a),
    "ge": lambda a, b: _le(b, a),
    "eq": lambda a, b: ((equals(a, b),),),
    "ne": lambda a, b: (*_lt(a, b), *_lt(b, a)),
}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
