"""Form of single statements: operands declared, ranks and dtypes that fit, known words."""

from __future__ import annotations

from math import isfinite

from treadle.algebra.expr import Expr
from treadle.dtype.formats import DType, bool_
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.machine.form import (
    Advance,
    Claim,
    Compute,
    Copy,
    Fold,
    FragRef,
    Let,
    Load,
    MemRef,
    Mma,
    Operand,
    Role,
    Scan,
    Stmt,
    Store,
    StoreClaim,
    Sync,
    Version,
)
from treadle.machine.verify_names import EXISTENTIAL, Names
from treadle.machine.vocabulary import ASYNC_ATOMS, ATOMS, EFFECTS, ENGINES, GRAINS, MONOIDS, SYNC, TAGS

_CONVERSIONS = ("cast", "cast.saturate", "bitcast", "copy", "pick")


def check_statement(names: Names, role: Role, item: Stmt, taken: set[str]) -> None:
    """One statement; a `Let` adds its name to the scope."""
    if item.by not in GRAINS:
        names.problem(f"no grain {item.by}: elect, warp or nothing")
    for tag in item.tags:
        if tag not in TAGS:
            names.problem(f"no tag {tag}: {', '.join(TAGS)}")
    match item:
        case Load():
            _load(names, item)
        case Store():
            _store(names, item)
        case Compute():
            _compute(names, item)
        case Scan():
            _scan(names, item)
        case Fold():
            _fold(names, item)
        case Mma():
            _mma(names, item)
        case Copy():
            _copy(names, item)
        case Sync():
            _sync(names, item)
        case Version():
            if item.buffer not in names.buffers:
                names.problem(f"no buffer {item.buffer}")
            check_number(names, item.fill, names.dtype_of(item.buffer))
        case Let():
            names.known(item.expr, 0)
            names.declare(item.name, taken)
            names.scope.add(item.name)
        case Advance():
            if item.counter not in role.counters:
                names.problem(f"role {role.name} has no counter {item.counter}")
        case _:
            names.problem(f"no statement {type(item).__name__}")
    if item.claim is not None:
        check_claim(names, item.claim, _holder_rank(names, item))


def _holder_rank(names: Names, item: Stmt) -> int:
    """How many `$` a claim of the statement may use."""
    match item:
        case Load() | Compute() | Fold() | Mma():
            return names.rank_of(item.dst)
        case Store():
            return names.rank_of(item.src.name)
        case Version():
            return names.rank_of(item.buffer)
        case Copy():
            return len(item.box)
        case _:
            return 0


def check_claim(names: Names, claim: Claim | StoreClaim, rank: int) -> None:
    """Names and ranks of a witness clause."""
    if isinstance(claim, StoreClaim):
        if not 0 <= claim.store < len(names.source.stores):
            names.problem(f"the program has {len(names.source.stores)} stores")
        elif len(claim.coords) != names.source.stores[claim.store]:
            names.problem(f"store {claim.store} has {names.source.stores[claim.store]} axes")
        for expr in claim.coords:
            names.known(expr, rank)
    else:
        value = names.source.values.get(claim.value)
        if value is None:
            names.problem(f"the program has no value {claim.value}")
        elif len(value.type.axes) != len(claim.coords):
            names.problem(f"{claim.value} has {len(value.type.axes)} axes and the claim {len(claim.coords)}")
        free = frozenset(claim.bound) | {
            s for fact in (*claim.where, *(claim.over or ())) for s in fact.symbols if EXISTENTIAL.match(s)
        }
        for expr in claim.coords:
            names.known(expr, rank)
        names.constraints(claim.where, rank, free)
        names.constraints(claim.over or (), rank, free)
        if claim.bound and claim.over is None:
            names.problem("bound coordinates of a claim without `over`")
    for _, expr in claim.instance:
        names.known(expr, rank)


# ---- operands


def _destination(names: Names, name: str) -> tuple[DType, int] | None:
    frag = names.frags.get(name)
    if frag is None:
        names.problem(f"no fragment {name}")
        return None
    return frag.dtype, len(frag.shape)


def _fragment(names: Names, ref: FragRef, coordinates: int, *, same: tuple[int, ...] | None = None) -> DType | None:
    """The dtype of a fragment operand; without coordinates it is of shape `same`, or a scalar."""
    frag = names.frags.get(ref.name)
    if frag is None and ref.name in names.source.scalars:
        if ref.coords:
            names.problem(f"the scalar {ref.name} has no axes")
        return names.source.scalars[ref.name]
    if frag is None:
        names.problem(f"no fragment {ref.name}")
        return None
    if ref.coords is None:
        if same is not None and frag.shape not in ((), same):
            names.problem(f"{ref.name} has shape {list(frag.shape)} where {list(same)} is needed")
        return frag.dtype
    if len(ref.coords) != len(frag.shape):
        names.problem(f"{ref.name} has {len(frag.shape)} axes and is indexed by {len(ref.coords)}")
    for expr in ref.coords:
        names.known(expr, coordinates)
    return frag.dtype


