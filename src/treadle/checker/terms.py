"""What a slot of storage holds, as a term over elements of source values.

A fragment or buffer holds a *decision list*: pieces `(conditions, term)`, the first whose conditions hold decides. The
conditions and terms mention the slot coordinates `$0, $1, ...`, loop variables and extents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from treadle.algebra.expr import QUOTIENT, REMAINDER, Constraint, Expr, ExprLike, Fn, maximum, minimum, of, sym
from treadle.dtype.convert import round_to
from treadle.dtype.formats import DType, i64
from treadle.ir.ranges import LIMIT, reach


class Term:
    """The root of terms; see the subclasses."""

    def map(self, change: Callable[[Expr], Expr]) -> Term:
        """The term with every index expression changed."""
        return self

    @cached_property
    def size(self) -> tuple[int, int]:
        """Its weight and depth: how much text it is, and how deep its parts stand in one another."""
        inner = [*(a.size for a in self.args)] if isinstance(self, App) else []
        inner += [(e.weight, e.depth) for e in expressions(self)]
        return 1 + sum(w for w, _ in inner), 1 + max((d for _, d in inner), default=0)

    def substitute(self, env: Mapping[str, ExprLike]) -> Term:
        """The term with symbols replaced."""
        return self.map(lambda e: e.substitute(env))


@dataclass(frozen=True)
class Num(Term):
    """A number of a dtype."""

    value: float | int | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Num) and self.dtype == other.dtype and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def key(self) -> tuple[str, str]:
        """Equal for the same bits: signed zeros differ, a NaN is itself."""
        if self.dtype.is_float:
            return self.dtype.name, "nan" if math.isnan(self.value) else repr(float(self.value))
        return self.dtype.name, repr(int(self.value) if float(self.value).is_integer() else self.value)

    def __str__(self) -> str:
        return f"{self.value}:{self.dtype.name}"


@dataclass(frozen=True)
class Idx(Term):
    """The value of an index expression, an i64."""

    expr: Expr

    def map(self, change: Callable[[Expr], Expr]) -> Term:
        return Idx(change(self.expr))

    def __str__(self) -> str:
        return f"index({self.expr})"


@dataclass(frozen=True)
class Cell(Term):
    """An element of a tensor that this program never stores to."""

    tensor: str
    index: tuple[Expr, ...]
    dtype: DType

    def map(self, change: Callable[[Expr], Expr]) -> Term:
        return Cell(self.tensor, tuple(map(change, self.index)), self.dtype)

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Elem(Term):
    """The element of a source value at global coordinates, in the instance that `inst` (argument symbol -> expr)
    says."""

    value: str
    coords: tuple[Expr, ...]
    inst: tuple[tuple[str, Expr], ...] = ()

    def map(self, change: Callable[[Expr], Expr]) -> Elem:
        return Elem(self.value, tuple(map(change, self.coords)), tuple((s, change(e)) for s, e in self.inst))

    def __str__(self) -> str:
        at = "".join(f", {s}={e}" for s, e in self.inst)
        return f"{self.value}[{', '.join(map(str, self.coords))}{at}]"


@dataclass(frozen=True)
class Part(Term):
    """An unfinished fold or contraction `value`: the contributions at `?0, ?1, ...` in `over` (existential `!0,
    ...`)."""

    value: str
    coords: tuple[Expr, ...]
    inst: tuple[tuple[str, Expr], ...]
    over: tuple[Constraint, ...]
    exists: tuple[str, ...] = ()

    def map(self, change: Callable[[Expr], Expr]) -> Term:
        return Part(
            self.value,
            tuple(map(change, self.coords)),
            tuple((s, change(e)) for s, e in self.inst),
            tuple(Constraint(change(c.expr), c.equality) for c in self.over),
            self.exists,
        )

    def __str__(self) -> str:
        return f"{self.value}[{', '.join(map(str, self.coords))}] over {{{' and '.join(map(str, self.over))}}}"


@dataclass(frozen=True)
class App(Term):
    """A function of terms, rounded to `dtype`."""

    fn: str
    args: tuple[Term, ...]
    dtype: DType

    def map(self, change: Callable[[Expr], Expr]) -> Term:
        return App(self.fn, tuple(a.map(change) for a in self.args), self.dtype)

    def __str__(self) -> str:
        return f"{self.fn}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Undef(Term):
    """Nothing that may be relied on, and why. `some`: the memory was written, it is only not told with what."""

    why: str
    some: bool = False

    def __str__(self) -> str:
        return f"nothing ({self.why})"


def expressions(term: Term) -> tuple[Expr, ...]:
    """The index expressions of a term itself, those of its arguments not."""
    match term:
        case Idx(expr):
            return (expr,)
        case Cell(_, index, _):
            return index
        case Elem(_, coords, inst) | Part(_, coords, inst, _, _):
            return (*coords, *(e for _, e in inst))
        case _:
            return ()


@dataclass(frozen=True)
class Any(Term):
    """An element that the source leaves undefined (`td.empty`): anything may stand for it."""

    def __str__(self) -> str:
        return "anything"


ANY = Any()
Piece = tuple[tuple[Constraint, ...], Term]
Pieces = tuple[Piece, ...]
"""A decision list; the last piece has no conditions."""


def only(term: Term) -> Pieces:
    """The list that holds `term` everywhere."""
    return (((), term),)


def undefined(why: str) -> Pieces:
    """The list that holds nothing anywhere."""
    return only(Undef(why))


def mapped(pieces: Pieces, change: Callable[[Expr], Expr]) -> Pieces:
    """Every expression of the list changed."""
    return tuple(
        (tuple(Constraint(change(c.expr), c.equality) for c in conds), term.map(change)) for conds, term in pieces
    )


def substituted(pieces: Pieces, env: Mapping[str, ExprLike]) -> Pieces:
    """Symbols replaced in conditions and terms."""
    env = {s: e for s, e in env.items() if e != sym(s)}
    return mapped(pieces, lambda e: e.substitute(env)) if env else pieces


def combined(lists: tuple[Pieces, ...], build: Callable[[tuple[Term, ...]], Term]) -> Pieces:
    """The list of `build` of one term from each list."""
    if not lists:
        return only(build(()))
    if all(tuple(c for c, _ in other) == tuple(c for c, _ in lists[0]) for other in lists[1:]):
        return tuple((row[0][0], build(tuple(t for _, t in row))) for row in zip(*lists))

    def rows(rest: tuple[Pieces, ...]) -> Iterator[tuple[tuple[Constraint, ...], tuple[Term, ...]]]:
        if not rest:
            yield (), ()
            return
        for conds, term in rest[0]:
            for more, terms in rows(rest[1:]):
                yield conds + tuple(c for c in more if c not in conds), (term, *terms)

    return tuple((conds, build(terms)) for conds, terms in rows(lists))


# ---- construction

_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "minimum": minimum,
    "maximum": maximum,
}
EXTREMA: dict[str, Callable[..., Expr]] = {"minimum": minimum, "maximum": maximum}


def app(fn: str, args: tuple[Term, ...], dtype: DType) -> Term:
    """The application, with index arithmetic folded into index expressions.

    *Ensures*: what 64 bits may not hold, for extents below 2^31, stays an application: such arithmetic wraps, which
    index expressions do not.
    """
    if dtype == i64 and all(isinstance(a, Idx | Num) for a in args):
        exprs = [a.expr if isinstance(a, Idx) else _const(a) for a in args]
        made = _ARITHMETIC[fn](exprs[0], exprs[1]) if fn in _ARITHMETIC and len(exprs) == 2 else None
        made = -exprs[0] if fn == "neg" else made
        if made is not None and _held(made):
            return Idx(made)
        if fn in ("floordiv", "mod") and (exprs[1].constant or 0) > 0:
            return Idx(exprs[0] // exprs[1] if fn == "floordiv" else exprs[0] % exprs[1])
    for arg in args:
        if isinstance(arg, Undef):
            return arg
    return App(fn, args, dtype)


@cache
def _held(e: Expr) -> bool:
    """Whether 64 bits hold an index expression, and each sum of its terms on the way, if opaque numbers are any."""
    return reach(e, {}, lambda _: (-LIMIT, LIMIT))[1] <= LIMIT


def _const(term: Term) -> Expr:
    assert isinstance(term, Num)
    return Expr(()) + int(term.value)


def quotient(fn: str, number: float) -> Callable[[Expr], Expr] | None:
    """What a division by a positive number, the low bits of an integer, or a shift to the right make of any integer.

    *Ensures*: the result of the operation in every integer dtype that has both operands; no such operation overflows.
    """
    n = int(number)
    if fn in ("floordiv", "mod") and n > 0:
        return (lambda e: e // n) if fn == "floordiv" else (lambda e: e % n)
    if fn == "and" and n > 0 and not n & (n + 1):
        return lambda e: e % (n + 1)
    if fn == "shr" and 0 <= n < 63:
        return lambda e: e // (1 << n)
    return None


_DIVISIONS = {"floordiv": QUOTIENT, "mod": REMAINDER}


def opaque_index(term: Term) -> Expr:
    """An integer term as an opaque function of the index expressions inside it."""
    if isinstance(term, App) and term.fn in _DIVISIONS and term.dtype == i64:
        a, b = term.args
        if isinstance(a, Idx | Num) and isinstance(b, Idx):
            return of(Fn(_DIVISIONS[term.fn], (a.expr if isinstance(a, Idx) else _const(a), b.expr)))
    leaves: list[Expr] = []

    def skeleton(t: Term) -> str:
        match t:
            case App(fn, args, dtype):
                return f"{fn}.{dtype.name}({','.join(map(skeleton, args))})"
            case Elem(value, coords, inst):
                leaves.extend((*coords, *(e for _, e in inst)))
                return value
            case Cell(tensor, index, _):
                leaves.extend(index)
                return f"{tensor}[]"
            case Part(value, coords, inst, over, exists):
                leaves.extend((*coords, *(e for _, e in inst), *(c.expr for c in over)))
                return f"{value}{''.join('=' if c.equality else '>' for c in over)}{exists}"
            case Idx(expr):
                leaves.append(expr)
                return "i"
            case _:
                return str(t)

    name = skeleton(term)
    return of(Fn(name, tuple(leaves)))


def keeps_values(source: DType, target: DType, saturate: bool = False) -> bool:
    """Whether every value of `source` is one of `target`, and that which its conversion gives (a saturating one makes
    numbers of infinities)."""
    if source == target:
        return True
    if saturate and source.has_inf:
        return False
    if source.is_float and target.is_float:
        return (
            source.mantissa <= target.mantissa
            and source.min_exponent - source.mantissa >= target.min_exponent - target.mantissa
            and source.finite_max <= target.finite_max
            and (target.has_inf or not source.has_inf)
        )
    if source.is_int and target.is_int:
        return source.finite_min >= target.finite_min and source.finite_max <= target.finite_max
    if source.is_int and target.is_float:
        return source.bits <= target.mantissa + 1
    return False


def converted(source: Term, have: DType, want: DType, saturate: bool) -> Term:
    """A conversion: nothing when the dtype is the same already; a number converts at once where it is kept exactly."""
    if have == want:
        return source
    if isinstance(source, Num) and keeps_values(have, want) and kept_exactly(source):
        if saturate and want.is_float and math.isinf(source.value):
            return app("cast.saturate", (source,), want)
        return Num(float(source.value) if want.is_float else source.value, want)
    return app("cast.saturate" if saturate else "cast", (source,), want)


def kept_exactly(number: Num) -> bool:
    """Whether a number as written is one of its dtype: no rounding stands between the text and the value."""
    if not number.dtype.is_float:
        return number.dtype.is_bool or number.dtype.finite_min <= number.value <= number.dtype.finite_max
    value = float(number.value)
    if number.dtype.bits > 32 or math.isnan(value) or math.isinf(value):
        return True
    return float(round_to(np.array([value]), number.dtype)[0]) == value
