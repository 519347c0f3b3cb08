"""The judge of machine programs. No rule for a case means unknown, never yes.

Start at `judge` (the order of the proofs), then `control` (loops, tasks, `if`), `statements` (one statement each),
`source` (the source read pointwise), `folds`, `storage`, `coverage`. It imports only what its contract lists, and works
from an installation that has no planner, rules, realise or targets.
"""

from treadle.checker.judge import check
from treadle.checker.verdict import VERSION, Verdict

__all__ = ["VERSION", "Verdict", "check"]