def _memory(names: Names, ref: MemRef, coordinates: int) -> DType | None:
    """The dtype of a memory operand."""
    buffer = names.buffers.get(ref.name)
    tensor = names.source.tensors.get(ref.name)
    if buffer is not None:
        dtype, rank, ring = buffer.dtype, len(buffer.shape), buffer.versions > 0
    elif tensor is not None:
        dtype, rank, ring = *tensor, False
    else:
        names.problem(f"no tensor or buffer {ref.name}")
        return None
    if len(ref.index) != rank:
        names.problem(f"{ref.name} has {rank} axes and is indexed by {len(ref.index)}")
    if ring != (ref.version is not None):
        names.problem(f"{ref.name} is {'a ring and needs a version' if ring else 'no ring and has no versions'}")
    for expr in (*ref.index, *((ref.version,) if ref.version is not None else ())):
        names.known(expr, coordinates)
    if ref.rank is not None:
        _far(names, ref)
        if buffer is None or buffer.place != "shared" or ref.rank == "all":
            names.problem(f"{ref.name} of another workgroup: only one's shared memory can be meant")
    return dtype


def _far(names: Names, ref: MemRef) -> None:
    """A reference to another workgroup of the cluster: one number for all elements."""
    if isinstance(ref.rank, Expr):
        names.known(ref.rank, 0)
    if names.cluster == 1:
        names.problem(f"{ref.name} of another workgroup in a kernel that is not launched in clusters")


def _operand(names: Names, ref: Operand, coordinates: int, same: tuple[int, ...] | None) -> DType | None:
    if isinstance(ref, FragRef):
        return _fragment(names, ref, coordinates, same=same)
    return _memory(names, ref, coordinates) if isinstance(ref, MemRef) else None


def _shape(names: Names, name: str) -> tuple[int, ...] | None:
    return names.frags[name].shape if name in names.frags else None


# ---- statements


def _load(names: Names, item: Load) -> None:
    dst = _destination(names, item.dst)
    rank = dst[1] if dst else 0
    names.constraints(item.where, rank)
    dtype = _memory(names, item.src, rank)
    check_number(names, item.fill, dst[0] if dst else None)
    if dst and dtype and dst[0] != dtype:
        names.problem(f"{item.dst} is {dst[0]} and {item.src.name} is {dtype}: a load does not convert")


def _store(names: Names, item: Store) -> None:
    rank = names.rank_of(item.src.name)
    own = _fragment(names, item.src, rank)
    if item.src.coords is not None:
        names.problem("a store takes a whole fragment")
    names.constraints(item.where, rank)
    dtype = _memory(names, item.dst, rank)
    if own and dtype and own != dtype:
        names.problem(f"{item.src.name} is {own} and {item.dst.name} is {dtype}: a store does not convert")
    if item.effect not in EFFECTS:
        names.problem(f"no effect {item.effect}: {', '.join(EFFECTS)}")
    if item.mask is not None:
        mask = _fragment(names, item.mask, rank, same=_shape(names, item.src.name))
        if mask is not None and not mask.is_bool:
            names.problem(f"the mask {item.mask.name} is {mask}")
    if item.old is not None:
        held = _fragment(names, FragRef(item.old), rank, same=_shape(names, item.src.name))
        if item.effect == "set":
            names.problem("a store that only sets has no old values to hand back")
        if held is not None and own is not None and held != own:
            names.problem(f"{item.old} is {held} and the old values are {own}")
    if item.signal is not None:
        _barrier(names, item.signal, whole=False)
        if item.dst.rank is None or item.signal.rank != item.dst.rank:
            names.problem("a store that signals goes to one workgroup of the cluster, whose barrier it signals")
        if item.effect != "set" or item.mask is not None or item.old is not None:
            names.problem("a store that signals only sets")


