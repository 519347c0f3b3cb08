"""J3 and J5 of roles that go through the same: controls, conditions and steps of rings, in one order.

The n-th step of a ring is the same one in two roles if both go through equal controls around equal steps. A step may
stand under a condition that is the same for all their threads, and a ring have several steps in different places: then
both roles have them in the same places.

One role may be a step ahead of the loop in which the other one has that step, for this is one order of steps:

    loop v = lo .. hi step s { A(v), R(v) }

    if lo < hi { A(lo) }
    loop v = lo .. hi step s { R(v), if v + s < hi { A(v + s) } }

`straight` writes the second as the first, remembering of each step of A for which `v` it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from treadle.algebra.expr import Atom, Constraint, Expr, Fn, lt, sym
from treadle.algebra.sets import Facts
from treadle.checker.gpu import BY_WORKGROUPS
from treadle.checker.steps import kind, lets_of, ranged
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import Body, Claim, Compute, Control, If, Load, Loop, Role, Stmt, Sync, Tasks, walk
from treadle.machine.vocabulary import RANK

CLUSTER = "the cluster"
Use = tuple[Sync | None, Mapping[str, Expr]]
"""The statement of a step, and for which value of loop variables of its role it is, where not for the present one."""


@dataclass(frozen=True)
class Node:
    """A step (its ring, the statements in which it is used), a loop or nest of tasks, or a condition."""

    name: str = ""
    uses: tuple[Use, ...] = ()
    control: Control | None = None
    inner: tuple[Node, ...] = ()
    orelse: tuple[Node, ...] = ()


Tree = tuple[Node, ...]


def tree(body: Body, words: Sequence[str], only: set[str], step: Body | None = None) -> Tree:
    """The controls of a body around what `words` say of barriers of `only`, and around meetings of the cluster; `step`
    is one step, whatever is in it."""
    if body is step:
        return (Node("step", ((None, {}),)),)
    found: list[Node] = []
    for s in body:
        if kind(s) in words and isinstance(s, Sync) and s.object is not None and s.object.name in only:
            found.append(Node(s.object.name, ((s, {}),)))
        elif isinstance(s, Sync) and s.kind == "cluster.wait":
            found.append(Node(CLUSTER, ((s, {}),)))
        elif isinstance(s, Loop | Tasks):
            inner = tree(s.body, words, only, step)
            if inner:
                found.append(Node(control=s, inner=inner))
        elif isinstance(s, If):
            then, orelse = (tree(way, words, only, step) for way in (s.then, s.orelse))
            if then or orelse:
                found.append(Node(control=s, inner=then, orelse=orelse))
    return tuple(found)


@dataclass
class Alike:
    """Two roles compared, the one that fills and the one that takes. `at`: the statement in question; `matched`: by the
    statement of a step of the second, the one of the first, and what variables of the first are there."""

    first: Role
    second: Role
    facts: Facts
    at: Stmt | Control | None = None
    matched: dict[int, tuple[Sync, dict[str, Expr]]] = field(default_factory=dict[int, "tuple[Sync, dict[str, Expr]]"])

    def __post_init__(self) -> None:
        self.lets = lets_of(self.first), lets_of(self.second)
        self.told = values_at(self.first) | values_at(self.second)

    def check(self, fills: Tree, takes: Tree) -> None:
        """Both roles go through the same controls and steps, in the same order. *Errors*: findings of J3 and J5."""
        fills = self.straight(fills, self.facts, 0)
        self._same(fills, self.straight(takes, self.facts, 1), {}, self.facts)

    # ---- a step ahead

    def straight(self, nodes: Tree, known: Facts, side: int) -> Tree:
        """The same order of steps, each in the loop for whose iterations it is."""
        found: list[Node] = []
        for node in nodes:
            control = node.control
            if isinstance(control, If):
                told = (c.substitute(self.lets[side]) for c in control.conds)
                inside = known.also(*(c for c in told if not c.expr.functions))
                ways = self.straight(node.inner, inside, side), self.straight(node.orelse, known, side)
                found.append(replace(node, inner=ways[0], orelse=ways[1]))
                continue
            if control is None:
                found.append(node)
                continue
            inside = known.also(*(c for c in ranged(control, self.lets[side]) if not c.expr.functions))
            node = replace(node, inner=self.straight(node.inner, inside, side))
            self._turned(found, node, known, side)
        return tuple(found)

    def _turned(self, found: list[Node], node: Node, known: Facts, side: int) -> None:
        """Appends a loop; with the steps that stand in front of it for its first iteration, if all are ahead of it."""
        loop, last = node.control, node.inner[-1] if node.inner else None
        guard = None if last is None else _plain(last)
        if not isinstance(loop, Loop) or last is None or guard is None:
            found.append(node)
            return
        lo, hi, step = (e.substitute(self.lets[side]) for e in (loop.lo, loop.hi, loop.step))
        ahead = last.inner
        begin = _plain(found[-1]) if found else None
        count = len(ahead) if begin is None else 1
        first: Sequence[Node] = found[-count:] if begin is None else found[-1].inner
        if not _steps(first, ahead) or any(e.functions for e in (lo, hi, step)) or not step.constant:
            found.append(node)
            return
        v = sym(loop.var)
        inside = known.also(*ranged(loop, self.lets[side]))
        some = self._says(known, () if begin is None else begin.conds, lt(lo, hi), side)
        if not some or not self._says(inside, guard.conds, lt(v + step, hi), side):
            found.append(node)
            return
        del found[-count:]
        both = (
            Node(a.name, ((a.uses[0][0], {loop.var: lo}), (b.uses[0][0], {loop.var: v + step})))
            for a, b in zip(first, ahead, strict=True)
        )
        found.append(replace(node, inner=(*both, *node.inner[:-1])))

    def _says(self, known: Facts, conds: Sequence[Constraint], one: Constraint, side: int) -> bool:
        """Whether conditions hold exactly where one constraint does."""
        told = [c.substitute(self.lets[side]) for c in conds]
        if any(c.expr.functions for c in told):
            return False
        return known.also(*told).implies(one) and all(known.also(one).implies(c) for c in told)

    # ---- one order

    def _same(self, fills: Tree, takes: Tree, names: dict[str, Expr], known: Facts) -> None:
        if len(fills) != len(takes):
            raise Refused("J5", "producer and consumer do not go through the same rings in the same order", {})
        for a, b in zip(fills, takes, strict=True):
            self.at = b.control or self.at
            if a.name != b.name or (a.control is None) != (b.control is None):
                what = a.name or "a loop"
                raise Refused("J5", f"the producer fills {what} where the consumer waits for {b.name or 'a loop'}", {})
            if a.control is None or b.control is None:
                self._step(a, b, names)
            elif isinstance(a.control, If) or isinstance(b.control, If):
                self._same(a.inner, b.inner, names, self._conditions(a.control, b.control, names, known))
                self._same(a.orelse, b.orelse, names, known)
            else:
                env = self._controls(a.control, b.control, names)
                inside = known.also(*(c for c in ranged(b.control, self.lets[1]) if not c.expr.functions))
                self._same(a.inner, b.inner, env, inside)

    def _step(self, a: Node, b: Node, names: dict[str, Expr]) -> None:
        """Of one step the statements of both roles belong together."""
        if len(a.uses) not in (1, len(b.uses)):
            raise Unsure("J3", f"the producer is ahead in {a.name}, its consumer is not", missing="one of both ways")
        for i, (taking, shift) in enumerate(b.uses):
            filling, _ = a.uses[i if len(a.uses) > 1 else 0]
            env = names if len(a.uses) > 1 else {n: e.substitute(shift) for n, e in names.items()}
            if taking is not None and filling is not None:
                self.matched[id(taking)] = filling, env

    def _controls(self, a: Control, b: Control, names: dict[str, Expr]) -> dict[str, Expr]:
        """What variables of the first role are in the second, inside equal loops or tasks."""
        env = dict(names)
        if isinstance(a, Loop) and isinstance(b, Loop):
            env[a.var] = sym(b.var)
            pairs = [(a.lo, b.lo), (a.hi, b.hi), (a.step, b.step)]
        elif isinstance(a, Tasks) and isinstance(b, Tasks):
            if (a.over, a.raster, len(a.vars)) != (b.over, b.raster, len(b.vars)) or a.over not in BY_WORKGROUPS:
                raise Refused("J3", "producer and consumer are dealt different tasks", {}, partner=a)
            env |= {x: sym(y) for x, y in zip(a.vars, b.vars, strict=True)}
            pairs = list(zip(a.counts, b.counts, strict=True))
        else:
            raise Refused("J3", "producer and consumer go through different controls", {}, partner=a)
        pairs += [
            (x, y)
            for e, g in zip(a.enters, b.enters, strict=False)
            for (_, p), (_, q) in zip(e.binds, g.binds, strict=False)
            for x, y in zip(p, q, strict=False)
        ]
        if len(a.enters) != len(b.enters) or [e.region for e in a.enters] != [e.region for e in b.enters]:
            raise Refused("J3", "producer and consumer enter different regions", {}, partner=a)
        for x, y in pairs:
            x, y = self._value(x, a, 0, env), self._value(y, b, 1, {})
            if x.functions or y.functions:
                raise Unsure("J3", f"the controls of two roles hang on {x}", missing="the same value in both")
            self._for_all(0, x)
            self._for_all(1, y)
            if not self.facts.equal(x.substitute(env), y):
                raise Refused("J3", f"producer and consumer differ: {x} against {y}", {}, partner=a)
        return env

    def _conditions(self, a: Control, b: Control, names: dict[str, Expr], known: Facts) -> Facts:
        """Both go the same way; what is known where the conditions hold."""
        if not isinstance(a, If) or not isinstance(b, If):
            raise Refused("J3", "producer and consumer go through different controls", {}, partner=a)
        if any(s.cond is not None or s.last is not None or s.enters for s in (a, b)):
            raise Unsure("J3", "a ring is used under a condition on a fragment", missing="a condition on sizes")
        mine, theirs = ([c.substitute(self.lets[side]) for c in s.conds] for side, s in enumerate((a, b)))
        for side, c in ((side, c) for side, conds in enumerate((mine, theirs)) for c in conds):
            if c.expr.functions:
                raise Unsure("J3", f"a ring is used where {c}", missing="a condition on sizes")
            self._for_all(side, c.expr)
        mine = [c.substitute(names) for c in mine]
        for have, want in ((mine, theirs), (theirs, mine)):
            here = known.also(*have)
            wrong = next((c for c in want if not here.implies(c)), None)
            if wrong is not None:
                reason = f"only one of producer and consumer asks for {wrong}"
                raise Refused("J3", reason, here.against(wrong) or {}, partner=a)
        return known.also(*theirs)

    def _for_all(self, side: int, *told: Expr) -> None:
        """*Errors*: unsure, J5, if an expression of a role hangs on the number of its agent or workgroup."""
        names = {(self.first, self.second)[side].index, RANK} - {None}
        for e in told:
            if e.symbols & names:
                raise Unsure("J5", f"the steps of a ring hang on {e}", missing="the same controls in all agents")

    def _value(self, e: Expr, control: object, side: int, env: dict[str, Expr]) -> Expr:
        """An expression of a role's control, each fragment in it by the value of the program that it holds there: of
        one instance, the one in which both roles are, there is one such value."""
        known = self.told.get(id(control), {})

        def change(atom: Atom) -> Expr | None:
            claim = known.get(atom.name) if isinstance(atom, Fn) and not atom.args else None
            if claim is None:
                return None
            self._for_all(side, *claim.coords)  # of what tells the agents apart each has another element
            return sym(f"{claim.value}{[str(c.substitute(env)) for c in claim.coords]}")

        e = e.substitute(self.lets[side])
        return e.rewrite(change) if e.functions else e


def _plain(node: Node) -> If | None:
    """The condition of a node on sizes alone, with nothing where it does not hold."""
    s = node.control
    plain = isinstance(s, If) and s.cond is None and s.last is None and not s.enters and not node.orelse
    return s if isinstance(s, If) and plain else None


def _steps(first: Sequence[Node], ahead: Sequence[Node]) -> bool:
    """Whether these are steps, of the same rings in the same order, each in one place."""
    alike = [n.name for n in first] == [n.name for n in ahead]
    return bool(ahead) and alike and all(n.name not in ("", CLUSTER) and len(n.uses) == 1 for n in (*first, *ahead))


def values_at(role: Role) -> dict[int, dict[str, Claim]]:
    """For each control of a role, the fragments of one element that one statement assigns, before it and in its own
    iteration, with their claims (which J1 proves)."""
    counted = Counter(n for s in walk(role.body) for n in (getattr(s, "dst", None), getattr(s, "old", None)))
    lets = lets_of(role)  # other roles give other things these names
    found: dict[int, dict[str, Claim]] = {}

    def visit(body: Body, known: dict[str, Claim]) -> None:
        known = dict(known)
        for s in body:
            if isinstance(s, Loop | Tasks):
                found[id(s)] = dict(known)
                visit(s.body, known)
            elif isinstance(s, If):
                visit(s.then, known)
                visit(s.orelse, known)
            elif isinstance(s, Load | Compute) and counted[s.dst] == 1 and isinstance(s.claim, Claim):
                if s.claim.over is None and not s.claim.where and not s.claim.instance:
                    known[s.dst] = replace(s.claim, coords=tuple(c.substitute(lets) for c in s.claim.coords))

    visit(role.body, {})
    return found
