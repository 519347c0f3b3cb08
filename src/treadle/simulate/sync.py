"""Synchronisation: what each kind of it does, and the waits."""

from __future__ import annotations

from collections.abc import Callable

from treadle.machine.form import Sync
from treadle.machine.vocabulary import SYNC
from treadle.simulate.barriers import Groups, Named
from treadle.simulate.clocks import Order
from treadle.simulate.counters import add, await_count
from treadle.simulate.engines import phased
from treadle.simulate.schedule import Steps, Wait
from treadle.simulate.tape import Synchronised
from treadle.simulate.thread import Thread


def synchronise(thread: Thread, item: Sync) -> Steps:
    """Executes a synchronisation; yields while it waits."""
    shape = SYNC.get(item.kind)
    handler = HANDLERS.get(item.kind)
    if shape is None or handler is None:
        raise thread.fatal("form", f"no kind of synchronisation {item.kind}")
    numbers = {name: thread.number(expr) for name, expr in item.args}
    if thread.by and shape.whole:
        thread.report("protocol", f"{item.kind} is executed by all threads of an agent together")
    wrong = [n for n, v in numbers.items() if v < 0 and n != "phase"]
    if wrong or numbers.get("read", 0) > 1:
        raise thread.fatal("form", f"{item.kind}: {wrong[0] if wrong else 'read'} is out of range")
    missing = [n for n in shape.required if n not in numbers]
    if missing:
        raise thread.fatal("form", f"{item.kind} lacks its {missing[0]}")
    if shape.has_object and item.object is None:
        raise thread.fatal("form", f"{item.kind} names no barrier")
    yield from handler(thread, item, numbers)
    if thread.strand.log is not None:
        version = None if item.object is None else item.object.version
        slot = 0 if version is None else thread.number(version)
        far = () if item.object is None or item.object.rank is None else tuple(g.number for g in thread.target)
        thread.strand.log.add(Synchronised(item, thread.line, numbers, slot, far))


def _arrivals(thread: Thread, item: Sync) -> int:
    return 1 if item.by in ("elect", "warp") else thread.lanes


