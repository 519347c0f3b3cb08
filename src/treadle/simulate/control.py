"""Control: bodies, loops, conditionals, tasks, and the statements that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from treadle.machine.form import Body, Control, Copy, If, Loop, Mma, Stmt, Sync, Tasks, Version
from treadle.machine.vocabulary import ASYNC_ATOMS, ATOMS, ENGINES, SYNC
from treadle.simulate.barriers import Groups, Named
from treadle.simulate.clocks import Order, Strand
from treadle.simulate.contractions import contract, issue_contract
from treadle.simulate.engines import issue_copy, phased
from treadle.simulate.schedule import Steps, Wait
from treadle.simulate.thread import Thread


def run_body(thread: Thread, body: Body) -> Steps:
    """Executes a body, yielding at every statement that others can see."""
    world = thread.world
    for item in body:
        thread.line = world.lines.get(id(item), 0)
        if isinstance(item, Stmt):
            yield from _statement(thread, item)
        else:
            yield from _control(thread, item)


def _statement(thread: Thread, item: Stmt) -> Steps:
    if item.by == "elect" and thread.warp != 0:
        return
    thread.by = item.by if thread.role.threads > 1 else ""
    match item:
        case Version():
            return
        case Copy():
            if item.engine not in ENGINES:
                raise thread.fatal("form", f"no copy engine {item.engine}")
            issue_copy(thread, item)
        case Mma():
            family = item.atom.split(".")[0]
            if thread.by and family in ASYNC_ATOMS:
                thread.report("protocol", f"{item.atom} is executed by all threads of an agent together")
            if family not in ATOMS:
                raise thread.fatal("form", f"no atom {item.atom}")
            if family == "amx" and not thread.configured:
                thread.report("protocol", "a tile contraction without a tile configuration")
            (issue_contract if family in ASYNC_ATOMS else contract)(thread, item)
        case Sync():
            yield from _sync(thread, item)
        case _:
            thread.execute(item)
    yield None


def _control(thread: Thread, item: Control) -> Steps:
    match item:
        case Loop():
            line = thread.line
            lo, hi, step = (thread.number(e) for e in (item.lo, item.hi, item.step))
            if step <= 0:
                raise thread.fatal("form", f"the loop steps by {step}")
            for value in range(lo, hi, step):
                thread.env[item.var] = value
                thread.line = line
                yield from run_body(thread, item.body)
            thread.env.pop(item.var, None)
        case If():
            yield from run_body(thread, item.then if _holds(thread, item) else item.orelse)
        case Tasks():
            yield from _tasks(thread, item)
        case _:
            raise AssertionError(type(item).__name__)


def _holds(thread: Thread, item: If) -> bool:
    for fact in item.conds:
        truth = np.asarray(thread.test(fact))
        if truth.size != 1:
            raise thread.fatal("form", f"the condition {fact} has several values here")
        if not truth.reshape(-1)[0]:
            return False
    if item.cond is None:
        return True
    values, states = thread.gather(item.cond, (), 1)
    if states[0] != 1:
        thread.report("undefined", f"the condition {item.cond} holds no value")
    return bool(values[0])


# ---- tasks


def order_of_tasks(raster: tuple[str | int, ...], counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The task that linear number `number` stands for."""
    total = int(np.prod(counts))
    if "reverse" in raster:
        number = total - 1 - number
    if raster and raster[0] == "group" and len(raster) > 1:
        height = max(1, int(raster[1]))
        rest = total // counts[0]
        first = number // (height * rest) * height
        within = number - first * rest
        panel = min(height, counts[0] - first)
        row, left = first + within % panel, within // panel
        return (row, *(int(v) for v in np.unravel_index(left, counts[1:]))) if counts[1:] else (row,)
    return tuple(int(v) for v in np.unravel_index(number, counts))


def _tasks(thread: Thread, item: Tasks) -> Steps:
    counts = tuple(max(0, thread.number(c)) for c in item.counts)
    total = int(np.prod(counts))
    if item.over == "workers":
        yield from _fork(thread, item, counts, total)
        return
    if item.over in ("threads", "warps"):
        yield from _apart(thread, item, counts, total)
        return
    for number in _share(thread, item, total):
        _set(thread, item, counts, number)
        yield from run_body(thread, item.body)


