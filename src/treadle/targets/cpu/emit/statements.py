"""One statement at a time: each machine statement as instructions of the current block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.algebra.expr import Constraint, Expr, const
from treadle.dtype.formats import DType, i64
from treadle.machine.form import (
    Advance,
    Compute,
    Fold,
    FragRef,
    Let,
    Load,
    MemRef,
    Mma,
    Operand,
    Scan,
    Stmt,
    Store,
    Sync,
    Version,
)
from treadle.machine.itself import moves_itself
from treadle.targets.cpu.emit.errors import ill_formed, unsupported
from treadle.targets.cpu.emit.index import Counter, Point, conjuncts, corner
from treadle.targets.cpu.emit.lanes import Vec, constant, vector
from treadle.targets.cpu.emit.layouts import Layout, conditions, expressions
from treadle.targets.cpu.emit.masks import Mask
from treadle.targets.cpu.emit.pairs import GROUPS, dot_product, load_of_pairs
from treadle.targets.cpu.emit.places import Memory, Place
from treadle.targets.cpu.emit.scope import Scope


def frag_shape(scope: Scope, stmt: Stmt) -> tuple[int, ...] | None:
    """The coordinate space of a statement with `where`; None for others."""
    if isinstance(stmt, Load | Compute):
        shape = scope.registers.frag(stmt.dst).shape
        # A fragment that is kept as groups has lost the axis of their members.
        if isinstance(stmt, Load) and stmt.dst in scope.setting.pairs:
            return (*shape, 32 // scope.memories[stmt.src.name].dtype.bits)
        return shape
    if isinstance(stmt, Store):
        name = stmt.src.name
        return () if name in scope.registers.constants else scope.registers.frag(name).shape
    return None


def constraints_of(scope: Scope, stmt: Stmt, full: bool) -> list[Constraint]:
    """The statement's conjuncts that have to be tested: `full` leaves out those that a test ahead has shown to hold."""
    shape = frag_shape(scope, stmt)
    if shape is None:
        return []
    kept: list[Constraint] = []
    for c in conjuncts(conditions(stmt)):
        least = corner(c, shape)
        number = None if least is None else least.constant
        if (number is not None and number >= 0) or (full and least is not None):
            continue
        kept.append(c)
    return kept


def least_values(scope: Scope, stmt: Stmt) -> list[Expr]:
    """For each conjunct that one test can show to hold everywhere, the expression that must be at least 0."""
    shape = frag_shape(scope, stmt)
    if shape is None:
        return []
    found = [corner(c, shape) for c in conjuncts(conditions(stmt))]
    return [e for e in found if e is not None and (e.constant is None or e.constant < 0)]


