"""The process that compiles for another one: read a request, compile, answer, until the stream ends."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
from typing import BinaryIO

from treadle.base.errors import TreadleError
from treadle.toolchain.llvm import compile_here

_HEADER = struct.Struct("<Q")


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until `requests` ends. Runs only in a worker process."""
    while True:
        header = requests.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        arguments = pickle.loads(requests.read(_HEADER.unpack(header)[0]))
        try:
            answer = pickle.dumps(compile_here(*arguments))
        except TreadleError as error:
            answer = pickle.dumps(error)
        replies.write(_HEADER.pack(len(answer)) + answer)
        replies.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's business
    # LLVM may print to standard output; the replies get a descriptor of their own.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, channel)
