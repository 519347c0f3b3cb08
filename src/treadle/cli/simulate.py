"""`treadle simulate FILE.tdm --dim M=33 ... [--seed S] [--schedules N]`."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cli.parser import Parser, machine_file
from treadle.driver.locate import numbers
from treadle.driver.trial import try_machine


def run(argv: Sequence[str]) -> int:
    """Runs a machine text on random arguments under adversarial schedules. Exit status 0 clean, 1 with findings."""
    parser = Parser(prog="treadle simulate", description="Run a machine text under schedules chosen to break it.")
    parser.add_argument("file", type=machine_file, help="a .tdm file")
    parser.add_argument("--dim", action="append", default=[], metavar="M=33", help="an extent (default 17, 23, ...)")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule and of the arguments")
    parser.add_argument("--schedules", type=int, default=10, help="how many schedules")
    given = parser.parse_args(argv)
    outcome = try_machine(
        given.file.read_text(encoding="utf-8"), str(given.file), numbers(given.dim), given.seed, given.schedules
    )
    print(outcome.text())
    return 0 if outcome.clean else 1
