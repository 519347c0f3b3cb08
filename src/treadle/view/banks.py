"""Banks of shared memory: where an element lies under a buffer's address map, and which accesses meet in a bank.

Shared memory has 32 banks of 4 bytes. A warp's access is served in phases: 32 lanes at once where each wants at most
4 bytes, 16 where each wants 8, 8 where each wants 16. In a phase a bank gives one 4-byte word, to all lanes that want
it; lanes that want different words of a bank wait for one another.

*Source*: CUDA C++ Programming Guide 13.0, "Shared Memory" (compute capability 5.x and later); the swizzles are those of
PTX ISA 9.0, "Tensors": swizzling modes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from treadle.algebra.expr import Expr
from treadle.machine.form import Buffer, Frag, Kernel, Load, MemRef, Mma, Role, Stmt, Store, walk
from treadle.machine.form import Loop as LoopForm
from treadle.machine.form import Tasks as TasksForm
from treadle.machine.vocabulary import ASYNC_ATOMS
from treadle.view.facts import Scene, fragment_written
from treadle.view.spread import places

BANKS, WORD = 32, 4
_SWIZZLES = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}


def swizzled(at: int, swizzle: int) -> int:
    """The byte where the byte `at` of a swizzled buffer lies: bits 7 and up of the address exchange chunks of 16."""
    return at ^ ((at >> 3) & _SWIZZLES[swizzle])


@dataclass(frozen=True)
class Addresses:
    """A buffer's address map with numbers for its extents: `start` in bytes from the start of its place."""

    name: str
    shape: tuple[int, ...]
    size: int
    start: int = 0
    versions: int = 0
    swizzle: int = 0

    @property
    def slot(self) -> int:
        """Bytes of one version."""
        return math.prod(self.shape) * self.size

    def byte(self, index: Sequence[int], version: int = 0) -> int:
        """Where an element begins: row-major within its version, then swizzled."""
        at = 0
        for coordinate, extent in zip(index, self.shape, strict=True):
            at = at * extent + coordinate
        slot = version % self.versions if self.versions else 0
        return swizzled(self.start + slot * self.slot + at * self.size, self.swizzle)

    def bank(self, index: Sequence[int], version: int = 0) -> int:
        """The bank in which an element begins."""
        return self.byte(index, version) // WORD % BANKS


