"""Reading one statement's line, with its witness clause."""

from __future__ import annotations

from treadle.algebra.expr import Expr
from treadle.machine.expressions import MachineTokens, read_constraints, read_expr
from treadle.machine.form import (
    Advance,
    Claim,
    Compute,
    Copy,
    Fill,
    Fold,
    FragRef,
    Invariant,
    Let,
    Load,
    MemRef,
    Mma,
    Number,
    Operand,
    Scan,
    Stmt,
    Store,
    StoreClaim,
    Sync,
    Version,
)

_CLAUSES = frozenset(("where", "fill", "expr", "by", "tags", "origin", "onto", "contract", "axes", ";"))


class StatementReader:
    """Reads statements of a kernel. `fragments`, scalar arguments among them, are told from memory by their names."""

    def __init__(self, fragments: set[str]) -> None:
        self.fragments = fragments

    def statement(self, tokens: MachineTokens) -> Stmt:
        """The statement of the line, its claim included."""
        item = self._core(tokens)
        if tokens.accept("by"):
            item.by = tokens.name("elect or warp")
        if tokens.accept("tags"):
            item.tags = _names(tokens)
        if tokens.accept("origin"):
            item.origin = tokens.integer("a source line")
        if tokens.accept(";"):
            item.claim = read_claim(tokens)
        return item

    def invariant(self, tokens: MachineTokens) -> Invariant:
        """`invariant acc fill 0 within $0 < s ; %acc[...]`."""
        tokens.expect("invariant")
        holder = tokens.name("a fragment or buffer")
        fill = _fill(tokens) if tokens.at("fill") else None
        within = read_constraints(tokens) if tokens.accept("within") else ()
        tokens.expect(";")
        claim = read_claim(tokens)
        tokens.end()
        if isinstance(claim, StoreClaim):
            raise tokens.error("a claim about a value", found="a store claim")
        return Invariant(holder, claim, fill, within)

    def _core(self, tokens: MachineTokens) -> Stmt:
        if not tokens.at("store", "=") and tokens.accept("store"):
            return self._store(tokens)
        for word, read in (("copy", self._copy), ("sync", self._sync)):
            if tokens.accept(word):
                return read(tokens)
        if tokens.accept("version"):
            buffer = tokens.name("a buffer")
            return Version(buffer=buffer, fill=_fill(tokens))
        if tokens.accept("let"):
            name = tokens.name()
            tokens.expect("=")
            return Let(name=name, expr=read_expr(tokens))
        if tokens.accept("advance"):
            return Advance(counter=tokens.name("a counter"))
        dst = tokens.name("a statement: load, store, copy, sync, version, let, advance, or FRAGMENT = ...")
        tokens.expect("=")
        return self._define(tokens, dst)

    def _define(self, tokens: MachineTokens, dst: str) -> Stmt:
        fn = tokens.name("load, fold, mma or a function")
        if fn == "load":
            src = memory_ref(tokens)
            where = read_constraints(tokens) if tokens.accept("where") else ()
            return Load(dst=dst, src=src, where=where, fill=_fill(tokens))
        if fn == "fold":
            return self._fold(tokens, dst)
        if fn == "scan":
            return self._scan(tokens, dst)
        if fn == "mma":
            return self._mma(tokens, dst)
        args: list[Operand] = []
        while tokens.peek().text not in _CLAUSES and not tokens.done:
            args.append(self._operand(tokens))
            if not tokens.accept(","):
                break
        expr = read_expr(tokens) if tokens.accept("expr") else None
        where = read_constraints(tokens) if tokens.accept("where") else ()
        return Compute(dst=dst, fn=fn, args=tuple(args), expr=expr, where=where, fill=_fill(tokens))

    def _store(self, tokens: MachineTokens) -> Store:
        dst = memory_ref(tokens)
        tokens.expect("=")
        src = fragment_ref(tokens)
        where = read_constraints(tokens) if tokens.accept("where") else ()
        effect = tokens.name("an effect") if tokens.accept("effect") else "set"
        mask = fragment_ref(tokens) if tokens.accept("mask") else None
        old = tokens.name("a fragment") if tokens.accept("old") else None
        signal = memory_ref(tokens) if tokens.accept("signal") else None
        return Store(dst=dst, src=src, where=where, effect=effect, mask=mask, old=old, signal=signal)

    def _fold(self, tokens: MachineTokens, dst: str) -> Fold:
        monoid = tokens.name("a monoid")
        src = fragment_ref(tokens)
        axes = _numbers(tokens) if tokens.accept("axes") else ()
        acc = fragment_ref(tokens) if tokens.accept("onto") else None
        nan = tokens.name("propagate or ignore") if tokens.accept("nan") else "propagate"
        return Fold(dst=dst, monoid=monoid, src=src, acc=acc, axes=axes, nan=nan)

    def _scan(self, tokens: MachineTokens, dst: str) -> Scan:
        monoid = tokens.name("a monoid")
        src = fragment_ref(tokens)
        tokens.expect("axes")
        axes = _numbers(tokens)
        exclusive, reverse = tokens.accept("exclusive"), tokens.accept("reverse")
        acc = fragment_ref(tokens) if tokens.accept("onto") else None
        nan = tokens.name("propagate or ignore") if tokens.accept("nan") else "propagate"
        return Scan(dst=dst, monoid=monoid, src=src, acc=acc, axes=axes, nan=nan, exclusive=exclusive, reverse=reverse)

    def _mma(self, tokens: MachineTokens, dst: str) -> Mma:
        atom = tokens.name("an atom")
        a = self._reference(tokens)
        tokens.expect(",")
        b = self._reference(tokens)
        acc = fragment_ref(tokens) if tokens.accept("onto") else None
        contracted = _numbers(tokens) if tokens.accept("contract") else ()
        return Mma(dst=dst, acc=acc, a=a, b=b, atom=atom, contracted=contracted)

    def _copy(self, tokens: MachineTokens) -> Copy:
        engine = tokens.name("a copy engine")
        dst = memory_ref(tokens)
        tokens.expect("=")
        src = memory_ref(tokens)
        tokens.expect("box")
        box = _numbers(tokens)
        where = read_constraints(tokens) if tokens.accept("where") else ()
        multicast = tokens.integer("a set of workgroups") if tokens.accept("multicast") else 0
        signal = memory_ref(tokens) if tokens.accept("signal") else None
        through = tokens.name("a tensor map") if tokens.accept("map") else None
        return Copy(
            engine=engine, dst=dst, src=src, box=box, where=where, signal=signal, map=through, multicast=multicast
        )

    def _sync(self, tokens: MachineTokens) -> Sync:
        kind = tokens.name("a kind of synchronisation")
        target = None
        if tokens.peek().kind == "name" and not any(tokens.at(w) for w in ("by", "tags", "origin")):
            target = memory_ref(tokens)
        args = _pairs(tokens) if tokens.at("(") else ()
        return Sync(kind=kind, object=target, args=args)

    def _reference(self, tokens: MachineTokens) -> FragRef | MemRef:
        return fragment_ref(tokens) if tokens.peek().text in self.fragments else memory_ref(tokens)

    def _operand(self, tokens: MachineTokens) -> Operand:
        return _number(tokens) if _at_number(tokens) else self._reference(tokens)


