"""A kernel for fixed dtypes, staged values and present arguments: its program, its layout, its variants."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from treadle.driver.arguments import Call
from treadle.driver.errors import ArgumentsOverlap
from treadle.driver.facts import ArrayFacts, CallFacts
from treadle.driver.record import fetch, keep, record_key
from treadle.driver.rooms import room
from treadle.driver.targets import host_target
from treadle.driver.variants import Interpreted, Variant, call_class, load
from treadle.ir.printer import print_program
from treadle.lang.definition import Definition
from treadle.runtime.arrays import overlaps
from treadle.runtime.host import host_features
from treadle.runtime.launch import Block, CpuLaunch, Packer
from treadle.runtime.pool import workers
from treadle.runtime.signature import ScalarParam, Signature, TensorParam


class Specialisation:
    """A captured program with at most `limit` variants. `text` is the program as text: its identity in the cache."""

    def __init__(self, definition: Definition, call: Call, limit: int, extents: Mapping[str, int]) -> None:
        present = frozenset((*call.views, *call.scalars))
        self.program = definition.capture(call.dtypes, call.staged, present, extents=extents)
        self.text = print_program(self.program)
        self.limit = limit
        self.variants: list[Variant] = []
        self._found: dict[bytes, Variant] = {}
        self._lock = threading.Lock()
        tensors = [TensorParam(t.name, t.dtype.name, len(t.dims), t.out) for t in self.program.tensors]
        scalars = [ScalarParam(s.name, s.value.type.dtype.name) for s in self.program.scalars]
        self.signature = Signature((*tensors, *scalars))
        self.packer = Packer(self.signature)
        self._pointers = [at for p, at in zip(self.signature.params, self.signature.offsets) if p in tensors]

    # ---- running

    def run(self, call: Call) -> Any:
        """Runs the call's variant; returns the Outs."""
        block = self._block(call)
        if not block.apart and self._overlaps(call):
            Interpreted().run(self.program, call)
        else:
            self._variant(call, block).kernel.run(block)
        return call.outs

    def bind(self, call: Call) -> CpuLaunch:
        """The call, made ready. *Errors*: `call/overlap` when an output overlaps another argument."""
        block = self._block(call)
        if not block.apart and self._overlaps(call):
            raise self._overlap_refused("an output shares memory with another argument")
        return CpuLaunch(self._variant(call, block).kernel, block, call.outs)

    def _overlaps(self, call: Call) -> bool:
        """Whether an output really shares elements with another argument."""
        facts = self.facts(call)
        names = sorted(facts.arrays)
        return not all(facts.apart(a, b) for i, a in enumerate(names) for b in names[i + 1 :])

    def _overlap_refused(self, found: str) -> ArgumentsOverlap:
        return ArgumentsOverlap(
            doing=f"calling {self.program.name}",
            found=found,
            expected="outputs that share no element with another argument",
            hint="pass arrays of their own, or call the kernel without bind",
            span=self.program.span,
        )

    def _block(self, call: Call) -> Block:
        return self.packer.pack(self.arguments(call))

    def arguments(self, call: Call) -> tuple[Any, ...]:
        """The call's arguments in the order of the argument block."""
        return tuple(
            call.arrays[p.name] if isinstance(p, TensorParam) else call.scalars[p.name] for p in self.signature.params
        )

    # ---- choosing

    def _variant(self, call: Call, block: Block) -> Variant:
        """The variant for a call: found by its layout words, else by class, else made."""
        words = block.words[: self.signature.tail]
        for at in self._pointers:
            words[at] %= 64
        key = words.tobytes() + bytes((block.apart, workers()))
        variant = self._found.get(key)
        if variant is None:
            with self._lock:
                variant = self._found.get(key) or self._choose(self.facts(call))
                if len(self._found) > 4096:
                    self._found.clear()
                self._found[key] = variant
        return variant

    def facts(self, call: Call) -> CallFacts:
        """The facts of a call. *Errors*: `call/overlap` for two outputs that share elements."""
        views = call.views
        apart: dict[tuple[str, str], bool] = {}

        def are_apart(a: str, b: str) -> bool:
            pair = (min(a, b), max(a, b))
            if pair not in apart:
                apart[pair] = overlaps(views[a], views[b]) == "disjoint"
            return apart[pair]

        outs = [t.name for t in self.program.tensors if t.out and t.name in views]
        for i, first in enumerate(outs):
            for second in outs[i + 1 :]:
                if not are_apart(first, second):
                    raise self._overlap_refused(f"the outputs {first} and {second} share memory")
        # Only pairs with an output matter: inputs may overlap one another freely.
        stored = set(outs)

        def matters(a: str, b: str) -> bool:
            return are_apart(a, b) if a in stored or b in stored else True

        arrays = {n: ArrayFacts(v.ptr, v.shape, v.strides) for n, v in views.items()}
        return CallFacts(call.extents, arrays, matters)

    def _choose(self, facts: CallFacts) -> Variant:
        cls = call_class(facts, workers())
        for variant in self.variants:
            if cls in variant.classes and variant.admits(facts):
                return variant
        if len(self.variants) >= self.limit:
            for variant in self.variants:
                if variant.admits(facts):
                    variant.classes.add(cls)
                    return variant
        variant = self._make(facts, cls)
        variant.classes.add(cls)
        return variant

    def _make(self, facts: CallFacts, cls: str) -> Variant:
        """A variant from the cache, or planned, judged, compiled and kept; one that exists already is used again."""
        key = record_key(self.text, f"{host_target()} {sorted(host_features())}", cls)
        record = fetch(key)
        built = None
        if record is None:
            build = room("build")
            built = build.choose(self.program, host_target(), facts)
            digest = build.digest_of(built)
            known = next((v for v in self.variants if v.record.digest == digest), None)
            record = known.record if known is not None else build.assemble(built)
            keep(key, record)
        for variant in self.variants:
            if variant.record.digest == record.digest:
                return variant
        variant = load(record, self.signature)
        self.variants.append(variant)
        return variant
