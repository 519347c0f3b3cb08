"""TileIR: values, operations, blocks, regions, programs.

A program is a tree of blocks of operations in SSA form. Values are *tiles*: immutable, with a dtype and axes that are
parts of dimensions (rank 0 is a scalar). The meaning of a value is pointwise: for each instance of its enclosing
regions and each coordinate of its axes there is one element; every operation says how that element comes from elements
of its operands. The checker, the interpreter and the planner all rely on this reading.

Index scalars are `Expr`s. Symbols an expression may mention: extents of dimensions (`M`), coordinates of region
arguments (`b` for `B.each`), block bounds (`m.start`, `m.stop`), and opaque `Fn(value name, coordinates)`: an element
of an integer value (`%n()` for a loaded scalar). Names of dimensions and of region arguments are unique in a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, Fn, of, sym
from treadle.base.source import Span
from treadle.dtype.formats import DType

if TYPE_CHECKING:
    from treadle.ir.ops.intrinsic import Meaning


@dataclass(frozen=True)
class TileType:
    """dtype and axes of a tile; no axes is a scalar. A dimension occurs once among the axes."""

    dtype: DType
    axes: tuple[Part, ...] = ()

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions of the axes, in order."""
        return tuple(a.dim for a in self.axes)

    def axis(self, of_dim: Dim) -> Part | None:
        """The axis along a dimension, if there is one."""
        return next((a for a in self.axes if a.dim is of_dim), None)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.axes))}]"


@dataclass(eq=False)
class Value:
    """An SSA value. `name` is unique in the program and starts with `%`; `hint` is the user's variable, if any."""

    name: str
    type: TileType
    hint: str | None = None

    def at(self, *coords: Expr) -> Expr:
        """Its element at these coordinates, as an index expression (integer values only)."""
        return of(Fn(self.name, coords))

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(eq=False)
class Tensor:
    """A tensor parameter: a strided view with one axis a dimension.

    `hidden`: no parameter of the user's kernel, but one that `expand` added: see `Hidden`. `devices`: one array for
    each coordinate of the first axis, which `expand` makes tensors of their own (`ir.devices`): `part` of such a one is
    the name of the parameter and the device.
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: DType
    out: bool = False
    optional: bool = False
    hidden: bool = False
    span: Span | None = None
    devices: bool = False
    part: tuple[str, int] | None = None

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(eq=False)
class ScalarParam:
    """A scalar parameter `td.Scalar[dtype]`; inside the body it is the scalar `value`."""

    name: str
    value: Value
    span: Span | None = None


@dataclass(frozen=True)
class Sub:
    """One subscript of an axis: a part of it, an index expression, or an integer tile (exactly one is set).

    `promised` marks `td.in_range`: the author's promise `0 <= index < extent`, which `sanitize` tests.
    """

    part: Part | None = None
    index: Expr | None = None
    tile: Value | None = None
    promised: bool = False

    def __str__(self) -> str:
        text = str(self.part if self.part is not None else self.tile if self.tile is not None else self.index)
        return f"in_range({text})" if self.promised else text


AxisSub = Sub | tuple[Sub, ...]  # a product axis takes one subscript, or one for each factor

Order = Literal["unordered", "ordered", "fold_left", "fold_right"]


@dataclass(eq=False, kw_only=True)
class Op:
    """An operation: `results` it defines, `operands` it uses, the source `span` it came from."""

    results: list[Value] = field(default_factory=list[Value])
    span: Span | None = None
    keyword: ClassVar[str] = "?"

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def operands(self) -> tuple[Value, ...]:
        """Values used directly, subscripts' tiles included, values inside expressions not."""
        return ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Nested blocks."""
        return ()

    @property
    def parameters(self) -> tuple[Value, ...]:
        """Values that no operation defines and that nested blocks take: carried values, the states of a merge."""
        return ()


@dataclass(eq=False)
class Block:
    """A sequence of operations; `yields` are the values it hands to its region."""

    ops: list[Op] = field(default_factory=list[Op])
    yields: list[Value] = field(default_factory=list[Value])

    def walk(self) -> Iterator[Op]:
        """All operations, outer before inner, in order."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()


@dataclass(eq=False)
class RegionArg:
    """One argument of a region: it ranges over `domain`.

    `kind` "block": blocks of the domain, of open size (`size` None) or fixed size; symbols `NAME.start`, `NAME.stop`.
    `kind` "each": single coordinates; the symbol `NAME`. `source` is the user's loop name, which several may share.
    """

    name: str
    domain: Part
    kind: Literal["block", "each"]
    size: Expr | None = None
    reversed: bool = False
    source: str = ""

    @property
    def part(self) -> Part:
        """The block as a part (kind "block")."""
        return Part(self.domain.dim, sym(f"{self.name}.start"), sym(f"{self.name}.stop"), self.name)

    @property
    def index(self) -> Expr:
        """The coordinate (kind "each")."""
        return sym(self.name)


