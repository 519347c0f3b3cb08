"""Control: bodies, loops, conditionals, tasks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle.machine.form import Body, Control, Copy, If, Loop, Mma, Stmt, Store, Sync, Tasks, Version
from treadle.machine.vocabulary import ASYNC_ATOMS, ATOMS, ENGINES
from treadle.simulate.clocks import Order, Strand
from treadle.simulate.contractions import contract, issue_contract
from treadle.simulate.counters import draw, found_last, is_last
from treadle.simulate.engines import issue_copy
from treadle.simulate.schedule import Steps, Wait
from treadle.simulate.sends import send
from treadle.simulate.sync import HANDLERS, synchronise
from treadle.simulate.tape import Forked
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
    if item.by == "elect" and thread.warp != 0 and not thread.apart:
        return
    thread.by = item.by if thread.role.threads > 1 else ""
    match item:
        case Version():
            return
        case Store() if item.signal is not None:
            send(thread, item)
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
            yield from synchronise(thread, item)
        case _:
            thread.execute(item)
    thread.mark("step")
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
        case If() if item.last is not None:
            yield from is_last(thread, item, HANDLERS["barrier.sync"])
            yield from run_body(thread, item.then if found_last(thread, item) else item.orelse)
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
    if len(raster) > 1 and raster[0] == "slow" and len(counts) > 1:
        others = total // counts[-1]
        height = max(1, min(int(raster[1]), others))
        first = number // (height * counts[-1]) * height
        within = number - first * counts[-1]
        group = min(height, others - first)
        return (*(int(v) for v in np.unravel_index(first + within % group, counts[:-1])), within // group)
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
    if item.over in ("tickets", "gangs"):
        return draw(thread, item, total)
    if item.over == "clusters":
        each = len(thread.group.cluster.groups)
        me, grid = me // each, grid // each
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
    log = thread.strand.log
    thread.fragments, thread.local = {}, {}
    strand = thread.world.strands.fresh(order)
    strand.log = log
    return strand


def _apart(thread: Thread, item: Tasks, counts: tuple[int, ...], total: int) -> Steps:
    """Tasks of single threads or warps, unordered among one another."""
    world, outer = thread.world, thread.strand
    unit = thread.role.threads if item.over == "threads" else thread.warps
    lanes = thread.lanes if item.over == "threads" else 1
    own = [thread.warp * 32 + lane for lane in range(lanes)] if item.over == "threads" else [thread.warp]
    stride = world.grid * thread.role.agents * unit
    base = (thread.group.number * thread.role.agents + thread.agent) * unit
    start, done = outer.release(), Order()
    thread.apart = True
    thread.mark("apart")
    for offset in own:
        for number in range(base + offset, total, stride):
            thread.strand = _renew(thread, start)
            thread.mark("task")
            _set(thread, item, counts, number)
            yield from run_body(thread, item.body)
            done.join(thread.strand.order)
            thread.mark("task over")
    thread.apart, thread.strand = False, outer
    outer.order.join(done)
    thread.mark("apart over")


def _fork(thread: Thread, item: Tasks, counts: tuple[int, ...], total: int) -> Steps:
    """Tasks of a pool of workers, handed out in any order; the caller waits for all."""
    world = thread.world
    queue = list(range(total))
    if not world.scheduler.in_order:
        world.scheduler.rng.shuffle(queue)
    start, done = thread.strand.release(), Order()
    left = [world.workers]
    log = thread.strand.log
    logs = [] if log is None else [log.fresh() for _ in range(total)]
    if log is not None:
        log.add(Forked(thread.line, logs))

    def worker() -> Steps:
        while queue:
            number = queue.pop(0)
            strand = world.strands.fresh(start)
            strand.log = None if log is None else logs[number]
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


def run_thread(thread: Thread) -> Steps:
    """A thread from its first statement to its end, with what must be over by then."""
    yield from run_body(thread, thread.role.body)
    finish(thread)


def finish(thread: Thread) -> None:
    """The end of a thread."""
    world = thread.world
    for work in thread.wgmma.pending:
        world.findings.add("protocol", work.line, "the thread ends before this contraction was waited for")
    for work in thread.bulk.pending:
        if work.fragments != ("read",):
            world.findings.add("protocol", work.line, "the thread ends while this copy may still read shared memory")
    group = thread.group
    if thread.phase is not None:
        world.findings.add("protocol", thread.line, "the thread ends between arrival and wait at the cluster's barrier")
    group.cluster.leave(thread.lanes)
    group.known.join(thread.strand.order)
    group.running -= 1
    if group.running:
        return
    if group.loads:
        text = "the workgroup ends while copies into its shared memory are running"
        world.findings.add("protocol", thread.line, text)
    late = next((line for number, count, line in group.reached if group.known.seen.at(number) < count), None)
    if late is not None:
        text = "the workgroup ends, and nothing says that others of its cluster are done with its memory"
        world.findings.add("protocol", thread.line, text, late)
