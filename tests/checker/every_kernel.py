"""Every kernel there is, and whether the judge verifies its universal plan ("unknown there is our bug": language.md).

`python -m tests.checker.every_kernel [TARGET]` looks at the kernels at the top of modules of tests, examples, library,
and tells what a judgement takes (processor time): the median, and the longest.
As a plugin (`pytest -p tests.checker.every_kernel --judge-kernels TARGET ...`) it also judges every program that the
tests of that run capture, of kernels inside tests too, and tells which are not verified.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from treadle.base.errors import LimitError, TreadleError
from treadle.checker import check
from treadle.driver.candidates import families
from treadle.driver.kernel import Kernel
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.ir.printer import print_program
from treadle.lang.definition import Definition
from treadle.lang.errors import NeedsExtent
from treadle.plan.facts import CallFacts

ROOT = Path(__file__).parents[2]
TARGETS = ("cpu:avx512", "cuda:sm_90a")
KNOWN: dict[str, str] = {
    "no machine program: an operation `print`": "td.print shows values from inside a launch",
}
"""What is not verified, and why: the beginning of what the judge, or the realisation, says. To shrink."""
BROKEN = ("test_sanitize", "wrong", "test_bad_calls", "test_error_texts", "test_forged_tiles")
"""Modules whose kernels break their promises, or are refused, on purpose."""


def judged(program: Program, target: str, took: list[float] | None = None) -> str:
    """The verdict on the universal plan of a captured program: "verified", or what else it is. Notes in `took` the
    seconds of processor time that the judge needs."""
    family = next(f for f in families(target) if f.name == "universal")
    facts = CallFacts(target, disjoint=True, workers=2)
    meant = expand(program)
    try:
        machine = family.build(meant, facts, {}, family.guard(meant, facts, {}))
    except LimitError as error:
        return f"no machine program: {error.found}"
    machine.captured = None if meant is program else program
    start = time.process_time()
    verdict = check(machine)
    if took is not None:
        took.append(time.process_time() - start)
    return "verified" if verdict.status == "verified" else str(verdict)


def excused(answer: str) -> bool:
    """Whether an answer is verified, or known."""
    return answer == "verified" or any(answer.startswith(known) for known in KNOWN)


# ---- kernels at the top of modules


def modules(*folders: str) -> Iterator[ModuleType]:
    """Modules below folders that define kernels; those of `treadle` by their names, others by their files."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            places = (*path.relative_to(ROOT).parts, path.stem)
            if "\n@td.kernel" not in path.read_text() or any(b in places for b in BROKEN):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[1:] if parts[0] == "src" else parts)
            try:
                yield importlib.import_module(name)
            except ModuleNotFoundError:
                yield _loaded(path, "kernels_of_" + "_".join(parts))


def _loaded(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def kernels(*folders: str) -> Iterator[tuple[str, Definition]]:
    """The kernels of those modules by name, each once."""
    seen: set[int] = set()
    for module in modules(*folders):
        for name, found in vars(module).items():
            if (
                isinstance(found, Kernel)
                and id(found) not in seen
                and found.definition.fn.__module__ == module.__name__
            ):
                seen.add(id(found))
                yield f"{module.__name__}.{name}", found.definition


def captured(definition: Definition, staged: Mapping[str, Any] | None = None) -> Program | None:
    """The program for default dtypes and staged values; None for a kernel that needs a staged value, or is wrong."""
    extents: dict[str, int] = {}
    while True:
        try:
            return definition.capture({}, dict(staged or {}), extents=extents)
        except NeedsExtent as error:
            if error.name in extents:
                return None
            extents[error.name] = 4
        except TreadleError:
            return None


def main(target: str) -> int:
    """Prints what is not verified. Returns how many kernels that are."""
    wrong = count = 0
    took: dict[str, float] = {}
    for name, definition in kernels("src/treadle/lib", "examples", "tests"):
        program = captured(definition)
        if program is None:
            continue
        count += 1
        seconds: list[float] = []
        answer = judged(program, target, seconds)
        took[name] = sum(seconds)
        if not excused(answer):
            wrong += 1
            print(f"{name}: {answer}")
    print(f"{count} kernels for {target}, {wrong} not verified")
    slow = sorted(took, key=took.__getitem__, reverse=True)
    print(f"median {took[slow[len(slow) // 2]]:.3f} s; longest:", *(f"{n} {took[n]:.2f} s" for n in slow[:8]))
    return wrong


# ---- the plugin


def pytest_addoption(parser: Any) -> None:
    """`--judge-kernels TARGET`."""
    parser.addoption("--judge-kernels", default=None, metavar="TARGET", help="judge every program that is captured")


def pytest_configure(config: Any) -> None:
    """Listens to captures."""
    if config.getoption("--judge-kernels") is None:
        return
    config.captured_programs = {}
    capture = Definition.capture

    def listening(self: Definition, *args: Any, **options: Any) -> Program:
        program = capture(self, *args, **options)
        config.captured_programs.setdefault(print_program(program), program)
        return program

    Definition.capture = listening


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Judges what was captured."""
    target = config.getoption("--judge-kernels")
    if target is None:
        return
    answers = {p.name: judged(p, target) for p in config.captured_programs.values()}
    bad = {name: answer for name, answer in answers.items() if not excused(answer)}
    terminalreporter.section(f"universal plans for {target}")
    for name, answer in bad.items():
        terminalreporter.line(f"{name}: {answer}")
    terminalreporter.line(f"{len(config.captured_programs)} programs, {len(bad)} not verified")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))  # as conftest.py does
    sys.exit(min(1, sum(main(t) for t in sys.argv[1:] or TARGETS)))
