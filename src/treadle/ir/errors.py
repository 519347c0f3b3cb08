"""What can be wrong with a form of the IR: bugs of ours, never the user's."""

from __future__ import annotations

from treadle.base.errors import InternalError


class IRStructure(InternalError):
    """A block, region or operation is put together wrongly: counts, names, nesting."""

    code = "ir/structure"


class IRDominance(InternalError):
    """A value is used where it is not defined."""

    code = "ir/dominance"


class IRType(InternalError):
    """A result's dtype or axes are not those that the operation gives."""

    code = "ir/type"
