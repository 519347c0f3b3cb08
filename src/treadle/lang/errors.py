"""The mistakes that capture finds, one class a cause. Pages: docs/errors/{capture,block,bounds,dims,...}.md."""

from __future__ import annotations

from treadle.base.errors import LimitError, UserError


class NoSource(UserError):
    """The text of a function cannot be read, so it cannot be captured."""

    code = "capture/no-source"


class Unsupported(UserError):
    """A statement or expression of Python that a kernel cannot contain."""

    code = "capture/unsupported"


class PythonError(UserError):
    """Python code that runs at capture raised an exception."""

    code = "capture/python-error"


class Unbound(UserError):
    """A name that is read before it is assigned."""

    code = "capture/unbound"


class Gone(UserError):
    """A name, value or scope handle that is used after the region or branch that made it."""

    code = "capture/gone"


class Opaque(UserError):
    """A function without Python source is called with a traced value."""

    code = "capture/opaque-call"


class TracedBool(UserError):
    """A tile is used where Python needs one truth value."""

    code = "capture/tile-bool"


class TracedNumber(UserError):
    """A traced value is used where Python needs a number."""

    code = "capture/traced-number"


class TracedWhile(UserError):
    """`while` on a traced value."""

    code = "capture/while"


class EndlessLoop(UserError):
    """A loop of Python that goes on at capture beyond every program."""

    code = "capture/endless"


class Jump(UserError):
    """`break`, `continue` or `return` inside a region or a traced `if`."""

    code = "capture/jump"


class BadSignature(UserError):
    """A kernel's parameter without a usable annotation."""

    code = "capture/signature"


class BadArgument(UserError):
    """A function of the language is called with something it does not take."""

    code = "capture/argument"


class BadAssignment(UserError):
    """An assignment to something that cannot be assigned in a kernel."""

    code = "capture/assignment"


class OutsideKernel(UserError):
    """A name that only means something while a kernel is captured."""

    code = "capture/outside"


class NoEffect(UserError):
    """A kernel that stores nothing, or never into one of its Outs."""

    code = "capture/no-effect"


class Recursion(UserError):
    """Functions that call one another without end at capture."""

    code = "capture/recursion"


class MissingStaged(UserError):
    """A staged parameter without default that the call does not give, or one that does not exist."""

    code = "capture/staged"


class ObservedBlock(UserError):
    """The open size of a block of `parallel` would change the result."""

    code = "block/observed"


class OpenExtent(UserError):
    """The size or number of a block whose size is open."""

    code = "block/open-extent"


class BadSize(UserError):
    """A block size that is no positive staged number."""

    code = "block/size"


class Unproved(UserError):
    """A subscript that cannot be proved in range and carries neither `fill=` nor `td.in_range`."""

    code = "bounds/unproved"


class OutOfRange(UserError):
    """A subscript or bound that is known to be out of range."""

    code = "bounds/outside"


class IndexTooLarge(UserError):
    """An index or extent that 64 bits do not hold."""

    code = "bounds/index-size"


class DimConflict(UserError):
    """Operands hold different parts of one dimension."""

    code = "dims/part-mismatch"


class WrongDim(UserError):
    """A part or value over a dimension that has no place there."""

    code = "dims/wrong-dimension"


class MissingDim(UserError):
    """A dimension named that the value does not have."""

    code = "dims/missing"


class DimTwice(UserError):
    """A dimension occurs twice where it may occur once."""

    code = "dims/twice"


class BadDim(UserError):
    """A dimension that cannot be made so."""

    code = "dims/definition"


class WrongRank(UserError):
    """A number of subscripts that does not fit the axes."""

    code = "dims/rank"


class NeedsExtent(UserError):
    """Python needs an extent as a number; the driver answers by specialising the dimension."""

    code = "dims/needs-extent"

    name: str = ""


class WrongDType(UserError):
    """An operand of a dtype that the operation does not take."""

    code = "dtype/operand"


class Narrowing(UserError):
    """An operation would lower the precision of an operand."""

    code = "dtype/narrowing"


class ArgumentDType(UserError):
    """An argument whose dtype is not the declared one."""

    code = "dtype/argument"


class ParallelAssign(UserError):
    """An outer name is assigned in `parallel` in another way than part by part."""

    code = "region/parallel-assign"


class CarriedType(UserError):
    """A carried name changes its dtype or dimensions in an iteration."""

    code = "region/carried-type"


class CarriedKind(UserError):
    """A name that cannot be carried changes in a region."""

    code = "region/carried-kind"


class BranchType(UserError):
    """The branches of a traced `if` leave a name with different types."""

    code = "region/branch-type"


class BadRegion(UserError):
    """Arguments that make no region, or a region where none can stand."""

    code = "region/arguments"


class BadStage(UserError):
    """`td.stage` outside a pipeline or reduce."""

    code = "region/stage"


class StoreOutside(UserError):
    """A value with a dimension that the stored place does not have."""

    code = "store/extra-dimension"


class StateRead(UserError):
    """A reduction state is read elsewhere than in its update."""

    code = "reduce/state-read"


class NotAnUpdate(UserError):
    """A reduction state is assigned what is no update of it."""

    code = "reduce/not-an-update"


class NotCommutative(UserError):
    """A monoid that does not commute folds in an order that permutes."""

    code = "reduce/not-commutative"


class NoMerge(UserError):
    """A monoid without laws folds in an order that merges partial states."""

    code = "reduce/no-merge"


class StateShape(UserError):
    """Identity, lifted and merged states of a monoid differ in their leaves, dtypes or dimensions."""

    code = "reduce/state-shape"


class EmptyExtremum(UserError):
    """The maximum or minimum over a range that is empty at capture."""

    code = "reduce/empty"


class BadDevice(UserError):
    """A device axis that is not the first one of a tensor, or a region over devices that is none."""

    code = "region/device"


class NotBuilt(LimitError):
    """A form of the language that this version does not capture."""

    code = "limit/form"
