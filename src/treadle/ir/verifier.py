"""Structure rules of programs: unique names, definitions before uses, result types, regions' counts.

A violation is a bug of ours (`ir/...`); the user's mistakes are found by capture.
"""

from __future__ import annotations

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr, sym
from treadle.algebra.monoids import MONOIDS
from treadle.ir.core import AxisSub, Block, If, Merge, Op, Program, Region, TileType, Value
from treadle.ir.errors import IRDominance, IRStructure, IRType
from treadle.ir.infer import flat_subs, join_axes, result_type, result_types, sub_axes
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check
from treadle.ir.ops.elementwise import Bitcast, Cast, Elementwise, Full
from treadle.ir.ops.fold import Fold, Scan, Sort
from treadle.ir.ops.intrinsic import PREFIX, Intrinsic, Meaning
from treadle.ir.printer import print_program
from treadle.ir.rewrite import expressions, has_effect, operand_names


def verify(program: Program, *, pass_name: str | None = None) -> None:
    """Returns when the program is well formed.

    *Ensures*: names are unique; every value is defined before its use in an enclosing block; every result has the type
    that its operation gives; symbols of expressions are extents, scalar parameters or arguments of enclosing regions.

    *Errors*: `ir/structure`, `ir/dominance`, `ir/type`.
    """
    _Verifier(program, pass_name).run()


