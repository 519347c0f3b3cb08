"""The short way of a call on a GPU: positional torch tensors that were seen before, at the same addresses.

What a launch consists of is a function of addresses, extents and strides, so calls made ready once are run again.
Outputs that a call leaves out are allocated anew; torch's allocator mostly gives the addresses of earlier ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.driver.ready import MISS
from treadle.runtime.streams import current_stream, kept

Enqueue = Callable[[int], None]
"""Puts the launches of a call on a stream, without keeping its arrays."""

_KEPT = 256


def all_tensors(args: Sequence[Any]) -> bool:
    """Whether the arguments are plain torch tensors, or left out."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and all(a is None or type(a) is torch.Tensor for a in args)


@dataclass(frozen=True, slots=True)
class Fresh:
    """An output that the call left out."""

    shape: tuple[int, ...]
    dtype: Any
    device: Any

    def allocate(self) -> Any:
        """A new tensor."""
        torch: Any = sys.modules["torch"]
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)


@dataclass(slots=True)
class Seen:
    """A layout of arguments: its outputs (numbers of arguments, or to be allocated), and what to do on a stream, by the
    addresses of the latter. `ordinal`: the device."""

    outs: tuple[int | Fresh, ...]
    ordinal: int
    calls: dict[tuple[int, ...], Enqueue] = field(default_factory=dict[tuple[int, ...], "Enqueue"])


class Repeated:
    """The short way for calls of one kernel, one number of arguments and one set of staged values."""

    def __init__(self) -> None:
        self._seen: dict[Any, Seen] = {}

    def run(self, args: tuple[Any, ...]) -> Any:
        """Launches and returns the Outs, or returns `MISS`. *Errors*: `cuda/*`."""
        seen = self._seen.get(_layout(args))
        if seen is None:
            return MISS
        outs: list[Any] = [args[o] if isinstance(o, int) else o.allocate() for o in seen.outs]
        enqueue = seen.calls.get(_addresses(seen, outs))
        if enqueue is None:
            return MISS
        enqueue(current_stream(seen.ordinal, "torch"))
        kept((args, outs))
        return outs[0] if len(outs) == 1 else tuple(outs) if outs else None

    def learn(
        self, args: tuple[Any, ...], names: Sequence[str], outs: Mapping[str, Any], ordinal: int, enqueue: Enqueue
    ) -> None:
        """Remembers a call: its parameters' names by position, its Outs by name in the order of the program."""
        given = {name: i for i, (name, a) in enumerate(zip(names, args, strict=False)) if a is not None}
        ways = tuple(
            given[name] if name in given else Fresh(tuple(made.shape), made.dtype, made.device)
            for name, made in outs.items()
        )
        if len(self._seen) > _KEPT:
            self._seen.clear()
        seen = self._seen.setdefault(_layout(args), Seen(ways, ordinal))
        if len(seen.calls) > _KEPT:
            seen.calls.clear()
        seen.calls[_addresses(seen, list(outs.values()))] = enqueue


def _layout(args: Sequence[Any]) -> Any:
    """What tells calls apart, of one number of arguments; tensors that the long way refuses differ from others."""
    return tuple(
        [None if a is None else (a.data_ptr(), a.shape, a.stride(), a.dtype, a.requires_grad, a.is_neg()) for a in args]
    )


def _addresses(seen: Seen, outs: Sequence[Any]) -> tuple[int, ...]:
    return tuple([made.data_ptr() for o, made in zip(seen.outs, outs, strict=True) if not isinstance(o, int)])
