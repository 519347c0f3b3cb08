"""Copy engines: boxes of tensor maps, contiguous bulk copies, and copies of 16 bytes by each thread."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from treadle.algebra.expr import ZERO, Expr, sym
from treadle.machine.form import Copy, MemRef
from treadle.machine.vocabulary import BOX_EFFECTS
from treadle.targets.cuda.emit.access import Pointer, storage
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.index import symbol
from treadle.targets.cuda.emit.scope import Scope
from treadle.targets.cuda.emit.storage import Storage


def copy(scope: Scope, stmt: Copy) -> None:
    """`dst[$] = src[$]` for `$` in the box, by an engine."""
    match stmt.engine:
        case engine if engine == "tma.load" or engine in BOX_EFFECTS:
            scope.setting.need_hopper(stmt.engine)
            _box(scope, stmt)
        case "bulk.load" | "bulk.store":
            scope.setting.need_hopper(stmt.engine)
            _bulk(scope, stmt)
        case "cp.async":
            _by_threads(scope, stmt)
        case _:
            raise unsupported(f"the copy engine {stmt.engine}", "tma, bulk or cp.async")


def barrier(scope: Scope, ref: MemRef) -> str:
    """The shared address of a phased barrier."""
    found = scope.setting.shared.barriers.get(ref.name)
    if found is None:
        raise ill_formed(f"the barrier {ref.name}", "a declared barrier")
    slot: Expr = ZERO if ref.version is None else scope.symbols.resolve(ref.version) % found.versions
    known = scope.symbols.text(slot * 8 + found.offset)
    return f"base + {known.narrow()}"


def _origin(box: Sequence[int]) -> dict[str, Expr]:
    return {f"${i}": ZERO for i in range(len(box))}


def shared_address(scope: Scope, memory: Storage, ref: MemRef, box: Sequence[int]) -> str:
    """The shared address of the box's first element, unswizzled: the engine swizzles by address."""
    version = None if ref.version is None else scope.symbols.resolve(ref.version)
    index = [i.substitute(_origin(box)) for i in ref.index]
    offset = scope.symbols.resolve(memory.offset(index, version))
    begin = offset // 2 if memory.halves else offset * memory.dtype.itemsize
    known = scope.symbols.text(begin + memory.start)
    return f"base + {known.narrow()}"


def _distances(memory: Storage, ref: MemRef, box: Sequence[int]) -> np.ndarray:
    """Elements from the box's first element to each, where only the box's coordinates decide them."""
    offset = memory.offset(ref.index, None)
    names = [f"${i}" for i in range(len(box))]
    moving = offset - offset.substitute(_origin(box))
    grid = np.indices(tuple(box))
    if not moving.symbols <= set(names):
        raise unsupported(f"a copy to {ref.name}[{', '.join(map(str, ref.index))}]", "coordinates of the box alone")
    return np.broadcast_to(np.asarray(moving.evaluate(dict(zip(names, grid)))), grid.shape[1:])


