"""Launches of one call that begin while the one before them ends.

A launch that follows another one is made dependent on it: its workgroups start, and set up what is their own, where the
last ones of the launch before leave room; they wait for its end before anything else. Without this a GPU is empty
between two launches for as long as starting one takes.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.hardware.targets import find_target
from treadle.machine.form import Kernel, MachineProgram, Role, Sync


def chained(machine: MachineProgram) -> MachineProgram:
    """The program with each launch but the first dependent on the one before; the program itself where the target has
    no such launches, or there is one launch only.

    *Ensures*: the same statements in the same order within each launch.
    """
    target = find_target(machine.target)
    launches = machine.host.launches
    if target is None or not target.dependent_launches or len(launches) < 2:
        return machine
    if any(x.cooperative for x in launches) or len({x.kernel for x in launches}) < len(launches):
        return machine
    first, last = launches[0].kernel, launches[-1].kernel
    kernels = [_linked(k, k.name != last, k.name != first) for k in machine.kernels]
    chain = [launches[0], *(replace(x, dependent=True) for x in launches[1:])]
    return replace(machine, host=replace(machine.host, launches=chain), kernels=kernels)


def _linked(kernel: Kernel, followed: bool, follows: bool) -> Kernel:
    """What a role sets up comes first. `followed`: another launch may begin once all workgroups of this one have;
    `follows`: it waits for another."""
    roles: list[Role] = []
    for number, role in enumerate(kernel.roles):
        head = [Sync(kind="grid.release")] if followed and number == 0 else []
        head += [Sync(kind="grid.wait")] if follows else []
        place = next((i for i, s in enumerate(role.body) if not isinstance(s, Sync)), len(role.body))
        roles.append(replace(role, body=[*role.body[:place], *head, *role.body[place:]]))
    return replace(kernel, roles=roles)
