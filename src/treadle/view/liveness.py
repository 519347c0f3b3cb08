"""What a role holds at each of its lines: fragments from their definition to their last use, loops gone round."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.machine.form import Body, If, Kernel, Loop, Role, Stmt, Tasks
from treadle.view.facts import fragment_written, fragments_read, held_bytes, statements


@dataclass(frozen=True)
class Held:
    """The statements of a role in order, and which fragments are live behind each."""

    role: Role
    statements: tuple[Stmt, ...]
    live: tuple[frozenset[str], ...]

    def spans(self, name: str) -> list[tuple[int, int]]:
        """Runs of statements (numbers, the last one inclusive) behind which the fragment is live."""
        found: list[tuple[int, int]] = []
        for number, names in enumerate(self.live):
            if name in names:
                if found and found[-1][1] == number - 1:
                    found[-1] = (found[-1][0], number)
                else:
                    found.append((number, number))
        return found


def held(role: Role) -> Held:
    """Backwards over the role's body; what a loop's next iteration reads is live at the end of this one.

    *Ensures*: a fragment is live behind a statement exactly if some way on from there reads it before it is written.
    """
    live: dict[int, frozenset[str]] = {}
    _back(role.body, frozenset(), live)
    order = tuple(s for s in statements(role.body))
    return Held(role, order, tuple(live.get(id(s), frozenset()) for s in order))


def _back(body: Body, after: frozenset[str], live: dict[int, frozenset[str]]) -> frozenset[str]:
    """What is live before a body, given what is live behind it."""
    for item in reversed(body):
        if isinstance(item, Stmt):
            live[id(item)] = after
            written = fragment_written(item)
            after = (after - {written} if written is not None else after) | frozenset(fragments_read(item))
        elif isinstance(item, Tasks | Loop):
            around = after
            while True:
                before = _back(item.body, around, live)
                if isinstance(item, Tasks) or before <= around:
                    break
                around |= before
            after = around | before
        elif isinstance(item, If):
            here = frozenset((item.cond,)) if item.cond is not None else frozenset[str]()
            after = _back(item.then, after, live) | _back(item.orelse, after, live) | here
    return after


def bytes_live(kernel: Kernel, found: Held) -> list[int]:
    """Bytes of fragments that a thread of the role (an agent, on a CPU) holds behind each statement."""
    sizes = {f.name: held_bytes(f) for f in kernel.frags}
    return [sum(sizes.get(name, 0) for name in names) for names in found.live]
