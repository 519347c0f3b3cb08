"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An argument parser that leaves with the status for bad input."""

    def error(self, message: str) -> NoReturn:
        """Prints the usage and the message, and leaves with status 3."""
        self.print_usage()
        self.exit(3, f"{self.prog}: {message}\n")


def machine_file(path: str) -> Path:
    """The path of a machine text, for `type=`; a kernel or a saved plan in its place is told what it is."""
    no_saved_plan(path)
    if not Path(path).is_file() and Path(path.rpartition(":")[0]).is_file():
        raise argparse.ArgumentTypeError(
            f"{path} is a kernel: write its machine text first, treadle plan {path} --machine > FILE.tdm"
        )
    return Path(path)


def no_saved_plan(path: str) -> str:
    """`path`, for `type=`, unless it is a file that `Plan.save` wrote: decisions, which no command reads."""
    if Path(path).is_file() and b"\n--- program\n" in (data := Path(path).read_bytes()) and data[:1] == b"{":
        raise argparse.ArgumentTypeError(
            f"{path} is a saved plan, decisions without a machine text: in Python, td.load(path, kernel) realises and "
            "judges it again, and .check(), .machine() and .show(file) are those of any plan"
        )
    return path


def kernel_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE:KERNEL and what describes its arguments."""
    parser.add_argument("kernel", metavar="FILE:KERNEL", help="a Python file and the name of a kernel in it")
    argument_options(parser)


def argument_options(parser: argparse.ArgumentParser) -> None:
    """The options that describe a kernel's arguments."""
    parser.add_argument("--arg", action="append", default=[], metavar="X=bf16[M,K]", help="dtype of an argument")
    parser.add_argument("--absent", action="append", default=[], metavar="NAME", help="leave an optional argument out")
    parser.add_argument("--dim", action="append", default=[], metavar="M=4096", help="a representative extent")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a staged value")