def _share(thread: Thread, item: Tasks, total: int) -> Iterator[int]:
    """The linear numbers of this workgroup's tasks."""
    me, grid = thread.group.number, thread.world.grid
    if item.over == "grid":
        if total > grid:
            thread.report("protocol", f"{total} tasks are handed to a grid of {grid} workgroups")
        return iter([me] if me < total else [])
    snake = "snake" in item.raster
    rounds = -(-total // grid)
    numbers = (r * grid + (grid - 1 - me if snake and r % 2 else me) for r in range(rounds))
    return (n for n in numbers if n < total)


def _set(thread: Thread, item: Tasks, counts: tuple[int, ...], number: int) -> None:
    for var, value in zip(item.vars, order_of_tasks(item.raster, counts, number)):
        thread.env[var] = value


def _renew(thread: Thread, order: Order) -> Strand:
    """A strand for one task, and nothing left in fragments and local memory from the last."""
    thread.fragments, thread.local = {}, {}
    return thread.world.strands.fresh(order)


def _apart(thread: Thread, item: Tasks, counts: tuple[int, ...], total: int) -> Steps:
    """Tasks of single threads or warps, unordered among one another."""
    world, outer = thread.world, thread.strand
    unit = thread.role.threads if item.over == "threads" else thread.warps
    lanes = thread.lanes if item.over == "threads" else 1
    own = [thread.warp * 32 + lane for lane in range(lanes)] if item.over == "threads" else [thread.warp]
    stride = world.grid * thread.role.agents * unit
    base = (thread.group.number * thread.role.agents + thread.agent) * unit
    start, done = outer.release(), Order()
    for offset in own:
        for number in range(base + offset, total, stride):
            thread.strand = _renew(thread, start)
            _set(thread, item, counts, number)
            yield from run_body(thread, item.body)
            done.join(thread.strand.order)
    thread.strand = outer
    outer.order.join(done)


def _fork(thread: Thread, item: Tasks, counts: tuple[int, ...], total: int) -> Steps:
    """Tasks of a pool of workers, handed out in any order; the caller waits for all."""
    world = thread.world
    queue = list(range(total))
    if not world.scheduler.in_order:
        world.scheduler.rng.shuffle(queue)
    start, done = thread.strand.release(), Order()
    left = [world.workers]

    def worker() -> Steps:
        while queue:
            number = queue.pop(0)
            strand = world.strands.fresh(start)
            task = Thread(world, thread.group, thread.role, thread.agent, thread.warp, strand, dict(thread.env))
            _set(task, item, counts, number)
            yield from run_body(task, item.body)
            done.join(task.strand.order)
        left[0] -= 1

    for number in range(world.workers):
        world.scheduler.spawn(f"worker {number}", worker())
    line = thread.line
    yield Wait(lambda: left[0] == 0, "the end of all tasks", line)
    thread.strand.order.join(done)


# ---- synchronisation


def _sync(thread: Thread, item: Sync) -> Steps:
    shape = SYNC.get(item.kind)
    handler = _HANDLERS.get(item.kind)
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
    barrier = phased(thread, item.object)
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


_HANDLERS: dict[str, Callable[[Thread, Sync, dict[str, int]], Steps]] = {
    "mbar.init": _mbar_init,
    "mbar.expect": _mbar_expect,
    "mbar.arrive": _mbar_arrive,
    "mbar.wait": _mbar_wait,
    "barrier.sync": _barrier_sync,
    "barrier.arrive": _barrier_arrive,
    "fence.proxy.async": _fence_proxy,
    "fence.mbar_init": _fence_init,
    "wgmma.fence": _wgmma_fence,
    "wgmma.commit": _commit(lambda t: t.wgmma),
    "wgmma.wait": _wgmma_wait,
    "bulk.commit": _commit(lambda t: t.bulk),
    "bulk.wait": _bulk_wait,
    "cpasync.commit": _commit(lambda t: t.cpasync),
    "cpasync.wait": _cpasync_wait,
    "setmaxnreg": _registers,
    "prefetch": _nothing,
    "amx.config": _amx(True),
    "amx.release": _amx(False),
}


def run_thread(thread: Thread) -> Steps:
    """A thread from its first statement to its end, with what must be over by then."""
    world = thread.world
    yield from run_body(thread, thread.role.body)
    for work in thread.wgmma.pending:
        world.findings.add("protocol", work.line, "the thread ends before this contraction was waited for")
    for work in thread.bulk.pending:
        if work.fragments != ("read",):
            world.findings.add("protocol", work.line, "the thread ends while this copy may still read shared memory")
    thread.group.running -= 1
    if thread.group.running == 0 and thread.group.loads:
        text = "the workgroup ends while copies into its shared memory are running"
        world.findings.add("protocol", thread.line, text)
