"""Who uses a value, where an operation lives, what is read and stored: what lowering asks all the time."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from treadle.algebra.expr import Expr
from treadle.ir.core import AxisSub, Block, If, Op, Program, Region, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import Mma

PURE = (Elementwise, Cast, Bitcast, Full, Coords, Index, Load, Extract)
"""Operations whose elements can be computed again anywhere (a load: as long as nothing stores to its tensor)."""

STEP = 16

# How many simple vector instructions a function costs, roughly; everything else costs one.
WEIGHT: dict[str, int] = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sin", "cos"), 12),
    **dict.fromkeys(("log1p", "expm1", "tanh", "pow", "erf"), 20),
    **dict.fromkeys(("div", "sqrt", "rsqrt", "floordiv", "mod"), 6),
}


def flat_subs(subs: tuple[AxisSub, ...]) -> Iterator[Sub]:
    """The single subscripts, those of product axes one by one."""
    for sub in subs:
        yield from sub if isinstance(sub, tuple) else (sub,)


def expressions(op: Op) -> Iterator[Expr]:
    """The index expressions of an operation itself: subscripts, domains, bounds of the parts it makes."""
    if isinstance(op, Load | Store | Extract | Insert):
        for sub in flat_subs(op.subs):
            if sub.index is not None:
                yield sub.index
            if sub.part is not None:
                yield sub.part.lo
                yield sub.part.hi
    elif isinstance(op, Index):
        yield op.expr
    elif isinstance(op, Region):
        for arg in op.args:
            yield arg.domain.lo
            yield arg.domain.hi
            if arg.size is not None:
                yield arg.size
    for result in op.results:
        for axis in result.type.axes:
            yield axis.lo
            yield axis.hi


@dataclass
class Uses:
    """Facts about one program, computed once. `home` maps an operation to its block, `of_value` a name to its value."""

    program: Program
    definition: dict[str, Op] = field(default_factory=dict[str, Op])
    home: dict[int, Block] = field(default_factory=dict[int, Block])
    owner: dict[int, Op | None] = field(default_factory=dict[int, "Op | None"])
    of_value: dict[str, Value] = field(default_factory=dict[str, Value])
    users: dict[str, list[Op]] = field(default_factory=dict[str, "list[Op]"])
    stored: dict[str, list[Store]] = field(default_factory=dict[str, "list[Store]"])
    loaded: dict[str, list[Load]] = field(default_factory=dict[str, "list[Load]"])
    store_number: dict[int, int] = field(default_factory=dict[int, int])
    if_number: dict[int, int] = field(default_factory=dict[int, int])
    milestones: dict[str, int] = field(default_factory=dict[str, int])
    """Values every `STEP`-th operation along chains of operations, by how long the longest chain to them is: what
    follows such a chain by recursion starts from them."""
    known: dict[object, object] = field(default_factory=dict[object, object], repr=False, compare=False)
    """What was worked out about the program since (`base.memo`)."""

    def __post_init__(self) -> None:
        self.definition = self.program.definitions()
        for parameter in self.program.scalars:
            self.of_value[parameter.value.name] = parameter.value
        self._visit(self.program.body, None)
        heights: dict[str, int] = {}
        for op in self.program.body.walk():  # operands are defined before they are used
            if isinstance(op, PURE):
                height = 1 + max((heights.get(v.name, 0) for v in op.operands), default=0)
                heights.update((v.name, height) for v in op.results)
        self.milestones = {name: height for name, height in heights.items() if height % STEP == 0}

    def _visit(self, block: Block, owner: Op | None) -> None:
        self.owner[id(block)] = owner
        for op in block.ops:
            self.home[id(op)] = block
            for value in op.results:
                self.of_value[value.name] = value
            for value in op.parameters:
                self.of_value[value.name] = value
            if isinstance(op, Store):
                self.stored.setdefault(op.tensor.name, []).append(op)
                self.store_number[id(op)] = len(self.store_number)
            if isinstance(op, Load):
                self.loaded.setdefault(op.tensor.name, []).append(op)
            if isinstance(op, If):
                self.if_number[id(op)] = len(self.if_number)
            for inner in op.blocks:
                self._visit(inner, op)
            for value in self.direct(op):
                self.users.setdefault(value.name, []).append(op)

    def direct(self, op: Op) -> list[Value]:
        """Values the operation reads itself: operands, integer values in its expressions, what its blocks yield."""
        found = list(op.operands)
        names = {name for e in expressions(op) for name in e.functions}
        found += [self.of_value[n] for n in sorted(names) if n in self.of_value]
        for block in op.blocks:
            found += block.yields
        return found

    def deep(self, op: Op) -> list[Value]:
        """Values the operation and everything nested in it read."""
        found = self.direct(op)
        for block in op.blocks:
            for inner in block.walk():
                found += self.direct(inner)
        return found

    def arguments(self, value: Value) -> frozenset[str]:
        """The symbols in the index expressions by which a value is loaded and computed: arguments of regions by name,
        blocks by their bounds. *Requires*: what it is computed from is pure."""
        found: set[str] = set()
        seen = {value.name}
        todo = [value]
        while todo:  # chains are longer than Python's stack
            op = self.definition.get(todo.pop().name)
            if op is None:
                continue
            found |= {s for e in expressions(op) for s in e.symbols}
            below = [v for v in self.direct(op) if v.name not in seen]
            seen |= {v.name for v in below}
            todo += below
        return frozenset(found)

    def stable(self, load: Load) -> bool:
        """Whether no store of the program writes the tensor of this load (tensors are taken as disjoint)."""
        return load.tensor.name not in self.stored

    def forwarded(self, op: Extract) -> Value | None:
        """What an extract reads when it reads exactly the part that an insert has just written."""
        made = self.definition.get(op.source.name)
        if isinstance(made, Insert) and made.subs == op.subs and op.fill is None:
            same = made.value.type.dims == op.result.type.dims and set(made.value.type.dims) >= set(op.result.type.dims)
            return made.value if same else None
        return None

    def overwritten(self, op: Insert) -> bool:
        """Whether the next insert replaces exactly what this one writes, and nothing else reads it in between."""
        users = self.users.get(op.result.name, [])
        writers = [u for u in users if isinstance(u, Insert) and u.source is op.result and u.subs == op.subs]
        readers = [u for u in users if isinstance(u, Extract) and self.forwarded(u) is not None]
        return len(writers) == 1 and len(writers) + len(readers) == len(users)

    def weight(self, value: Value, known: Set[str] = frozenset(), seen: dict[str, int] | None = None) -> int:
        """Rough cost of computing one element again from loads and values in `known`.

        *Units*: simple vector instructions.
        """
        memo = {} if seen is None else seen
        left = [value]
        while left:  # chains may be longer than Python's stack is deep
            name = left[-1].name
            op = self.definition.get(name)
            inner = op.operands if isinstance(op, PURE) and name not in known else ()
            waiting = [v for v in inner if v.name not in memo and v.name not in known]
            if name not in memo and waiting:
                left += waiting
                continue
            left.pop()
            if name not in memo and name not in known:
                own = WEIGHT.get(op.fn, 1) if isinstance(op, Elementwise) else 0 if isinstance(op, Full) else 1
                memo[name] = own + sum(1 if v.name in known else memo[v.name] for v in inner)
        return 1 if value.name in known else memo[value.name]

    def contains(self, op: Op, kind: type[Op]) -> bool:
        """Whether an operation of this class is the operation or nested in it."""
        return isinstance(op, kind) or any(isinstance(i, kind) for b in op.blocks for i in b.walk())

    def contractions(self, op: Op | Block) -> list[Mma]:
        """The contractions in an operation or block, in order."""
        blocks = (op,) if isinstance(op, Block) else op.blocks
        own: list[Mma] = [op] if isinstance(op, Mma) else []
        return own + [i for b in blocks for i in b.walk() if isinstance(i, Mma)]
