"""The judge of machine programs. No rule for a case means unknown, never yes.

Start at `judge`: the order of the proofs. Values: `scopes`, `source` (the source read pointwise), `terms`, `compare`
(what storage holds, and when that is what a claim says), `reading`, `computing`, `statements` (one statement each), `folds`,
`storage`. Control: `control`, `invariants`, `cuts`. The whole: `coverage`, `order`. GPUs: `gpu` (launches, barriers),
`steps` and `rings` (producers, consumers), `inflight` (asynchronous operations), `engines` (boxes). `host` is J7.
The room imports only what its contract lists, and works from an installation without planner, rules, realise, targets.
"""

from treadle.checker.judge import check
from treadle.checker.verdict import VERSION, Verdict

__all__ = ["VERSION", "Verdict", "check"]
