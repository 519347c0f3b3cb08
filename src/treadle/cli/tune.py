"""`treadle tune FILE:KERNEL --dim M=4096 ... [--budget 60] [--save FILE]`."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cli.parser import Parser, kernel_arguments
from treadle.cli.screen import fitted
from treadle.driver.describe import REPRESENTATIVE
from treadle.driver.made_up import made_up


def run(argv: Sequence[str]) -> int:
    """Searches for the fastest plan of a kernel for made-up arrays; exit status 0."""
    parser = Parser(prog="treadle tune", description="Measure the planner's candidates; calls use the fastest then.")
    kernel_arguments(parser)
    parser.add_argument("--in", dest="files", action="append", default=[], metavar="X=x.npy", help="an array of a file")
    parser.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="default 60")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="FILE", help="write the plan that was found")
    given = parser.parse_args(argv)
    call = made_up(
        given.kernel,
        given.arg,
        given.absent,
        given.dim,
        given.set,
        files=given.files,
        seed=given.seed,
        extent=REPRESENTATIVE,
    )
    call.try_promises()
    tuned = call.kernel.tune(budget=given.budget, **call.keywords)
    print(fitted(str(tuned)))
    if given.save is not None:
        tuned.plan.save(given.save)
        print(f"  saved to {given.save}")
    return 0
