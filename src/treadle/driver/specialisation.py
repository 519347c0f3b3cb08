"""A kernel for fixed dtypes, staged values and present arguments: its program, its layout, its variants."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from treadle.analysis.divisors import divisors, zero_divisor
from treadle.base.errors import LimitError
from treadle.driver.arguments import Call, tell_call
from treadle.driver.checks import CheckedLaunch, conclude, give_flags
from treadle.driver.errors import ArgumentsOverlap, IntrinsicAbsent, UniversalUnknown, UniversalUnverified
from treadle.driver.facts import ArrayFacts, CallFacts, holds
from treadle.driver.outputs import read_first
from treadle.driver.overlap import Copies, CopyingLaunch, Refreshing, copies_suffice
from treadle.driver.packed import held_as
from treadle.driver.prints import kept_by_none
from treadle.driver.record import Record, fetch, forget, keep, replace_record
from treadle.driver.rooms import planning, room
from treadle.driver.settling import UNIVERSAL, Settling
from treadle.driver.targets import Place, place_of
from treadle.driver.variants import Interpreted, InterpretedLaunch, Variant, call_class, load, spared
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.ir.ops.fold import ArgReduce
from treadle.ir.ranges import beyond
from treadle.plan.facts import streams
from treadle.plan.grain import EVERYWHERE
from treadle.runtime.arrays import overlaps
from treadle.runtime.errors import SymbolMissing
from treadle.runtime.launch import Block, CpuLaunch, Packer
from treadle.runtime.pool import workers
from treadle.runtime.signature import ScalarParam, Signature, TensorParam

OVERLAP = "an output overlaps an input that is read after it is stored"


class Specialisation(Settling):
    """A captured program with at most `limit` variants. `text` is the program as text: its identity in the cache.

    `expanded` is what is planned and run: it may have hidden outputs behind the user's parameters.
    """

    def __init__(self, program: Program, text: str, limit: int) -> None:
        super().__init__(expand(program), text, limit)
        self.program = program
        self.read_first = read_first(program)
        self.tests_scalars = any(c.expr.functions for c in program.requires)  # facts that each call may break
        self.divides = bool(divisors(self.expanded))  # by extents, which a call may have as 0
        self.tests_indices = bool(beyond(program))  # indices that a call may drive out of 64 bits
        wide = any(s.value.type.dtype.bits >= 64 for s in program.scalars)
        # Whether a call may be learned: whatever is tested depends on the layout of its arguments alone.
        self.short = not self.expanded.hidden and not self.tests_scalars and not (self.tests_indices and wide)
        self.has_positions = any(isinstance(op, ArgReduce) for op in program.body.walk())
        self.ordered: frozenset[frozenset[str]] = frozenset()
        """Pairs of an input and an output that lie on one another in every call."""
        self._orders: dict[str, Specialisation] = {}
        self.interpreted: dict[str, Interpreted] = {}
        tensors = [TensorParam(t.name, held_as(t.dtype).name, len(t.dims), t.out) for t in self.expanded.tensors]
        scalars = [ScalarParam(s.name, s.value.type.dtype.name) for s in self.program.scalars]
        self.signature = Signature((*tensors, *scalars))
        self.packer = Packer(self.signature)
        places = list(zip(self.signature.params, self.signature.offsets, strict=True))
        self._pointers = [at for p, at in places if isinstance(p, TensorParam)]
        self._numbers = [at for p, at in places if isinstance(p, ScalarParam)]

    def every(self) -> list[Specialisation]:
        """This one and those for calls in which inputs lie on outputs."""
        return [self, *self._orders.values()]

    # ---- running

    def run(self, call: Call) -> Variant | Interpreted:
        """Runs the call's variant, and returns that. The Outs are `call.outs`."""
        block = self._block(call)
        met = {} if block.apart or self.ordered else self._met(call)
        variant = self._in_place(call, block, met) if met else None
        if met and variant is None and (copies := self._copies(call, met)) is not None:
            copies.refresh()
            try:
                return self.run(copies.call)
            finally:
                copies.close()
        if met and variant is None and call.device == "cpu":
            return self._in_order(met).run(call)
        if variant is None:
            variant = self._interpret(OVERLAP) if met else self._variant(call, block)
        if isinstance(variant, Interpreted):
            variant.run(self.program, call)
        else:
            variant.kernel.run(block)
            conclude(self.expanded, call)
        return variant

    def bind(self, call: Call) -> Any:
        """The call, made ready: a `CpuLaunch`, a `CudaBound` or an `InterpretedLaunch`."""
        block = self._block(call)
        met = {} if block.apart or self.ordered else self._met(call)
        variant = self._in_place(call, block, met) if met else None
        if met and variant is None and self._copies_suffice(met):
            if call.device != "cpu":
                return room("cuda").CudaCopying(self, call, list(met))
            copies = Copies(call, list(met))
            return CopyingLaunch(self.bind(copies.call), copies)
        if met and variant is None and call.device == "cpu":
            return self._in_order(met).bind(call)
        if variant is None:
            variant = self._interpret(OVERLAP) if met else self._variant(call, block)
        if isinstance(variant, Interpreted):
            return InterpretedLaunch(variant, self.program, call)
        on_gpu = call.device != "cpu"
        launch = (room("cuda").CudaBound if on_gpu else CpuLaunch)(variant.kernel, block, call.outs)
        return CheckedLaunch(launch, self.expanded, call) if self.expanded.hidden else launch

    def _met(self, call: Call) -> dict[str, list[str]]:
        """The inputs that really share elements with outputs, and these."""
        facts = self.facts(call)
        outs = [t.name for t in self.expanded.tensors if t.out and t.name in facts.arrays]
        met = {n: [o for o in outs if not facts.apart(n, o)] for n in sorted(facts.arrays) if n not in outs}
        return {n: found for n, found in met.items() if found}

    def _in_place(self, call: Call, block: Block, met: dict[str, list[str]]) -> Variant | None:
        """The variant that runs a call whose inputs are the very views of outputs, where the judge verified one.

        One element at a time is slower than a copy of the inputs, where copies mean the same.
        """
        views = call.views
        if not all(views[n].dtype == views[o].dtype for n, outs in met.items() for o in outs):
            return None
        facts = self.facts(call)
        if not all(facts.one_view(n, o) for n, outs in met.items() for o in outs):
            return None
        same = frozenset(frozenset((n, o)) for n, outs in met.items() for o in outs)
        key = self._key(call, block) + repr(sorted(map(sorted, same))).encode()
        known = self._found.get(key)
        if known is None:
            with planning():
                known = self._found.get(key) or self._choose(replace(facts, same=same), place_of(call.device))
                self._remember(key, known)
        if isinstance(known, Interpreted):
            return None
        slow = known.record.meta["family"] == UNIVERSAL and self._copies_suffice(met)
        return None if slow else known

    def _in_order(self, met: dict[str, list[str]]) -> Specialisation:
        """What runs calls in which these inputs lie on these outputs in any way, in the order of the source."""
        key = repr(sorted(met.items()))
        found = self._orders.get(key)
        if found is None:
            with planning():
                program = room("in_order").in_order(self.program, met)
                text = f"# {key}\n{self.text}"
                made = Specialisation(program, text, self.limit)
                made.ordered = frozenset(frozenset((n, o)) for n, outs in met.items() for o in outs)
                found = self._orders.setdefault(key, made)
        return found

    def _copies(self, call: Call, met: dict[str, list[str]]) -> Refreshing | None:
        """Copies of inputs that lie on an output, where reading these means the same."""
        if not self._copies_suffice(met):
            return None
        return Copies(call, list(met)) if call.device == "cpu" else room("cuda").CudaCopies(call, list(met))

    def _copies_suffice(self, met: dict[str, list[str]]) -> bool:
        return all(copies_suffice(self.expanded, [n], outs) for n, outs in met.items())

    def _overlap_refused(self, found: str) -> ArgumentsOverlap:
        error = ArgumentsOverlap(
            doing=f"calling {self.program.name}",
            found=found,
            expected="outputs that share no element with one another",
            hint="give each output memory of its own",
            span=self.program.span,
        )
        tell_call(error)
        return error

    def _block(self, call: Call) -> Block:
        give_flags(self.expanded, call)
        return self.packer.pack(self.arguments(call))

    def arguments(self, call: Call) -> tuple[Any, ...]:
        """The call's arguments in the order of the argument block."""
        return tuple(
            call.arrays[p.name] if isinstance(p, TensorParam) else call.scalars[p.name] for p in self.signature.params
        )

    # ---- choosing

    def _variant(self, call: Call, block: Block) -> Variant | Interpreted:
        """The variant for a call: found by its layout words, else by class, else made."""
        key = self._key(call, block)
        variant = self._found.get(key)
        if variant is None:
            with planning():
                variant = self._found.get(key) or self._choose(self.facts(call), place_of(call.device))
                self._remember(key, variant)
        return variant

    def _remember(self, key: bytes, variant: Variant | Interpreted) -> None:
        if len(self._found) > 4096:
            self._found.clear()
        self._found[key] = variant

    def _key(self, call: Call, block: Block) -> bytes:
        """A call's layout as a key: the words of its arguments without addresses and numbers."""
        words = block.words[: self.signature.tail]
        for at in self._pointers:
            words[at] &= 63
        for at in self._numbers:
            words[at] = 0
        return words.tobytes() + bytes((block.apart,)) + f"{workers()} {call.device}".encode()

    def facts(self, call: Call) -> CallFacts:
        """The facts of a call. *Errors*: `call/overlap` for two outputs that share elements."""
        # Facts outlive their call, in which plans are weighed: they say where arrays lay and keep no memory alive.
        views = {name: replace(seen, owner=None) for name, seen in call.views.items()}
        apart: dict[tuple[str, str], bool] = {}

        def are_apart(a: str, b: str) -> bool:
            pair = (min(a, b), max(a, b))
            if pair not in apart:
                apart[pair] = overlaps(views[a], views[b]) == "disjoint"
            return apart[pair]

        outs = [t.name for t in self.expanded.tensors if t.out and t.name in views]
        for i, first in enumerate(outs):
            for second in outs[i + 1 :]:
                if not are_apart(first, second):
                    raise self._overlap_refused(f"the outputs {first} and {second} share memory")
        # Only pairs with an output matter: inputs may overlap one another freely.
        stored = set(outs)

        def matters(a: str, b: str) -> bool:
            return are_apart(a, b) if a in stored or b in stored else True

        arrays = {n: ArrayFacts(v.ptr, v.shape, v.strides) for n, v in views.items()}
        return CallFacts(call.extents, arrays, matters, loose=self.ordered)

    def _choose(self, facts: CallFacts, place: Place) -> Variant | Interpreted:
        """The variant for a call. On a GPU (a CPU: `settled`) the one planned for the call's class; at the cap the one
        planned for the nearest class of calls whose arrays lie alike, one of its own in the place of another that is
        missed least, or the universal plan."""
        unkept = kept_by_none(self.expanded, facts.extents)
        if unkept is not None:
            return self._interpret(unkept)
        divided = zero_divisor(self.expanded, facts.extents) if self.divides else None
        if divided is not None:
            return self._interpret(divided)
        cls = call_class(facts, place.workers, place.kind, self._streams(facts))
        variants = [v for v in self.variants if v.record.meta["target"] == place.target]
        admitting = [v for v in variants if v.admits(facts)]
        if place.kind == "cpu" and self.program.numerics.get("repeatable") is None:
            return self.settled(facts, cls, place, variants, admitting)
        for variant in admitting:
            if cls in variant.classes:
                return variant
        # A repeatable kernel must not depend on which calls came first: it has a plan for each way axes can lie.
        full = len(variants) >= self.limit and self.program.numerics.get("repeatable") is None
        if full and not any(v.lies(cls) for v in admitting):
            # A plan for arrays that lie otherwise may be many times slower: one of several that lie alike makes room.
            spare = spared(variants)
            if spare is not None:
                self.variants.remove(spare)
                admitting = [v for v in admitting if v is not spare]
                self._found.clear()
                full = False
        if full and admitting:
            nearest = min(admitting, key=lambda v: (not v.lies(cls), v.distance(cls)))
            nearest.classes.add(cls)
            return nearest
        return self._made(facts, cls, lambda: self._make(facts, cls, UNIVERSAL if full else None, place))

    def _made(self, facts: CallFacts, cls: str, make: Callable[[], Variant]) -> Variant | Interpreted:
        try:
            variant = make()
        except (UniversalUnknown, UniversalUnverified, LimitError) as error:
            if facts.same:  # nothing runs in place: the caller has other ways
                return Interpreted(OVERLAP)
            if isinstance(error, IntrinsicAbsent):  # its author means the text: the pattern instead would be a surprise
                raise
            if isinstance(error, LimitError):
                return self._interpret(f"no machine program: {' '.join(error.found.split())}")
            return self._interpret(f"the universal plan is not verified: {' '.join(error.found.split())}")
        variant.classes.add(cls)
        variant.planned.add(cls)
        return variant

    def _streams(self, facts: CallFacts) -> bool:
        """Whether a call's outputs go past the caches of a CPU."""
        given = [t for t in self.expanded.tensors if t.name in facts.arrays]
        sizes = [prod(facts.arrays[t.name].shape) * max(1, t.dtype.bits // 8) for t in given]
        return streams(sum(s for t, s in zip(given, sizes, strict=True) if t.out), sum(sizes))

    def _interpret(self, reason: str) -> Interpreted:
        """The interpreter for calls that cannot be planned; says so once."""
        if reason not in self.interpreted:
            self.interpreted[reason] = Interpreted(reason)
            text = f"{self.program.name} runs in the reference interpreter, which is slow: {reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=_outside())
        return self.interpreted[reason]

    def _make(self, facts: CallFacts, cls: str, family: str | None, place: Place) -> Variant:
        """A variant from the cache, or planned, judged, compiled and kept.

        Calls of one class may need different plans: what the cache has for the class must admit this call.
        """
        key = self._record_key(cls, family, place)
        record = fetch(key)
        if record is None or not holds(record.guard, facts):
            record = self._record(facts, family, place)
            keep(key, record)
        return self._loaded(record, place)

    def _loaded(self, record: Record, place: Place) -> Variant:
        """A record's variant; one that exists already is used again."""
        for variant in self.variants:
            if variant.record.digest == record.digest:
                return variant
        try:
            variant = load(record, self.signature)
        except SymbolMissing as error:
            raise room("intrinsics").unresolved_texts(self.program, place.target, error) from error
        self.variants.append(variant)
        return variant

    def adopt(self, record: Record, call: Call) -> Variant:
        """The record is the variant of the call's class from now on, here and in the cache; gives it loaded.

        *Requires*: the record's guard holds for the call.
        """
        facts, place = self.facts(call), place_of(call.device)
        cls = call_class(facts, place.workers, place.kind, self._streams(facts))
        replace_record(self._record_key(cls, None, place), record)
        with planning():
            variant = next((v for v in self.variants if v.record.digest == record.digest), None)
            if variant is None:
                variant = load(record, self.signature)
            for other in self.variants:
                other.classes.discard(cls)
                other.planned.discard(cls)
                gone = other.reach.pop(cls, None)
                if gone is not None and gone.rank:
                    forget(self._record_key(cls, None, place, gone.rank))
            self.variants = [variant, *(v for v in self.variants if v is not variant and v.planned)]
            variant.classes.add(cls)
            variant.planned.add(cls)
            if place.kind == "cpu":
                variant.reach[cls] = EVERYWHERE
            self._found.clear()
        return variant

    def _record(self, facts: CallFacts, family: str | None, place: Place, choice: Any = None) -> Record:
        """The best plan's record, compiled unless a variant is the same code."""
        known = self._apart | {v.record.digest: v.record for v in self.variants}
        made = room("build").make(self.program, place.target, facts, family=family, known=known, choice=choice)
        if place.kind != "cpu" or "grain" in made.meta:
            return made
        grain = room("predicted").grain(made, self.expanded, facts, place.target)
        return made if grain is None else replace(made, meta={**made.meta, "grain": grain})


def _outside() -> int:
    """How many frames up the user's own line is, for warnings."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("treadle.driver"):
        frame, level = frame.f_back, level + 1
    return level
