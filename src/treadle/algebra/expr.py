"""Integer index expressions: the one language of extents, bounds, subscripts and addresses.

An `Expr` is an integer polynomial in *atoms*, in a canonical sorted form, so that two expressions that are equal as
polynomials are equal as Python objects. Atoms are

- `Sym(name)`: a symbol: an extent (`M`), a block bound (`m.start`), a loop counter, a fragment coordinate (`$0`);
- `Floor(a, b)`: floor division of two expressions, `b > 0` by contract (`a % b` is `a - b * Floor(a, b)`);
- `Min(args)`, `Max(args)`: of two or more expressions;
- `Fn(name, args)`: an opaque integer function: an element of an integer tile or fragment (`ids($0)`), a loaded scalar
  (`n()`). Nothing is known of it but that equal arguments give equal values.

Source: the quasi-affine expressions of Presburger arithmetic, widened by products and opaque terms, which the set room
(`algebra.sets`) replaces by fresh parameters before it asks isl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Union

from treadle.base.errors import UserError

Atom = Union["Sym", "Floor", "Min", "Max", "Fn"]
ExprLike = Union["Expr", int, "Sym"]


class DivisionByZero(UserError, ZeroDivisionError):
    """An extent, a bound or a subscript of a call divides by an extent or scalar that is 0."""

    code = "bounds/division"


@dataclass(frozen=True, slots=True)
class Sym:
    """A named integer symbol."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Floor:
    """`floor(num / den)`, `den > 0`."""

    num: Expr
    den: Expr

    def __str__(self) -> str:
        return f"({self.num}) // ({self.den})"


