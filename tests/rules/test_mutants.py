"""Mutants of programs after a step: whatever the checker still verifies means the same.

The texts of all right steps are changed line by line: lines deleted, doubled, swapped, numbers and names changed, words
exchanged. Of those that are programs, the checker must refuse each that stores something else; a seeded sample runs
here, `python -m tests.rules.test_mutants` tries all of them.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from treadle.base.errors import TreadleError
from treadle.checker.derivation import validate
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify
from treadle.plan.steps import Step
from treadle.rules import Derivation

from . import kernels
from .steps import RIGHT

WORDS = [
    ("serial", "parallel"),
    ("parallel", "serial"),
    ("reduce (", "serial ("),
    ("add", "mul"),
    ("maximum", "minimum"),
    (" each", ""),
    (" reversed", ""),
    (" order ordered", ""),
    ("min(", "max("),
]
SIZES = (*kernels.SIZES, {"M": 9, "N": 13, "K": 9})


def mutants(text: str) -> Iterator[str]:
    """Texts that differ in one place of the body, or in the extent of a dimension."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip() == "body")
    names = sorted({w for line in lines[start:] for w in re.findall(r"%[\w.]+|\b[a-zA-Z]\w*\b", line)})
    for i, line in enumerate(lines):
        if i <= start and not re.match(r" *dim .*=", line):
            continue
        yield "\n".join([*lines[:i], *lines[i + 1 :]])
        yield "\n".join([*lines[:i], line, *lines[i:]])
        if i + 1 < len(lines):
            yield "\n".join([*lines[:i], lines[i + 1], line, *lines[i + 2 :]])
        for old, new in WORDS:
            if old in line:
                yield "\n".join([*lines[:i], line.replace(old, new, 1), *lines[i + 1 :]])
        for found in re.finditer(r"(?<![\w.%])\d+", line):
            for number in (int(found[0]) + 1, max(0, int(found[0]) - 1)):
                yield "\n".join(
                    [*lines[:i], line[: found.start()] + str(number) + line[found.end() :], *lines[i + 1 :]]
                )
        for found in re.finditer(r"%[\w.]+|\b[a-zA-Z]\w*\b", line):
            for name in names:
                if name != found[0] and (name[0] == "%") == (found[0][0] == "%"):
                    yield "\n".join([*lines[:i], line[: found.start()] + name + line[found.end() :], *lines[i + 1 :]])


def program_of(text: str) -> Program | None:
    """The program, where a mutant is one."""
    try:
        p = parse_program(text + "\n", "a mutant")
        verify(p)
    except (TreadleError, ValueError, KeyError, TypeError, AttributeError, AssertionError, ZeroDivisionError):
        return None
    return p


def differs(before: Program, mutant: Program) -> bool:
    """Whether a mutant stores something else, or cannot run, on some size."""
    for seed, extents in enumerate(SIZES):
        want = kernels.run(before, extents, seed)
        try:
            have = kernels.run(mutant, extents, seed)
        except (TreadleError, IndexError, ValueError, ZeroDivisionError):
            return True
        if any(not np.array_equal(want[n], have[n]) for n in want):
            return True
    return False


def tried(before: Program, step: Step, after: Program, texts: list[str]) -> tuple[int, list[str]]:
    """How many mutants the checker verifies, and those of them that are wrong."""
    accepted, holes = 0, list[str]()
    own = print_program(after)
    for text in texts:
        mutant = program_of(text)
        if mutant is None or print_program(mutant) == own:
            continue
        if validate(before, step, mutant).status == "verified":
            accepted += 1
            if differs(before, mutant):
                holes.append(text)
    return accepted, holes


def steps_of(name: str) -> Derivation:
    kernel, steps = RIGHT[name]
    d = Derivation(kernels.program(kernel))
    for rule, args in steps:
        d = d.then(rule, *args)
    return d


@pytest.mark.parametrize("name", RIGHT)
def test_verified_mutants_mean_the_same(name: str) -> None:
    d = steps_of(name)
    for before, step, after in zip(d.programs, d.steps, d.programs[1:], strict=False):
        texts = list(mutants(print_program(after)))
        _, holes = tried(before, step, after, random.Random(7).sample(texts, 15))
        assert holes == []


if __name__ == "__main__":
    for one in RIGHT:
        d = steps_of(one)
        for before, step, after in zip(d.programs, d.steps, d.programs[1:], strict=False):
            texts = list(mutants(print_program(after)))
            accepted, holes = tried(before, step, after, texts)
            sys.stdout.write(f"{one}, {step.kind}: {len(texts)} mutants, {accepted} verified, {len(holes)} wrong\n")
            for hole in holes:
                sys.stdout.write(f"{step}\n{print_program(before)}\n--- accepted:\n{hole}\n")
