"""What the CUDA cost model believes of a GPU: how many multiprocessors, how fast they are, what starting costs.

*Units*: per second, bytes, seconds. *Source*: measurements on one H200 (docs/decisions/0001-hand-experiments.md and the
facts behind it); the sm_80 row scales them by the published counts. Only ratios between candidates matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.hardware.targets import TARGETS, Target
from treadle.plan.facts import CallFacts


@dataclass(frozen=True)
class Rates:
    """One GPU. `clock`: cycles a second; `lanes`: simple instructions a cycle and multiprocessor; `products`: 16-bit
    products a cycle and multiprocessor in the tensor cores; `memory`, `cache`: bytes a second; `engines`: whether it
    has copy engines that a phased barrier waits for."""

    processors: int
    clock: float
    lanes: float
    products: float
    memory: float
    cache: float
    launch: float = 2.5e-6
    latency: float = 1.0e-6
    exchange: float = 0.15e-6
    engines: bool = False


SM_90A = Rates(132, 1.75e9, 116.0, 2048.0, 4.3e12, 6.5e12, engines=True)
SM_80 = Rates(108, 1.41e9, 116.0, 1024.0, 1.4e12, 3.5e12)


def rates(facts: CallFacts) -> Rates:
    """The row for a call's target; a feature `processors=N` tells another count of multiprocessors."""
    row = SM_90A if facts.target.endswith("sm_90a") else SM_80
    for feature in facts.features:
        if feature.startswith("processors="):
            return replace(row, processors=int(feature[11:]))
    return row


def target(facts: CallFacts) -> Target:
    """The capacities of a call's target."""
    return TARGETS[facts.target]
