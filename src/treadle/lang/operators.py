"""Python's operators on traced values: each makes an elementwise operation (`pointwise.binary`, `pointwise.unary`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.lang.state import context, maybe_context

if TYPE_CHECKING:
    from treadle.lang.tile import Tile


class Operators:
    """The operators that tiles, scalars and parts share."""

    def _binary(self, fn: str, other: Any, swap: bool = False) -> Any:
        if fn in ("eq", "ne") and maybe_context() is None:
            return NotImplemented  # compared by identity, as keys of a dictionary are
        ctx = context()
        return ctx.binary(fn, other, self) if swap else ctx.binary(fn, self, other)

    def _unary(self, fn: str) -> Any:
        return context().unary(fn, self)

    def __add__(self, other: Any) -> Tile:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Tile:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Tile:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Tile:
        return self._binary("sub", other, True)

    def __mul__(self, other: Any) -> Tile:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Tile:
        return self._binary("mul", other, True)

    def __truediv__(self, other: Any) -> Tile:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Tile:
        return self._binary("div", other, True)

    def __floordiv__(self, other: Any) -> Tile:
        return self._binary("floordiv", other)

    def __rfloordiv__(self, other: Any) -> Tile:
        return self._binary("floordiv", other, True)

    def __mod__(self, other: Any) -> Tile:
        return self._binary("mod", other)

    def __rmod__(self, other: Any) -> Tile:
        return self._binary("mod", other, True)

    def __pow__(self, other: Any) -> Tile:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Tile:
        return self._binary("pow", other, True)

    def __and__(self, other: Any) -> Tile:
        return self._binary("and", other)

    def __rand__(self, other: Any) -> Tile:
        return self._binary("and", other, True)

    def __or__(self, other: Any) -> Tile:
        return self._binary("or", other)

    def __ror__(self, other: Any) -> Tile:
        return self._binary("or", other, True)

    def __xor__(self, other: Any) -> Tile:
        return self._binary("xor", other)

    def __rxor__(self, other: Any) -> Tile:
        return self._binary("xor", other, True)

    def __lshift__(self, other: Any) -> Tile:
        return self._binary("shl", other)

    def __rlshift__(self, other: Any) -> Tile:
        return self._binary("shl", other, True)

    def __rshift__(self, other: Any) -> Tile:
        return self._binary("shr", other)

    def __rrshift__(self, other: Any) -> Tile:
        return self._binary("shr", other, True)

    def __matmul__(self, other: Any) -> Tile:
        return self._binary("matmul", other)

    def __rmatmul__(self, other: Any) -> Tile:
        return self._binary("matmul", other, True)

    def __lt__(self, other: Any) -> Tile:
        return self._binary("lt", other)

    def __le__(self, other: Any) -> Tile:
        return self._binary("le", other)

    def __gt__(self, other: Any) -> Tile:
        return self._binary("gt", other)

    def __ge__(self, other: Any) -> Tile:
        return self._binary("ge", other)

    def __eq__(self, other: Any) -> Any:
        if other is None or isinstance(other, (str, type)):
            return False
        return self._binary("eq", other)

    def __ne__(self, other: Any) -> Any:
        if other is None or isinstance(other, (str, type)):
            return True
        return self._binary("ne", other)

    __hash__ = object.__hash__

    def __neg__(self) -> Tile:
        return self._unary("neg")

    def __pos__(self) -> Tile:
        return self._unary("pos")

    def __abs__(self) -> Tile:
        return self._unary("abs")

    def __invert__(self) -> Tile:
        return self._unary("not")
