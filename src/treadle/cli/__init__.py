"""The command line: thin commands over the driver, each in a file of its own, loaded when it is called."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from treadle.base.errors import TreadleError

COMMANDS = {
    "run": "run a kernel on made-up arrays, or a Python file, and profile it",
    "plan": "plan a kernel of a file, and show why, or its machine text or emitted text",
    "explain": "plan a kernel and say why this plan",
    "show": "draw a plan or a machine text as one HTML page",
    "check": "judge a machine text (exit 0 verified, 1 rejected, 2 unknown), or its mutants",
    "simulate": "run a machine text under adversarial schedules",
    "sanitize": "look for broken promises of a kernel on random arguments",
    "tune": "measure the planner's candidates for a kernel; calls use the fastest then",
    "calibrate": "fit the planner's cost model to this machine",
    "bench": "time kernels against other libraries",
    "cache": "show or clear the cache of compiled plans",
    "doctor": "what this machine has and can run",
}
BAD_INPUT = 3
"""Exit status for bad input, whatever the command."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status. Errors of treadle are printed, and give status 3; Ctrl-C gives 130."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that a terminal's encoding lacks are no error
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else BAD_INPUT
    if words[0] == "--version":
        print(importlib.import_module("treadle").__version__)
        return 0
    if words[0] not in COMMANDS:
        print(f"treadle: no command {words[0]!r}\n\n{_usage()}", file=sys.stderr)
        return BAD_INPUT
    module = importlib.import_module(f"treadle.cli.{words[0]}")
    try:
        status = int(module.run(words[1:]))
        # What is still buffered goes out here, where a reader that has had enough is no error.
        sys.stdout.flush()
        return status
    except TreadleError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(f"treadle {words[0]}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough: leave quietly, and keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, UnicodeDecodeError) as error:
        print(f"treadle {words[0]}: {error}", file=sys.stderr)
        return BAD_INPUT


def _usage() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return f"usage: treadle COMMAND ... (treadle COMMAND --help tells its arguments)\n\n{listed}"
