"""J5 of hand-overs beside rings where several roles do both: no wait of either kind is for ever.

All waits are put into one graph. A role goes through its step (the body in which it hands over) again and again, at
positions where it comes, and from which it is gone. What it is gone from hangs on what others have come to: of the same
step, or of one so many steps before. Rings join in where they stand in that body.

* A ring of one step a step: who takes it is gone from `full` when the producer has come to fill that step; the producer
  is gone from `empty` when all takers have come to give back the step of `slots` steps before (one less, if they give
  back one step late).
* A ring that goes through a loop inside the body: all its roles come to their loops before any is gone from it. That is
  more than they wait for: inside they wait for one another alone, which ends (`rings`), and a slot that is given back
  behind the loop is given back before the next one.

If every way around the graph moves some steps on, each step's events hang on finitely many before them, and all happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from treadle.algebra.expr import sym
from treadle.checker.rings import FILLS, Rings
from treadle.checker.steps import Ring, Step, kind
from treadle.checker.verdict import Unsure
from treadle.machine.form import Body, Control, If, Kernel, Loop, Role, Sync, Tasks, walk

End = tuple[str, int, str]
"""A role, a position in its step, and whether it has "come" there or is "gone"."""

FAR = 1 << 20


@dataclass
class Waits:
    """The graph: how many steps on something may happen at the earliest that hangs on something else."""

    least: dict[tuple[End, End], int] = field(default_factory=dict[tuple[End, End], int])
    places: dict[str, set[int]] = field(default_factory=dict[str, set[int]])

    def at(self, role: str, position: int) -> tuple[End, End]:
        """The two ends of a position."""
        self.places.setdefault(role, set()).add(position)
        return (role, position, "come"), (role, position, "gone")

    def link(self, a: End, b: End, steps: int) -> None:
        """`b` hangs on `a` of so many steps before."""
        self.least[a, b] = min(steps, self.least.get((a, b), FAR))

    def stuck(self) -> End | None:
        """An event that hangs on itself, of no earlier step."""
        for role, positions in self.places.items():
            for i in positions:
                come, gone = self.at(role, i)
                self.link(come, gone, 0)
                for j in positions:
                    self.link(gone, (role, j, "come"), 0 if j > i else 1)
        ends = sorted({e for pair in self.least for e in pair})
        get = self.least.get
        for k in ends:
            for a in ends:
                first = get((a, k), FAR)
                if first >= FAR:
                    continue
                for b in ends:
                    if first + get((k, b), FAR) < get((a, b), FAR):
                        self.least[a, b] = first + self.least[k, b]
        return next((e for e in ends if get((e, e), FAR) <= 0), None)


@dataclass
class BesideRings:
    """`paths`: of each role that hands over, the controls around its step. `at`: the statement in question."""

    kernel: Kernel
    rings: Rings
    paths: Mapping[str, tuple[Control, ...]]
    at: object = None
    steps: dict[str, Body] = field(default_factory=dict[str, Body])

    def links(self, waits: Waits) -> None:
        """Adds what rings have their roles wait for. *Errors*: unsure, J5."""
        depth = len(next(iter(self.paths.values())))
        for role in self.kernel.roles:
            self._level(role, depth)
        for full, ring in self.rings.rings.items():
            filler = next(r.name for r in self.kernel.roles if ring.step.of(r))
            taken = {name: steps for (name, taken), steps in self.rings.taken.items() if taken == full}
            several = next((s for s in (ring.steps, *taken.values()) if len(s) > 1 or _under_if(s[0])), None)
            if several is not None:
                self.at = several[-1].body[several[-1].position]
                raise Unsure("J5", f"steps of {full} beside hand-overs", missing="one place, under no condition")
            takers = {name: steps[0] for name, steps in taken.items()}
            if all(len(s.path) == depth for s in (ring.step, *takers.values())):
                self._step_by_step(waits, ring, filler, takers)
            else:
                self._together(waits, ring, [filler, *takers])

    def _level(self, role: Role, depth: int) -> None:
        """The body of the role's steps, in which all of its rings stand."""
        mine = [r.step for r in self.rings.rings.values() if r.step.of(role)]
        mine += [s for (name, _), steps in self.rings.taken.items() if name == role.name for s in steps]
        told = [self.paths[role.name]] if role.name in self.paths else []
        paths = [*told, *(s.path[:depth] for s in mine)]
        if not paths:
            return
        if any(len(p) != depth or any(a is not b for a, b in zip(p, paths[0])) for p in paths):
            self.at = mine[0].body[mine[0].position] if mine else None
            raise Unsure("J5", f"{role.name} uses rings beside its hand-overs", missing="rings inside its steps")
        around = paths[0][-1]
        if not isinstance(around, Loop | Tasks):
            self.at = around
            raise Unsure(
                "J5", f"{role.name} hands over under a condition beside rings", missing="a step in each iteration"
            )
        self.steps[role.name] = around.body

    def _places(self, role: str, kinds: tuple[str, ...], barrier: str) -> list[tuple[int, Sync]]:
        """Where in its step a role has such a synchronisation at that barrier."""
        return [
            (i, s)
            for i, item in enumerate(self.steps[role])
            for s in walk([item])
            if isinstance(s, Sync) and s.kind in kinds and s.object is not None and s.object.name == barrier
        ]

    def _step_by_step(self, waits: Waits, ring: Ring, filler: str, takers: Mapping[str, Step]) -> None:
        (free, _), *_ = self._places(filler, ("mbar.wait",), ring.empty.name)
        filled = max(i for i, _ in self._places(filler, FILLS, ring.full.name))
        _, allowed = waits.at(filler, free)
        given, _ = waits.at(filler, filled)
        for name, step in takers.items():
            (taken, _), *_ = self._places(name, ("mbar.wait",), ring.full.name)
            waits.link(given, waits.at(name, taken)[1], 0)
            for back, s in self._places(name, ("mbar.arrive",), ring.empty.name):
                version = None if s.object is None else s.object.version
                late = None if version is None else (sym(step.counter) - version).constant
                if late is None:
                    self.at = s
                    raise Unsure("J5", f"which step is given back to {ring.full.name}", missing="the step's counter")
                moved = any(s is x for x in walk(step.after))
                waits.link(waits.at(name, back)[0], allowed, ring.slots - late + (1 if moved else 0))

    def _together(self, waits: Waits, ring: Ring, roles: list[str]) -> None:
        ends: list[tuple[End, End]] = []
        for i, name in enumerate(roles):
            barrier = ring.full if i else ring.empty
            found = {at for at, _ in self._places(name, ("mbar.wait",), barrier.name)}
            if len(found) != 1:
                raise Unsure("J5", f"{name} goes through {ring.full.name} in two places", missing="one loop")
            ends.append(waits.at(name, found.pop()))
        for come, _ in ends:
            for _, gone in ends:
                waits.link(come, gone, 0)


def _under_if(step: Step) -> bool:
    return any(isinstance(c, If) for c in step.path)


def joins_rings(role: Role) -> bool:
    """Whether a role has to do with rings."""
    return any(kind(s).startswith("mbar.") or kind(s) in FILLS for s in walk(role.body))
