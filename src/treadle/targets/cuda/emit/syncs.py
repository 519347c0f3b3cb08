"""Synchronisation: one statement is one instruction, and the pins that a wait for contractions needs."""

from __future__ import annotations

from treadle.algebra.expr import Expr, const
from treadle.machine.form import Last, MemRef, Sync
from treadle.targets.cuda.emit.copies import barrier
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.names import cname
from treadle.targets.cuda.emit.scope import Scope, register

_ANYWHERE = (
    *("barrier.sync", "barrier.arrive", "cpasync.commit", "cpasync.wait", "grid.sync"),
    *("counter.add", "counter.wait", "fence.gpu"),
    *("mbar.init", "mbar.arrive", "mbar.wait", "cpasync.arrive"),
)


def sync(scope: Scope, stmt: Sync) -> None:
    """The instruction of a synchronisation."""
    if stmt.kind not in _ANYWHERE:
        scope.setting.need_hopper(stmt.kind)
    args = dict(stmt.args)
    match stmt.kind:
        case "mbar.init" | "mbar.expect" | "mbar.arrive" | "mbar.wait" | "cpasync.arrive":
            _phased(scope, stmt, args)
        case "barrier.sync" | "barrier.arrive":
            for name in scope.setting.ready.get(id(stmt), ()):
                scope.use("landed")
                scope.line(f"landed({register(name)});")
            _named(scope, stmt.kind.removeprefix("barrier."), args["id"], args["threads"])
            if stmt.kind == "barrier.sync":
                for name in sorted(scope.setting.narrow.keys() & scope.setting.later.get(id(stmt), frozenset())):
                    scope.use("landed")
                    scope.line(f"landed({scope.setting.narrow[name]});")
        case "wgmma.wait":
            scope.use("mma_wait")
            scope.line(f"mma_wait<{scope.number(args['depth'], 'the depth')}>();")
            for name in scope.setting.landing.get(id(stmt), ()):
                scope.use("landed")
                scope.line(f"landed({register(name)});")
        case "bulk.wait":
            scope.use("bulk_wait")
            depth = scope.number(args["depth"], "the depth")
            source = "read" in args and scope.number(args["read"], "read")
            scope.line(f"bulk_wait{'_source' if source else ''}<{depth}>();")
        case "cpasync.wait":
            scope.use("copies_wait")
            scope.line(f"copies_wait<{scope.number(args['depth'], 'the depth')}>();")
        case "counter.add":
            scope.line(f"{scope.use('counter_add')}({word(scope, stmt.object)});")
        case "counter.wait":
            scope.line(f"{scope.use('counter_wait')}({word(scope, stmt.object)}, {scope.text(args['count'])});")
        case "fence.gpu":
            scope.line(f"{scope.use('fence_gpu')}();")
        case "grid.sync":
            number = "++met" if scope.setting.counted else f"{scope.setting.meetings[id(stmt)]}u"
            scope.line(f"{scope.use('grid_meet')}(arrivals, {number});")
        case "setmaxnreg":
            _registers(scope, scope.number(args["registers"], "the registers"))
        case _:
            called = _PLAIN.get(stmt.kind)
            if called is None:
                raise unsupported(f"the synchronisation {stmt.kind}", "a kind of CUDA's")
            if called == "fence_async_proxy" and scope.setting.wide_fence:
                called = "fence_async_proxy_all"
            scope.line(f"{scope.use(called)}();")


_PLAIN = {
    "fence.proxy.async": "fence_async_proxy",
    "fence.mbar_init": "fence_barrier_init",
    "cluster.arrive": "cluster_arrive",
    "grid.wait": "grid_wait",
    "grid.release": "grid_release",
    "cluster.wait": "cluster_wait",
    "wgmma.fence": "mma_fence",
    "wgmma.commit": "mma_commit",
    "bulk.commit": "bulk_commit",
    "cpasync.commit": "copies_commit",
}


