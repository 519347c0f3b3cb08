"""Why a step is refused, one class a cause; and what cannot be done with steps as data."""

from __future__ import annotations

from treadle.base.errors import LimitError, UserError
from treadle.plan.steps import StepUnreadable


class NameUnknown(UserError):
    """A step names a region, argument, value or operation that the program does not have."""

    code = "rules/name"


class CoverageBroken(UserError):
    """The new instances would miss an old one, or repeat it."""

    code = "rules/coverage"


class PrefixBroken(UserError):
    """An instance of an outer scope would no longer own what it owns."""

    code = "rules/prefix"


class OrderBroken(UserError):
    """What the source orders would run in another order."""

    code = "rules/order"


class DependenceBroken(UserError):
    """An access would no longer find what it finds in the source."""

    code = "rules/dependence"


class Overwritten(UserError):
    """What a value was read from has been changed where it would be read again."""

    code = "rules/overwritten"


class StillUsed(UserError):
    """A value that would be gone, or out of reach, is used."""

    code = "rules/used"


class NotFactored(UserError):
    """A chain, which nothing may regroup, or a state that no monoid updates."""

    code = "rules/chain"


class FormUnsupported(LimitError):
    """A form of program that the step has no rule for."""

    code = "rules/form"


class OperationGone(UserError):
    """A reference to an operation that a step removed."""

    code = "rules/gone"


class ReplayDiffers(UserError):
    """A step gives another program than it gave when it was recorded."""

    code = "rules/replay"


__all__ = [
    "CoverageBroken",
    "DependenceBroken",
    "FormUnsupported",
    "NameUnknown",
    "NotFactored",
    "OperationGone",
    "OrderBroken",
    "Overwritten",
    "PrefixBroken",
    "ReplayDiffers",
    "StepUnreadable",
    "StillUsed",
]
