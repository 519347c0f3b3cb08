"""The machine program: the last form before text, and what the checker judges.

A machine program says who executes (roles), with what storage (buffers, fragments, barriers), in what order (sequence,
tasks, loops, `if`), statement by statement. Every statement may carry a *claim*, its witness: which element of which
source value each slot of its destination holds. Claims are evidence, not instructions: the checker re-derives them.

Coordinates. A fragment is a small dense array of fixed shape held by one executing agent (registers, tiles). Inside a
statement `$0, $1, ...` are the coordinates of its destination fragment (of the source fragment, for a store; for an
`Mma`, further `$i` are the contracted coordinates). Every index is an `Expr` over those, loop variables, lets, extents
and `Fn(fragment, coords)` terms (an integer fragment's element), so addresses, masks and claims are one language.

Two names are never re-used in a kernel: loop variables, lets, fragments, buffers and barriers are unique.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from treadle.algebra.expr import Constraint, Expr
from treadle.dtype.formats import DType
from treadle.ir.core import Program
from treadle.ir.guard import Guard

# ---- evidence


@dataclass(frozen=True)
class Claim:
    """Says: slot `$` holds element `coords` of the source value `value`.

    `coords` has one expression an axis of the value, in global coordinates. `where` limits which slots hold it (a slot
    outside holds the statement's `fill`, or nothing). `over`, for a fold or contraction that is not finished, is the
    set of contributions folded so far: constraints on the symbols named in `bound`, which stand for the coordinates of
    the folded axes, in the order of the operation's folded dims; extra symbols `e0, e1, ...` are existential. No
    `over`: the whole value. The instance of the value is given by the regions entered around the statement, except that
    `instance` overrides single region arguments ("b" -> expr; "q.start" -> expr).
    """

    value: str
    coords: tuple[Expr, ...]
    where: tuple[Constraint, ...] = ()
    bound: tuple[str, ...] = ()
    over: tuple[Constraint, ...] | None = None
    instance: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True)
class StoreClaim:
    """Says: these slots are stores of the source operation number `store` (in program walk order).

    `coords` has one expression an axis of the store: the axes of its subscripts, by identity, in order of appearance; a
    subscript that is a number of the instance has none."""

    store: int
    coords: tuple[Expr, ...]
    instance: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True)
class Enter:
    """A loop or task nest executes instances of the source region `region`: each argument's block bounds or coordinate.

    `binds`: argument name -> `(start, stop)` for a block, `(coordinate,)` for a single coordinate.
    """

    region: str
    binds: tuple[tuple[str, tuple[Expr, ...]], ...]


@dataclass(frozen=True)
class Invariant:
    """At the head of every iteration `holder` (a fragment, or a buffer as `Version` does) satisfies `claim`.

    When the claim names a carried value of a region that the loop enters, it is that value for *this* iteration; the
    body must leave the yielded value in the holder; after the loop it holds the region's result. `within`: the slots
    that it speaks of; of others nothing is said, not even the fill.
    """

    holder: str
    claim: Claim
    fill: float | str | None = None
    within: tuple[Constraint, ...] = ()


# ---- operands


@dataclass(frozen=True)
class FragRef:
    """A fragment's element at `coords` (expressions in the statement's `$i`); identity when coords is None."""

    name: str
    coords: tuple[Expr, ...] | None = None


@dataclass(frozen=True)
class MemRef:
    """An element of a tensor argument or buffer. `version` is a ring's sequence number: slot `version % versions`.

    `rank`, of shared memory and barriers: the number of the workgroup of the cluster whose memory is meant (None: its
    own); "all", of a barrier: the one at this place in every workgroup of the cluster."""

    name: str
    index: tuple[Expr, ...]
    version: Expr | None = None
    rank: Expr | Literal["all"] | None = None


Number = int | float | bool
Operand = FragRef | MemRef | Number
Fill = Number | Literal["undef"]

# ---- statements


@dataclass(kw_only=True)
class Stmt:
    """A statement. `by` narrows who executes it: "" every thread of the agent, "warp" one lane of each warp, "elect"
    one thread of the agent. `origin` is a source line."""

    claim: Claim | StoreClaim | None = None
    by: str = ""
    origin: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Load(Stmt):
    """`dst[$] = src` where all of `where` hold, else `fill`."""

    dst: str
    src: MemRef
    where: tuple[Constraint, ...] = ()
    fill: Fill = "undef"


@dataclass(kw_only=True)
class Store(Stmt):
    """`dst = src[$]` for every coordinate of the source fragment where `where` holds. `effect` as in the source.

    `src.coords` is None: a part of a fragment is taken out by a `Compute` "copy" first. `old`, for an atomic effect
    on a tensor, is a fragment that receives what the elements held before, 0 where `mask` skips one: the results of
    the claimed source store. `signal`, of a store to another workgroup's memory: that workgroup's barrier, which counts
    the bytes when they have come; the store is asynchronous."""

    dst: MemRef
    src: FragRef
    where: tuple[Constraint, ...] = ()
    effect: str = "set"
    mask: FragRef | None = None
    old: str | None = None
    signal: MemRef | None = None


@dataclass(kw_only=True)
class Compute(Stmt):
    """`dst[$] = fn(args)`: `fn` is an elementwise name of the IR, "cast", "bitcast", "copy", "index", "fma", "fms", or
    a function that the target's accuracy class realises. "index": the value of `expr`. `where`/`fill`: slots outside
    get `fill` (used to give padding lanes the identity of a later fold)."""

    dst: str
    fn: str
    args: tuple[Operand, ...] = ()
    expr: Expr | None = None
    where: tuple[Constraint, ...] = ()
    fill: Fill = "undef"


@dataclass(kw_only=True)
class Fold(Stmt):
    """`dst[$] = acc[$] (+) fold of src over its axes `axes`` (those coordinates are dropped); `acc` None: just the
    fold.

    With no axes: `dst[$] = acc[$] (+) src[$]`, a step of a running fold; only then may `src.coords` be given.
    """

    dst: str
    monoid: str
    src: FragRef
    acc: FragRef | None = None
    axes: tuple[int, ...] = ()
    nan: str = "propagate"


@dataclass(kw_only=True)
class Scan(Fold):
    """`dst[.., i, ..] = acc[$] (+) src[.., 0, ..] (+) ... (+) src[.., i, ..]` along the one axis of `axes`, which `dst`
    has too: all prefixes, what is visited first on the left. `exclusive`: without `src[.., i, ..]` itself (nothing: the
    identity). `reverse`: from the last coordinate down."""

    exclusive: bool = False
    reverse: bool = False


@dataclass(kw_only=True)
class Mma(Stmt):
    """`dst[$0..] = acc[$0..] + sum over the contracted $ of a * b`, by the atom.

    `contracted` are the extents of the contracted coordinates, numbered after the destination's. `a` and `b` are
    fragments or (for atoms that read memory) buffers, indexed by `$`.
    """

    dst: str
    acc: FragRef | None
    a: FragRef | MemRef
    b: FragRef | MemRef
    atom: str
    contracted: tuple[int, ...] = ()


@dataclass(kw_only=True)
class Copy(Stmt):
    """An engine copies a box: `dst[$] = src[$]` for `$` in `box`, zero outside the source (TMA), completing as
    `signal`. `multicast`, of "tma.load": the workgroups of the cluster, a bit each, whose memory at this place is
    written and whose barriers at the signal's place count the bytes (0: its own alone).

    `engine`: "tma.load", "tma.store", "tma.add", "tma.max", "tma.min" (stores merged with what is there),
    "cp.async", "bulk.load", "bulk.store". `signal`: the barrier (a MemRef into a
    barrier array with its version) or None (a commit group). `where`, of bulk copies alone: the elements that are
    copied, and counted, are those where it holds.
    """

    engine: str
    dst: MemRef
    src: MemRef
    box: tuple[int, ...]
    where: tuple[Constraint, ...] = ()
    signal: MemRef | None = None
    map: str | None = None
    multicast: int = 0


@dataclass(kw_only=True)
class Sync(Stmt):
    """Everything that only orders. `kind` is a row of the target's memory-model table in `hardware`.

    CUDA: mbar.init, mbar.expect, mbar.arrive, mbar.wait, barrier.sync and barrier.arrive (named), fence.proxy.async,
    fence.mbar_init, wgmma.fence, wgmma.commit, wgmma.wait, bulk.commit, bulk.wait, cpasync.commit, cpasync.wait,
    cpasync.arrive (at a phased barrier), setmaxnreg, cluster.arrive and cluster.wait (all threads of the cluster),
    grid.sync (all threads of the launch), grid.release and grid.wait (of a launch to the one that depends on it),
    counter.add and counter.wait (counters in global memory), fence.gpu.
    CPU: amx.config, amx.release. `object` with version; `args` are its numbers (bytes, phase, depth, id,
    threads): `machine.vocabulary.SYNC` lists them by kind.
    """

    kind: str
    object: MemRef | None = None
    args: tuple[tuple[str, Expr], ...] = ()


@dataclass(kw_only=True)
class Version(Stmt):
    """Ghost: from here on, stores to `buffer` write a new version whose element `$` holds `claim` (coords in the
    buffer's `$0, $1, ...`); elements outside `claim.where` hold `fill`. Elements not yet overwritten keep the old
    version. The first read of a new version's element requires that it has been written."""

    buffer: str
    fill: Fill = "undef"


@dataclass(kw_only=True)
class Let(Stmt):
    """Names an index expression."""

    name: str
    expr: Expr


@dataclass(kw_only=True)
class Advance(Stmt):
    """Increments a ring counter of the role (a symbol that starts at 0)."""

    counter: str


Body = list["Stmt | Control"]


@dataclass(kw_only=True)
class Control:
    """Sequence, tasks, loop, `if`: nothing else."""

    origin: int | None = None


@dataclass(kw_only=True)
class Tasks(Control):
    """The tasks `vars[0] < counts[0], vars[1] < counts[1], ...` are handed to agents, each task to exactly one.

    `over`: "workers" (CPU pool), "grid" (one CTA a task), "persistent" (CTAs stride through them), "clusters" (clusters
    stride through them, all workgroups of a cluster run the same task), "tickets" (each CTA draws the next number from
    a counter of the launch until they are used up), "threads", "warps".
    `raster`: the order in which linear task numbers enumerate the product: ("row",) last fastest; ("group", g) as
    panels of g of the first variable, in which the first variable runs fastest; ("slow", g) as groups of g combinations
    of all variables but the last, in which the last variable runs slowest; then "reverse" (last task first) and "snake"
    (every second round of a persistent launch dealt in reverse). Order only: tasks are unordered among one another.
    """

    vars: tuple[str, ...]
    counts: tuple[Expr, ...]
    over: str
    raster: tuple[str | int, ...] = ("row",)
    enters: tuple[Enter, ...] = ()
    body: Body = field(default_factory=list["Stmt | Control"])


@dataclass(kw_only=True)
class Loop(Control):
    """`for var in lo, lo + step, ... < hi`, in order, by every agent that reaches it. `unroll` is a hint to the
    emitter."""

    var: str
    lo: Expr
    hi: Expr
    step: Expr
    enters: tuple[Enter, ...] = ()
    invariants: tuple[Invariant, ...] = ()
    body: Body = field(default_factory=list["Stmt | Control"])
    unroll: int = 1


@dataclass(frozen=True)
class Last:
    """All threads of the agent meet (at the named barrier `id` of `threads`), one of them adds 1 to the counter; it
    was the last arrival if the counter is `of` then. What an agent did before it arrived is visible to the last one."""

    counter: MemRef
    of: Expr
    id: Expr
    threads: int


@dataclass(kw_only=True)
class If(Control):
    """Uniform at `scope` (all agents of it take the same way). `conds`: a conjunction over index expressions; or
    `cond`, a scalar bool fragment that holds a source `if`'s condition (`source` is the number of that `if` in walk
    order); or `last`, whether this agent is the last one to arrive at a counter. `enters`, of one that goes on where
    all arrivals at a counter are over: the instances that it executes (in place of those of the tasks around it)."""

    conds: tuple[Constraint, ...] = ()
    cond: str | None = None
    source: int | None = None
    scope: str = "agent"
    last: Last | None = None
    enters: tuple[Enter, ...] = ()
    then: Body = field(default_factory=list["Stmt | Control"])
    orelse: Body = field(default_factory=list["Stmt | Control"])


# ---- resources


@dataclass(frozen=True)
class Mode:
    """One digit of a distribution: `size` values of `who` ("slot", "lane", "warp", "replica") step `axis` by
    `stride`."""

    who: str
    size: int
    axis: int | None
    stride: int


@dataclass(frozen=True)
class Frag:
    """A fragment. `dist` empty: one agent holds every element in slots. Otherwise modes from the least significant
    digit of each kind; coordinate along an axis = sum of digit * stride. `place`: "register" or "tile" (AMX)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    dist: tuple[Mode, ...] = ()
    place: str = "register"


@dataclass(frozen=True)
class Buffer:
    """Memory with identity. `shape` may be symbolic. `place`: "local" (private to the agent), "shared" (one a CTA),
    "workspace" (global memory of the launch). `versions` > 0 makes it a ring. `layout` maps `$i` to an element offset;
    empty: row-major. `swizzle` as the tensor map's. `offset`: bytes from the start of its place. Elements of four bits
    share bytes, two by two along the last axis, as they do in tensors."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    place: str
    align: int = 64
    versions: int = 0
    swizzle: int = 0
    offset: Expr | None = None

    @property
    def size(self) -> Expr:
        """Bytes of all its versions. Requires: of elements of four bits a constant, even number."""
        count = Expr(()) + max(1, self.versions)
        for extent in self.shape:
            count = count * extent
        return Expr(()) + (count.constant or 0) // 2 if self.dtype.packed else count * self.dtype.itemsize


@dataclass(frozen=True)
class Barrier:
    """A phased barrier (or a ring of them): `count` arrivals complete a phase, with `tx` if bytes count too."""

    name: str
    count: int
    versions: int = 1
    tx: bool = False
    offset: int = 0


@dataclass
class Role:
    """A fixed set of agents that run one body. `threads` a agent (1 on the CPU), `agents` of them, `index` their
    symbol."""

    name: str
    agents: int
    threads: int
    body: Body
    index: str | None = None
    registers: int | None = None
    counters: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorMap:
    """Every field of a TMA descriptor, as the host encodes it."""

    name: str
    tensor: str
    dtype: DType
    box: tuple[int, ...]
    swizzle: int
    fill: str = "zero"
    promotion: int = 128


@dataclass(frozen=True)
class Counter:
    """Words in global memory that count arrivals in one launch: 0 when the call begins."""

    name: str
    shape: tuple[Expr, ...]


@dataclass
class Kernel:
    """One launch's code."""

    name: str
    roles: list[Role]
    frags: list[Frag] = field(default_factory=list[Frag])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    barriers: list[Barrier] = field(default_factory=list[Barrier])


@dataclass(frozen=True)
class Launch:
    """A launch: `grid` workgroups of `threads`, in clusters of `cluster` neighbours.

    `dependent`: it may begin while the launch before it runs, once all workgroups of that one have released it
    (grid.release) or ended; grid.wait waits for the end of that launch.

    `resident`: so many workgroups should fit a multiprocessor, which bounds the registers of a thread (0: as the
    assembler likes)."""

    kernel: str
    grid: Expr
    threads: int = 1
    cluster: int = 1
    cooperative: bool = False
    shared_bytes: int = 0
    resident: int = 0
    dependent: bool = False


@dataclass
class Host:
    """What the host does: extents it computes, workspace it provides, tensor maps it encodes, counters, launches in
    order.

    `workspace` buffers outlive launches; `versions` are ghost claims about their contents after each launch
    (launch index, statement)."""

    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    workspace: list[Buffer] = field(default_factory=list[Buffer])
    maps: list[TensorMap] = field(default_factory=list[TensorMap])
    launches: list[Launch] = field(default_factory=list[Launch])
    counters: list[Counter] = field(default_factory=list[Counter])


@dataclass
class MachineProgram:
    """Self-contained: format version, target, embedded source program, guard, host part, kernels.

    `program` is what statements and claims speak of: the source program expanded (`ir.expand`). `captured` is the
    program as captured, which texts embed; None where expansion changes nothing."""

    target: str
    program: Program
    guard: Guard
    host: Host
    kernels: list[Kernel]
    numerics: tuple[str, ...] = ()  # the ledger: permissions that realisation spent
    format: int = 1
    captured: Program | None = None

    def statements(self) -> Iterator[Stmt | Control]:
        """All statements of all roles, outer before inner, in text order."""
        for kernel in self.kernels:
            for role in kernel.roles:
                yield from walk(role.body)


def nested(body: Body) -> Iterator[Body]:
    """The body and every body inside it, outer before inner."""
    yield body
    for item in body:
        if isinstance(item, Tasks | Loop):
            yield from nested(item.body)
        elif isinstance(item, If):
            yield from nested(item.then)
            yield from nested(item.orelse)


def walk(body: Body) -> Iterator[Stmt | Control]:
    """Statements of a body, outer before inner, in order."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Tasks | Loop):
            yield from walk(stmt.body)
        elif isinstance(stmt, If):
            yield from walk(stmt.then)
            yield from walk(stmt.orelse)