# ---- claims


def read_claim(tokens: MachineTokens) -> Claim | StoreClaim:
    """The witness clause behind the semicolon, to the end of the line."""
    if tokens.accept("store"):
        number = tokens.integer("the number of a store")
        return StoreClaim(number, _coords(tokens), _instance(tokens))
    value = tokens.name("a value of the program")
    coords = _coords(tokens)
    where = read_constraints(tokens) if tokens.accept("where") else ()
    if not tokens.accept("over"):
        return Claim(value, coords, where, instance=_instance(tokens))
    bound = _names(tokens)
    over = read_constraints(tokens) if tokens.accept(":") else ()
    return Claim(value, coords, where, bound, over, _instance(tokens))


def _instance(tokens: MachineTokens) -> tuple[tuple[str, Expr], ...]:
    return _pairs(tokens) if tokens.accept("at") else ()


# ---- operands and small pieces


def fragment_ref(tokens: MachineTokens) -> FragRef:
    """`acc` or `acc[$0, 3]`."""
    name = tokens.name("a fragment")
    return FragRef(name, _coords(tokens) if tokens.at("[") else None)


def memory_ref(tokens: MachineTokens) -> MemRef:
    """`X[m, k]`, `ring{n}[$0]`, a barrier `full{n}` without an index; `S@(r)[$0]` and `full@(all){n}` in a cluster."""
    name = tokens.name("a tensor, buffer or barrier")
    version, rank = None, None
    if tokens.accept("@"):
        tokens.expect("(")
        rank = "all" if tokens.accept("all", ")") else read_expr(tokens)
        if rank != "all":
            tokens.expect(")")
    if tokens.accept("{"):
        version = read_expr(tokens)
        tokens.expect("}")
    return MemRef(name, _coords(tokens) if tokens.at("[") else (), version, rank)


def _coords(tokens: MachineTokens) -> tuple[Expr, ...]:
    tokens.expect("[")
    items: list[Expr] = []
    while not tokens.at("]"):
        items.append(read_expr(tokens))
        if not tokens.accept(","):
            break
    tokens.expect("]")
    return tuple(items)


def _pairs(tokens: MachineTokens) -> tuple[tuple[str, Expr], ...]:
    tokens.expect("(")
    pairs: list[tuple[str, Expr]] = []
    while not tokens.at(")"):
        name = tokens.name()
        tokens.expect("=")
        pairs.append((name, read_expr(tokens)))
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return tuple(pairs)


def _names(tokens: MachineTokens) -> tuple[str, ...]:
    tokens.expect("(")
    names: list[str] = []
    while not tokens.at(")"):
        names.append(tokens.name())
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return tuple(names)


def _numbers(tokens: MachineTokens) -> tuple[int, ...]:
    tokens.expect("(")
    numbers: list[int] = []
    while not tokens.at(")"):
        numbers.append(tokens.integer())
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return tuple(numbers)


def _fill(tokens: MachineTokens) -> Fill:
    if not tokens.accept("fill"):
        return "undef"
    return "undef" if tokens.accept("undef") else _number(tokens)


def _at_number(tokens: MachineTokens) -> bool:
    ahead = tokens.peek(1 if tokens.at("-") else 0)
    return ahead.kind in ("int", "float") or ahead.text in ("inf", "nan", "true", "false")


def _number(tokens: MachineTokens) -> Number:
    if tokens.accept("true"):
        return True
    if tokens.accept("false"):
        return False
    return tokens.number()