@dataclass(eq=False)
class Merge:
    """How two states of a fold become one: a monoid of the user as blocks of the program.

    `left` and `right` are the leaves of two states, the one visited first on the left; `body` yields the merged leaves,
    `identity` those of the state that changes nothing. Both blocks may use values defined before the operation, and
    have no effects. `laws` "declared": the author says that it is associative and that the identity is one; "none":
    only the exact chains are lawful. `states`, in a region, are the numbers of the carried values that are its leaves.
    """

    name: str
    left: list[Value]
    right: list[Value]
    body: Block
    identity: Block
    commutative: bool = False
    laws: str = "declared"
    states: tuple[int, ...] = ()

    @property
    def types(self) -> list[TileType]:
        """The types of the leaves of a state."""
        return [v.type for v in self.left]

    @property
    def blocks(self) -> tuple[Block, Block]:
        """Identity and merge."""
        return (self.identity, self.body)

    @property
    def parameters(self) -> tuple[Value, ...]:
        """The leaves of both states."""
        return (*self.left, *self.right)


RegionKind = Literal["parallel", "serial", "pipeline", "reduce"]


@dataclass(eq=False, kw_only=True)
class Region(Op):
    """`parallel`, `serial`, `pipeline` or `reduce`.

    `inits[i]` enters as `carried[i]`, `body.yields[i]` is its value after an iteration, `results[i]` after the region.
    For `serial`, `pipeline` and `reduce` these are loop-carried values (for `reduce`: reduction states). For `parallel`
    they are outer tiles assembled part by part: an instance starts from the entry value, and the result is the entry
    value with every part that an `Insert` of an instance covered replaced. `merges` say how partial states of a
    `reduce` are merged where the user's monoids update them; states without one are updated by a built-in monoid.
    """

    kind: RegionKind
    args: list[RegionArg]
    inits: list[Value] = field(default_factory=list[Value])
    carried: list[Value] = field(default_factory=list[Value])
    body: Block = field(default_factory=Block)
    order: Order = "unordered"
    name: str = ""
    stages: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])  # (name, index of its first op)
    scope: str | None = None
    versions: int | None = None
    merges: list[Merge] = field(default_factory=list[Merge])

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(self.inits)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body, *(b for m in self.merges for b in m.blocks))

    @property
    def parameters(self) -> tuple[Value, ...]:
        return (*self.carried, *(v for m in self.merges for v in m.parameters))


@dataclass(eq=False, kw_only=True)
class If(Op):
    """A conditional on a scalar bool `cond`; each block yields one value a result."""

    keyword: ClassVar[str] = "if"
    cond: Value
    then: Block = field(default_factory=Block)
    orelse: Block = field(default_factory=Block)

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.cond,)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.then, self.orelse)


@dataclass(frozen=True)
class Hidden:
    """A tensor that the caller of an expanded program adds to the user's arguments, zero-filled, and reads afterwards.

    `kind` "check": an i32 element for each `td.check`, not 0 where it failed; `messages` and `spans` are theirs.
    "print": the values of a `td.print`, whose label is the message; the next one is of kind "shown": 1 where one is to
    be shown.
    """

    tensor: Tensor
    kind: Literal["check", "print", "shown"]
    messages: tuple[str, ...]
    spans: tuple[Span | None, ...]


@dataclass(eq=False, repr=False)
class Program:
    """A captured kernel for fixed dtypes, ranks and staged values.

    `lets` are extents defined by `td.let` (name -> expression); `requires` are facts checked at the call;
    `staged` records staged values for messages and the cache key; `numerics` is the kernel's numerical contract.
    `hidden` are tensors that `expand` added; a captured program has none. `intrinsics` are the meanings of operations
    of the user's own.
    """

    name: str
    dims: list[Dim]
    tensors: list[Tensor]
    scalars: list[ScalarParam]
    body: Block
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    requires: list[Constraint] = field(default_factory=list[Constraint])
    staged: dict[str, str] = field(default_factory=dict[str, str])
    numerics: dict[str, str | bool | None] = field(default_factory=dict[str, str | bool | None])
    span: Span | None = None
    hidden: list[Hidden] = field(default_factory=list[Hidden])
    intrinsics: list[Meaning] = field(default_factory=list["Meaning"])
    printer: ClassVar[Callable[[Program], str]]
    """`print_program`: the file with the printer, which imports this one, gives it."""

    def __repr__(self) -> str:
        tensors = ", ".join(f"{t.name}: {t.dtype}[{', '.join(map(str, t.dims))}]" for t in self.tensors)
        return f"<program {self.name}({tensors}), {sum(1 for _ in self.body.walk())} operations>"

    def __str__(self) -> str:
        """The text of the program."""
        return Program.printer(self)

    def tensor(self, name: str) -> Tensor:
        """The tensor parameter of that name."""
        return next(t for t in self.tensors if t.name == name)

    def definitions(self) -> dict[str, Op]:
        """Value name -> the operation that defines it (parameters of its blocks too; scalar parameters: absent)."""
        table: dict[str, Op] = {}
        for op in self.body.walk():
            for value in op.results:
                table[value.name] = op
            for value in op.parameters:
                table[value.name] = op
        return table


def values_of(subs: Sequence[AxisSub]) -> tuple[Value, ...]:
    """The integer tiles among subscripts."""
    flat = [s for axis in subs for s in (axis if isinstance(axis, tuple) else (axis,))]
    return tuple(s.tile for s in flat if s.tile is not None)