@dataclass(frozen=True)
class Min:
    """The least of its arguments."""

    args: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"min({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Max:
    """The greatest of its arguments."""

    args: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"max({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Fn:
    """An opaque integer function: an element of an integer tile, or a loaded scalar (no arguments)."""

    name: str
    args: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Expr:
    """A canonical polynomial: `terms` maps monomials (sorted atom tuples) to non-zero coefficients; `()` is 1.

    *Ensures*: equal `Expr`s have equal values under every valuation; `+`, `-`, `*` are those of polynomials.
    """

    terms: tuple[tuple[Monomial, int], ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    # ---- arithmetic

    def __add__(self, other: ExprLike) -> Expr:
        rhs = as_expr(other)
        if not rhs.terms:
            return self
        return _from_terms((*self.terms, *rhs.terms)) if self.terms else rhs

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: ExprLike) -> Expr:
        return self + (-as_expr(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return as_expr(other) - self

    def __mul__(self, other: ExprLike) -> Expr:
        rhs = as_expr(other)
        for one, factor in ((self, rhs.constant), (rhs, self.constant)):
            if factor is not None:  # the order of the terms stays
                return one if factor == 1 else Expr(tuple((m, c * factor) for m, c in one.terms)) if factor else ZERO
        return _from_terms((tuple(sorted(m1 + m2, key=_key)), c1 * c2) for m1, c1 in self.terms for m2, c2 in rhs.terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: ExprLike) -> Expr:
        return floordiv(self, as_expr(other))

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return floordiv(as_expr(other), self)

    def __mod__(self, other: ExprLike) -> Expr:
        rhs = as_expr(other)
        return self - rhs * floordiv(self, rhs)

    def __rmod__(self, other: ExprLike) -> Expr:
        return as_expr(other) % self

    # ---- questions

    @property
    def constant(self) -> int | None:
        """The value when the expression is a number, else `None`."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    @property
    def offset(self) -> int:
        """The constant term."""
        return next((c for m, c in self.terms if m == ()), 0)

    def coefficient(self, atom: Atom) -> int:
        """The coefficient of `atom` alone (0 when absent)."""
        return next((c for m, c in self.terms if m == (atom,)), 0)

    def atoms(self) -> Iterator[Atom]:
        """All atoms, inner ones too, outermost first, repeats included."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield atom
                for inner in _inner(atom):
                    yield from inner.atoms()

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that occur anywhere."""
        atoms = [a for m, _ in self.terms for a in m]
        own = (a.name for a in atoms if isinstance(a, Sym))
        return frozenset(own).union(*(inner.symbols for a in atoms for inner in _inner(a)))

    @cached_property
    def weight(self) -> int:
        """How much text it is: its terms' atoms, inner ones too, repeats included."""
        return sum(1 + sum(inner.weight for inner in _inner(a)) for m, _ in self.terms for a in m) + 1

    @cached_property
    def depth(self) -> int:
        """How deep atoms stand in one another."""
        return 1 + max((inner.depth for m, _ in self.terms for a in m for inner in _inner(a)), default=0)

    @cached_property
    def functions(self) -> frozenset[str]:
        """Names of the opaque functions that occur anywhere."""
        atoms = [a for m, _ in self.terms for a in m]
        own = (a.name for a in atoms if isinstance(a, Fn))
        return frozenset(own).union(*(inner.functions for a in atoms for inner in _inner(a)))

    # ---- change and value

    def substitute(self, env: Mapping[str, ExprLike]) -> Expr:
        """Every symbol that `env` names replaced, inside all atoms."""
        if not self.symbols & env.keys():
            return self
        return self.rewrite(lambda a: as_expr(env[a.name]) if isinstance(a, Sym) and a.name in env else None)

    def rewrite(self, change: Callable[[Atom], Expr | None]) -> Expr:
        """Each atom replaced by `change(atom)` where that is not `None`, else rebuilt from rewritten parts."""
        found: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            product = const(coefficient)
            for atom in monomial:
                product = product * _rewrite_atom(atom, change)
            found += product.terms
        return _from_terms(found)

    def evaluate(self, env: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Any:
        """The value under `env` (integers or NumPy integer arrays, which broadcast).

        *Errors*: `KeyError` for a symbol or function that has no value; `bounds/division`.
        """
        total: Any = 0
        for monomial, coefficient in self.terms:
            product: Any = coefficient
            for atom in monomial:
                product = product * _evaluate_atom(atom, env, functions or {})
            total = total + product
        return total

    def integer(self, env: Mapping[str, int]) -> int:
        """The value under integers. *Ensures*: `e.integer(env) == e.evaluate(env)`. *Errors*: as `evaluate`."""
        plain = self._plain
        if plain is None:
            return int(self.evaluate(env))
        total = 0
        for coefficient, names in plain:
            for name in names:
                coefficient *= env[name]
            total += coefficient
        return total

    @cached_property
    def _plain(self) -> tuple[tuple[int, tuple[str, ...]], ...] | None:
        """Coefficients with the symbols that they multiply; None where there is another atom."""
        found: list[tuple[int, tuple[str, ...]]] = []
        for monomial, coefficient in self.terms:
            names = tuple(a.name for a in monomial if isinstance(a, Sym))
            if len(names) < len(monomial):
                return None
            found.append((coefficient, names))
        return tuple(found)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if not self.terms:
            return "0"
        out = ""
        for monomial, c in sorted(self.terms, key=lambda t: (t[0] == (), [_key(a) for a in t[0]])):
            body = "*".join(_atom_text(a) for a in monomial)
            text = str(abs(c)) if not body else body if abs(c) == 1 else f"{abs(c)}*{body}"
            sign = "-" if c < 0 else "+"
            out = (f"-{text}" if c < 0 else text) if not out else f"{out} {sign} {text}"
        return out

    __repr__ = __str__


def _atom_text(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, Floor) else str(atom)


def _inner(atom: Atom) -> tuple[Expr, ...]:
    match atom:
        case Floor(num, den):
            return (num, den)
        case Min(args) | Max(args) | Fn(_, args):
            return args
        case _:
            return ()


def _key(atom: Atom) -> tuple[int, str]:
    rank = (Sym, Fn, Floor, Min, Max).index(type(atom))
    return rank, str(atom)


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Expr:
    total: dict[Monomial, int] = {}
    for monomial, c in terms:
        total[monomial] = total.get(monomial, 0) + c
    kept = [(m, c) for m, c in total.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda t: [_key(a) for a in t[0]])
    return Expr(tuple(kept))


def _rewrite_atom(atom: Atom, change: Callable[[Atom], Expr | None]) -> Expr:
    new = change(atom)
    if new is not None:
        return new
    match atom:
        case Floor(num, den):
            return floordiv(num.rewrite(change), den.rewrite(change))
        case Min(args):
            return minimum(*(a.rewrite(change) for a in args))
        case Max(args):
            return maximum(*(a.rewrite(change) for a in args))
        case Fn(name, args):
            return of(Fn(name, tuple(a.rewrite(change) for a in args)))
        case _:
            return of(atom)


def _evaluate_atom(atom: Atom, env: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    match atom:
        case Sym(name):
            return env[name]
        case Floor(num, den):
            by = den.evaluate(env, functions)
            if isinstance(by, int) and by == 0:
                raise DivisionByZero(
                    doing="computing an extent, a bound or a subscript",
                    found=f"a division by {den}, which is 0 in this call",
                    expected="a divisor that is not 0",
                    hint=f"say what the kernel needs, td.require({den} >= 1), or divide by td.maximum({den}, 1)",
                )
            return num.evaluate(env, functions) // by
        case Min(args) | Max(args):
            values = [a.evaluate(env, functions) for a in args]
            result = values[0]
            for value in values[1:]:
                if isinstance(result, int) and isinstance(value, int):
                    result = min(result, value) if isinstance(atom, Min) else max(result, value)
                else:
                    smaller = result < value
                    keep = smaller if isinstance(atom, Min) else ~smaller
                    result = keep * result + ~keep * value
            return result
        case Fn(name, args):
            return functions[name](*(a.evaluate(env, functions) for a in args))
        case _:
            raise AssertionError(atom)


# ---- construction

QUOTIENT, REMAINDER = "div", "mod"
"""Functions of two arguments whose values are `a // b` and `a % b` for `b > 0`, and unknown otherwise: division by what
may be zero is no index arithmetic, only opaque."""
ZERO = Expr(())


def const(value: int) -> Expr:
    """The number as an expression."""
    return Expr((((), int(value)),)) if value else ZERO


ONE = const(1)


def of(atom: Atom) -> Expr:
    """The atom as an expression."""
    return Expr((((atom,), 1),))


def sym(name: str) -> Expr:
    """The symbol of that name as an expression."""
    return of(Sym(name))


def as_expr(value: ExprLike) -> Expr:
    """Numbers and symbols lifted; expressions as they are."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Sym):
        return of(value)
    return const(int(value))


def floordiv(num: ExprLike, den: ExprLike) -> Expr:
    """`floor(num / den)` for `den > 0`, simplified.

    *Ensures*: for all valuations with `den > 0`: `floordiv(a, b) == a // b`; exact multiples of a constant `den` leave
    the floor: `(4*x + y) // 4 == x + y // 4`.
    """
    a, b = as_expr(num), as_expr(den)
    d = b.constant
    if d == 1:
        return a
    if d is not None:
        if d <= 0:
            raise ZeroDivisionError("floor division of an index expression by a number that is not positive")
        whole = Expr(tuple((m, c // d) for m, c in a.terms if c % d == 0 or m == ()))
        whole = Expr(tuple((m, c) for m, c in whole.terms if c))
        rest = a - whole * d
        n = rest.constant
        if n is not None:
            return whole + n // d
        return whole + of(Floor(rest, b))
    if a == b:
        return ONE
    if a == ZERO:
        return ZERO
    return of(Floor(a, b))


def ceildiv(num: ExprLike, den: ExprLike) -> Expr:
    """`ceil(num / den)` for `den > 0`."""
    a, b = as_expr(num), as_expr(den)
    return floordiv(a + b - 1, b)


def minimum(*args: ExprLike) -> Expr:
    """The least argument, nested minima flattened, constants and constant differences folded."""
    return _extremum(Min, args)


def maximum(*args: ExprLike) -> Expr:
    """The greatest argument, nested maxima flattened, constants and constant differences folded."""
    return _extremum(Max, args)


def _extremum(kind: type[Min] | type[Max], args: tuple[ExprLike, ...]) -> Expr:
    flat: list[Expr] = []
    for arg in map(as_expr, args):
        only = arg.terms[0] if len(arg.terms) == 1 else None
        if only is not None and only[1] == 1 and len(only[0]) == 1 and isinstance(only[0][0], kind):
            flat.extend(only[0][0].args)
        else:
            flat.append(arg)
    kept: list[Expr] = []
    for e in flat:
        for i, other in enumerate(kept):
            gap = (e - other).constant
            if gap is not None:
                if (gap < 0) == (kind is Min):
                    kept[i] = e
                break
        else:
            kept.append(e)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=str)
    return of(kind(tuple(kept)))


# ---- constraints


@dataclass(frozen=True)
class Constraint:
    """`expr >= 0` or `expr == 0`."""

    expr: Expr
    equality: bool = False

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that occur."""
        return self.expr.symbols

    def substitute(self, env: Mapping[str, ExprLike]) -> Constraint:
        """The constraint with symbols replaced."""
        return Constraint(self.expr.substitute(env), self.equality)

    def holds(self, env: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Any:
        """Whether it holds under `env`; an array of truth values where `env` has arrays."""
        value = self.expr.evaluate(env, functions)
        return value == 0 if self.equality else value >= 0

    def __str__(self) -> str:
        return f"{self.expr} {'==' if self.equality else '>='} 0"


def compared(c: Constraint) -> tuple[Fn, str, Fn] | None:
    """The comparison (`>=`, `>` or `==`) of two opaque numbers that a constraint is; None where it is another one.

    *Ensures*: the comparison holds where the constraint does; of any two words it is decided without arithmetic.
    """
    sides = {k: m[0] for m, k in c.expr.terms if len(m) == 1 and isinstance(m[0], Fn) and k in (1, -1)}
    rest = c.expr.offset
    first, second = sides.get(1), sides.get(-1)
    if not isinstance(first, Fn) or not isinstance(second, Fn) or len(c.expr.terms) != 2 + (rest != 0):
        return None
    how = {(0, True): "==", (0, False): ">=", (-1, False): ">"}.get((rest, c.equality))
    return None if how is None else (first, how, second)


def ge(a: ExprLike, b: ExprLike) -> Constraint:
    """`a >= b`."""
    return Constraint(as_expr(a) - b)


def le(a: ExprLike, b: ExprLike) -> Constraint:
    """`a <= b`."""
    return Constraint(as_expr(b) - a)


def lt(a: ExprLike, b: ExprLike) -> Constraint:
    """`a < b`."""
    return Constraint(as_expr(b) - a - 1)


def gt(a: ExprLike, b: ExprLike) -> Constraint:
    """`a > b`."""
    return Constraint(as_expr(a) - b - 1)


def eq(a: ExprLike, b: ExprLike) -> Constraint:
    """`a == b`."""
    return Constraint(as_expr(a) - b, equality=True)