def _row_major(box: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """Element numbers of a box whose axes, from the innermost outward, are `axes`."""
    grid = np.indices(tuple(box))
    total, step = np.zeros(tuple(box), np.int64), 1
    for axis in axes:
        total, step = total + grid[axis] * step, step * box[axis]
    return total


def _box(scope: Scope, stmt: Copy) -> None:
    """A box of a tensor map; the copy engine clips it to the tensor and fills with zeros."""
    loads = stmt.engine == "tma.load"
    outer, inner = (stmt.src, stmt.dst) if loads else (stmt.dst, stmt.src)
    memory = storage(scope, inner.name)
    found = scope.setting.maps.get(stmt.map or "")
    if found is None or memory.kind != "shared":
        raise ill_formed(f"{stmt.engine} through the map {stmt.map}", "a declared map and a shared buffer")
    parameter, axes = found
    if len(outer.index) != len(stmt.box) or len(axes) != len(stmt.box):
        raise ill_formed(f"a box of {len(stmt.box)} extents for {outer.name}", "one an axis of the tensor")
    if not (_distances(memory, inner, stmt.box) == _row_major(stmt.box, axes)).all():
        raise unsupported(
            f"a box of {outer.name} laid out in {inner.name} in another order", "the map's order, innermost first"
        )
    for axis, index in enumerate(outer.index):
        moving = index - index.substitute({f"${axis}": ZERO})
        if moving != sym(f"${axis}") and (stmt.box[axis] > 1 or moving != ZERO):
            raise unsupported(f"the coordinate {index} of a box", f"a start plus ${axis}")
    starts = [outer.index[a].substitute(_origin(stmt.box)) for a in axes]
    if memory.halves:
        starts[0] = starts[0] // 2
    corner = [scope.symbols.text(start) for start in starts]
    coordinates = ", ".join(k.narrow() if k.wide else k.text for k in corner)
    address = shared_address(scope, memory, inner, stmt.box)
    rank = len(axes)
    if loads:
        if stmt.signal is None:
            raise ill_formed("a load without a signal", "a phased barrier")
        called = scope.use(f"{'cast' if stmt.multicast else 'load'}_box_{rank}")
        where = barrier(scope, stmt.signal) + (f", {stmt.multicast}" if stmt.multicast else "")
        scope.line(f"{called}({address}, &{parameter}, {where}, {coordinates});")
        scope.setting.counts["UTMALDG"] += 1
    else:
        called = scope.use(f"{stmt.engine.removeprefix('tma.')}_box_{rank}")
        scope.line(f"{called}(&{parameter}, {address}, {coordinates});")
        scope.setting.counts["UTMASTG"] += 1


def _contiguous(memory: Storage, ref: MemRef, box: Sequence[int]) -> bool:
    offset = memory.offset(ref.index, None)
    expected: Expr = ZERO
    step = 1
    for axis in reversed(range(len(box))):
        expected = expected + (sym(f"${axis}") * step if box[axis] > 1 else ZERO)
        step *= box[axis]
    single = {f"${a}": ZERO for a, extent in enumerate(box) if extent == 1}
    moving = offset - offset.substitute(_origin(box))
    return moving.substitute(single) == expected and not memory.swizzle


def _bulk(scope: Scope, stmt: Copy) -> None:
    """A contiguous run of bytes."""
    loads = stmt.engine == "bulk.load"
    outer, inner = (stmt.src, stmt.dst) if loads else (stmt.dst, stmt.src)
    far, near = storage(scope, outer.name), storage(scope, inner.name)
    size = prod(stmt.box) * near.dtype.itemsize
    length = _length(stmt)
    if far.kind != "global" or near.kind != "shared" or far.dtype != near.dtype:
        raise ill_formed(
            f"{stmt.engine} between {outer.name} and {inner.name}", "global and shared memory of one dtype"
        )
    if size % 16 or not _contiguous(far, outer, stmt.box) or not _contiguous(near, inner, stmt.box):
        raise unsupported(f"{stmt.engine} of {stmt.box} elements of {outer.name}", "a contiguous multiple of 16 bytes")
    origin = _origin(stmt.box)
    number = f"{size}u" if length is None else f"(u32)({scope.text(length * near.dtype.itemsize)})"
    with scope.block("{"):
        pointer = Pointer(scope, far, outer, origin)
        pointer.start()
        address = shared_address(scope, near, inner, stmt.box)
        if loads:
            if stmt.signal is None:
                raise ill_formed("a load without a signal", "a phased barrier")
            called = scope.use("bulk_load")
            where = barrier(scope, stmt.signal)
            scope.line(f"{called}({address}, {pointer.at(pointer.first)}, {number}, {where});")
            scope.setting.counts["UBLKCP"] += 1
        else:
            scope.line(f"{scope.use('bulk_store')}({pointer.at(pointer.first)}, {address}, {number});")
            scope.setting.counts["UBLKCP"] += 1


def _length(stmt: Copy) -> Expr | None:
    """How many elements are copied, where a condition says so: those of the box's one wide axis below a bound."""
    if not stmt.where:
        return None
    bound, *more = stmt.where
    wide = [axis for axis, extent in enumerate(stmt.box) if extent > 1] or [len(stmt.box) - 1]
    length = bound.expr + sym(f"${wide[0]}") + 1
    if len(wide) > 1 or more or bound.equality or any(s[0] == "$" for s in length.symbols):
        raise unsupported(f"{stmt.engine} of the elements where {bound}", "one bound of one wide axis")
    return length


def _chunk_bytes(scope: Scope, rooms: Sequence[Expr], each: int, size: int) -> tuple[str, list[str]]:
    """How many bytes of a chunk of `each` elements there are, given how many elements each bound leaves, and tests
    without which there are none: a bound that whole chunks end at leaves all or nothing."""
    known = [scope.symbols.text(room) for room in rooms]
    known = [k for k in known if k.lo < each]
    tests = [f"{k.text} > 0" for k in known if k.by % each == 0]
    known = [k for k in known if k.by % each]
    if not known:
        return "16u", tests
    scope.use("most")
    scope.use("least")
    count = known[0].text
    for k in known[1:]:
        count = f"least<i64>({count}, {k.text})"
    return f"(u32)(least<i64>(most<i64>({count}, 0), {each}) * {size})", tests


def _by_threads(scope: Scope, stmt: Copy) -> None:
    """Chunks of 16 bytes dealt to the agent's threads; what lies outside the tensor is zero."""
    far, near = storage(scope, stmt.src.name), storage(scope, stmt.dst.name)
    size = near.dtype.itemsize
    each = 16 // size
    if far.kind != "global" or near.kind != "shared" or far.dtype != near.dtype or stmt.box[-1] % each:
        raise unsupported(f"cp.async of {stmt.box} from {stmt.src.name} to {stmt.dst.name}", "rows of 16-byte chunks")
    scope.setting.counts["LDGSTS"] += 1
    threads, last = scope.lanes * scope.warps, len(stmt.box) - 1
    chunks, row = prod(stmt.box) // each, stmt.box[-1] // each
    if len(stmt.box) == 2 and threads % row == 0 and chunks % threads == 0:
        _in_steps(scope, stmt, far, near, each)
        return
    number = scope.head.fresh("chunk")
    inner = scope.child()
    with scope.block(f"for (int {number} = member; {number} < {chunks}; {number} += {threads}) {{"):
        env: dict[str, Expr] = {}
        left = number
        for axis in reversed(range(len(stmt.box))):
            extent = stmt.box[axis] // each if axis == last else stmt.box[axis]
            name = scope.head.fresh("at")
            text = f"{left} % {extent}" if axis else left
            factor = each if axis == last else 1
            scope.line(f"const int {name} = {f'{factor} * ({text})' if factor > 1 else text};")
            inner.symbols.known[f"@{name}"] = symbol(name, 0, factor * (extent - 1), factor)
            env[f"${axis}"] = sym(f"@{name}")
            if axis:
                follow = scope.head.fresh("rest")
                scope.line(f"const int {follow} = {left} / {extent};")
                left = follow
        _Chunks(inner, stmt, far, near, each, env).copy(env)


def _in_steps(scope: Scope, stmt: Copy, far: Storage, near: Storage, each: int) -> None:
    """The same where all threads together copy whole rows: a thread's chunks lie one below the other, so that where it
    begins is found once for the role, and all else is the same for all of them or a number."""
    threads, row = scope.lanes * scope.warps, stmt.box[-1] // each
    names = f"row_{row}_{threads}", f"col_{row}_{threads}_{each}"
    lines = f"const int {names[0]} = member / {row};", f"const int {names[1]} = {each} * (member % {row});"
    scope.head.lines += [line for line in lines if line not in scope.head.lines]
    inner = scope.child()
    inner.symbols.known[f"@{names[0]}"] = symbol(names[0], 0, threads // row - 1)
    inner.symbols.known[f"@{names[1]}"] = symbol(names[1], 0, each * (row - 1), each)
    env: dict[str, Expr] = {"$0": sym(f"@{names[0]}"), "$1": sym(f"@{names[1]}")}
    with scope.block("{"):
        chunks = _Chunks(inner, stmt, far, near, each, env)
        for first in range(0, stmt.box[0], threads // row):
            chunks.copy(env | {"$0": env["$0"] + first})


class _Chunks:
    """Copies of chunks of one statement: addresses are distances from the chunk at `env`."""

    def __init__(self, scope: Scope, stmt: Copy, far: Storage, near: Storage, each: int, env: dict[str, Expr]) -> None:
        last = f"${len(stmt.box) - 1}"
        for ref, memory in ((stmt.src, far), (stmt.dst, near)):
            whole = memory.offset(ref.index, None)
            by = scope.symbols.text(memory.offset([i.substitute(env) for i in ref.index], None)).by
            if (whole - whole.substitute({last: ZERO})).coefficient(sym(last).terms[0][0][0]) != 1 or by % each:
                raise unsupported(f"cp.async of {ref.name} in chunks of 16 bytes", "an aligned contiguous last axis")
        self.scope, self.stmt, self.far, self.each, self.last = scope, stmt, far, each, last
        self.source, self.target = Pointer(scope, far, stmt.src, env), Pointer(scope, near, stmt.dst, env)
        self.source.start()
        self.target.start()

    def copy(self, env: dict[str, Expr]) -> None:
        """The chunk at `env`."""
        scope, last = self.scope, self.last
        tests: list[str] = []
        rooms: list[Expr] = []  # how many elements of the chunk there are, by each bound along it
        for index, extent in zip(self.stmt.src.index, self.far.shape):
            at = index.substitute(env)
            if last in index.symbols:
                rooms.append(extent - at)
            elif scope.symbols.text(extent - at - 1).lo < 0:
                tests.append(f"{scope.text(extent - at)} > 0")
            if scope.symbols.text(at).lo < 0:
                tests.append(f"{scope.text(at)} >= 0")
        for fact in self.stmt.where:
            along = fact.expr.coefficient(sym(last).terms[0][0][0])
            if along == -1 and not fact.equality and last not in (fact.expr + sym(last)).symbols:
                rooms.append(fact.expr.substitute(env) + 1)
            elif last not in fact.symbols:
                tests.append(f"{scope.text(fact.expr.substitute(env))} {'==' if fact.equality else '>='} 0")
            else:
                raise unsupported(f"cp.async of the elements where {fact}", "bounds above along a chunk")
        bytes_, whole = _chunk_bytes(scope, rooms, self.each, self.far.dtype.itemsize)
        tests += whole
        guarded = f"({' && '.join(tests)}) ? {bytes_} : 0u" if tests else bytes_
        # Of no bytes, nothing is read: the address may be anywhere.
        address = self._at(self.source, self.stmt.src.index, env)
        place = self.target.shared(self._offset(self.target, self.stmt.dst.index, env))
        scope.line(f"{scope.use('copy_16')}(base + {place}, (const void*){address}, {guarded});")

    def _offset(self, pointer: Pointer, index: Sequence[Expr], env: dict[str, Expr]) -> Expr:
        there = [i.substitute(env) for i in index]
        return self.scope.symbols.resolve(pointer.memory.offset(there, pointer.version))

    def _at(self, pointer: Pointer, index: Sequence[Expr], env: dict[str, Expr]) -> str:
        return pointer.at(self._offset(pointer, index, env))
