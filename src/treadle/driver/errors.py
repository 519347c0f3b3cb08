"""What can be wrong with a call, a plan request or a saved plan."""

from __future__ import annotations

from treadle.base.errors import InternalError, LimitError, UserError


class ArgumentMissing(UserError):
    """A call without a required argument, or with too many, or with an unknown keyword."""

    code = "call/arguments"


class ExtentConflict(UserError):
    """Two axes of one dimension have different extents."""

    code = "call/extent-conflict"


class ExtentUnknown(UserError):
    """A dimension whose extent no argument tells."""

    code = "call/extent-unknown"


class RequirementBroken(UserError):
    """A `td.require` of the kernel that the arguments do not meet."""

    code = "call/require"


class RankWrong(UserError):
    """An argument whose number of axes is not the parameter's."""

    code = "call/rank"


class DTypeWrong(UserError):
    """An argument whose dtype is not the declared one."""

    code = "call/dtype"


class ListWrong(UserError):
    """A parameter of several devices that gets no list of arrays, or one of unlike arrays."""

    code = "call/devices"


class SeveralDevices(LimitError):
    """A call whose arrays lie on several GPUs."""

    code = "limit/devices"


class ArgumentsOverlap(UserError):
    """Two arguments share memory in a way that breaks a promise of the kernel."""

    code = "call/overlap"


class LikeWrong(UserError):
    """A description of an array, `td.like`, that no array has."""

    code = "call/like"


class IntrinsicAbsent(LimitError):
    """A `td.intrinsic` for which its author gives no text for the target."""

    code = "limit/intrinsic"


class IntrinsicRefused(UserError):
    """A text of a `td.intrinsic` that the target's compiler refuses."""

    code = "plan/intrinsic-text"


class TargetUnknown(UserError):
    """A target that treadle does not know."""

    code = "plan/target"


class TargetAbsent(UserError):
    """A target that this machine cannot run."""

    code = "plan/target-absent"


class UniversalUnverified(InternalError):
    """The judge rejected a universal plan."""

    code = "plan/universal-unverified"


class UniversalUnknown(InternalError):
    """The judge could not decide about a universal plan."""

    code = "plan/universal-unknown"


class GuardBroken(UserError):
    """A plan called with arguments that its guard excludes."""

    code = "plan/guard"


class PlanUnverified(UserError):
    """A saved plan that the judge does not verify any more."""

    code = "plan/unverified"


class PinForm(UserError):
    """A constraint of a plan that is none, or whose sizes and names have no such form."""

    code = "plan/pin-form"


class PinName(UserError):
    """A constraint of a plan on a name that the kernel does not have."""

    code = "plan/pin-name"


class TuningUnsupported(LimitError):
    """A call that the measured search cannot try plans for."""

    code = "tune/unsupported"
