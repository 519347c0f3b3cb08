"""Which plan a call on the CPU gets: one in whose reach it is, here or in the cache, else what the planner says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from treadle.driver.cells import reach_of, widened, within
from treadle.driver.facts import CallFacts, holds
from treadle.driver.record import Record, fetch, keep, record_key, replace_record
from treadle.driver.rooms import room
from treadle.driver.targets import Place
from treadle.driver.variants import Interpreted, Variant
from treadle.ir.core import Program

UNIVERSAL = "universal"
APART = 32
"""So many compiled plans are kept in memory beside the variants."""


class Settling(ABC):
    """The part of a specialisation that settles which variant a call on the CPU gets.

    `expanded` is what is planned and run: it may have hidden outputs behind the user's parameters. `text` is the
    program's identity in the cache.
    """

    def __init__(self, expanded: Program, text: str, limit: int) -> None:
        self.expanded = expanded
        self.text = text
        self.limit = limit
        self.variants: list[Variant] = []
        self._found: dict[bytes, Variant | Interpreted] = {}
        self._ledger: Any = None  # calls that were predicted, in a process that planned
        self._apart: dict[str, Record] = {}  # compiled plans that are no variants at present

    @abstractmethod
    def _loaded(self, record: Record, place: Place) -> Variant:
        """A record's variant; one that exists already is used again."""

    @abstractmethod
    def _record(self, facts: CallFacts, family: str | None, place: Place, choice: Any = None) -> Record:
        """The best plan's record, or that of what the planner said: `choice`."""

    @abstractmethod
    def _make(self, facts: CallFacts, cls: str, family: str | None, place: Place) -> Variant:
        """A variant from the cache, or planned and kept there."""

    @abstractmethod
    def _made(self, facts: CallFacts, cls: str, make: Callable[[], Variant]) -> Variant | Interpreted:
        """The variant of the call's own that is made, or the interpreter for calls that cannot be planned."""

    def settled(
        self, facts: CallFacts, cls: str, place: Place, variants: list[Variant], admitting: list[Variant]
    ) -> Variant | Interpreted:
        """The variant for a call on a CPU: one in whose reach it is, here or in the cache; else what the planner says
        of those that there are and of the best plan, which may take the place of the one that is missed least."""
        free: list[int] = []
        found = within(admitting, facts, cls, place.workers)
        if found is None:
            free, variants = self._cached(facts, cls, place, variants)
            admitting = [v for v in variants if v.admits(facts)]
            found = within(admitting, facts, cls, place.workers)
        if found is not None:
            return found
        rank = free[0] if free else None
        if not variants:
            return self._planned(facts, cls, place, rank)
        if self._ledger is None or self._ledger.target != place.target:
            self._ledger = room("predicted").Ledger(self.expanded, place.target)
        settled = self._ledger.settle(variants, facts, self.limit)
        if settled.spare is not None:
            self._retire(settled.spare)
        if settled.choice is not None:
            return self._planned(facts, cls, place, rank, settled.choice)
        variant = settled.variant or next((v for v in admitting if v.record.meta["family"] == UNIVERSAL), None)
        if variant is None:
            return self._made(facts, cls, lambda: self._make(facts, cls, UNIVERSAL, place))
        self._reach(variant, facts, cls, place, rank)
        return variant

    def _planned(
        self, facts: CallFacts, cls: str, place: Place, rank: int | None, choice: Any = None
    ) -> Variant | Interpreted:
        """A variant of the call's own, which the cache does not have: it keeps it under `rank`."""
        made = self._made(facts, cls, lambda: self._loaded(self._record(facts, None, place, choice), place))
        if isinstance(made, Variant):
            self._reach(made, facts, cls, place, rank)
        return made

    def _cached(
        self, facts: CallFacts, cls: str, place: Place, variants: list[Variant]
    ) -> tuple[list[int], list[Variant]]:
        """Loads what the cache has for a class and a call of it, while there is room; ranks that the cache has none at,
        and all variants of the target."""
        free: list[int] = []
        for rank in range(self.limit):
            record = fetch(self._record_key(cls, None, place, rank))
            if record is None:
                free.append(rank)
                continue
            if not holds(record.guard, facts):
                continue
            variant = next((v for v in variants if v.record.digest == record.digest), None)
            if variant is None and len(variants) < self.limit:
                variant = self._loaded(record, place)
                variants = [*variants, variant]
            elif variant is None:
                self._lay_apart(record)
            if variant is not None and cls not in variant.reach:
                variant.reach[cls] = reach_of(record, rank)
                variant.classes.add(cls)
                variant.planned.add(cls)
        return free, variants

    def _reach(self, variant: Variant, facts: CallFacts, cls: str, place: Place, rank: int | None) -> None:
        """The variant is good for the call: here from now on, and in the cache."""
        reach = widened(variant, facts, cls, place.workers)
        known = reach.rank is not None
        reach = variant.reach[cls] = reach if known else replace(reach, rank=rank)
        variant.classes.add(cls)
        if reach.rank is not None:
            record = replace(variant.record, meta={**variant.record.meta, "reach": reach.out()})
            (replace_record if known else keep)(self._record_key(cls, None, place, reach.rank), record)

    def _retire(self, variant: Variant) -> None:
        """Another takes the place of the variant; its code is kept, and is a variant again where it is missed."""
        self.variants.remove(variant)
        self._lay_apart(variant.record)
        self._found.clear()

    def _lay_apart(self, record: Record) -> None:
        self._apart[record.digest] = record
        if len(self._apart) > APART:
            del self._apart[next(iter(self._apart))]

    def _record_key(self, cls: str, family: str | None, place: Place, rank: int = 0) -> str:
        said = f"{cls} {family or ''}" + (f" {rank}" if rank else "")
        return record_key(self.text, f"{place.target} {list(place.features)}", said)
