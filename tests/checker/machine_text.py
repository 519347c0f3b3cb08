"""Machine texts by hand, and wrong twins of them: the right one is verified, the twin not, by the judgement named."""

from __future__ import annotations

from tests.checker.text_parts import opening

from treadle.checker import Verdict, check
from treadle.machine.parse import parse_machine
from treadle.machine.verify import form_problems


def text(target: str, program: str, guard: str, launch: str, kernel: str, ledger: str = "", host: str = "") -> str:
    """A machine text of one kernel."""
    head = opening(target, program.strip("\n") + "\n", f"{guard}\n", f"{host}  launch main {launch}\n", ledger)
    return f"{head}kernel main {{\n{kernel.strip(chr(10))}\n}}\n"


def judged(machine: str) -> Verdict:
    """The verdict on a text whose form is right."""
    program = parse_machine(machine.strip("\n") + "\n")
    assert not form_problems(program), form_problems(program)
    return check(program)


def verified(machine: str) -> None:
    """Asserts that the text is verified."""
    verdict = judged(machine)
    assert verdict.status == "verified", str(verdict)


def refused(right: str, old: str, new: str, judgement: str, status: str = "rejected|unknown") -> Verdict:
    """Asserts that the text with `new` for `old` is not verified, by that judgement."""
    assert old in right, f"{old!r} stands nowhere"
    verdict = judged(right.replace(old, new, 1))
    assert verdict.status in status.split("|") and verdict.judgement == judgement, str(verdict)
    return verdict
