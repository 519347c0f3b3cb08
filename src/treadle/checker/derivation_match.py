"""Whether one program is another one but for a known change: operations paired as a step claims, and compared.

The claims of a step say which operation became which; they are evidence. A pair must agree in everything that it says,
under the bindings of values and arguments made so far; what is claimed to be gone must have had no effect; what is new
must be allowed by the rule of the step. So whatever the rule does not speak of is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Atom, Constraint, Expr, Fn, Sym, eq, ge, of, sym
from treadle.algebra.sets import Facts
from treadle.checker.verdict import Refused
from treadle.ir.core import Block, If, Merge, Op, Program, Region, RegionArg, Sub, Tensor, TileType, Value
from treadle.ir.ops.access import Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Elementwise
from treadle.ir.ops.intrinsic import Meaning
from treadle.ir.paths import op_at, paths
from treadle.ir.printer import dim_text
from treadle.plan.steps import Step

NESTED = ("results", "span", "then", "orelse", "merge")
OF_REGIONS = ("args", "inits", "carried", "body", "name", "stages", "merges")
"""Fields that hold results and blocks, or that `Match.region` compares; names and stages mean nothing."""
Handler = Callable[["Match", Sequence[Op], int, Sequence[Op], int], "tuple[int, int]"]


def wrong(reason: str, case: Mapping[str, int] | None = None) -> NoReturn:
    """The step is refused."""
    raise Refused("step", reason, case)


def effects(op: Op) -> bool:
    """Whether an operation stores, prints or checks, itself or inside."""
    return isinstance(op, Store | Print | Check) or any(effects(o) for b in op.blocks for o in b.ops)


def around(program: Program, block: Block) -> list[RegionArg]:
    """The arguments of the regions around a block, outermost first."""

    def path(at: Block) -> list[RegionArg] | None:
        if at is block:
            return []
        for op in at.ops:
            for inner in op.blocks:
                found = path(inner)
                if found is not None:
                    return [*(op.args if isinstance(op, Region) else ()), *found]
        return None

    return path(program.body) or []


def extent_facts(program: Program) -> Facts:
    """What is known of the extents of every call."""
    symbols = sorted({s for d in program.dims for s in d.extent.symbols})
    lets = [eq(sym(name), e) for name, e in program.lets.items()]
    return Facts([*(ge(sym(s), 0) for s in symbols), *lets, *program.requires])


class Match:
    """One comparison. `handlers`: what to do at an operation that the step changes, by its identity."""

    def __init__(self, before: Program, after: Program, step: Step) -> None:
        self.before, self.after, self.step = before, after, step
        self.facts = extent_facts(before)
        self.values: dict[str, str] = {}
        self.twins: dict[str, str] = {}
        """Values of the program after that an operation before them has made already, under the name of that."""
        self.symbols: dict[str, Expr] = {}
        self.handlers: dict[int, Handler] = {}
        self.body_starts: dict[int, Callable[[Match, Sequence[Op]], int]] = {}
        self.after_region: dict[int, tuple[str, str | None]] = {}
        self.drops = False
        self.loose = False
        self.backwards = False  # the program after is the one that was given
        self.floating: list[Op] | None = None
        """New operations without effect of this block that wait for an operation whose place they take; None where the
        step may not have such."""
        self.moved: Callable[[Match, Sequence[Op], Sequence[Op]], Sequence[Op]] | None = None
        self.claims: dict[int, Op | None] = {}
        self.claimed: set[int] = set()
        for path, op in paths(before):
            now = step.moved(path)
            found = None if now is None else op_at(after, now)
            if now is not None and found is None:
                wrong(f"{op.keyword} at {path} is claimed to be at {now}, where nothing is")
            if found is not None and id(found) in self.claimed:
                wrong(f"two operations are claimed to be at {now}")
            self.claims[id(op)] = found
            self.claimed |= set() if found is None else {id(found)}

    # ---- the whole

    def run(self) -> None:
        """Heads, then bodies. *Errors*: `Refused`, `Unsure`."""
        self.heads()
        for x, y in zip(self.before.scalars, self.after.scalars, strict=True):
            self.values[x.value.name] = y.value.name
        self.block(self.before.body, self.after.body)

    def heads(self) -> None:
        """Parameters and settings are the same; dimensions may be added, for no parameter."""
        a, b = self.before, self.after

        def head(p: Program) -> object:
            tensors = [
                (t.name, str(t.dtype), [d.name for d in t.dims], t.out, t.optional, t.hidden, t.devices, t.part)
                for t in p.tensors
            ]
            scalars = [(s.name, str(s.value.type.dtype)) for s in p.scalars]
            return (p.name, tensors, scalars, p.lets, p.requires, p.staged, p.numerics)

        if head(a) != head(b):
            wrong("the parameters, settings or required facts are not those of the program before")
        first, second = (b, a) if self.backwards else (a, b)
        have = {d.name: dim_text(d) for d in second.dims}
        gone = next((d.name for d in first.dims if have.get(d.name) != dim_text(d)), None)
        if gone is not None:
            wrong(f"the dimension {gone} is another one")

    def block(self, x: Block, y: Block) -> None:
        """All operations of a block, and what it yields."""
        self.ops(x.ops, y.ops)
        self.same_values(x.yields, y.yields, "what a block yields")

    def ops(self, xs: Sequence[Op], ys: Sequence[Op]) -> None:
        """The operations of two blocks, pairs in order."""
        if self.moved is not None:
            xs = self.moved(self, xs, ys)
        around, self.floating = self.floating, None if self.floating is None else []
        i = j = 0
        while i < len(xs) or j < len(ys):
            handler = self.handlers.get(id(xs[i])) if i < len(xs) else None
            if handler is not None:
                i, j = handler(self, xs, i, ys, j)
                continue
            claim = ys[j] if self.loose and j < len(ys) else self.claims.get(id(xs[i])) if i < len(xs) else None
            if i < len(xs) and claim is None:
                self.gone(xs[i])
                i += 1
            elif i < len(xs) and j < len(ys) and claim is ys[j]:
                self.op(xs[i], ys[j])
                i, j = i + 1, j + 1
            elif i < len(xs) and j < len(ys) and self.floats(ys[j]):
                j += 1
            elif i < len(xs):
                wrong(f"{self.said(xs[i])} does not stand where the order of the statements puts it")
            else:
                wrong(f"{self.said(ys[j])} is new, and nothing says why")
        for op in () if self.backwards else self.floating or ():
            wrong(f"{self.said(op)} is new, and nothing says why")
        self.floating = around

    def floats(self, y: Op) -> bool:
        """Whether a new operation may wait for the one that it stands for: noted then. Of a step back, it is one that
        the step left out."""
        if self.floating is None or id(y) in self.claimed or (y.blocks and not self.backwards) or effects(y):
            return False
        self.floating.append(y)
        return True

    def agrees(self, x: Op, y: Op) -> bool:
        """Whether two operations do the same, as far as values are bound; their results are one then."""
        return not self.differs(x, y)

    def differs(self, x: Op, y: Op) -> str:
        """How two operations differ. Where they do not, their results are bound; else nothing is."""
        if type(x) is not type(y):
            return f"{self.said(x)} became {self.said(y)}"
        known = (dict(self.values), dict(self.symbols)) if x.blocks else None
        try:
            self.op(x, y)
        except Refused as no:
            if known is not None:
                self.values, self.symbols = known
            else:
                for v in x.results:
                    self.values.pop(v.name, None)
            return no.reason
        return ""

    def again(self, x: Op, y: Op) -> bool:
        """Whether an operation does what one that is bound already does: its results are twins then."""
        bound = [self.value(v) for v in x.results]
        same = self.agrees(x, y)
        self.values |= {v.name: name for v, name in zip(x.results, bound)}
        if same:
            self.twins |= {w.name: name for w, name in zip(y.results, bound)}
        return same

    def gone(self, op: Op) -> None:
        """An operation that is no longer there had no effect; its values are unbound, so that nothing can use them."""
        if effects(op):
            wrong(f"{self.said(op)} is gone, and it had an effect")

    def said(self, op: Op) -> str:
        """An operation, for messages."""
        name = op.name if isinstance(op, Region) else ", ".join(v.name for v in op.results)
        name = name or (op.tensor.name if isinstance(op, Store) else "")
        kind = op.fn if isinstance(op, Elementwise) else "region" if isinstance(op, Region) else op.keyword
        return f"{kind} {name}".rstrip()

    # ---- operations

    def op(self, x: Op, y: Op) -> None:
        """Two operations that are one."""
        if type(x) is not type(y):
            wrong(f"{self.said(x)} became {self.said(y)}")
        if isinstance(x, Region) and isinstance(y, Region):
            self.region(x, y)
            return
        self.fields(x, y)
        if isinstance(x, If) and isinstance(y, If):
            self.block(x.then, y.then)
            self.block(x.orelse, y.orelse)
        mine, theirs = getattr(x, "merge", None), getattr(y, "merge", None)
        if isinstance(mine, Merge) and isinstance(theirs, Merge):
            self.merge(mine, theirs)
        elif mine != theirs:
            wrong(f"{self.said(x)} merges otherwise")
        self.bind(x.results, y.results)

    def fields(self, x: Op, y: Op, besides: Sequence[str] = ()) -> None:
        """All fields of two operations but those that hold blocks and results, and those in `besides`."""
        apart = (*NESTED, *besides, *(OF_REGIONS if isinstance(x, Region) else ()))
        for field in dataclasses.fields(x):
            if field.name not in apart:
                if not self.same(getattr(x, field.name), getattr(y, field.name)):
                    wrong(f"{self.said(x)} has another {field.name}: {getattr(y, field.name)}")
        if isinstance(x, Region) and isinstance(y, Region):
            self.merges(x, y)

    def region(self, x: Region, y: Region) -> None:
        """Two regions that are one: arguments pairwise, then bodies."""
        self.fields(x, y)
        if len(x.args) != len(y.args):
            wrong(f"{x.name} has {len(y.args)} arguments instead of {len(x.args)}")
        for mine, theirs in zip(x.args, y.args, strict=True):
            self.argument(mine, theirs)
        self.inside(x, y, y)
        self.bind_results(x, y)

    def inside(self, x: Region, outer: Region, inner: Region, before: int = 0) -> None:
        """Carried values, monoids and body of a region; `outer` takes the initial values, `inner` has the body."""
        slots = self.slots(x, outer)
        self.same_values([x.inits[i] for i in slots], outer.inits, f"the initial values of {x.name}")
        self.merges(x, inner)
        self.bind([x.carried[i] for i in slots], inner.carried)
        start = self.body_starts.get(id(x))
        self.ops(x.body.ops, inner.body.ops[start(self, inner.body.ops) if start is not None else before :])
        self.same_values([x.body.yields[i] for i in slots], inner.body.yields, f"what {x.name} yields")
        if id(x) in self.after_region:
            name, outside = self.after_region[id(x)]
            self.values.pop(name)
            self.values |= {} if outside is None else {name: outside}

    def merges(self, x: Region, y: Region) -> None:
        """The monoids of two regions, which say how parts of their states may be merged."""
        if len(x.merges) != len(y.merges):
            wrong(f"{x.name} has other monoids")
        for mine, theirs in zip(x.merges, y.merges, strict=True):
            if mine.states != theirs.states:
                wrong(f"a monoid of {x.name} is for other states")
            self.merge(mine, theirs)

    def bind_results(self, x: Region, y: Region) -> None:
        """The results of two regions that are one."""
        self.bind([x.results[i] for i in self.slots(x, y)], y.results)

    def slots(self, x: Region, y: Region) -> list[int]:
        """Which carried values are left: all, or, where the step drops tiles, those whose names are there."""
        if len(x.carried) == len(y.carried):
            return list(range(len(x.carried)))
        kept = [i for i, v in enumerate(x.carried) if v.name in {w.name for w in y.carried}]
        if not self.drops or x.merges or len(kept) != len(y.carried):
            wrong(f"{x.name} carries {len(y.carried)} values instead of {len(x.carried)}")
        return kept

    def argument(self, x: RegionArg, y: RegionArg) -> None:
        """Two arguments that are one; the symbols are bound."""
        size = (x.size is None) == (y.size is None) and (x.size is None or self.same(x.size, y.size))
        if not (self.same(x.domain, y.domain) and size and (x.kind, x.reversed) == (y.kind, y.reversed)):
            wrong(f"{x.name} ranges over {x.domain}, {y.name} over {y.domain}, or in other blocks")
        self.bind_argument(x, y)

    def bind_argument(self, x: RegionArg, y: RegionArg) -> None:
        """The symbols of an argument are those of another."""
        self.symbols |= {x.name: y.index, f"{x.name}.start": y.part.lo, f"{x.name}.stop": y.part.hi}

    def merge(self, x: Merge, y: Merge) -> None:
        """Two monoids of a user that are one."""
        if (x.name, x.commutative, x.laws) != (y.name, y.commutative, y.laws):
            wrong(f"the monoid {x.name} is another one")
        self.bind(x.left, y.left)
        self.bind(x.right, y.right)
        self.block(x.identity, y.identity)
        self.block(x.body, y.body)

    def meaning(self, x: Meaning, y: Meaning) -> bool:
        """Whether two operations of the user's own are one: of one name and meaning, emitted by the same texts."""
        if x is y:
            return True
        first, second = ((m.name, m.symbol, m.numerics, m.emit) for m in (x, y))
        values, loose, self.loose = dict(self.values), self.loose, True
        try:
            self.bind(x.params, y.params)
            self.block(x.body, y.body)
        except Refused:
            return False
        finally:
            self.values, self.loose = values, loose
        return first == second

    # ---- values and expressions

    def bind(self, xs: Sequence[Value], ys: Sequence[Value]) -> None:
        """Values that are one from now on, of one type."""
        if len(xs) != len(ys):
            wrong(f"{len(ys)} values instead of {len(xs)}")
        for x, y in zip(xs, ys, strict=True):
            if not self.same(x.type, y.type):
                wrong(f"{x.name} is a {x.type}, {y.name} a {y.type}")
            self.values[x.name] = y.name

    def value(self, x: Value) -> str:
        """The name now. *Errors*: refused for a value that is gone."""
        found = self.values.get(x.name)
        if found is None:
            wrong(f"{x.name} is used, and it is gone")
        return found

    def _one(self, name: str) -> str:
        """The name of the first of twins."""
        return self.twins.get(name, name)

    def _firsts(self, e: Expr) -> Expr:
        """An expression of the program after with the first of twins for each of its values."""

        def change(atom: Atom) -> Expr | None:
            if isinstance(atom, Fn) and atom.name in self.twins:
                return of(Fn(self.twins[atom.name], tuple(a.rewrite(change) for a in atom.args)))
            return None

        return e.rewrite(change) if self.twins and e.functions else e

    def same_values(self, xs: Sequence[Value], ys: Sequence[Value], what: str) -> None:
        """Values pairwise."""
        if len(xs) != len(ys) or not all(map(self.same, xs, ys)):
            wrong(f"{what} is {', '.join(y.name for y in ys)} instead of {', '.join(self.value(x) for x in xs)}")

    def expr(self, e: Expr) -> Expr:
        """An expression of the program before in terms of the program after."""

        def change(atom: Atom) -> Expr | None:
            if isinstance(atom, Sym):
                return self.symbols.get(atom.name)
            if isinstance(atom, Fn) and atom.name.startswith("%"):
                name = self.values.get(atom.name)
                if name is None:
                    wrong(f"{atom.name} is used, and it is gone")
                return of(Fn(name, tuple(a.rewrite(change) for a in atom.args)))
            return None

        return e.rewrite(change) if e.symbols or e.functions else e

    def _each(self, xs: Any, ys: Any) -> bool:
        return type(xs) is type(ys) and len(xs) == len(ys) and all(map(self.same, xs, ys))

    def same(self, x: Any, y: Any) -> bool:
        """What a field holds."""
        match x:
            case Value():
                return isinstance(y, Value) and self._one(self.value(x)) == self._one(y.name)
            case Expr():
                return isinstance(y, Expr) and self.facts.equal(self._firsts(self.expr(x)), self._firsts(y))
            case Part():
                return (
                    isinstance(y, Part) and x.dim.name == y.dim.name and self.same(x.lo, y.lo) and self.same(x.hi, y.hi)
                )
            case Constraint():
                return isinstance(y, Constraint) and x.equality == y.equality and self.same(x.expr, y.expr)
            case Sub():
                return isinstance(y, Sub) and all(
                    self.same(getattr(x, f.name), getattr(y, f.name)) for f in dataclasses.fields(x)
                )
            case TileType():
                return isinstance(y, TileType) and x.dtype == y.dtype and self.same(x.axes, y.axes)
            case Meaning():
                return isinstance(y, Meaning) and self.meaning(x, y)
            case Dim() | Tensor():
                return type(x) is type(y) and x.name == y.name
            case tuple() | list():
                return self._each(x, y)
            case float():
                return isinstance(y, float) and repr(x) == repr(y)
            case _:
                return type(x) is type(y) and x == y
