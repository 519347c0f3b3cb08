"""Every interleaving of what the threads and engines of one recorded run do: an oracle that knows no clocks.

A run of the simulator leaves a tape: the events of each thread (accesses of shared cells, synchronisations, operations
that engines are given). The programs asked about here branch on no data, so that any execution consists of the same
events. All reachable states are visited: how far each thread and each operation is, and where the barriers are. Wrong
is a state in which

* two strands could both make their next accesses, which conflict (a race: nothing orders them);
* an engine accesses a cell that threads have written, or writes one that a thread has read without the value having
  arrived, with no fence since;
* more arrive at a barrier than it counts, or somebody uses one that is not set up;
* nobody can go on and not all have ended, or a workgroup has ended under copies into its shared memory.

Accesses of one strand between two other events count as one step: no order can be between them. Steps that nobody else
can tell from nothing (an issue, the way out of a finished meeting) are taken at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from treadle.machine.form import Sync
from treadle.simulate.replay import Replayer
from treadle.simulate.tape import Access, Contracted, Copied, Counted, Entry, Forked, Log, Synchronised

MOST = 60_000
"""States beyond which nothing is said."""

Cell = tuple[int, int]
Barrier = tuple[int, ...]  # phased: arrivals missing, bytes missing, phase (-1: not set up); named: come, generation
State = tuple[tuple[int, ...], tuple[int, ...], tuple[Barrier, ...], frozenset[Cell], frozenset[tuple[int, Cell]]]
GROUPS = {"bulk.commit": "bulk", "cpasync.commit": "cpasync", "wgmma.commit": "wgmma"}
WAITS = {"bulk.wait": "bulk", "cpasync.wait": "cpasync", "wgmma.wait": "wgmma"}


class TooMany(Exception):
    """More states than are visited."""


class Wrong(Exception):
    """A state that a right program never reaches."""


@dataclass(eq=False)
class Step:
    """One event of a strand."""

    what: str  # touch init arrive wait meet met fence issue await; gather leave of clusters; add wait last draw
    reads: set[Cell] = field(default_factory=set[Cell])
    writes: set[Cell] = field(default_factory=set[Cell])
    arrived: set[Cell] = field(default_factory=set[Cell])
    barrier: int = -1
    count: int = 0  # arrivals; parity
    size: int = 0  # bytes; threads of a named barrier
    strands: tuple[int, ...] = ()  # started, or waited for
    read_only: bool = False  # waits until sources are free


@dataclass(eq=False)
class Strand:
    """A thread, a task, or an operation of an engine. `signal`: the barrier that an operation completes at, bytes."""

    name: str
    group: int
    steps: list[Step] = field(default_factory=list[Step])
    proxy: bool = False
    engine: bool = False
    signal: tuple[int, int] | None = None
    after: tuple[int, ...] = ()


@dataclass
class Exploration:
    """What was visited, and the first thing found wrong ("" if nothing is)."""

    states: int = 0
    wrong: str = ""


def explore(replayer: Replayer, most: int = MOST) -> Exploration:
    """All interleavings of a recorded run, launch by launch. Errors: `TooMany`."""
    found = Exploration()
    for launch in sorted({key[0] for key in replayer.tape.threads}):
        model = Model(replayer, launch)
        try:
            for part in model.parts():
                model.visit(part, found, most)
        except Wrong as wrong:
            found.wrong = str(wrong)
            break
    return found


class Model:
    """The strands of a launch, and the walk over their states."""

    def __init__(self, replayer: Replayer, launch: int) -> None:
        self.replayer = replayer
        self.strands: list[Strand] = []
        self.names: dict[tuple[int, str, int], int] = {}
        self.first: list[Barrier] = []
        called = replayer.program.host.launches[launch].kernel
        kernel = next(k for k in replayer.program.kernels if k.name == called)
        self.declared = {b.name: b for b in kernel.barriers}
        lanes = {r.name: min(32, r.threads) for r in kernel.roles}
        self.cluster = replayer.program.host.launches[launch].cluster
        self.everyone = sum(r.agents * r.threads for r in kernel.roles)
        self.gang = kernel.roles[0].agents
        self.groups = len({key[1] for key in replayer.tape.threads if key[0] == launch})
        self.roots: list[int] = []
        for key in sorted(replayer.tape.threads):
            if key[0] == launch:
                _, group, role, agent, warp = key
                name = f"workgroup {group} {role} {agent}.{warp}"
                self.roots.append(self.strand(name, group, lanes[role], replayer.tape.threads[key].entries))
                if self.cluster > 1:
                    left = self._of_cluster(group)
                    self.strands[self.roots[-1]].steps.append(Step("leave", barrier=left, count=lanes[role]))
        self._forget()

    # ---- from logs to strands

    def strand(self, name: str, group: int, lanes: int, entries: Sequence[Entry]) -> int:
        """The strand of a thread or task; its number."""
        made, number = Strand(name, group), len(self.strands)
        self.strands.append(made)
        open_: dict[str, list[int]] = {"bulk": [], "cpasync": [], "wgmma": []}
        closed: dict[str, list[list[int]]] = {"bulk": [], "cpasync": [], "wgmma": []}
        copies: list[int] = []
        at = 0
        while at < len(entries):
            entry = entries[at]
            at += 1
            match entry:
                case Access():
                    self._touch(made, entry)
                case Synchronised(item, _, numbers, _) if item.kind in GROUPS:
                    closed[GROUPS[item.kind]].append(open_[GROUPS[item.kind]])
                    open_[GROUPS[item.kind]] = []
                case Synchronised(item, _, numbers, _) if item.kind in WAITS:
                    groups = closed[WAITS[item.kind]]
                    ops = tuple(o for g in groups[: max(0, len(groups) - numbers["depth"])] for o in g)
                    made.steps.append(Step("await", strands=ops, read_only=bool(numbers.get("read", 0))))
                case Synchronised(item, _, numbers, version, _) if item.kind == "cpasync.arrive":
                    made.steps += self._arriving(item, numbers, version, group, lanes, copies)
                case Synchronised(item, _, numbers, version, far):
                    for reached in far or (group,):
                        made.steps += self._synchronised(item, numbers, version, reached, lanes)
                case Counted():
                    made.steps.append(self._counted(entry))
                case Copied():
                    which = "cpasync" if entry.engine == "cp.async" else "bulk"
                    to = group if entry.group is None else entry.group
                    op = self._engine(f"{entry.engine} of line {entry.line}", to, entry.log, which == "bulk")
                    copies += [op] if which == "cpasync" else []
                    if entry.barrier is not None:
                        self.strands[op].signal = (self._phased(to, *entry.barrier), entry.bytes)
                    else:
                        open_[which].append(op)
                    made.steps.append(Step("issue", strands=(op,)))
                case Contracted() if made.steps and made.steps[-1].what == "issue" and open_["wgmma"]:
                    # Nothing since the product before: both begin and end in one.
                    for access in entry.log.entries:
                        if isinstance(access, Access) and access.what == "read":
                            self.strands[open_["wgmma"][-1]].steps[0].reads.update(self._cells(access))
                case Contracted():
                    op = self._engine(f"{entry.atom} of line {entry.line}", group, entry.log, True)
                    self.strands[op].steps.pop()
                    self.strands[op].after = tuple(o for g in (*closed["wgmma"], open_["wgmma"]) for o in g)
                    open_["wgmma"].append(op)
                    made.steps.append(Step("issue", strands=(op,)))
                case Forked():
                    made.steps += self._tasks(name, group, 1, [task.entries for task in entry.tasks])
                case "apart":
                    end = entries.index("apart over", at)
                    made.steps += self._tasks(name, group, lanes, list(_parts(entries[at:end])))
                    at = end + 1
                case _:
                    pass
        return number

    def _arriving(
        self, item: Sync, numbers: dict[str, int], version: int, group: int, lanes: int, copies: list[int]
    ) -> list[Step]:
        """The copies of a thread so far arrive when they are over (`more`: beside what the barrier counts)."""
        assert item.object is not None
        barrier = self._phased(group, item.object.name, version % self.declared[item.object.name].versions)
        end = Step("arrive", barrier=barrier, count=lanes)
        self.strands.append(Strand("copies that arrive", group, [Step("await", strands=tuple(copies)), end]))
        begun = Step("issue", strands=(len(self.strands) - 1,))
        return [Step("arrive", barrier=barrier, count=-lanes), begun] if numbers.get("more") else [begun]

    def _tasks(self, name: str, group: int, lanes: int, logs: Sequence[Sequence[Entry]]) -> list[Step]:
        tasks = tuple(self.strand(f"{name} task {i}", group, lanes, log) for i, log in enumerate(logs))
        return [Step("issue", strands=tasks), Step("await", strands=tasks)]

    def _cells(self, entry: Access) -> set[Cell]:
        return {(entry.arena, c) for c in self.replayer.cells[id(entry)].at.tolist()}

    def _touch(self, strand: Strand, entry: Access) -> None:
        """Accesses since the last other event are one step."""
        if not strand.steps or strand.steps[-1].what != "touch":
            strand.steps.append(Step("touch"))
        step, cells = strand.steps[-1], self._cells(entry)
        if entry.what == "read":
            step.reads |= cells
            step.arrived -= cells
        elif entry.what == "write":
            step.writes |= cells
        else:
            step.arrived |= cells

    def _phased(self, group: int, name: str, slot: int) -> int:
        return self._barrier((group, name, slot), (self.declared[name].count, 0, -1))

    def _of_cluster(self, group: int) -> int:
        return self._barrier((group // self.cluster, "cluster", 0), (0, 0, self.cluster * self.everyone))

    def _counted(self, entry: Counted) -> Step:
        """A step at a word: it is taken where it goes as it was recorded, in other orders another run's is."""
        shared = (0,) if entry.what == "draw" else entry.cell[1]
        word = self._barrier((-1, f"{entry.cell[0]} {shared}", 0), (0,))
        who = entry.cell[1][0] if entry.what == "draw" else 0
        return Step(entry.what, barrier=word, count=entry.number, size=int(entry.found), strands=(who,))

    def _barrier(self, key: tuple[int, str, int], first: Barrier) -> int:
        if key not in self.names:
            self.names[key] = len(self.first)
            self.first.append(first)
        return self.names[key]

    def _synchronised(
        self, item: Sync, numbers: dict[str, int], version: int, group: int, lanes: int
    ) -> Iterator[Step]:
        each = 1 if item.by in ("elect", "warp") else lanes
        if item.kind in ("barrier.sync", "barrier.arrive"):
            named = self._barrier((group, "named barrier", numbers["id"]), (0, 0))
            yield Step("meet", barrier=named, count=lanes, size=numbers["threads"])
            if item.kind == "barrier.sync":
                yield Step("met", barrier=named)
        elif item.kind in ("gang.sync", "workgroup.barrier"):
            size = self.gang if item.kind == "gang.sync" else self.everyone
            named = self._barrier((group, item.kind, 0), (0, 0))
            yield Step("meet", barrier=named, count=lanes, size=size)
            yield Step("met", barrier=named)
        elif item.kind == "grid.sync":
            whole = self._barrier((-1, "grid", 0), (0, 0))
            yield Step("meet", barrier=whole, count=lanes, size=self.everyone * self.groups)
            yield Step("met", barrier=whole)
        elif item.kind == "cluster.arrive":
            yield Step("gather", barrier=self._of_cluster(group), count=lanes)
        elif item.kind == "cluster.wait":
            yield Step("met", barrier=self._of_cluster(group))
        elif item.kind == "fence.proxy.async":
            yield Step("fence")
        elif item.object is not None and item.object.name in self.declared:
            name = item.object.name
            slots = self.declared[name].versions
            whole = item.kind == "mbar.init" and item.object.version is None
            for slot in range(slots) if whole else (version % slots,):
                barrier = self._phased(group, name, slot)
                match item.kind:
                    case "mbar.init":
                        yield Step("init", barrier=barrier)
                    case "mbar.wait":
                        yield Step("wait", barrier=barrier, count=numbers["phase"] & 1)
                    case "mbar.expect":
                        yield Step("arrive", barrier=barrier, count=each, size=numbers["bytes"] * each)
                    case _:
                        yield Step("arrive", barrier=barrier, count=each * numbers.get("count", 1))

    def _engine(self, name: str, group: int, log: Log, proxy: bool) -> int:
        """An operation: it reads, then it writes."""
        reads, writes = Step("touch"), Step("touch")
        for entry in log.entries:
            if isinstance(entry, Access) and entry.what != "arrive":
                (reads.reads if entry.what == "read" else writes.writes).update(self._cells(entry))
        self.strands.append(Strand(name, group, [reads, writes], proxy, True))
        return len(self.strands) - 1

    def _forget(self) -> None:
        """Cells on which no two strands conflict are no matter; nor are steps that touch nothing else."""
        readers: dict[Cell, set[int]] = {}
        writers: dict[Cell, set[int]] = {}
        for number, strand in enumerate(self.strands):
            for step in strand.steps:
                for cells, users in ((step.reads, readers), (step.writes, writers)):
                    for cell in cells:
                        users.setdefault(cell, set()).add(number)
        shared = {c for c, w in writers.items() if len(w | readers.get(c, set())) > 1}
        proxies = [step for s in self.strands if s.proxy for step in s.steps]
        self.watched = {c for step in proxies for c in step.reads | step.writes} & shared
        sources = {o for s in self.strands for step in s.steps if step.read_only for o in step.strands}
        for number, strand in enumerate(self.strands):
            for step in strand.steps:
                step.reads &= shared
                step.writes &= shared
                step.arrived &= self.watched
            kept = [s for s in strand.steps if s.what != "touch" or s.reads or s.writes or s.arrived]
            if not strand.engine:
                strand.steps = kept
            elif number not in sources and strand.signal is not None:
                strand.steps = kept or strand.steps[-1:]
            elif strand.signal is None and not strand.steps[-1].writes:
                # Who waits until it has written may as well be slow to go on where it has read.
                strand.steps = strand.steps[:1]

    def parts(self) -> list[list[int]]:
        """The threads that have to do with one another, by cells, barriers or operations: the steps of the others are
        no matter to them."""
        leader = list(range(len(self.strands)))

        def lead(number: int) -> int:
            while leader[number] != number:
                number = leader[number]
            return number

        seen: dict[Cell | int, int] = {}
        for number, strand in enumerate(self.strands):
            things: list[Cell | int] = [] if strand.signal is None else [strand.signal[0]]
            for step in strand.steps:
                things += [*step.reads, *step.writes, *([step.barrier] if step.barrier >= 0 else ())]
                for other in step.strands if step.what in ("issue", "await") else ():
                    leader[lead(other)] = lead(number)
            for thing in things:
                leader[lead(seen.setdefault(thing, number))] = lead(number)
        parts: dict[int, list[int]] = {}
        for root in self.roots:
            parts.setdefault(lead(root), []).append(root)
        return list(parts.values())

    # ---- states

    def visit(self, roots: Sequence[int], found: Exploration, most: int) -> None:
        """Depth first over all states of these threads. Errors: `TooMany`; `Wrong` at a state that should not be."""
        before = found.states
        begun = [-1] * len(self.strands)
        for root in roots:
            begun[root] = 0
        first: State = (tuple(begun), (-1,) * len(begun), tuple(self.first), frozenset(), frozenset())
        seen, stack = {first}, [first]
        while stack:
            state = stack.pop()
            found.states += 1
            if found.states - before > most:
                raise TooMany
            for follower in self._moves(state):
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)

    def _moves(self, state: State) -> Iterator[State]:
        """The states after one more step of one strand."""
        at = state[0]
        alive = [n for n, a in enumerate(at) if 0 <= a < len(self.strands[n].steps)]
        ready = [n for n in alive if self._ready(n, state)]
        if not ready and alive:
            if any(self.strands[n].steps[at[n]].what in ("last", "draw") for n in alive):
                return  # an order in which others go on or draw: another run's
            raise Wrong(f"deadlock: {', '.join(self.strands[n].name for n in alive[:4])}")
        self._races(ready, state)
        self._ended(at)
        unseen = ("issue", "met", "await")
        quiet = next((n for n in ready if self.strands[n].steps[at[n]].what in unseen), None)
        for number in ready if quiet is None else (quiet,):
            yield self._take(number, state)

    def _over(self, number: int, at: tuple[int, ...]) -> bool:
        return at[number] >= len(self.strands[number].steps)

    def _ready(self, number: int, state: State) -> bool:
        at, mine, barriers, _, _ = state
        strand = self.strands[number]
        step = strand.steps[at[number]]
        match step.what:
            case "await":
                return all(at[o] >= 1 if step.read_only else self._over(o, at) for o in step.strands)
            case "wait" if len(barriers[step.barrier]) == 1:
                return barriers[step.barrier][0] >= step.count
            case "wait":
                phase = barriers[step.barrier][2]
                if phase < 0:
                    raise Wrong(f"{strand.name} waits at a barrier that is not set up")
                return phase & 1 != step.count
            case "met":
                return barriers[step.barrier][1] > mine[number]
            case "last":
                return (barriers[step.barrier][0] + 1 == step.count) == bool(step.size)
            case "draw":
                return barriers[step.barrier][0] >= step.count
            case _:
                return all(self._over(o, at) for o in strand.after)

    def _races(self, ready: list[int], state: State) -> None:
        """Two strands whose next accesses conflict; an engine's next access that a fence is missing before."""
        at, _, _, unfenced, loads = state
        touching = [(self.strands[n], self.strands[n].steps[at[n]]) for n in ready]
        touching = [(strand, step) for strand, step in touching if step.what == "touch"]
        for i, (one, a) in enumerate(touching):
            for other, b in touching[i + 1 :]:
                if a.writes & b.reads or a.writes & b.writes or a.reads & b.writes:
                    raise Wrong(f"race: {one.name} and {other.name}")
            if one.proxy and unfenced & (a.reads | a.writes):
                raise Wrong(f"fence: {one.name} after writes of threads")
            if one.proxy and any(c in a.writes for _, c in loads):
                raise Wrong(f"fence: {one.name} over a load that may not have arrived")

    def _ended(self, at: tuple[int, ...]) -> None:
        """No workgroup may end while copies into its shared memory are running."""
        running = {s.group for n, s in enumerate(self.strands) if s.signal is not None and 0 <= at[n] < len(s.steps)}
        for group in running:
            if all(self._over(n, at) for n in self.roots if self.strands[n].group == group and at[n] >= 0):
                raise Wrong("a workgroup ends under its copies")

    def _take(self, number: int, state: State) -> State:
        """The state after the strand's next step."""
        at, mine, barriers, unfenced, loads = state
        strand = self.strands[number]
        step = strand.steps[at[number]]
        where, kept, table = list(at), mine, list(barriers)
        where[number] += 1
        match step.what:
            case "touch" if not strand.proxy:
                unfenced = unfenced | (step.writes & self.watched)
                opened = {(number, c) for c in (step.reads & self.watched) - step.arrived}
                loads = frozenset(x for x in loads if x[0] != number or x[1] not in step.arrived) | opened
            case "fence":
                unfenced, loads = frozenset(), frozenset()
            case "issue":
                for o in step.strands:
                    where[o] = 0
            case "init":
                if table[step.barrier][2] >= 0:
                    raise Wrong(f"{strand.name} sets a barrier up again")
                table[step.barrier] = (table[step.barrier][0], 0, 0)
            case "arrive":
                self._turn(table, step.barrier, step.count, step.size, strand)
            case "meet":
                come, generation = table[step.barrier]
                kept = (*mine[:number], generation, *mine[number + 1 :])
                come += step.count
                if come > step.size:
                    raise Wrong(f"{strand.name}: {come} threads meet where {step.size} should")
                table[step.barrier] = (0, generation + 1) if come == step.size else (come, generation)
            case "gather" | "leave":
                come, generation, everyone = table[step.barrier]
                if step.what == "gather":
                    kept = (*mine[:number], generation, *mine[number + 1 :])
                    come += step.count
                else:
                    everyone -= step.count
                if come and come >= everyone:
                    come, generation = 0, generation + 1
                table[step.barrier] = (come, generation, everyone)
            case "add" | "last":
                table[step.barrier] = (table[step.barrier][0] + (1 if step.what == "last" else step.count),)
            case "draw":
                table[step.barrier] = (max(table[step.barrier][0], step.count + 1),)
            case "met":
                kept = (*mine[:number], -1, *mine[number + 1 :])
            case _:
                pass
        if strand.signal is not None and where[number] == len(strand.steps):
            self._turn(table, strand.signal[0], 0, -strand.signal[1], strand)
        return tuple(where), kept, tuple(table), unfenced, loads

    def _turn(self, table: list[Barrier], barrier: int, count: int, size: int, strand: Strand) -> None:
        """Arrivals at a phased barrier, bytes announced (positive) or landed (negative)."""
        pending, missing, phase = table[barrier]
        if phase < 0:
            raise Wrong(f"{strand.name} uses a barrier that is not set up")
        pending, missing = pending - count, missing + size
        if pending < 0:
            raise Wrong(f"{strand.name}: more arrivals than the barrier counts")
        whole = self.first[barrier][0]
        table[barrier] = (whole, 0, phase + 1) if pending == 0 and missing == 0 else (pending, missing, phase)


def _parts(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The events of each task of single threads or warps."""
    part: list[Entry] = []
    for entry in entries:
        if entry == "task":
            part = []
        elif entry == "task over":
            yield part
        else:
            part.append(entry)
