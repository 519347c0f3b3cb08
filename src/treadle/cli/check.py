"""`treadle check FILE.tdm [--source FILE:KERNEL] [--derivation FILE.json] [--json] [--mutate]`, or of a derivation."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from treadle.cli.parser import Parser, argument_options, machine_file
from treadle.driver.check import Judged, SourceDiffers, judge_file, same_program
from treadle.driver.check_steps import Derived, judge_derivation
from treadle.driver.locate import captured, dtypes_of, locate, numbers, numbers_in, settings
from treadle.ir.core import Program
from treadle.plan.steps import Step

STATUS = {"verified": 0, "rejected": 1, "unknown": 2}


def run(argv: Sequence[str]) -> int:
    """Judges a machine text. Exit status 0 verified, 1 rejected, 2 unknown."""
    parser = Parser(prog="treadle check", description="The independent judge's verdict on a machine text.")
    parser.add_argument("file", type=machine_file, help="a .tdm file, or the .json of saved steps")
    parser.add_argument("--source", metavar="FILE:KERNEL", help="the kernel whose program the text must embed")
    parser.add_argument(
        "--derivation", type=Path, help="the saved steps that lead from the source to the text's program"
    )
    argument_options(parser)
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--mutate", action="store_true", help="judge every mutant of the text, and simulate survivors")
    parser.add_argument("--schedules", type=int, default=1000, help="with --mutate: schedules for each survivor")
    parser.add_argument("--sample", type=int, help="with --mutate: only so many mutants, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    if given.mutate:
        # The mutation study runs the simulator, which judging alone must not need.
        study = importlib.import_module("treadle.driver.mutation")
        return int(study.report(given.file, given.dim, given.schedules, given.sample, given.seed, given.json))
    source = _source(given.source, given.arg, given.absent, given.set, numbers(given.dim))
    if given.file.suffix == ".json":
        return _derivation(judge_derivation(given.file.read_text(encoding="utf-8")), source, given.json)
    if given.derivation is None:
        judged = judge_file(given.file, source)
    else:
        derived = judge_derivation(given.derivation.read_text(encoding="utf-8"))
        found = _derivation(derived, source, False)
        if found:
            return found
        judged = derived.holds_for(judge_file(given.file, _known(derived.last)))
    print(json.dumps(judged.as_json()) if given.json else _text(judged))
    return STATUS[judged.verdict.status]


def _derivation(derived: Derived, source: Callable[[Program], Program] | None, as_json: bool) -> int:
    """Prints the verdicts on a derivation, whose first program must be the source's; the exit status."""
    if source is not None:
        first = _known(derived.first)
        same_program(first, source(first), "the derivation")
    worst = derived.worst
    if as_json:
        print(json.dumps([{"step": str(about), "status": v.status, "reason": v.reason} for about, v in derived.pairs]))
    else:
        number = 0
        for about, verdict in derived.pairs:
            under = f" for {', '.join(verdict.permissions)}" if verdict.permissions else ""
            number += isinstance(about, Step)
            print(f"{f'step {number}, ' if isinstance(about, Step) else ''}{about}: {verdict}{under}")
    return 0 if worst is None else STATUS[worst.status]


def _known(program: Program | None) -> Program:
    """The program that saved steps are of. *Errors*: `machine/source-differs`."""
    if program is None:
        raise SourceDiffers(
            doing="comparing saved steps with a program",
            found="steps on a plan without machine texts",
            expected="the steps of Plan.derivation, which have them",
            hint="save plan.derivation",
        )
    return program


def _source(
    where: str | None, args: Sequence[str], absent: Sequence[str], sets: Sequence[str], dims: Mapping[str, int]
) -> Callable[[Program], Program] | None:
    """What captures the source anew, for the dimensions that the text's program has as numbers."""
    if where is None:
        return None
    definition = locate(where).__treadle_definition__
    dtypes, staged = dtypes_of(definition, args, absent), settings(sets)

    def again(embedded: Program) -> Program:
        return captured(definition, dtypes, staged, dims, absent, specialised=numbers_in(definition, embedded))

    return again


def _text(judged: Judged) -> str:
    line = "" if judged.line is None else f"\n  line {judged.line} of the machine text"
    return f"{judged.verdict}{line}\n  source: {judged.source}"
