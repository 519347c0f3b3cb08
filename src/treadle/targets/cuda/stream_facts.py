"""What the streams family asks of a call: facts of engines, which instruction contracts, what leaves through boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from treadle.algebra.dims import Part
from treadle.algebra.expr import Expr, sym
from treadle.analysis.uses import PURE, Uses
from treadle.hardware.atoms import Atom, warpgroup_atom
from treadle.ir.core import Program, Sub, Tensor, Value
from treadle.ir.guard import Aligned, Bound, Divisible, Fact, Guard, Pitch, Unit
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.realise.frame import ends
from treadle.realise.ring import Contraction, Stream, Tile, depth_of_atom, factor
from treadle.targets.cuda.shape import Shape


def whole_extent(part: Part, program: Program) -> int | None:
    """The extent of a part where the program fixes it."""
    return part.extent.substitute(dict(program.lets)).constant


def varying(stream: Stream) -> bool:
    """Whether tasks have different numbers of iterations."""
    if stream.loop is None or part_size(stream):
        return False
    around = [a for r in stream.nest for a in r.args]
    names = {f"{a.name}.{b}" for a in around for b in ("start", "stop")} | {a.name for a in around}
    return any((a.domain.lo.symbols | a.domain.hi.symbols) & names for a in stream.loop.args)


def loaded(stream: Stream) -> bool:
    """Whether a number that is loaded says how many iterations a task has."""
    args = () if stream.loop is None else stream.loop.args
    return any(bound.functions for a in args for bound in (a.domain.lo, a.domain.hi))


def chained(stream: Stream) -> bool:
    """Whether a contraction's operand is computed in registers of another's results."""
    return any(c.left_tile is None and not c.raw for c in stream.contractions)


def told_apart(stream: Stream, uses: Uses) -> bool:
    """Whether an iteration compares places with numbers that were loaded, element by element."""
    todo = [] if stream.loop is None else list(stream.loop.body.ops)
    tests = [op for op in todo if isinstance(op, Elementwise) and op.result.type.dtype.name == "bool"]
    values = [v for op in tests if len(op.result.type.axes) == 2 for v in uses.direct(op) if v.type.dtype.is_int]
    seen: set[str] = set()
    while values:
        value = values.pop()
        made = uses.definition.get(value.name)
        if isinstance(made, Load):
            return True
        if value.name not in seen and isinstance(made, Elementwise | Cast):
            seen.add(value.name)
            values += uses.direct(made)
    return False


def fetched(stream: Stream, uses: Uses) -> bool:
    """Whether threads load the elements of an operand one by one, where they need them."""
    return any(c.left_tile is None and not c.raw and _loads(c.left, uses) for c in stream.contractions)


def _loads(value: Value, uses: Uses) -> bool:
    """Whether a value is computed of what is loaded, and of no contraction's result."""
    todo, seen, found = [value], set[str](), False
    while todo:
        one = todo.pop()
        if one.name in seen:
            continue
        seen.add(one.name)
        op = uses.definition.get(one.name)
        if not isinstance(op, PURE):
            return False
        found = found or isinstance(op, Load)
        todo += uses.direct(op)
    return found


def ledger(stream: Stream) -> tuple[str, ...]:
    """Permissions that the contraction spends."""
    floats = [c for c in stream.contractions if c.op.result.type.dtype.is_float]
    if not floats:
        return ()
    dims = ", ".join(dict.fromkeys(str(c.deep.dim) for c in floats))
    each = depth_of_atom(floats[0].right.type.dtype)
    lines = [f"regroup: {dims} in blocks of {each} inside an atom, atoms in order"]
    atoms = (atom_of(c, 64) for c in floats)
    spent = dict.fromkeys(a.spends for a in atoms if a is not None and a.spends)
    return (*lines, *(f"{name}: {MEANING[name]}" for name in spent))