class Statements:
    """Emission of statements in one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.fn = scope.fn
        self.registers = scope.registers

    def emit(self, stmt: Stmt, full: bool) -> None:
        """The statement. `full`: conjuncts of `least_values` are known to hold."""
        where = constraints_of(self.scope, stmt, full)
        self._apart_from_itself(stmt)
        match stmt:
            case Load():
                self._load(stmt, where)
            case Store():
                self._store(stmt, where)
            case Compute():
                self._compute(stmt, where)
            case Scan():
                raise unsupported("a scan of registers", "folds of registers, or a chain over elements")
            case Fold():
                self.scope.folds.fold(stmt)
            case Mma():
                if self._is_tile(stmt.dst):
                    self.scope.tiles.product(stmt)
                elif stmt.atom in GROUPS:
                    dot_product(self.registers, stmt, self.scope.setting.features, self.scope.fours)
                else:
                    self.scope.folds.mma(stmt)
            case Let():
                self.scope.symbols[stmt.name] = self.scope.value(stmt.expr)
            case Advance():
                self._advance(stmt)
            case Sync():
                self._sync(stmt)
            case Version():
                pass  # evidence only
            case _:
                raise unsupported(f"the statement {type(stmt).__name__}", "a statement of the CPU's vocabulary")

    def _apart_from_itself(self, stmt: Stmt) -> None:
        assigned = stmt.old if isinstance(stmt, Store) else getattr(stmt, "dst", None)
        if isinstance(assigned, str):
            moved = moves_itself(stmt, expressions(stmt), len(self.registers.frag(assigned).shape))
            if moved:
                raise unsupported(f"a statement that finds its way by other slots of {moved}", "a fragment of its own")

    def _is_tile(self, name: str) -> bool:
        return self.scope.setting.layouts.get(name) is Layout.TILE

    def memory(self, ref: MemRef) -> Memory:
        """The tensor or buffer of a reference."""
        found = self.scope.memories.get(ref.name)
        if found is None:
            raise ill_formed(f"the memory {ref.name}", "a tensor argument, a buffer, or workspace, in reach here")
        return found

    def _load(self, stmt: Load, where: Sequence[Constraint]) -> None:
        if self._is_tile(stmt.dst):
            self.scope.tiles.load(stmt, self.memory(stmt.src), where)
            return
        memory = self.memory(stmt.src)
        if stmt.dst in self.scope.setting.pairs:
            whole = load_of_pairs(stmt, memory, self.fn.floordiv)
            if whole is None:
                self.scope.access.load_apart(stmt, memory, where)
                return
            stmt, memory = whole
        self.scope.access.load(stmt, memory, where)

    def _store(self, stmt: Store, where: Sequence[Constraint]) -> None:
        if self._is_tile(stmt.src.name):
            self.scope.tiles.store(stmt, self.memory(stmt.dst), where)
        else:
            self.scope.access.store(stmt, self.memory(stmt.dst), where)

    # ---- compute

    def _compute(self, stmt: Compute, where: Sequence[Constraint]) -> None:
        if self._is_tile(stmt.dst):
            self.scope.tiles.zero(stmt)
            return
        frag = self.registers.frag(stmt.dst)
        rank = len(frag.shape)
        mask = None
        if where and stmt.fill != "undef":
            mask = Mask(self.scope.index, where, rank)
        places = [Place(self.scope.index, self.memory(a), a, rank) for a in stmt.args if isinstance(a, MemRef)]
        if places:
            raise unsupported(f"{stmt.fn} of a memory operand", "operands in fragments")
        results: list[tuple[Point, Vec]] = []
        for point in self.registers.points(stmt.dst):
            value = self.scope.lanes.splat(self._element(stmt, frag.dtype, point), point.lanes)
            active = None if mask is None else mask.at(point)
            if active is not None:
                assert stmt.fill != "undef"
                value = self.scope.arith.select(active, value, constant(frag.dtype, stmt.fill, point.lanes))
            results.append((point, value))
        # Written after everything is read: an operand may be another part of the destination.
        for point, value in results:
            self.registers.write(stmt.dst, point, value)

    def _element(self, stmt: Compute, dtype: DType, point: Point) -> Vec:
        if stmt.fn == "index":
            return self._index(stmt, dtype, point)
        other = self._operand_dtype(stmt)
        name, _, variant = stmt.fn.partition(".")
        if name in ("cast", "bitcast"):
            value = self._operand(stmt.args[0], other or dtype, point)
            if name == "bitcast":
                return self.scope.arith.casts.bitcast(value, dtype)
            return self.scope.arith.casts.cast(value, dtype, variant == "saturate" or "saturate" in stmt.tags)
        if stmt.fn == "where":
            condition, *rest = stmt.args
            chosen = self._operand(condition, self._first_dtype(condition, dtype), point)
            return self.scope.arith.apply("where", [chosen, *(self._operand(a, dtype, point) for a in rest)])
        meaning = self.scope.fn.module.intrinsics.get(stmt.fn)
        if meaning is not None:
            given = zip(stmt.args, meaning.params, strict=True)
            return self.scope.arith.own(meaning, [self._operand(a, p.type.dtype, point) for a, p in given])
        args = [self._operand(a, other or dtype, point) for a in stmt.args]
        return self.scope.arith.apply(stmt.fn, args)

    def _first_dtype(self, operand: Operand, default: DType) -> DType:
        return self._dtype(operand) or default

    def _dtype(self, operand: Operand) -> DType | None:
        if not isinstance(operand, FragRef):
            return None
        known = self.registers.constants.get(operand.name)
        return known.dtype if known is not None else self.registers.frag(operand.name).dtype

    def _operand_dtype(self, stmt: Compute) -> DType | None:
        """The dtype of the fragment operands: numbers among them take it."""
        return next((d for a in stmt.args if (d := self._dtype(a)) is not None), None)

    def _operand(self, operand: Operand, dtype: DType, point: Point) -> Vec:
        if isinstance(operand, FragRef):
            return self.registers.read(operand, point)
        if isinstance(operand, MemRef):
            raise unsupported(f"the memory operand {operand.name}", "operands in fragments")
        return constant(dtype, operand, point.lanes)

    def _index(self, stmt: Compute, dtype: DType, point: Point) -> Vec:
        if stmt.expr is None:
            raise ill_formed("an index computation without an expression", "the expression")
        if point.axis is None or point.lanes is None:
            value = Vec(str(self.scope.index.value(stmt.expr, point)), i64)
        else:
            value = Vec(self.scope.index.vector(stmt.expr, point), i64, point.lanes)
        if dtype.is_bool or dtype.is_float or dtype.bits > 64:
            return self.scope.arith.casts.cast(value, dtype)
        if dtype.bits == 64:
            return replace(value, dtype=dtype)
        kind = vector(f"i{dtype.bits}", value.lanes)
        return Vec(self.fn.value(f"trunc {value.type} {value.text} to {kind}"), dtype, value.lanes)

    # ---- the rest

    def _advance(self, stmt: Advance) -> None:
        counter = self.scope.symbols.get(stmt.counter)
        if not isinstance(counter, Counter):
            raise ill_formed(f"advancing {stmt.counter}", "a counter of the role")
        old = self.fn.value(f"load i64, ptr {counter.pointer}")
        self.fn.do(f"store i64 {self.fn.value(f'add i64 {old}, 1')}, ptr {counter.pointer}")

    def _sync(self, stmt: Sync) -> None:
        match stmt.kind:
            case "amx.config":
                self.scope.tiles.configure()
            case "amx.release":
                self.scope.tiles.release()
            case "prefetch" if stmt.object is not None:
                place = Place(self.scope.index, self.memory(stmt.object), stmt.object, 0)
                self.scope.moves.prefetch(place, dict(stmt.args).get("level", const(1)).constant == 1)
            case _:
                raise unsupported(f"the synchronisation {stmt.kind}", "amx.config, amx.release or prefetch")
