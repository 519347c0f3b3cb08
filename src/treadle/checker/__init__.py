"""The judge of machine programs. No rule for a case means unknown, never yes.

Start at `judge`: the order of the proofs. Values: `scopes` and `source` (the source read pointwise), `terms` and
`compare` (what storage holds, and when that is what a claim says), `reading`, `computing` and `statements` (one
statement each), `folds`, `storage`. Control: `control`, `invariants`, `cuts`. The whole: `coverage`, `order`. GPUs:
`gpu` (launches and barriers), `steps` and `rings` (producers and consumers), `inflight` (asynchronous operations),
`engines` (boxes). `host` is J7. The room imports only what its contract lists, and works from an installation without
planner, rules, realise and targets.
"""

from treadle.checker.judge import check
from treadle.checker.verdict import VERSION, Verdict

__all__ = ["VERSION", "Verdict", "check"]