MEANING = {
    "tf32": "operands of f32 without their 13 lowest bits",
    "fp8_accumulate": "products of fp8 summed as the tensor cores do",
}
"""What a permission of the ledger is spent on."""


def atom_of(one: Contraction, columns: int) -> Atom | None:
    """The contract of a contraction's instruction."""
    return warpgroup_atom(one.format.name, one.right.type.dtype.name, columns)


def depth_of(stream: Stream) -> Expr:
    """The number of coordinates that are gone through block by block."""
    part = stream.step if stream.block is None else stream.block.domain
    # Of a depth in parts each has something where there is one at all.
    return part.dim.extent if part_size(stream) else part.hi - part.lo


def part_size(stream: Stream) -> int:
    """How much of the depth a task has, where single coordinates of the region count equal parts of it; else 0."""
    domain = None if stream.block is None else stream.block.domain
    for arg in stream.region.args if domain is not None else ():
        if domain is not None and arg.kind == "each" and frozenset({arg.name}) == domain.lo.symbols:
            (monomial,) = sym(arg.name).terms[0][:1]
            size = domain.lo.coefficient(monomial[0])
            if domain.lo == sym(arg.name) * size and domain.lo + size in ends(domain.hi):
                return size
    return 0


def in_place(stream: Stream) -> bool:
    """Whether every contraction adds to a carried value (or the whole of a dimension is contracted here)."""
    if stream.loop is None:
        return True
    names = {v.name for v in stream.loop.carried}
    return len(stream.batches) == 1 and all(c.op.acc.name in names for c in stream.contractions)


def stored(stream: Stream, bits: int) -> list[Store]:
    """Stores of the region; of elements of `bits` bits only, unless 0."""
    return [
        op
        for op in stream.region.body.ops
        if isinstance(op, Store)
        and (not bits or op.tensor.dtype.bits == bits)
        and (last := factor(op.subs[-1], op.tensor.dims[-1])[0]) is not None
        and last.part is not None
    ]


def strongest(facts: Iterable[Fact]) -> list[Fact]:
    """The facts without those that another of them implies."""
    found = list(dict.fromkeys(facts))

    def implied(fact: Fact) -> bool:
        match fact:
            case Aligned(tensor, size):
                return any(isinstance(f, Aligned) and f.tensor == tensor and f.bytes > size for f in found)
            case Pitch(tensor, axis, by):
                same = (f for f in found if isinstance(f, Pitch) and (f.tensor, f.axis) == (tensor, axis))
                return any(f.by > by and f.by % by == 0 for f in same)
            case _:
                return False

    return [f for f in found if not implied(f)]


def engine_facts(tensor: Tensor, unit: int = -1) -> list[Fact]:
    """What a tensor map needs of a tensor that is contiguous along the axis `unit`."""
    rank = len(tensor.dims)
    unit %= rank
    chunk = 16 if tensor.dtype.packed else 128 // tensor.dtype.bits  # strides of 4-bit elements count bytes
    pitches: list[Fact] = [Pitch(tensor.name, axis, chunk) for axis in range(rank) if axis != unit]
    extent = tensor.dims[unit].extent
    odd = tensor.dtype.packed and any(c % 2 for _, c in extent.terms)
    whole: list[Fact] = [Divisible(extent, 2)] if odd else []
    return [Unit(tensor.name, unit), *pitches, Aligned(tensor.name, 16), *whole]


def store_facts(op: Store) -> list[Fact]:
    """What an engine needs of a tensor of 16-bit elements that it stores to: it writes whole chunks of 16 bytes."""
    extent = op.tensor.dims[-1].extent
    whole: list[Fact] = [] if extent.constant is not None and extent.constant % 8 == 0 else [Divisible(extent, 8)]
    return [*engine_facts(op.tensor), *whole]


