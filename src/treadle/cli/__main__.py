"""`python -m treadle.cli`: the command line, as `python -m treadle`."""

from __future__ import annotations

import sys

from treadle.cli import main

if __name__ == "__main__":
    sys.exit(main())
