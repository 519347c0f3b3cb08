"""`treadle check FILE.tdm [--source FILE:KERNEL] [--json] [--mutate]`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence

from treadle.cli.parser import Parser, argument_options, machine_file
from treadle.driver.check import Judged, judge_file
from treadle.driver.locate import captured, dtypes_of, locate, numbers, numbers_in, settings
from treadle.ir.core import Program

STATUS = {"verified": 0, "rejected": 1, "unknown": 2}


def run(argv: Sequence[str]) -> int:
    """Judges a machine text. Exit status 0 verified, 1 rejected, 2 unknown."""
    parser = Parser(prog="treadle check", description="The independent judge's verdict on a machine text.")
    parser.add_argument("file", type=machine_file, help="a .tdm file")
    parser.add_argument("--source", metavar="FILE:KERNEL", help="the kernel whose program the text must embed")
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
    judged = judge_file(given.file, _source(given.source, given.arg, given.absent, given.set, numbers(given.dim)))
    print(json.dumps(judged.as_json()) if given.json else _text(judged))
    return STATUS[judged.verdict.status]


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
