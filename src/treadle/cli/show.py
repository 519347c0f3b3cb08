"""`treadle show FILE:KERNEL --target T -o plan.html`, `treadle show FILE.tdm -o plan.html`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from treadle.cli.parser import Parser, argument_options, no_saved_plan
from treadle.driver.describe import described_plan
from treadle.driver.locate import numbers
from treadle.driver.show import text_page


def run(argv: Sequence[str]) -> int:
    """Writes the page of a plan, or of a machine text; exit status 0."""
    parser = Parser(prog="treadle show", description="A picture of a plan: one HTML page that needs nothing else.")
    parser.add_argument("what", type=no_saved_plan, metavar="FILE:KERNEL", help="a kernel, or a .tdm file")
    argument_options(parser)
    parser.add_argument("--target", help="cpu[:avx2|amx|..|neon|sve], cuda[:sm_80|sm_90a] (default: this machine)")
    parser.add_argument("--family", help="only plans of this family")
    parser.add_argument("-o", "--out", metavar="FILE", default="plan.html", help="default plan.html; - prints the page")
    given = parser.parse_args(argv)
    if given.what.endswith(".tdm") or Path(given.what).is_file() and not given.what.endswith(".py"):
        text = text_page(Path(given.what), numbers(given.dim))
    else:
        plan = described_plan(given.what, given.arg, given.absent, given.dim, given.set, given.target, given.family)
        text = plan.page(numbers(given.dim))
    if given.out == "-":
        sys.stdout.write(text)
        return 0
    Path(given.out).write_text(text, encoding="utf-8")
    print(f"{given.out}: {len(text) / 1e3:.0f} kB")
    return 0