def _compute(names: Names, item: Compute) -> None:
    dst = _destination(names, item.dst)
    rank = dst[1] if dst else 0
    names.constraints(item.where, rank)
    have = [_operand(names, arg, rank, _shape(names, item.dst)) for arg in item.args]
    _literals(names, item, have, dst[0] if dst else None)
    if (item.fn == "index") != (item.expr is not None):
        names.problem("`index` has an expression, and nothing else has")
    if item.expr is not None:
        names.known(item.expr, rank)
        if dst and dst[0].is_float:
            names.problem(f"an index in {item.dst} of {dst[0]}")
    arity = 0 if item.fn == "index" else 3 if item.fn in ("fma", "fms") else 1 if item.fn in _CONVERSIONS else None
    arity = ELEMENTWISE[item.fn][0] if item.fn in ELEMENTWISE else arity
    if arity is not None and len(item.args) != arity:
        names.problem(f"{item.fn} of {len(item.args)} operands: it takes {arity}")


def _literals(names: Names, item: Compute, have: list[DType | None], own: DType | None) -> None:
    """Numbers among the operands, and the fill: each is one of the dtype that it stands for."""
    check_number(names, item.fill, own)
    first = 1 if item.fn == "where" else 0
    typed = next((d for d in have[first:] if d is not None), own)
    for i, arg in enumerate(item.args):
        if not isinstance(arg, FragRef | MemRef):
            check_number(names, arg, bool_ if i < first else typed)


def check_number(names: Names, value: float | str | None, dtype: DType | None) -> None:
    """A number of a text is one of its dtype, but for the rounding of a float: `0.5` is no bool, and no machine takes
    it for the same one."""
    if dtype is None or dtype.is_float or value is None or isinstance(value, str):
        return
    low, high = (0, 1) if dtype.is_bool else (dtype.finite_min, dtype.finite_max)
    if not (isfinite(value) and value == int(value) and low <= value <= high):
        names.problem(f"the number {value} as a {dtype}")


def _fold(names: Names, item: Fold) -> None:
    dst = _destination(names, item.dst)
    rank = dst[1] if dst else 0
    shape = _shape(names, item.dst)
    if item.monoid not in MONOIDS:
        names.problem(f"no monoid {item.monoid}: {', '.join(MONOIDS)}")
    if item.nan not in ("propagate", "ignore"):
        names.problem(f"nan {item.nan}: propagate or ignore")
    source = _shape(names, item.src.name)
    if not item.axes:
        _fragment(names, item.src, rank, same=shape)
    elif source is not None:
        kept = tuple(n for axis, n in enumerate(source) if axis not in item.axes)
        if any(not 0 <= a < len(source) for a in item.axes) or len(set(item.axes)) < len(item.axes):
            names.problem(f"axes {list(item.axes)} of a fragment with {len(source)}")
        elif shape is not None and kept != shape:
            names.problem(f"the fold leaves shape {list(kept)} and {item.dst} has {list(shape)}")
        if item.src.coords is not None:
            names.problem("a fold along axes takes a whole fragment")
    else:
        names.problem(f"no fragment {item.src.name}")
    if item.acc is not None:
        _fragment(names, item.acc, rank, same=shape)


def _scan(names: Names, item: Scan) -> None:
    dst = _destination(names, item.dst)
    shape = _shape(names, item.dst)
    if item.monoid not in MONOIDS:
        names.problem(f"no monoid {item.monoid}: {', '.join(MONOIDS)}")
    if item.nan not in ("propagate", "ignore"):
        names.problem(f"nan {item.nan}: propagate or ignore")
    source = _shape(names, item.src.name)
    if source is None:
        names.problem(f"no fragment {item.src.name}")
    elif len(item.axes) != 1 or not 0 <= item.axes[0] < len(source):
        names.problem(f"a scan along axes {list(item.axes)} of a fragment with {len(source)}")
    elif shape is not None and source != shape:
        names.problem(f"the scan has shape {list(source)} and {item.dst} has {list(shape)}")
    if item.src.coords is not None:
        names.problem("a scan takes a whole fragment")
    if item.acc is not None:
        _fragment(names, item.acc, dst[1] if dst else 0, same=shape)


def _mma(names: Names, item: Mma) -> None:
    dst = _destination(names, item.dst)
    rank = dst[1] if dst else 0
    if item.atom.split(".")[0] not in ATOMS:
        names.problem(f"no atom {item.atom}: {', '.join(ATOMS)} and what follows a dot")
    if item.by and item.atom.split(".")[0] in ASYNC_ATOMS:
        names.problem(f"{item.atom} is executed by all threads of an agent together")
    if any(n < 1 for n in item.contracted):
        names.problem("contracted extents are positive")
    for ref in (item.a, item.b):
        _operand(names, ref, rank + len(item.contracted), None)
        if isinstance(ref, MemRef) and ref.rank is not None:
            names.problem(f"{item.atom} reads its own workgroup's memory")
    if item.acc is not None:
        _fragment(names, item.acc, rank, same=_shape(names, item.dst))


