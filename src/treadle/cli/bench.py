"""`treadle bench cpu [--case PATTERN] [--peers LIST] [--threads N] [--json FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from treadle.bench.suite import Row, run_case, selected, write_rows
from treadle.cli.parser import Parser
from treadle.runtime.pool import set_workers


def run(argv: Sequence[str]) -> int:
    """Times the suite's cases against the installed peers; exit status 0."""
    parser = Parser(prog="treadle bench", description="Time kernels against other libraries, interleaved.")
    parser.add_argument("suite", choices=["cpu"])
    parser.add_argument("--case", metavar="PATTERN", help="a regular expression for case names")
    parser.add_argument("--peers", help="a comma-separated list (default: all that are installed)")
    parser.add_argument("--threads", type=int, help="for both sides (default: all cores)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE", help="append rows as JSON Lines; - prints them")
    given = parser.parse_args(argv)
    if given.threads is not None:
        set_workers(given.threads)
    peers = None if given.peers is None else [p for p in given.peers.split(",") if p]
    rows: list[Row] = []
    quiet = given.json == "-"
    if not quiet:
        print(f"{'case':<38}{'thr':>4}{'ours us':>12}{'peer us':>12}{'ratio':>8}{'limit':>7}{'others':>8}  peer, plan")
    for case in selected(given.case):
        if not quiet and sys.stderr.isatty():
            print(f"{case.name} ...", end="\r", file=sys.stderr, flush=True)
        for row in run_case(case, peers, given.rounds):
            rows.append(row)
            if not quiet:
                print(_line(row), flush=True)
    if given.json is not None:
        write_rows(given.json, rows)
    return 0


def _line(row: Row) -> str:
    peer_us = f"{row.peer_us:.1f}" if row.peer_us is not None else "-"
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else "-"
    plan = row.plan.partition(": ")[2]
    others = f"{row.others:.0%}" if row.others is not None else "-"
    return (
        f"{row.case:<38}{row.threads:>4}{row.ours_us:>12.1f}{peer_us:>12}{ratio:>8}{row.limit_share:>7.0%}{others:>8}"
        f"  {row.peer}, {plan}"
    )