def _mbar_init(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    assert item.object is not None
    if item.by != "elect" and (thread.warps > 1 or thread.lanes > 1):
        thread.report("protocol", f"{item.object.name} is initialised by more than one thread")
    if item.object.version is not None:
        barriers = [phased(thread, item.object)]
    else:
        barriers = [b for (name, _), b in thread.group.phased.items() if name == item.object.name]
        if not barriers:
            raise thread.fatal("form", f"no barrier {item.object.name}")
    for barrier in barriers:
        barrier.initialise(thread.strand, thread.line)
    yield None


def _mbar_expect(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    assert item.object is not None
    barrier = phased(thread, item.object)
    barrier.usable(thread.strand, thread.line)
    arrivals = _arrivals(thread, item)
    barrier.expect(numbers["bytes"] * arrivals, thread.line)
    barrier.arrive(arrivals, thread.strand.release(), thread.line)
    yield None


def _mbar_arrive(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    assert item.object is not None
    thread.target = thread.reach(item.object)
    for group in thread.target:
        barrier = phased(thread, item.object, group)
        barrier.usable(thread.strand, thread.line)
        barrier.arrive(_arrivals(thread, item) * numbers.get("count", 1), thread.strand.release(), thread.line)
        yield None


def _mbar_wait(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    assert item.object is not None
    barrier = phased(thread, item.object)
    barrier.usable(thread.strand, thread.line)
    parity = numbers["phase"]
    yield Wait(lambda: barrier.over(parity), f"{barrier.name}, phase of parity {parity & 1}", thread.line)
    thread.strand.order.join(barrier.released)
    if numbers.get("cluster", 0):
        thread.strand.order.join(barrier.released_far)


def _named(thread: Thread, numbers: dict[str, int]) -> Named:
    number = numbers["id"]
    if not 0 <= number < 16:
        raise thread.fatal("resource", f"named barrier {number}: there are 16")
    if number not in thread.group.named:
        thread.group.named[number] = Named(f"named barrier {number}", thread.world.findings)
    return thread.group.named[number]


def _barrier_sync(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    barrier = _named(thread, numbers)
    mine = barrier.arrive(thread.lanes, numbers["threads"], thread.strand.release(), thread.line)
    text = f"{barrier.name} ({barrier.threads} threads)"
    yield Wait(lambda: mine in barrier.released, text, thread.line)
    thread.strand.order.join(barrier.released[mine])


def _barrier_arrive(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    _named(thread, numbers).arrive(thread.lanes, numbers["threads"], thread.strand.release(), thread.line)
    yield None


def _cluster_arrive(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    if thread.phase is not None:
        raise thread.fatal("protocol", "a second arrival at the barrier of the cluster before the wait")
    thread.phase = thread.group.cluster.arrive(thread.lanes, thread.strand.release())
    yield None


def _cluster_wait(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    cluster, mine = thread.group.cluster, thread.phase
    if mine is None:
        raise thread.fatal("protocol", "a wait at the barrier of the cluster without an arrival")
    yield Wait(lambda: mine in cluster.released, f"the barrier of the cluster ({cluster.threads} threads)", thread.line)
    thread.phase = None
    thread.strand.order.join(cluster.released[mine])


def _workgroup_barrier(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    everyone = sum(r.agents * r.threads for r in thread.world.kernel.roles)
    yield from _barrier_sync(thread, item, {"id": 0, "threads": everyone})


def _gang_sync(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    gang = thread.group.named.setdefault(-1, Named("the barrier of the gang", thread.world.findings))
    mine = gang.arrive(1, thread.role.agents, thread.strand.release(), thread.line)
    yield Wait(lambda: mine in gang.released, f"the barrier of the gang ({gang.threads} workers)", thread.line)
    thread.strand.order.join(gang.released[mine])


def _grid_sync(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    world = thread.world
    if not world.launch.cooperative:
        thread.report("protocol", "grid.sync in a launch that is not cooperative: others may wait to begin")
    meeting = world.meeting
    mine = meeting.arrive(thread.lanes, thread.strand.release())
    yield Wait(lambda: mine in meeting.released, f"the barrier of the grid ({meeting.threads} threads)", thread.line)
    thread.strand.order.join(meeting.released[mine])


def _grid_release(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    thread.group.released = True
    yield None


def _grid_wait(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    before = thread.world.previous
    if before is not None:
        yield Wait(lambda: before.over, f"the end of {before.kernel.name}", thread.line)
        thread.strand.order.join(before.known())
    else:
        yield None


def _fence_proxy(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    for held in thread.fragments.values():
        thread.settle(held)
    thread.strand.fence()
    yield None


def _fence_init(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    for barrier in thread.group.phased.values():
        number, count = barrier.initialiser
        if barrier.initialised and thread.strand.order.seen.at(number) >= count:
            barrier.fenced = True
    thread.strand.tick()
    yield None


def _wgmma_fence(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    thread.touched.clear()
    yield None


def _commit(groups: Callable[[Thread], Groups]) -> Callable[[Thread, Sync, dict[str, int]], Steps]:
    def commit(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
        groups(thread).commit()
        yield None

    return commit


def _await(thread: Thread, groups: Groups, depth: int, what: str, *, read: bool) -> Steps:
    covered = groups.covered(depth)
    yield Wait(groups.ready(depth, read=read), f"{what} until at most {depth} groups are unfinished", thread.line)
    for work in covered:
        for trace in (work.read_trace,) if read else (work.read_trace, work.done_trace):
            if trace is not None:
                thread.strand.order.join(trace)


def _bulk_wait(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    read = bool(numbers.get("read", 0))
    yield from _await(thread, thread.bulk, numbers["depth"], item.kind, read=read)
    if read:
        for work in thread.bulk.covered(numbers["depth"]):
            work.fragments = ("read",)
    else:
        thread.bulk.forget(numbers["depth"])


def _cpasync_wait(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    yield from _await(thread, thread.cpasync, numbers["depth"], item.kind, read=False)
    thread.cpasync.forget(numbers["depth"])


def _cpasync_arrive(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    """An arrival of each thread of the warp, which its copies make when the last of them is complete."""
    assert item.object is not None
    barrier, lanes, line, group = phased(thread, item.object), thread.lanes, thread.line, thread.group
    barrier.usable(thread.strand, line)
    if numbers.get("more", 0):
        barrier.more(lanes)
    works = thread.cpasync.pending
    group.loads += 1

    def arrive() -> Steps:
        yield Wait(lambda: all(w.done for w in works), f"the copies of line {line}", line)
        given = Order()
        for work in works:
            if work.done_trace is not None:
                given.join(work.done_trace)
        group.loads -= 1
        barrier.arrive(lanes, given, line)

    thread.strand.tick()
    thread.world.scheduler.spawn(f"the arrival of line {line}", arrive(), engine=True)
    yield None


def _wgmma_wait(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    covered = thread.wgmma.covered(numbers["depth"])
    yield from _await(thread, thread.wgmma, numbers["depth"], item.kind, read=False)
    for work in covered:
        for name in work.fragments:
            thread.fragment(name).flying -= 1
    thread.wgmma.forget(numbers["depth"])


def _registers(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    count = numbers["registers"]
    if count % 8 or not 24 <= count <= 256:
        thread.report("resource", f"{count} registers: a multiple of 8 from 24 to 256 is needed")
    yield None


def _nothing(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    yield None


def _amx(configured: bool) -> Callable[[Thread, Sync, dict[str, int]], Steps]:
    def configure(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
        thread.configured = configured
        yield None

    return configure


HANDLERS: dict[str, Callable[[Thread, Sync, dict[str, int]], Steps]] = {
    "mbar.init": _mbar_init,
    "mbar.expect": _mbar_expect,
    "mbar.arrive": _mbar_arrive,
    "mbar.wait": _mbar_wait,
    "barrier.sync": _barrier_sync,
    "barrier.arrive": _barrier_arrive,
    "cluster.arrive": _cluster_arrive,
    "cluster.wait": _cluster_wait,
    "grid.sync": _grid_sync,
    "gang.sync": _gang_sync,
    "workgroup.barrier": _workgroup_barrier,
    "grid.release": _grid_release,
    "grid.wait": _grid_wait,
    "fence.proxy.async": _fence_proxy,
    "fence.mbar_init": _fence_init,
    "wgmma.fence": _wgmma_fence,
    "wgmma.commit": _commit(lambda t: t.wgmma),
    "wgmma.wait": _wgmma_wait,
    "bulk.commit": _commit(lambda t: t.bulk),
    "bulk.wait": _bulk_wait,
    "cpasync.commit": _commit(lambda t: t.cpasync),
    "cpasync.wait": _cpasync_wait,
    "cpasync.arrive": _cpasync_arrive,
    "setmaxnreg": _registers,
    "counter.add": add,
    "counter.wait": await_count,
    "fence.gpu": _nothing,
    "prefetch": _nothing,
    "amx.config": _amx(True),
    "amx.release": _amx(False),
}
