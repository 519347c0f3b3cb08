"""`treadle bench cpu | regret | ports [--case PATTERN] [--peers LIST] [--threads N] [--json FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from treadle.bench.held_out import cases as held_out
from treadle.bench.held_out import on_host
from treadle.bench.ports import ports, table
from treadle.bench.regret import Row as RegretRow
from treadle.bench.regret import prepared, regret_of, summary
from treadle.bench.suite import Row, among, run_case, selected, write_rows
from treadle.cli.parser import Parser
from treadle.cli.screen import fitted
from treadle.runtime.pool import set_workers


def run(argv: Sequence[str]) -> int:
    """Times the suite's cases against the installed peers; exit status 0."""
    parser = Parser(prog="treadle bench", description="Time kernels against other libraries, interleaved.")
    parser.add_argument("suite", choices=["cpu", "regret", "ports"])
    parser.add_argument("--case", metavar="PATTERN", help="a regular expression for case names")
    parser.add_argument("--peers", help="a comma-separated list (default: all that are installed)")
    parser.add_argument("--threads", type=int, help="for both sides (default: all cores)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--plans", type=int, default=24, metavar="N", help="regret: plans to measure of a case, at most"
    )
    parser.add_argument(
        "--build", action="store_true", help="regret: compile the plans into the cache, measure nothing"
    )
    parser.add_argument("--json", metavar="FILE", help="append rows as JSON Lines; - prints them")
    given = parser.parse_args(argv)
    if given.threads is not None:
        set_workers(given.threads)
    if given.suite == "regret":
        return _regret(given.case, given.plans, given.rounds, given.json, given.build)
    if given.suite == "ports":
        print(table(ports({case.family: case.kernel for case in selected(given.case)})))
        return 0
    peers = None if given.peers is None else [p for p in given.peers.split(",") if p]
    rows: list[Row] = []
    quiet = given.json == "-"
    if not quiet:
        print(f"{'case':<36}{'thr':>4}{'ours us':>12}{'peer us':>12}{'ratio':>8}{'limit':>7}{'others':>8}  peer, plan")
    for case in selected(given.case):
        if not quiet and sys.stderr.isatty():
            print(f"{case.name} ...", end="\r", file=sys.stderr, flush=True)
        for row in run_case(case, peers, given.rounds):
            rows.append(row)
            if not quiet:
                print(fitted(_line(row)), flush=True)
    if not quiet:
        print(fitted(LEGEND))
    if given.json is not None:
        write_rows(given.json, rows)
    return 0


def _regret(pattern: str | None, most: int, rounds: int, json: str | None, only_build: bool) -> int:
    """Measures candidates of held-out cases beside the planner's choice."""
    array = on_host(np.random.default_rng(0))
    if json != "-" and not only_build:
        print(f"{'case':<38}{'ours us':>10}{'best us':>10}{'regret':>8}{'rank':>7}{'plans':>10} the fastest")
    rows: list[RegretRow] = []
    for case in among(list(held_out("cpu")), pattern):
        if only_build:
            _, plans, _, refused, declared = prepared(case, array, most)
            print(f"{case.name:<38}{len(plans):>4} compiled, {len(refused)} refused, {declared} declared", flush=True)
            continue
        rows.append(regret_of(case, array, most, rounds))
        if json != "-":
            print(fitted(rows[-1].line()), flush=True)
        if json is not None:
            write_rows(json, rows[-1:])
    if rows and json != "-":
        print(fitted("\n".join(["", *summary(rows)])))
    return 0


LEGEND = (
    "thr: threads of both sides; ours, peer us: medians of one call; ratio: peer / ours, above 1 treadle is faster; "
    "limit: the least time that this machine's arithmetic and memory allow, as a share of ours; "
    "others: what other processes took of the machine meanwhile"
)
"""What the columns of the table are."""


def _line(row: Row) -> str:
    peer_us = f"{row.peer_us:.1f}" if row.peer_us is not None else "-"
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else "-"
    plan = row.plan.partition(": ")[2]
    others = f"{row.others:.0%}" if row.others is not None else "-"
    return (
        f"{row.case:<36}{row.threads:>4}{row.ours_us:>12.1f}{peer_us:>12}{ratio:>8}{row.limit_share:>7.0%}{others:>8}"
        f"  {row.peer}, {plan}"
    )