def addresses(buffer: Buffer, scene: Scene, start: int = 0) -> Addresses:
    """The map of a buffer. One without an offset is taken to begin at `start`."""
    shape = tuple(max(1, scene.number(e)) for e in buffer.shape)
    at = start if buffer.offset is None else scene.number(buffer.offset)
    return Addresses(buffer.name, shape, max(1, buffer.dtype.bits // 8), at, buffer.versions, buffer.swizzle)


@dataclass(frozen=True)
class Meeting:
    """How the lanes of one warp meet in the banks when a statement is executed.

    `width`: bytes that a lane takes at once; `worst`: words that a bank must give one after another in some phase (1:
    no conflict); `rounds`: all of them, `least`: what as many bytes need at best. `banks` are those of the worst phase.
    """

    statement: Stmt
    buffer: str
    way: str
    width: int
    worst: int
    rounds: int
    least: int
    banks: Mapping[int, int]


def meetings(kernel: Kernel, scene: Scene) -> list[Meeting]:
    """Every access of a statement to shared memory, by threads and by the tensor cores, at the first iteration."""
    shared = {b.name: addresses(b, scene) for b in kernel.buffers if b.place == "shared"}
    frags = {f.name: f for f in kernel.frags}
    found: list[Meeting] = []
    for role in kernel.roles:
        first = _first(role)
        for item in walk(role.body):
            if isinstance(item, Load) and item.src.name in shared:
                found += _by_threads(item, item.src, frags[item.dst], shared[item.src.name], scene, first, "read")
            elif isinstance(item, Store) and item.dst.name in shared:
                found += _by_threads(item, item.dst, frags[item.src.name], shared[item.dst.name], scene, first, "write")
            elif isinstance(item, Mma) and item.atom.split(".")[0] in ASYNC_ATOMS:
                operands = [(r, s) for r, s in ((item.a, 0), (item.b, 1)) if isinstance(r, MemRef) and r.name in shared]
                for ref, free in operands:
                    found += _by_tensor_cores(item, ref, shared[ref.name], frags[item.dst], free, scene, first)
    return found


def _first(role: Role) -> dict[str, int]:
    """Loop variables, task numbers and counters of a role where it begins."""
    names = {role.index or "": 0, "cta": 0, **dict.fromkeys(role.counters, 0)}
    for item in walk(role.body):
        if isinstance(item, TasksForm):
            names.update(dict.fromkeys(item.vars, 0))
        elif isinstance(item, LoopForm):
            names[item.var] = 0
        elif isinstance(item, Stmt):
            written = fragment_written(item)
            if written is not None:
                names.setdefault(written, 0)
    return names


def _by_threads(
    stmt: Stmt, ref: MemRef, frag: Frag, at: Addresses, scene: Scene, first: Mapping[str, int], way: str
) -> list[Meeting]:
    """The access of warp 0: what its lanes want, in pieces as wide as every lane's bytes lie together."""
    lanes: dict[int, dict[int, int]] = {}
    for owner, coords in places(frag.dist, len(frag.shape)):
        if owner.warp == 0 and all(c < n for c, n in zip(coords, frag.shape)):
            env = {**first, **{f"${i}": c for i, c in enumerate(coords)}}
            lanes.setdefault(owner.lane, {}).setdefault(owner.slot, _at(ref, at, scene, env))
    if not lanes:
        return []
    width, groups = _pieces(lanes, at.size)
    together = 32 * WORD // max(WORD, width)
    phases: list[list[int]] = []
    for group in groups:
        wanted = [min(mine[s] for s in group) for _, mine in sorted(lanes.items()) if all(s in mine for s in group)]
        phases += [wanted[i : i + together] for i in range(0, len(wanted), together)]
    return [_met(stmt, at.name, way, width, phases)]


def _pieces(lanes: Mapping[int, Mapping[int, int]], size: int) -> tuple[int, list[list[int]]]:
    """The widest access, up to 16 bytes, that takes the same slots in every lane, together and aligned; those slots."""
    some = lanes[min(lanes)]
    order = sorted(some, key=lambda s: some[s])
    for width in (16, 8, 4):
        count = width // size
        groups = [order[i : i + count] for i in range(0, len(order), count)]
        if count > 1 and all(
            _one_piece([mine[s] for s in g if s in mine], width, size) for mine in lanes.values() for g in groups
        ):
            return width, groups
    return size, [[s] for s in order]


def _one_piece(at: Sequence[int], width: int, size: int) -> bool:
    """Whether these bytes are one aligned piece, in the order of the slots."""
    return len(at) * size == width and at[0] % width == 0 and all(b - a == size for a, b in itertools.pairwise(at))


def _clamped(value: int, extent: int) -> int:
    return min(max(value, 0), extent - 1)


def _by_tensor_cores(
    stmt: Mma, ref: MemRef, at: Addresses, dst: Frag, free: int, scene: Scene, first: Mapping[str, int]
) -> list[Meeting]:
    """The tensor cores take 8 rows of 16 bytes at once: 8 neighbours across the axis that is contiguous in memory."""
    inner = _contiguous(ref)
    if inner is None:
        return []
    depth = f"${len(dst.shape)}"
    outer = f"${free}" if inner == depth else depth
    extents = {depth: stmt.contracted[0] if stmt.contracted else 1, f"${free}": dst.shape[free]}
    step = 16 // at.size
    phases: list[list[int]] = []
    for o, i in itertools.product(range(0, extents[outer], 8), range(0, extents[inner], step)):
        rows = range(o, min(o + 8, extents[outer]))
        phases.append(
            [_at(ref, at, scene, {**first, outer: r, inner: i, **_rest(extents, outer, inner)}) for r in rows]
        )
    return [_met(stmt, at.name, "tensor cores", 16, phases)]


def _rest(extents: Mapping[str, int], *named: str) -> dict[str, int]:
    return {n: 0 for n in extents if n not in named}


def _at(ref: MemRef, at: Addresses, scene: Scene, env: Mapping[str, int]) -> int:
    index = [_clamped(scene.number(e, env), n) for e, n in zip(ref.index, at.shape, strict=True)]
    return at.byte(index, scene.number(ref.version, env) if ref.version is not None else 0)


def _contiguous(ref: MemRef) -> str | None:
    """The coordinate that steps along the last axis of memory."""
    last: Expr = ref.index[-1]
    coordinates = sorted(s for s in last.symbols if s.startswith("$"))
    return coordinates[0] if len(coordinates) == 1 else None


def _met(stmt: Stmt, name: str, way: str, width: int, phases: Sequence[Sequence[int]]) -> Meeting:
    worst: dict[int, int] = {}
    rounds = 0
    for wanted in phases:
        words = {w for at in wanted for w in _words(at, width)}
        load: dict[int, int] = {}
        for word in words:
            load[word % BANKS] = load.get(word % BANKS, 0) + 1
        most = max(load.values(), default=0)
        rounds += most
        if most > max(worst.values(), default=0):
            worst = load
    least = max(1, len(phases))
    return Meeting(stmt, name, way, width, max(worst.values(), default=0), rounds, least, worst)


def _words(at: int, width: int) -> Iterator[int]:
    return iter(range(at // WORD, (at + max(width, 1) - 1) // WORD + 1))
