"""What a machine program tells before any text is written: bounds of symbols, names, functions of the hardware."""

from __future__ import annotations

import re
from collections.abc import Sequence

from treadle.algebra.expr import Expr, const
from treadle.ir.guard import Bound, Divisible, Guard
from treadle.machine.form import Copy, Counter, Kernel, MachineProgram, Store, walk
from treadle.machine.vocabulary import BOX_EFFECTS
from treadle.math.table import FUNCTIONS
from treadle.targets.cuda.emit.index import FAR


def words_of(counter: Counter) -> Expr:
    """How many words a counter has."""
    total: Expr = const(1)
    for extent in counter.shape:
        total = total * extent
    return total


def by_hardware(ledger: Sequence[str], words: str) -> frozenset[str]:
    """Functions that the numerics ledger hands to the hardware: `functions: exp2, tanh by the hardware ...`."""
    found: set[str] = set()
    for entry in ledger:
        if entry.startswith("functions:") and words in f"{entry} (":
            named = re.findall(r"\w+", entry.removeprefix("functions:").split("by the hardware")[0])
            found |= {w for w in named if w in FUNCTIONS}
    return frozenset(found)


def stored_names(kernel: Kernel) -> list[str]:
    """What a kernel writes."""
    names: dict[str, None] = {}
    for role in kernel.roles:
        for stmt in walk(role.body):
            if isinstance(stmt, Store) or (isinstance(stmt, Copy) and stmt.engine in (*BOX_EFFECTS, "bulk.store")):
                names[stmt.dst.name] = None
    return list(names)


def tensor_names(program: MachineProgram) -> set[str]:
    """The tensors of the call."""
    return {t.name for t in program.program.tensors}


def extent_names(program: MachineProgram) -> list[str]:
    """Symbols that stand for extents of the call's arguments."""
    names: dict[str, None] = {}
    for dim in program.program.dims:
        for name in sorted(dim.extent.symbols):
            if name not in program.program.lets:
                names[name] = None
    return list(names)


def known_of(guard: Guard) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Least and largest values and divisors of single symbols."""
    lower: dict[str, int] = {}
    upper: dict[str, int] = {}
    by: dict[str, int] = {}
    for fact in guard.facts:
        if isinstance(fact, Divisible):
            terms = fact.expr.terms
            if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
                by[str(terms[0][0][0])] = max(fact.by, by.get(str(terms[0][0][0]), 1))
        elif isinstance(fact, Bound):
            expr = fact.constraint.expr
            moving = [(m, c) for m, c in expr.terms if m != ()]
            if len(moving) != 1 or len(moving[0][0]) != 1 or abs(moving[0][1]) != 1:
                continue
            name, c = str(moving[0][0][0]), moving[0][1]
            if c == 1 or fact.constraint.equality:
                lower[name] = max(lower.get(name, -FAR), -expr.offset * c)
            if c == -1 or fact.constraint.equality:
                upper[name] = min(upper.get(name, FAR), expr.offset * -c)
    return lower, upper, by
