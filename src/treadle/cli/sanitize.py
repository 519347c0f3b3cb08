"""`treadle sanitize FILE:KERNEL --dim M=33 ...`."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cli.parser import Parser, kernel_arguments
from treadle.driver.locate import captured, dtypes_of, known_dims, locate, numbers, settings
from treadle.driver.samples import arguments, default_extents
from treadle.evaluate.sanitize import sanitize


def run(argv: Sequence[str]) -> int:
    """Runs the checked interpreter on random arguments. Exit status 0 clean, 1 with findings."""
    parser = Parser(prog="treadle sanitize", description="Look for broken promises of a kernel.")
    kernel_arguments(parser)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    definition = locate(given.kernel).__treadle_definition__
    dtypes = dtypes_of(definition, given.arg, given.absent)
    dims = numbers(given.dim)
    program = captured(definition, dtypes, settings(given.set), dims, given.absent)
    known_dims(program, dims)
    extents = default_extents(program, dims)
    arrays, scalars = arguments(program, extents, given.seed)
    omitted = {t.name for t in program.tensors if t.name not in dtypes}
    findings = sanitize(program, arrays, scalars, extents, fresh=omitted)
    dims = ", ".join(f"{k} = {v}" for k, v in sorted(extents.items()))
    print(f"{program.name} at {dims}: " + ("nothing found" if not findings else f"{len(findings)} findings"))
    for finding in findings:
        print(f"  {finding}")
    return 1 if findings else 0
