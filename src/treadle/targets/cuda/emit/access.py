"""Loads and stores between fragments and memory: addresses, vectors of up to 16 bytes, masks.

Slots whose elements are neighbours in memory move together, where the address is provably a multiple of the vector and
the mask provably the same for all of it; the others move one by one. A masked slot never touches memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.algebra.expr import ZERO, Constraint, Expr, Sym, const, sym
from treadle.dtype.formats import f32
from treadle.machine.form import Fill, FragRef, Load, MemRef, Store
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.fragments import Layout, lane_rows, matrix_axes
from treadle.targets.cuda.emit.halves import fetched, load_pairs, put
from treadle.targets.cuda.emit.scope import Scope, register
from treadle.targets.cuda.emit.storage import Storage, element_type
from treadle.targets.cuda.emit.values import HALVES, Val, bits, ctype, number

WHOLE = "whole"
"""Tag of a load that most often has all of its elements: one test for all of them comes first, and where it holds, no
masks."""
_WORDS = {16: "uint4", 8: "uint2", 4: "u32", 2: "u16"}
_FIELDS = "xyzw"


def storage(scope: Scope, name: str) -> Storage:
    """The memory of a name. Errors: emit/cuda-ill-formed."""
    found = scope.setting.storages.get(name)
    if found is None:
        raise ill_formed(f"the memory {name}", "a tensor or buffer of the program")
    return found


@dataclass(frozen=True)
class Run:
    """Slots that move together; `offset` in elements of the first; `condition` the mask."""

    slots: tuple[int, ...]
    offset: Expr
    condition: str | None


class Pointer:
    """Addresses in one storage for one statement: the first one is computed once, the others lie at distances."""

    def __init__(self, scope: Scope, memory: Storage, ref: MemRef, env: dict[str, Expr]) -> None:
        self.scope = scope
        self.memory = memory
        self.version = None if ref.version is None else scope.symbols.resolve(ref.version)
        self.index = [i.substitute(env) for i in ref.index]
        self.first = scope.symbols.resolve(memory.offset(self.index, self.version))
        self.rank = ref.rank if isinstance(ref.rank, Expr) else None
        self.name = ""
        self.base = "smem"
        self.along = ""

    def _base(self) -> str:
        """The text of the first offset in elements: indices times strides, not the expanded polynomial."""
        parts: list[str] = []
        for index, stride in zip(self.index, self.memory.strides):
            i, s = self.scope.symbols.text(index), self.scope.symbols.text(stride)
            if i.number == 0:
                continue
            left = f"({i.text})" if " " in i.text else i.text
            right = f"({s.text})" if " " in s.text else s.text
            parts.append(left if s.number == 1 else f"(i64){left} * {right}")
        if self.version is not None:
            slot = self.scope.symbols.text((self.version % self.memory.versions) * self.memory.version_size)
            parts.append(slot.text)
        return " + ".join(parts) or "0"

    def _bytes(self, offset: Expr) -> str:
        memory = self.memory
        known = self.scope.symbols.text(offset * memory.itemsize + memory.start)
        return known.narrow() if known.wide else f"(int)({known.text})"

    def start(self) -> None:
        """Declares the first address."""
        if self.memory.kind == "array":
            return
        self.name = self.scope.head.fresh("q")
        if self.rank is not None:
            self.base = self.scope.head.fresh("peer")
            rank = self.scope.text(self.rank)
            self.scope.line(f"unsigned char* const {self.base} = {self.scope.use('peer')}(smem, {rank});")
        if self.memory.kind == "shared":
            turn = self._turn()
            self.along = "" if turn == ZERO else f" + {self._distance(self.first + turn)}"
            self.scope.line(f"const int {self.name} = {self._bytes(self.first - turn)};")
        else:
            self.scope.line(f"auto* const {self.name} = {self.memory.pointer} + ({self._base()});")

    def _turn(self) -> Expr:
        """What the loop around adds to the first address, iteration by iteration. Apart from the rest, which then is
        made before the loop, it goes into the instruction where iterations are written one behind the other."""
        turning = self.scope.turning
        if self.memory.swizzle or turning not in self.first.symbols:
            return ZERO
        along = sym(turning) * self.first.coefficient(Sym(turning))
        return ZERO if turning in (self.first - along).symbols else along

    def at(self, offset: Expr) -> str:
        """A C++ address (of elements) at an offset. Requires: `start`."""
        memory = self.memory
        kind = element_type(memory)
        if memory.kind == "array":
            return f"({memory.pointer} + {self.scope.text(offset)})"
        distance = self.scope.symbols.text(offset - self.first)
        if memory.kind == "global":
            return self.name if distance.number == 0 else f"({self.name} + {distance.text})"
        if not memory.swizzle:  # distances apart: what is constant of them goes into the instruction
            far = "" if distance.number == 0 else f" + ({self._distance(offset)})"
            return f"(({kind}*)({self.base} + {self.name}{self.along}{far}))"
        return f"(({kind}*)({self.base} + {self.shared(offset)}))"

    def _distance(self, offset: Expr) -> str:
        """Bytes from the first address."""
        return self.scope.symbols.text((offset - self.first) * self.memory.itemsize).text

    def shared(self, offset: Expr) -> str:
        """Bytes from the start of shared memory, swizzled."""
        memory = self.memory
        distance = self._distance(offset)
        first = f"{self.name}{self.along}"
        text = first if distance == "0" else f"{first} + {distance}"
        if memory.swizzle:
            return f"{self.scope.use(f'swizzle_{memory.swizzle}')}({text})"
        return f"({text})"


def runs(
    scope: Scope, pointer: Pointer, points: Sequence[dict[str, Expr]], ref: MemRef, where: Sequence[Constraint],
    widest: int = 16,
) -> list[Run]:  # fmt: skip
    """The slots of a statement in groups that move together; `widest` in bytes."""
    memory = pointer.memory
    size = memory.itemsize
    offsets: list[Expr] = []
    for env in points:
        index = [i.substitute(env) for i in ref.index]
        offsets.append(scope.symbols.resolve(memory.offset(index, pointer.version)))
    facts = [tuple(scope.symbols.resolve(f.substitute(env).expr) for f in where) for env in points]
    families: dict[Expr, dict[int, int]] = {}
    for slot, offset in enumerate(offsets):
        constant = offset.offset
        families.setdefault(offset - constant, {}).setdefault(constant, slot)
    found: list[Run] = []
    taken: set[int] = set()
    most = 1 if memory.kind == "array" or size > 4 else widest // size
    for rest, members in families.items():
        by = scope.symbols.text(rest * size + memory.start).by if rest != ZERO or memory.start != ZERO else 0
        for constant in sorted(members):
            if members[constant] in taken:
                continue
            width = most
            while width > 1:
                slots = [members.get(constant + j) for j in range(width)]
                known = [s for s in slots if s is not None and s not in taken]
                if (
                    len(known) == width
                    and by % (width * size) == 0
                    and memory.align % (width * size) == 0
                    and (constant * size) % (width * size) == 0
                    and _uniform(scope, [facts[s] for s in known])
                ):
                    break
                width //= 2
            slots = tuple(members[constant + j] for j in range(width))
            taken.update(slots)
            condition = scope.conditions(where, points[slots[0]])
            found.append(Run(slots, offsets[slots[0]], condition))
    # Slots with one address (replicas in registers of one thread) move alone.
    for slot in range(len(points)):
        if slot not in taken:
            found.append(Run((slot,), offsets[slot], scope.conditions(where, points[slot])))
    return sorted(found, key=lambda r: r.slots[0])


def _uniform(scope: Scope, facts: Sequence[tuple[Expr, ...]]) -> bool:
    """Whether every fact of the first slot holds exactly when it holds in all.

    A fact `e - j >= 0` for slots `j < v` with `e + 1` a multiple of `v` is; so is `e + j >= 0` with `e` one.
    """
    width = len(facts)
    for column in zip(*facts):
        first = column[0]
        steps = {(e - first).constant for e in column}
        if steps == {0}:
            continue
        if all((e - first).constant == -j for j, e in enumerate(column)):
            if scope.symbols.text(first + 1).by % width:
                return False
        elif all((e - first).constant == j for j, e in enumerate(column)):
            if scope.symbols.text(first).by % width:
                return False
        else:
            return False
    return True


def _stored(value: Val, scope: Scope) -> str:
    """A value as it lies in memory, of one element."""
    if value.dtype.is_bool:
        return f"(u8)({value.text})"
    return bits(value, scope.setting.prelude) if value.dtype in HALVES else value.text


def _fetched(text: str, memory: Storage) -> Val:
    return Val(f"({text} != 0)" if memory.dtype.is_bool else text, memory.dtype)


def _from_words(words: Sequence[str], count: int, memory: Storage) -> list[Val]:
    """The elements inside words of 32 bits."""
    size = memory.itemsize
    values: list[Val] = []
    for j in range(count):
        word = words[j * size // 4]
        shift = (j * size % 4) * 8
        if size == 4:
            kind = ctype(memory.dtype)
            text = f"__uint_as_float({word})" if memory.dtype == f32 else f"({kind}){word}"
        else:
            kind = element_type(memory)
            text = f"({kind})({word} >> {shift})" if shift else f"({kind}){word}"
        values.append(_fetched(text, memory))
    return values


def _to_words(values: Sequence[Val], scope: Scope) -> list[str]:
    """Elements packed in words of 32 bits."""
    dtype = values[0].dtype
    if dtype.bits == 32:
        return [f"__float_as_uint({v.text})" if dtype == f32 else f"(u32){v.text}" for v in values]
    each = 32 // (8 if dtype.is_bool else dtype.bits)
    words: list[str] = []
    for i in range(0, len(values), each):
        pieces: list[str] = []
        for j, v in enumerate(values[i : i + each]):
            piece = f"(u32)({'u8' if dtype.bits <= 8 else 'u16'})({_stored(v, scope)})"
            pieces.append(f"{piece} << {j * 32 // each}" if j else piece)
        words.append(" | ".join(f"({p})" for p in pieces))
    return words


def _words(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}.{_FIELDS[i]}" for i in range(count)]


def _pairs(made: Layout, slots: Sequence[int]) -> bool:
    """Whether the slots fill whole registers of a packed fragment, in order."""
    return made.packed and slots[0] % 2 == 0 and all(b == a + 1 for a, b in zip(slots, slots[1:])) and len(slots) > 1


# ---- statements

ALIKE = 4
"""The fewest accesses of a thread for which a condition of all of them is tested once."""


def load(scope: Scope, stmt: Load) -> None:
    """`dst[$] = src where ... fill ...`."""
    made = scope.layout(stmt.dst)
    memory = storage(scope, stmt.src.name)
    if memory.dtype != made.frag.dtype:
        raise ill_formed(f"{stmt.dst} of {made.frag.dtype} loaded from {memory.dtype}", "one dtype")
    where = (*scope.inside(made), *stmt.where)
    points = [scope.point(made, s) for s in range(made.count)]
    fill = filled(stmt.fill, made)
    if memory.halves and memory.kind == "shared":
        load_pairs(scope, stmt, made, memory, points)
        return
    if memory.halves:
        _load_halves(scope, stmt, made, memory, where, points, fill)
        return
    if WHOLE in stmt.tags and (tests := whole(scope, stmt, made)):
        inner = scope.child()
        with inner.block(f"if ({tests}) {{", "} else {"):
            load(inner, replace(stmt, where=(), tags=()))
        other = scope.child()
        other.depth += 1
        load(other, replace(stmt, tags=()))
        scope.line("}")
        return
    with scope.block("{"):
        pointer = Pointer(scope, memory, stmt.src, points[0])
        pointer.start()
        found = list(runs(scope, pointer, points, stmt.src, where))
        if test := alike(found):
            with scope.block(f"if ({test}) {{", "} else {"):
                _load_runs(scope, pointer, [replace(r, condition=None) for r in found], made, fill)
            scope.depth += 1
            _settle(scope, made, dict.fromkeys(range(made.count), fill))
            scope.depth -= 1
            scope.line("}")
        else:
            _load_runs(scope, pointer, found, made, fill)


def alike(found: Sequence[Run]) -> str:
    """The one condition of several parts under which a thread does all of many accesses, or none; "": there is no such.

    Access by access it would be a branch before each, and few of them were under way at a time."""
    tests = {run.condition for run in found} if len(found) >= ALIKE else set[str | None]()
    test = next(iter(tests)) if len(tests) == 1 else None
    return test if test is not None and "&&" in test else ""


def _load_runs(scope: Scope, pointer: Pointer, found: Sequence[Run], made: Layout, fill: Val) -> None:
    loose: dict[int, Val] = {}
    for run in found:
        if len(run.slots) == 1:
            loose[run.slots[0]] = _load_one(scope, pointer, run, fill)
        else:
            _load_run(scope, pointer, run, made, fill, loose)
    _settle(scope, made, loose)


def whole(scope: Scope, stmt: Load, made: Layout) -> str:
    """A test, the same for all threads, under which a load has all of its elements; "": there is none."""
    if scope.inside(made):
        return ""
    tests: list[str] = []
    for one in stmt.where:
        expr = one.expr
        for axis, size in enumerate(made.frag.shape):
            name = f"${axis}"
            along = expr.coefficient(Sym(name))
            expr = expr.substitute({name: const(0 if along >= 0 else size - 1)})
            if (one.expr - sym(name) * along).symbols & {name}:
                return ""
        if one.equality or expr.functions:
            return ""
        test = scope.symbols.condition(Constraint(expr))
        tests += [] if test is None else [f"({test})"]
    return " && ".join(dict.fromkeys(tests))


def _load_halves(
    scope: Scope, stmt: Load, made: Layout, memory: Storage, where: Sequence[Constraint],
    points: Sequence[dict[str, Expr]], fill: Val,
) -> None:  # fmt: skip
    for slot, env in enumerate(points):
        value, condition = fetched(scope, memory, stmt.src, env), scope.conditions(where, env)
        text = value.text if condition is None else f"({condition}) ? {value.text} : {fill.text}"
        scope.line(f"{register(made.frag.name)}[{slot}] = {text};")


def filled(fill: Fill, made: Layout) -> Val:
    """What slots outside the mask hold."""
    return number(0 if fill == "undef" else fill, made.frag.dtype)


def _load_one(scope: Scope, pointer: Pointer, run: Run, fill: Val) -> Val:
    value = _fetched(f"*{pointer.at(run.offset)}", pointer.memory)
    if run.condition is None:
        return value
    return Val(f"({run.condition} ? {value.text} : {_plain(fill, scope)})", value.dtype)


def _plain(value: Val, scope: Scope) -> str:
    return bits(value, scope.setting.prelude) if value.dtype in HALVES else value.text


def _load_run(
    scope: Scope, pointer: Pointer, run: Run, made: Layout, fill: Val, loose: dict[int, Val]
) -> None:  # fmt: skip
    size = len(run.slots) * pointer.memory.itemsize
    kind, name = _WORDS[size], scope.head.fresh("v")
    address = f"*(const {kind}*){pointer.at(run.offset)}"
    if run.condition is None:
        scope.line(f"const {kind} {name} = {address};")
    else:
        words = _to_words([fill] * len(run.slots), scope)
        start = words[0] if len(words) == 1 else "{" + ", ".join(words) + "}"
        scope.line(f"{kind} {name} = {start};")
        scope.line(f"if ({run.condition}) {name} = {address};")
    words = _words(name, max(1, size // 4))
    if _pairs(made, run.slots):
        for i, word in enumerate(words):
            scope.line(f"{register(made.frag.name)}[{run.slots[0] // 2 + i}] = {word};")
        return
    for slot, value in zip(run.slots, _from_words(words, len(run.slots), pointer.memory)):
        loose[slot] = value


def _settle(scope: Scope, made: Layout, loose: dict[int, Val]) -> None:
    """Assigns slots one by one; halves of a packed register together."""
    array = register(made.frag.name)
    if not made.packed:
        for slot in sorted(loose):
            scope.line(f"{array}[{slot}] = {_plain(loose[slot], scope)};")
        return
    prelude = scope.setting.prelude
    for word in sorted({s // 2 for s in loose}):
        low, high = loose.get(2 * word), loose.get(2 * word + 1)
        if low is None or high is None:
            raise ill_formed(f"half of a register of {made.frag.name}", "whole registers")
        scope.line(f"{array}[{word}] = {prelude.use('pair')}({bits(low, prelude)}, {bits(high, prelude)});")


def store(scope: Scope, stmt: Store) -> None:
    """`dst = src[$] where ...`, by one holder of each slot."""
    if stmt.src.coords is not None:
        raise ill_formed(f"a store of a part of {stmt.src.name}", "a whole fragment")
    made = scope.layout(stmt.src.name)
    memory = storage(scope, stmt.dst.name)
    if memory.dtype != made.frag.dtype:
        raise ill_formed(f"{stmt.src.name} of {made.frag.dtype} stored to {memory.dtype}", "one dtype")
    where = (*scope.inside(made), *stmt.where)
    points = [scope.point(made, s) for s in range(made.count)]
    owner = scope.owner(made)
    with scope.block("{" if owner is None else f"if ({owner}) {{"):
        if memory.halves and memory.kind == "shared":
            raise unsupported(f"a store to {stmt.dst.name}", "elements of whole bytes in shared memory")
        if memory.halves:
            _store_halves(scope, stmt, made, memory, where, points)
            return
        if stmt.mask is None and stmt.effect == "set" and not where and _store_matrices(scope, made, memory, stmt.dst):
            return
        pointer = Pointer(scope, memory, stmt.dst, points[0])
        pointer.start()
        single = stmt.mask is not None or stmt.effect != "set"
        widest = memory.itemsize if single else 16
        for run in runs(scope, pointer, points, stmt.dst, where, widest):
            tests = [] if run.condition is None else [run.condition]
            if stmt.mask is not None:
                tests.append(_mask(scope, stmt.mask, made, run.slots[0]))
            guard = f"if ({' && '.join(tests)}) " if tests else ""
            values = [scope.read(stmt.src.name, s) for s in run.slots]
            if stmt.effect != "set":
                scope.line(f"{guard}{_update(scope, pointer, run, values[0], stmt.effect)};")
            elif len(values) == 1:
                scope.line(f"{guard}*{pointer.at(run.offset)} = {_stored(values[0], scope)};")
            else:
                scope.line(f"{guard}{_vector_store(scope, pointer, run, made, values)};")


def _store_halves(
    scope: Scope, stmt: Store, made: Layout, memory: Storage, where: Sequence[Constraint],
    points: Sequence[dict[str, Expr]],
) -> None:  # fmt: skip
    for slot, env in enumerate(points):
        condition = scope.conditions(where, env)
        tests = [] if condition is None else [condition]
        if stmt.mask is not None:
            tests.append(_mask(scope, stmt.mask, made, slot))
        guard = f"if ({' && '.join(tests)}) " if tests else ""
        scope.line(f"{guard}{put(scope, memory, stmt.dst, env, scope.read(stmt.src.name, slot))};")


def _mask(scope: Scope, mask: FragRef, made: Layout, slot: int) -> str:
    coords = mask.coords
    env = scope.place(made, slot)
    if coords is None:
        other = scope.layout(mask.name)
        found = other.find([env[f"${i}"] for i in range(len(made.frag.shape))]) if other.frag.shape else 0
        if found is None:
            raise unsupported(f"the mask {mask.name} with another distribution", f"that of {made.frag.name}")
        return scope.read(mask.name, found).text
    return scope.read(mask.name, scope.source(mask.name, coords, env)).text


def _vector_store(scope: Scope, pointer: Pointer, run: Run, made: Layout, values: Sequence[Val]) -> str:
    size = len(run.slots) * pointer.memory.itemsize
    kind = _WORDS[size]
    if _pairs(made, run.slots):
        words = [f"{register(made.frag.name)}[{run.slots[0] // 2 + i}]" for i in range(size // 4)]
    elif size < 4:
        first, second = (_stored(v, scope) for v in values)
        words = [f"(u16)((u32)(u8)({first}) | (u32)(u8)({second}) << 8)"]
    else:
        words = _to_words(values, scope)
    text = words[0] if len(words) == 1 else f"{kind}{{{', '.join(words)}}}"
    return f"*({kind}*){pointer.at(run.offset)} = {text}"


def _update(scope: Scope, pointer: Pointer, run: Run, value: Val, effect: str) -> str:
    """An update that others may do at the same time."""
    memory, dtype = pointer.memory, value.dtype
    address = pointer.at(run.offset)
    own = _stored(value, scope)
    arith, prelude = scope.setting.arith, scope.setting.prelude
    if memory.kind == "array":
        return f"*{address} = {_stored(arith.fold(effect, _fetched(f'*{address}', memory), value), scope)}"
    if effect == "add" and (dtype.is_float and dtype.bits >= 32 or dtype.is_int and dtype.bits >= 32):
        kind = {"i32": "int", "u32": "u32", "i64": "u64", "u64": "u64"}.get(dtype.name, ctype(dtype))
        return f"atomicAdd(({kind}*){address}, ({kind}){own})"
    prelude.use("update")
    held = {"f32": "__uint_as_float(x)", "f64": "__longlong_as_double((i64)x)"}.get(dtype.name, f"({ctype(dtype)})x")
    old = Val("((u8)x != 0)" if dtype.is_bool else held, dtype)
    merged = _stored(arith.fold(effect, old, value), scope)
    back = {"f32": f"__float_as_uint({merged})", "f64": f"(u64)__double_as_longlong({merged})"}.get(dtype.name, merged)
    if dtype.bits == 64:
        return f"update_u64((u64*){address}, [&](u64 x) {{ return (u64)({back}); }})"
    if dtype.bits == 32:
        return f"update_u32((u32*){address}, [&](u32 x) {{ return (u32)({back}); }})"
    width = 8 if dtype.is_bool else dtype.bits
    return f"update_part({address}, {width}u, [&](u32 x) {{ return (u32)({back}); }})"


# ---- stores of matrices


def _store_matrices(scope: Scope, made: Layout, memory: Storage, ref: MemRef) -> bool:
    """Stores by stmatrix, where the fragment is distributed as accumulators are: four 8 x 8 matrices at a time.

    Register `2t + h` of a packed pair holds rows `l / 4 + 8 h`, columns `8 t + 2 (l % 4)` and the next. The lane
    gives the address of row `l % 16` and of column chunk `2 t' + l / 16` of each group of four registers.
    """
    if memory.kind != "shared" or not scope.setting.hopper or not made.packed or made.registers % 4 or made.spare:
        return False
    axes = matrix_axes(made)
    if axes is None:
        return False
    row, column = axes
    warps = made.parts[row] - lane_rows()
    first: Pointer | None = None
    offsets: list[Expr] = []
    for group in range(made.registers // 4):
        slot = made.slots[8 * group]
        env = {f"${a}": scope.part(p) + slot[a] for a, p in enumerate(made.parts)}
        env[f"${row}"] = scope.part(warps) + sym("@lane.row") + slot[row]
        env[f"${column}"] = sym("@lane.column") + slot[column]
        pointer = Pointer(scope, memory, ref, env)
        first = first or pointer
        offsets.append(pointer.first)
        if scope.symbols.text(pointer.first * memory.itemsize + memory.start).by % 16:
            return False
        for step in range(1, 8):
            index = [i.substitute(env | {f"${column}": env[f"${column}"] + step}) for i in ref.index]
            if (scope.symbols.resolve(memory.offset(index, pointer.version)) - pointer.first).constant != step:
                return False
    if first is None:
        return False
    first.start()
    scope.use("store_matrix_4")
    for group, offset in enumerate(offsets):
        words = ", ".join(f"{register(made.frag.name)}[{4 * group + j}]" for j in range(4))
        scope.line(f"store_matrix_4(base + {first.shared(offset)}, {words});")
        scope.setting.counts["STSM"] += 1
    return True