def _phased(scope: Scope, stmt: Sync, args: dict[str, Expr]) -> None:
    if stmt.object is None:
        raise ill_formed(f"{stmt.kind} without a barrier", "a barrier")
    found = scope.setting.shared.barriers.get(stmt.object.name)
    if found is None:
        raise ill_formed(f"the barrier {stmt.object.name}", "a declared barrier")
    if stmt.kind == "mbar.init":
        scope.use("barrier_init")
        if stmt.object.version is not None:
            scope.line(f"barrier_init({barrier(scope, stmt.object)}, {found.count});")
            return
        for version in range(found.versions):
            scope.line(f"barrier_init(base + {found.offset + 8 * version}, {found.count});")
        return
    where = barrier(scope, MemRef(stmt.object.name, (), stmt.object.version))
    if stmt.kind == "mbar.expect":
        scope.line(f"{scope.use('barrier_expect')}({where}, {scope.text(args['bytes'])});")
    elif stmt.kind == "cpasync.arrive":
        more = "more" in args and scope.number(args["more"], "more")
        scope.line(f"{scope.use('copies_arrive')}{'_more' if more else ''}({where});")
    elif stmt.kind == "mbar.wait":
        phase = scope.symbols.text(scope.symbols.resolve(args["phase"]) % 2)
        far = "cluster" in args and scope.number(args["cluster"], "cluster")
        if far:
            scope.setting.need_hopper("a wait for the scope of a cluster")
        scope.line(f"{scope.use('barrier_wait_far' if far else 'barrier_wait')}({where}, {phase.narrow()});")
    elif stmt.object.rank is not None or "count" in args:
        scope.setting.need_hopper("arrivals of several at once, or at another workgroup")
        _arrivals(scope, stmt.object, where, args)
    else:
        scope.line(f"{scope.use('barrier_arrive')}({where});")


def _arrivals(scope: Scope, ref: MemRef, where: str, args: dict[str, Expr]) -> None:
    count = scope.text(args["count"]) if "count" in args else "1"
    if ref.rank is not None:
        _far_arrival(scope, ref, where, count)
    else:
        scope.line(f"{scope.use('barrier_arrive_many')}({where}, {count});")


def word(scope: Scope, ref: MemRef | None) -> str:
    """The address of a counter's word."""
    found = None if ref is None else scope.setting.counters.get(ref.name)
    if ref is None or found is None or len(found.shape) != len(ref.index):
        raise ill_formed(f"the counter {'' if ref is None else ref.name}", "one that the host declares")
    at: Expr = const(0)
    for i, extent in zip(ref.index, found.shape):
        at = at * extent + i
    return f"{cname(found.name, 'c_')} + {scope.text(at)}"


def arrives_last(scope: Scope, last: Last) -> str:
    """The condition of an `if last`: every thread of the agent goes through it."""
    if scope.elected or scope.lanes != 32:
        raise unsupported("an arrival of a part of an agent", "whole warps, all of the agent's")
    of, number = scope.text(last.of), scope.text(last.id)
    called = scope.use("arrives_last")
    return f"{called}({word(scope, last.counter)}, {of}, {number}, {last.threads}, {scope.single})"


def _far_arrival(scope: Scope, ref: MemRef, where: str, count: str) -> None:
    """An arrival at the barrier of another workgroup of the cluster, or of all of them."""
    called = scope.use("barrier_arrive_at")
    if isinstance(ref.rank, Expr):
        scope.line(f"{called}({where}, {scope.text(ref.rank)}, {count});")
        return
    for rank in range(scope.setting.cluster):
        scope.line(f"{called}({where}, {rank}, {count});")


def _named(scope: Scope, verb: str, number: Expr, threads: Expr) -> None:
    called = scope.use(f"named_{verb}")
    which, count = scope.symbols.text(number), scope.symbols.text(threads)
    if which.number is not None and count.number is not None:
        if not 0 <= which.number < 16 or count.number % 32:
            raise ill_formed(f"named barrier {which.number} of {count.number} threads", "0..15 and whole warps")
        scope.line(f"{called}<{which.number}, {count.number}>();")
    else:
        scope.line(f"{called}({which.narrow()}, {count.narrow()});")


def _registers(scope: Scope, registers: int) -> None:
    """More or fewer than the kernel is entered with: what 64 Ki registers give each of its threads."""
    if registers % 8 or not 24 <= registers <= 256:
        raise ill_formed(f"{registers} registers a thread", "a multiple of 8 in 24..256")
    entry = min(255, (1 << 16) // scope.setting.threads) // 8 * 8
    scope.use("registers")
    scope.line(f"registers_{'more' if registers > entry else 'fewer'}<{registers}>();")