class _Verifier:
    def __init__(self, program: Program, pass_name: str | None) -> None:
        self.p = program
        self.pass_name = pass_name
        self.names: set[str] = set()
        self.visible: dict[str, Value] = {}
        self.symbols: set[str] = set()
        self.regions: set[str] = set()

    def fail(self, kind: type[IRStructure] | type[IRDominance] | type[IRType], found: str, expected: str) -> Exception:
        return kind(
            doing=f"verifying program {self.p.name}",
            found=found,
            expected=expected,
            pass_name=self.pass_name,
            before=print_program(self.p),
        )

    def run(self) -> None:
        names = [d.name for d in self.p.dims]
        if len(set(names)) != len(names):
            raise self.fail(IRStructure, f"dimensions {', '.join(names)}", "different names")
        declared: set[Dim] = set()
        for dim in self.p.dims:
            for other in (*dim.factors, *(() if dim.alias_of is None else (dim.alias_of,))):
                if other not in declared:
                    raise self.fail(IRStructure, f"dimension {dim} before {other}", "roots and factors first")
            declared.add(dim)
            # Derived extents mention others; those of integer region arguments mention what is defined inside.
            if dim.extent == sym(dim.name):
                self.symbols.add(dim.name)
        for tensor in self.p.tensors:
            if len(set(tensor.dims)) != len(tensor.dims) or not set(tensor.dims) <= declared:
                raise self.fail(IRStructure, f"tensor {tensor} over {tensor.dims}", "declared dimensions, each once")
            if tensor.devices and (not tensor.dims or tensor.dims[0].factors or not tensor.dims[0].extent.constant):
                raise self.fail(IRStructure, f"tensor {tensor} of devices", "a first axis whose extent is a number")
        for scalar in self.p.scalars:
            self.define(scalar.value)
        names = [m.name for m in self.p.intrinsics]
        for meaning in self.p.intrinsics:
            self.meaning(meaning)
        self.names = {s.value.name for s in self.p.scalars}
        if len(set(names)) != len(names):
            raise self.fail(IRStructure, f"intrinsics {', '.join(names)}", "different names")
        self.block(self.p.body, [])

    def meaning(self, meaning: Meaning) -> None:
        """A function of scalars by pointwise operations, that sees nothing else."""
        if not meaning.name.startswith(PREFIX):
            raise self.fail(IRStructure, f"an intrinsic named {meaning.name}", f"a name that starts with {PREFIX}")
        outer, self.visible, self.names = self.visible, {}, set()
        for value in meaning.params:
            self.define(value)
        for op in meaning.body.ops:
            if type(op) not in (Elementwise, Cast, Bitcast, Full) or any(r.type.axes for r in op.results):
                raise self.fail(IRStructure, f"{op.keyword} in {meaning.name}", "pointwise operations on scalars")
        if len(meaning.body.yields) != 1:
            raise self.fail(IRStructure, f"{len(meaning.body.yields)} results of {meaning.name}", "one")
        self.block(meaning.body, [v.type for v in meaning.body.yields])
        self.visible = outer
        wrong = meaning.wrong_text()
        if wrong is not None:
            raise self.fail(IRType, *wrong)

    # ---- walking

    def block(self, block: Block, yields: list[TileType]) -> None:
        outer = dict(self.visible)
        for op in block.ops:
            self.op(op)
        for value in block.yields:
            self.use(value.name, f"yield of {value}")
        if [v.type for v in block.yields] != yields:
            found = ", ".join(str(v.type) for v in block.yields) or "none"
            raise self.fail(IRType, f"yields of {found}", ", ".join(map(str, yields)) or "none")
        self.visible = outer

    def define(self, value: Value) -> None:
        if value.name in self.names or not value.name.startswith("%"):
            raise self.fail(IRStructure, f"a second value {value.name}", "unique names that start with %")
        self.names.add(value.name)
        self.visible[value.name] = value
        dims = value.type.dims
        if len(set(dims)) != len(dims):
            raise self.fail(IRType, f"{value}: {value.type}", "each dimension once")
        for part in value.type.axes:
            self.part(part, str(value))

    def use(self, name: str, where: str) -> None:
        if name not in self.visible:
            kind = "used outside the block that defines it" if name in self.names else "never defined"
            raise self.fail(IRDominance, f"{where}: {name} is {kind}", "a value defined before in an enclosing block")

    def op(self, op: Op) -> None:
        for name in sorted(operand_names(op)):
            self.use(name, type(op).__name__)
        for value in op.operands:
            if self.visible.get(value.name) is not value:
                raise self.fail(IRStructure, f"two values named {value}", "one value a name")
        if isinstance(op, Region):
            self.region(op)
        elif isinstance(op, If):
            if not op.cond.type.dtype.is_bool or op.cond.type.axes:
                raise self.fail(IRType, f"a condition of {op.cond.type}", "a scalar bool")
            for inner in op.blocks:
                self.block(inner, [v.type for v in op.results])
        elif isinstance(op, Fold | Scan | Sort):
            self.several(op)
        else:
            self.simple(op)
        for value in op.results:
            self.define(value)

    def several(self, op: Fold | Scan | Sort) -> None:
        """A fold, scan or sort: the types of its results, and its monoid."""
        try:
            expected = result_types(op)
        except IRType as error:
            raise self.fail(IRType, f"{error.doing}: {error.found}", error.expected) from error
        if [v.type for v in op.results] != expected:
            found = ", ".join(str(v.type) for v in op.results)
            raise self.fail(IRType, f"{type(op).__name__} of {found}", ", ".join(map(str, expected)))
        if isinstance(op, Sort):
            if op.to is not None:
                self.part(op.to, "sort")
        elif isinstance(op.merge, Merge):
            self.merge(op.merge)
            if op.order == "unordered" and isinstance(op, Fold) and not op.merge.commutative:
                raise self.fail(IRStructure, f"an unordered fold with {op.merge.name}", "a monoid that commutes")
        elif op.merge not in MONOIDS:
            raise self.fail(IRStructure, f"a scan with {op.merge}", f"one of {', '.join(MONOIDS)}")

    def merge(self, merge: Merge) -> None:
        """A monoid: two states of the same types, which its blocks yield without effects."""
        outer = dict(self.visible)
        if [v.type for v in merge.right] != merge.types or not merge.left:
            raise self.fail(IRType, f"the states of {merge.name}", "two states of the same leaves")
        self.block(merge.identity, merge.types)
        for value in merge.parameters:
            self.define(value)
        self.block(merge.body, merge.types)
        self.visible = outer
        if any(has_effect(op) for block in merge.blocks for op in block.ops):
            raise self.fail(IRStructure, f"an effect in {merge.name}", "operations without effects")

    def region(self, op: Region) -> None:
        if not op.name or op.name in self.regions:
            raise self.fail(IRStructure, f"region name {op.name!r}", "a unique name")
        self.regions.add(op.name)
        counts = {len(op.inits), len(op.carried), len(op.results), len(op.body.yields)}
        if len(counts) != 1:
            raise self.fail(IRStructure, f"region {op.name} with {sorted(counts)} carried values", "one count")
        types = [v.type for v in op.inits]
        if [v.type for v in op.carried] != types or [v.type for v in op.results] != types:
            raise self.fail(IRType, f"region {op.name}", "carried values and results of the initial values' types")
        self.merges(op)
        added: set[str] = set()
        for arg in op.args:
            self.part(arg.domain, f"region {op.name}")
            if (arg.kind == "each" and arg.size is not None) or arg.name in self.symbols:
                raise self.fail(IRStructure, f"argument {arg.name} of {op.name}", "a fresh name; a size of blocks only")
            added |= {arg.name} if arg.kind == "each" else {f"{arg.name}.start", f"{arg.name}.stop"}
        # Unlike values, symbols of arguments must not be taken again by an inner region.
        self.symbols |= added
        outer = dict(self.visible)
        for value in op.carried:
            self.define(value)
        self.block(op.body, types)
        self.visible = outer
        self.symbols -= added

    def merges(self, op: Region) -> None:
        """The monoids of a region's states: each state has one at most."""
        taken = [i for m in op.merges for i in m.states]
        if len(set(taken)) != len(taken) or any(not 0 <= i < len(op.inits) for i in taken):
            raise self.fail(IRStructure, f"merges of the states {taken} of {op.name}", "different carried values")
        if op.merges and op.kind != "reduce":
            raise self.fail(IRStructure, f"merges of {op.kind} {op.name}", "none")
        for merge in op.merges:
            self.merge(merge)
            if merge.types != [op.inits[i].type for i in merge.states]:
                raise self.fail(IRType, f"states of {merge.name} in {op.name}", "the types of the carried values")

    def simple(self, op: Op) -> None:
        for expr in expressions(op):
            self.expr(expr, type(op).__name__)
        try:
            expected = result_type(op)
        except IRType as error:
            raise self.fail(IRType, f"{error.doing}: {error.found}", error.expected) from error
        if expected is None:
            wanted = 1 if isinstance(op, Full) else 0
            if len(op.results) != wanted:
                raise self.fail(IRStructure, f"{type(op).__name__} with {len(op.results)} results", str(wanted))
        elif [v.type for v in op.results] != [expected]:
            found = ", ".join(str(v.type) for v in op.results)
            raise self.fail(IRType, f"{type(op).__name__} of {found}", str(expected))
        if isinstance(op, (Load, Store)):
            if op.tensor not in self.p.tensors:
                raise self.fail(IRStructure, f"tensor {op.tensor}", "a parameter of the program")
            self.subs(op.subs, [d for d in op.tensor.dims])
        elif isinstance(op, (Extract, Insert)):
            self.subs(op.subs, [a.dim for a in op.source.type.axes])
        if isinstance(op, Store):
            self.store(op)
            if op.tensor.devices and any(s.tile is not None for s in flat_subs(op.subs[:1])):
                raise self.fail(IRStructure, f"a tile that picks devices of {op.tensor}", "a part or an index")
        if isinstance(op, Intrinsic) and (op.meaning not in self.p.intrinsics or op.fn != op.meaning.name):
            raise self.fail(IRStructure, f"the intrinsic {op.fn}", "one of the program's")
        if isinstance(op, Check) and not op.cond.type.dtype.is_bool:
            raise self.fail(IRType, f"check of {op.cond.type}", "bool")

    def store(self, op: Store) -> None:
        axes = join_axes([sub_axes(op.subs)] + ([] if op.where is None else [op.where.type.axes]))
        if op.value.type.dtype != op.tensor.dtype:
            raise self.fail(IRType, f"store of {op.value.type} into {op.tensor}", f"{op.tensor.dtype}")
        if any(a not in axes for a in op.value.type.axes):
            raise self.fail(IRType, f"store of {op.value.type}", "axes of the subscripts")

    def subs(self, subs: tuple[AxisSub, ...], dims: list[Dim]) -> None:
        if len(subs) != len(dims):
            raise self.fail(IRStructure, f"{len(subs)} subscripts", f"{len(dims)}")
        for axis, dim in zip(subs, dims):
            parts = axis if isinstance(axis, tuple) else (axis,)
            if isinstance(axis, tuple) and len(axis) != len(dim.factors):
                raise self.fail(IRStructure, f"{len(axis)} subscripts for the factors of {dim}", str(len(dim.factors)))
            targets = dim.factors if isinstance(axis, tuple) else (dim,)
            for sub, target in zip(parts, targets):
                if sum(x is not None for x in (sub.part, sub.index, sub.tile)) != 1:
                    raise self.fail(IRStructure, f"subscript {sub}", "exactly one of part, index and tile")
                if sub.part is not None and sub.part.dim.root is not target.root:
                    raise self.fail(IRType, f"part of {sub.part.dim} on axis {target}", "that dimension or an alias")
                if sub.tile is not None and not sub.tile.type.dtype.is_int:
                    raise self.fail(IRType, f"subscript tile of {sub.tile.type}", "an integer tile")

    def part(self, part: Part, where: str) -> None:
        if part.dim not in self.p.dims:
            raise self.fail(IRStructure, f"dimension {part.dim} in {where}", "a declared dimension")
        self.expr(part.lo, where)
        self.expr(part.hi, where)

    def expr(self, expr: Expr, where: str) -> None:
        unknown = sorted(expr.symbols - self.symbols)
        if unknown:
            raise self.fail(IRStructure, f"symbol {unknown[0]} in {where}", "an extent or an argument in scope")
        for name in expr.functions:
            if name.startswith("%"):
                self.use(name, where)
