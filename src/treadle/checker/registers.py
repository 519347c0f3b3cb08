"""Registers that roles divide anew (`setmaxnreg`): J4, J5.

A workgroup is entered with as many registers for each of its threads as the assembler was asked for: an even share of
what a multiprocessor has for each resident workgroup. Roles that give up some of theirs never wait for it; who asks for
more waits until the others gave up enough. So all that is asked for, and the shares of those who ask for nothing, must
be there; and nobody may wait for more while those who are to give up meet him first.
"""

from __future__ import annotations

from treadle.checker.verdict import Refused
from treadle.hardware.targets import Target
from treadle.machine.form import Control, Kernel, Launch, Role, Stmt, Sync, walk

ASK = "setmaxnreg"


def check_registers(kernel: Kernel, launch: Launch, target: Target) -> None:
    """*Errors*: refused, J4 and J5. *Source*: PTX ISA 9.0, setmaxnreg: the pool of the workgroup, blocking."""
    for role in kernel.roles:
        _asked(role)
    if all(r.registers is None for r in kernel.roles):
        return
    threads = sum(r.agents * r.threads for r in kernel.roles)
    share = min(255, target.registers // (threads * max(1, launch.resident))) // 8 * 8
    wanted = sum(r.agents * r.threads * (share if r.registers is None else r.registers) for r in kernel.roles)
    if wanted > share * threads:
        reason = f"{wanted} registers, a workgroup of {threads} threads has {share * threads}"
        raise Refused("J4", reason, {"registers": wanted})
    more = [_meetings(r, threads) for r in kernel.roles if (r.registers or 0) > share and _meets(r, threads)]
    fewer = [_meetings(r, threads) for r in kernel.roles if r.registers is not None and r.registers < share]
    if more and max(fewer, default=0) > min(more):
        raise Refused("J5", f"a role of {kernel.name} waits for registers of one that waits for it", {})


def _asked(role: Role) -> None:
    """The register budget of a role is what its first statements ask for."""
    asked = [s for s in walk(role.body) if isinstance(s, Sync) and s.kind == ASK]
    work = next((i for i, s in enumerate(role.body) if not isinstance(s, Sync)), len(role.body))
    early = [s for s in role.body[:work] if isinstance(s, Sync) and s.kind == ASK]
    told = [dict(s.args)["registers"].constant for s in asked]
    if (
        (role.registers is None) != (not asked)
        or len(asked) > 1
        or len(early) != len(asked)
        or any(s.by for s in asked)
    ):
        raise Refused("J5", f"{role.name} does not ask once, first and as a whole for its registers", {})
    if asked and (told != [role.registers] or not 24 <= (role.registers or 0) <= 256 or (role.registers or 0) % 8):
        raise Refused(
            "J4", f"{role.name} asks for {told[0]} registers, it has {role.registers}", {"registers": told[0] or 0}
        )


def _meetings(role: Role, threads: int) -> int:
    """How often a role has met all the others before it asks."""
    place = next(i for i, s in enumerate(role.body) if isinstance(s, Sync) and s.kind == ASK)
    return sum(_all_meet(s, threads) for s in role.body[:place])


def _meets(role: Role, threads: int) -> bool:
    """Whether a role meets all the others (one that does not is refused for that)."""
    return any(_all_meet(s, threads) for s in role.body)


def _all_meet(s: Stmt | Control, threads: int) -> bool:
    if not isinstance(s, Sync):
        return False
    return s.kind == "cluster.wait" or (s.kind == "barrier.sync" and dict(s.args)["threads"].constant == threads)
