"""`treadle sanitize FILE:KERNEL --dim M=33 ...`."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cli.parser import Parser, kernel_arguments
from treadle.driver.locate import captured, dtypes_of, locate, numbers, settings
from treadle.driver.samples import arguments, default_extents
from treadle.evaluate.sanitize import sanitize


def run(argv: Sequence[str]) -> int:
    """Runs the checked interpreter on random arguments. Exit status 0 clean, 1 with findings."""
    parser = Parser(prog="treadle sanitize", description="Look for broken promises of a kernel.")
    kernel_arguments(parser)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    definition = locate(given.kernel).__treadle_definition__
    program = captured(definition, dtypes_of(definition, given.arg, given.absent), settings(given.set))
    extents = default_extents(program, numbers(given.dim))
    arrays, scalars = arguments(program, extents, given.seed)
    findings = sanitize(program, arrays, scalars, extents)
    dims = ", ".join(f"{k} = {v}" for k, v in sorted(extents.items()))
    print(f"{program.name} at {dims}: " + ("nothing found" if not findings else f"{len(findings)} findings"))
    for finding in findings:
        print(f"  {finding}")
    return 1 if findings else 0