def _copy(names: Names, item: Copy) -> None:
    rank = len(item.box)
    if item.engine not in ENGINES:
        names.problem(f"no copy engine {item.engine}: {', '.join(ENGINES)}")
        return
    if any(n < 1 for n in item.box):
        names.problem("extents of a box are positive")
    names.constraints(item.where, rank)
    if item.where and not item.engine.startswith(("bulk", "cp.async")):
        names.problem(f"{item.engine} copies whole boxes")
    dtypes = [_memory(names, ref, rank) for ref in (item.dst, item.src)]
    if None not in dtypes and dtypes[0] != dtypes[1]:
        names.problem(f"a copy from {dtypes[1]} to {dtypes[0]}")
    if item.multicast and (item.engine != "tma.load" or not 0 < item.multicast < 1 << names.cluster):
        names.problem(f"multicast {item.multicast} of {item.engine} in a cluster of {names.cluster}")
    if item.dst.rank is not None or item.src.rank is not None:
        names.problem(f"{item.engine} moves its own workgroup's memory")
    if ENGINES[item.engine] != (item.signal is not None):
        names.problem(f"{item.engine} {'signals a barrier' if ENGINES[item.engine] else 'completes in a group'}")
    if item.signal is not None:
        _barrier(names, item.signal, whole=False)
        if item.signal.rank is not None:
            names.problem(f"{item.engine} signals its own workgroup's barrier")
    if item.engine.startswith("tma"):
        tensor = item.src.name if item.engine == "tma.load" else item.dst.name
        if item.map is None or names.host.maps.get(item.map) != tensor:
            names.problem(f"{item.engine} needs a map of {tensor}")
    elif item.map is not None:
        names.problem(f"{item.engine} takes no map")


def _barrier(names: Names, ref: MemRef, *, whole: bool) -> None:
    barrier = names.barriers.get(ref.name)
    if barrier is None:
        names.problem(f"no barrier {ref.name}")
        return
    if ref.index:
        names.problem(f"{ref.name} is a barrier and takes no index")
    if ref.version is None and barrier.versions > 1 and not whole:
        names.problem(f"{ref.name} has {barrier.versions} versions: one must be named")
    if ref.version is not None:
        names.known(ref.version, 0)
    if ref.rank is not None:
        _far(names, ref)


def check_counter(names: Names, ref: MemRef) -> None:
    """A counter in global memory."""
    counter = names.host.counters.get(ref.name)
    if counter is None:
        names.problem(f"no counter {ref.name}")
    elif len(ref.index) != len(counter.shape) or ref.version is not None or ref.rank is not None:
        names.problem(f"{ref.name} has {len(counter.shape)} axes, and nothing else tells its words apart")
    for expr in ref.index:
        names.known(expr, 0)


def _sync(names: Names, item: Sync) -> None:
    shape = SYNC.get(item.kind)
    if shape is None:
        names.problem(f"no synchronisation {item.kind}: {', '.join(SYNC)}")
        return
    if shape.has_object != (item.object is not None):
        names.problem(f"{item.kind} {'names a barrier' if shape.has_object else 'names nothing'}")
    if item.object is not None and item.kind.startswith("counter."):
        check_counter(names, item.object)
    elif item.object is not None and shape.memory:
        _memory(names, item.object, 0)
    elif item.object is not None:
        _barrier(names, item.object, whole=item.kind == "mbar.init")
        if item.object.rank is not None and item.kind != "mbar.arrive":
            names.problem(f"{item.kind} of another workgroup's barrier: only arrivals reach it")
    if item.kind.startswith("cluster.") and names.cluster == 1:
        names.problem(f"{item.kind} in a kernel that is not launched in clusters")
    given = [name for name, _ in item.args]
    for name in shape.required:
        if name not in given:
            names.problem(f"{item.kind} needs {name}")
    for name in given:
        if name not in (*shape.required, *shape.optional) or given.count(name) > 1:
            names.problem(f"{item.kind} takes no {name}, or takes it once")
    if shape.whole and item.by:
        names.problem(f"{item.kind} is executed by all threads of an agent together")
    for name, expr in item.args:
        names.known(expr, 0)
        low, high = {"read": (0, 1), "more": (0, 1), "cluster": (0, 1), "id": (0, 15)}.get(name, (0, None))
        if expr.constant is not None and (expr.constant < low or (high is not None and expr.constant > high)):
            names.problem(f"{name} is {expr.constant}")
