"""The nest: regions of the source beside the tasks and loops that execute them, and who does what with which blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from treadle.ir.core import Block, Program, Region
from treadle.ir.core import If as IrIf
from treadle.machine.expression_text import show
from treadle.machine.form import (
    Body,
    Compute,
    Control,
    Copy,
    Enter,
    Fold,
    If,
    Load,
    Loop,
    MachineProgram,
    Mma,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.machine.text import constraints
from treadle.view.drawing import plural, table
from treadle.view.lines import Lines, link
from treadle.view.markup import Child, Markup, element

_POOLS = {
    "workers": "workers of the CPU's pool",
    "grid": "workgroups, one each",
    "persistent": "workgroups that stay, in turn",
    "tickets": "workgroups, whichever draws the next",
    "clusters": "clusters of workgroups, in turn",
    "gangs": "gangs of the CPU's workers",
    "warps": "subgroups (warps)",
    "threads": "single threads",
}


def regions(program: Program) -> dict[str, Region]:
    """Regions by the name that machine text has for them."""
    found: dict[str, Region] = {}
    for op in program.body.walk():
        if isinstance(op, Region):
            found[op.name or f"R{len(found)}"] = op
    return found


def nest_section(machine: MachineProgram, lines: Lines) -> Markup:
    """The source's regions, the machine program's nest, and a table of bindings."""
    named = {id(op): name for name, op in regions(machine.program).items()}
    left = element("div", element("h3", "As written"), _blocks(machine.program.body, named))
    right = element(
        "div", element("h3", "As executed"), (_role(k.name, r, lines) for k in machine.kernels for r in k.roles)
    )
    rows = list(bindings(machine, lines))
    bound = (
        element("h3", "Blocks and participants"),
        table(("region", "block", "from", "to", "by", "line"), rows, "blocks and who executes them"),
    )
    return element("div", element("div", left, right, class_="two"), bound if rows else None)


def bindings(machine: MachineProgram, lines: Lines) -> Iterator[tuple[Child, ...]]:
    """A row for each argument of each region that tasks or a loop enter."""
    known = regions(machine.program)
    for kernel in machine.kernels:
        for role in kernel.roles:
            for item in walk(role.body):
                if not isinstance(item, Tasks | Loop):
                    continue
                for enter in item.enters:
                    region = known.get(enter.region)
                    for name, bounds in enter.binds:
                        arg = next((a for a in region.args if a.name == name), None) if region is not None else None
                        low = show(bounds[0])
                        high = show(bounds[1]) if len(bounds) > 1 else "that one"
                        told = f"{name} of {arg.domain.dim.name}" if arg is not None else name
                        who = f"{role.name}: {_who(item)}"
                        yield (
                            enter.region,
                            element("code", told),
                            element("code", low),
                            element("code", high),
                            who,
                            (lines.links((item,))),
                        )


def _who(item: Tasks | Loop) -> str:
    return _POOLS[item.over] if isinstance(item, Tasks) else f"loop {item.var}, in order"


# ---- as written


def _blocks(block: Block, named: dict[int, str]) -> list[Markup]:
    found: list[Markup] = []
    count = 0
    for op in block.ops:
        if isinstance(op, Region):
            found += _does(count)
            count = 0
            head = f"{named[id(op)]} {op.kind} ({', '.join(_argument(a) for a in op.args)})"
            state = f"carries {', '.join(v.hint or v.name for v in op.carried)}" if op.carried else None
            order = f", {op.order}" if op.kind == "reduce" else ""
            found.append(_box(op.kind, head + order, state, _blocks(op.body, named), op.span and op.span.line))
        elif isinstance(op, IrIf):
            found += _does(count)
            count = 0
            parts = [*_blocks(op.then, named), *_blocks(op.orelse, named)]
            found.append(_box("if", f"if {op.cond.hint or op.cond.name}", None, parts, op.span and op.span.line))
        else:
            count += 1
    return found + _does(count)


def _argument(arg: object) -> str:
    name, domain, kind = getattr(arg, "name", ""), getattr(arg, "domain", ""), getattr(arg, "kind", "")
    size = getattr(arg, "size", None)
    return f"{name} in {domain}" + (".each" if kind == "each" else f".by({size})" if size is not None else "")


def _does(count: int) -> list[Markup]:
    return [element("div", plural(count, "operation"), class_="does")] if count else []


def _box(kind: str, head: str, state: str | None, inner: Sequence[Markup], line: int | None) -> Markup:
    told = element("div", element("code", head), f" · line {line}" if line else "", class_="head")
    return element("div", told, element("div", state, class_="binds") if state else None, inner, class_=f"nest {kind}")


# ---- as executed


def _role(kernel: str, role: Role, lines: Lines) -> Markup:
    threads = f" of {plural(role.threads, 'thread')}" if role.threads > 1 else ""
    registers = f", {role.registers} registers a thread" if role.registers else ""
    head = element("strong", f"{kernel}: {role.name}"), f" — {plural(role.agents, 'agent')}{threads}{registers}"
    return element("div", element("div", head, class_="head"), _body(role.body, lines), class_="nest role")


def _body(body: Body, lines: Lines) -> list[Markup]:
    found: list[Markup] = []
    plain: list[Stmt] = []
    for item in [*body, None]:
        if isinstance(item, Stmt):
            plain.append(item)
            continue
        if plain:
            told = ", ".join(f"{word} ×{n}" if n > 1 else word for word, n in _words(plain).items())
            found.append(element("div", told, " · line ", lines.links(plain), class_="does"))
            plain = []
        if item is not None:
            found.append(_control(item, lines))
    return found


def _control(item: Control, lines: Lines) -> Markup:
    at = element("span", " · line ", link(f"m{lines.of(item)}", lines.of(item)))
    match item:
        case Tasks():
            counts = " × ".join(f"{v} < {show(c)}" for v, c in zip(item.vars, item.counts))
            raster = "" if item.raster == ("row",) else f", order {' '.join(map(str, item.raster))}"
            head = f"tasks {counts}", f" over {_POOLS[item.over]}{raster}"
            return _level("tasks", head, at, item.enters, _body(item.body, lines))
        case Loop():
            unroll = f", unrolled by {item.unroll}" if item.unroll > 1 else ""
            head = f"loop {item.var} = {show(item.lo)} .. {show(item.hi)} step {show(item.step)}", unroll
            return _level("loop", head, at, item.enters, _body(item.body, lines))
        case If():
            words = constraints(item.conds) if item.conds else f"{item.cond}"
            inner = _body(item.then, lines)
            other = [element("div", "else", class_="does"), *_body(item.orelse, lines)] if item.orelse else []
            return _level("if", (f"if {words}", ""), at, (), [*inner, *other])
        case _:
            return Markup("")


def _level(kind: str, head: tuple[str, str], at: Markup, enters: Sequence[Enter], inner: Sequence[Markup]) -> Markup:
    binds = [
        element(
            "div",
            f"executes {e.region}: ",
            ", ".join(f"{name} = {' .. '.join(map(show, bounds))}" for name, bounds in e.binds),
            class_="binds",
        )
        for e in enters
    ]
    return element(
        "div", element("div", element("code", head[0]), head[1], at, class_="head"), binds, inner, class_=f"nest {kind}"
    )


def _words(statements: Sequence[Stmt]) -> Counter[str]:
    return Counter(word for s in statements if (word := _word(s)))


def _word(stmt: Stmt) -> str:
    match stmt:
        case Load():
            return f"load {stmt.src.name}"
        case Store():
            return f"store {stmt.dst.name}"
        case Copy():
            return f"{stmt.engine} {stmt.dst.name}"
        case Mma():
            return f"contract {stmt.atom}"
        case Fold():
            return f"fold {stmt.monoid}"
        case Compute():
            return stmt.fn
        case Sync():
            return stmt.kind + (f" {stmt.object.name}" if stmt.object is not None else "")
        case Version():
            return f"new version of {stmt.buffer}"
        case _:
            return type(stmt).__name__.lower()