def wide_access(shape: Shape, stream: Stream) -> list[Fact]:
    """Facts under which pairs of columns are read and written at once in the epilogue."""
    found: list[Fact] = []
    tensors: dict[str, Tensor] = {}
    for op in stream.region.body.ops:
        if not isinstance(op, Load | Store) or not op.subs or any(t.load is op for t in stream.tiles):
            continue
        along = factor(op.subs[-1], op.tensor.dims[-1])[0]
        if along is not None and along.part is not None and along.part != stream.rows.part:
            tensors[op.tensor.name] = op.tensor
    for tensor in tensors.values():
        if not tensor.dims:
            continue
        size = max(1, tensor.dtype.bits // 8)
        extent = tensor.dims[-1].extent
        facts: list[Fact] = [Unit(tensor.name, len(tensor.dims) - 1), Aligned(tensor.name, 2 * size)]
        facts += [Pitch(tensor.name, a, 2) for a in range(len(tensor.dims) - 1)]
        if extent.constant is None:
            facts.append(Divisible(extent, 2))
        if all(holds(f, shape) for f in facts) and shape.facts.value(extent) % 2 == 0:
            found += facts
    return found


def copied(stream: Stream, shape: Shape) -> list[Tile]:
    """Tiles of matrices that no engine can copy from where they are: they are copied to another pitch first."""
    return _without(stream, lambda fact: holds(fact, shape))


def copied_under(stream: Stream, guard: Guard) -> list[Tile]:
    """The same of a plan that has been decided: the guard says what engines need of all others."""
    return _without(stream, lambda fact: promised(fact, guard))


def promised(fact: Fact, guard: Guard) -> bool:
    """Whether a guard says so, or more."""
    match fact:
        case Aligned(tensor, size):
            return any(isinstance(f, Aligned) and f.tensor == tensor and f.bytes % size == 0 for f in guard.facts)
        case Pitch(tensor, axis, by):
            pitches = (f for f in guard.facts if isinstance(f, Pitch) and (f.tensor, f.axis) == (tensor, axis))
            return any(f.by % by == 0 for f in pitches)
        case _:
            return fact in guard.facts


def _without(stream: Stream, has: Callable[[Fact], bool]) -> list[Tile]:
    found: list[Tile] = []
    for tile in stream.tiles:
        if tile.keeper is not None:
            continue  # it lies where the plan put it
        plain = len(tile.source.subs) == 2 and all(isinstance(s, Sub) for s in tile.source.subs)
        fits = all(has(f) for f in engine_facts(tile.source.tensor, tile.axes[1]))
        if plain and not fits and not tile.source.tensor.dtype.packed and tile.tensor not in [t.tensor for t in found]:
            found.append(tile)
    return found


def holds(fact: Fact, shape: Shape) -> bool:
    """Whether a call is known to satisfy a fact."""
    facts = shape.facts
    match fact:
        case Unit(tensor, axis):
            return (tensor, axis) in facts.unit
        case Aligned(tensor, size):
            return facts.aligned.get(tensor, 0) >= size
        case Pitch(tensor, _, by):
            return 8 * facts.aligned.get(tensor, 0) >= by * max(8, shape.program.tensor(tensor).dtype.bits)
        case Bound(constraint):
            if constraint.expr.functions:
                return False
            if not constraint.symbols <= facts.extents.keys():
                return True
            return bool(constraint.holds(dict(facts.extents)))
        case Divisible(expr, by):
            if not expr.symbols <= facts.extents.keys() or expr.functions:
                return True
            return int(expr.evaluate(dict(facts.extents))) % by == 0
        case _:
            return True


def forward(stream: Stream) -> bool:
    """Whether consumers may be a step ahead in the first of two rings: two contractions an iteration, a chain. Where
    the number of blocks is loaded the judge does not see that the consumers' last step is the producer's too."""
    rings = [r for r in stream.rings() if any(t.streamed for t in r)]
    two = [len(b) for b in stream.batches] == [1, 1] and len(rings) == 2
    return chained(stream) and two and not loaded(stream) and not stream.told
