"""Cooperative launches: what stands between two meetings of all workgroups is judged as a launch of its own.

A meeting (`grid.sync`) ends when all threads of the launch have arrived, and orders what each did before it with what
any does after it, in all memory: as the end of a launch and the beginning of the next one do. All workgroups of a
cooperative launch run at once, or the launch fails as a whole and nothing has happened. What outlives a meeting and not
a launch (registers, shared memory) is taken to be undefined behind it. What the end of a launch waits for and a meeting
does not (copies and products on their way) has no rule here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.checker.meetings import Meetings, meets, meets_within
from treadle.checker.verdict import Finding, Refused, Unsure
from treadle.machine.form import Body, Control, Copy, Kernel, Launch, MachineProgram, Mma, Role, Stmt, Sync, walk
from treadle.machine.vocabulary import ASYNC_ATOMS


@dataclass
class Phases:
    """`at`: the statement at hand, for findings."""

    program: MachineProgram
    at: Stmt | Control | None = None

    def unfolded(self) -> MachineProgram:
        """The program with a launch for each phase of its cooperative launches; the program itself if it has none.

        *Errors*: refused, J5, where workgroups meet that may not run at once; unsure where no rule covers a phase.
        """
        program = self.program
        if not any(_meets(k) for k in program.kernels) and not any(x.cooperative for x in program.host.launches):
            return program
        kernels = [k for k in program.kernels if not _meets(k)]
        launches: list[Launch] = []
        for at, launch in enumerate(program.host.launches):
            kernel = next((k for k in program.kernels if k.name == launch.kernel), None)
            if launch.cooperative and launch.cluster != 1:
                raise Unsure("J5", f"{launch.kernel} is launched in clusters, cooperatively", missing="a rule for both")
            if kernel is None or not _meets(kernel):
                launches.append(replace(launch, cooperative=False))
                continue
            if meets_within(kernel):
                self._within(kernel, launch)
                kernels.append(kernel)
                launches.append(launch)
                continue
            for number, body in enumerate(self._parts(kernel, launch)):
                phase = f"{kernel.name}@{at}.{number}"
                kernels.append(replace(kernel, name=phase, roles=[replace(kernel.roles[0], body=body)]))
                launches.append(replace(launch, kernel=phase, cooperative=False))
        return replace(program, kernels=kernels, host=replace(program.host, launches=launches))

    def _parts(self, kernel: Kernel, launch: Launch) -> list[Body]:
        """What stands between meetings."""
        meetings = [s for role in kernel.roles for s in walk(role.body) if meets(s)]
        self.at = meetings[0]
        if not launch.cooperative:
            raise Refused("J5", f"workgroups of {kernel.name} meet, and some may wait for others to end", {})
        if len(kernel.roles) != 1 or kernel.barriers:
            raise Unsure("J5", f"roles of {kernel.name} meet other workgroups", missing="one role without barriers")
        role = kernel.roles[0]
        self._plain(role)
        parts: list[Body] = [[]]
        for stmt in role.body:
            if meets(stmt):
                parts.append([])
            else:
                parts[-1].append(stmt)
        return [part for part in parts if part]

    def _within(self, kernel: Kernel, launch: Launch) -> None:
        """Workgroups meet inside loops: the launch stays one."""
        self.at = next(s for role in kernel.roles for s in walk(role.body) if meets(s))
        if not launch.cooperative:
            raise Refused("J5", f"workgroups of {kernel.name} meet, and some may wait for others to end", {})
        meetings = Meetings(kernel)
        try:
            meetings.check()
        except Finding:
            self.at = meetings.at
            raise

    def _plain(self, role: Role) -> None:
        """Nothing is on its way when a phase ends."""
        for stmt in walk(role.body):
            if isinstance(stmt, Copy) or (isinstance(stmt, Mma) and stmt.atom.split(".")[0] in ASYNC_ATOMS):
                self.at = stmt
                raise Unsure("J2", "work on its way when workgroups meet", missing="loads and stores of threads")
            if isinstance(stmt, Sync) and stmt.kind == "setmaxnreg":
                self.at = stmt
                raise Unsure("J5", "registers change hands where workgroups meet", missing="a launch without it")


def _meets(kernel: Kernel) -> bool:
    return any(meets(s) for role in kernel.roles for s in walk(role.body))
