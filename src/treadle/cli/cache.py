"""`treadle cache [--clear]`: shows or clears the cache of compiled plans."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cli.parser import Parser
from treadle.runtime.cache import default_cache


def run(argv: Sequence[str]) -> int:
    """Shows or clears the cache of compiled plans; exit status 0."""
    parser = Parser(prog="treadle cache", description="The cache of compiled plans.")
    parser.add_argument("--clear", action="store_true", help="forget everything")
    given = parser.parse_args(argv)
    cache = default_cache()
    if given.clear:
        print(f"{cache.clear()} entries removed")
    stats = cache.stats()
    print(f"{stats.root}: {stats.entries} entries, {stats.bytes / 1e6:.1f} MB of at most {stats.bound / 1e9:.1f} GB")
    return 0
