"""Ring protocols as small programs of acts: the same text as a machine program's kernel and as a term of `proof/`.

`RingText` mirrors the record `text` of `proof/Protocol.v`; `kernel()` writes it with the machine program's statements,
as the checker's ring judge reads them, for a symbolic number of trips: its verdict is for all of them, the other one
looks at every interleaving of `trips`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.algebra.expr import const, ge, sym
from treadle.dtype.formats import f32
from treadle.machine.form import (
    Advance,
    Barrier,
    Body,
    Buffer,
    Control,
    Copy,
    If,
    Kernel,
    Load,
    Loop,
    MemRef,
    Role,
    Stmt,
    Sync,
)

Act = tuple[str, int]  # the constructor's name and its number (0 for Read)
BYTES = 64  # of one box: sixteen f32


@dataclass(frozen=True)
class RingText:
    """One protocol. `consumers`: the acts of a step, and those after the last step."""

    slots: int
    trips: int
    full_count: int
    empty_count: int
    whole: int
    producer: tuple[Act, ...]
    consumers: tuple[tuple[tuple[Act, ...], tuple[Act, ...]], ...]

    def line(self) -> str:
        """The text as numbers, in the order that `proof/compare.ml` reads."""
        parts = [self.slots, self.trips, self.full_count, self.empty_count, self.whole, *_numbers(self.producer)]
        parts.append(len(self.consumers))
        for step, last in self.consumers:
            parts += [*_numbers(step), *_numbers(last)]
        return " ".join(map(str, parts))

    def kernel(self) -> Kernel:
        """The same protocol in the machine program's words; `K` trips."""
        everyone = 32 * (1 + len(self.consumers))
        roles = [Role("producer", 1, 32, self._fills(everyone), registers=None, counters=("p",))]
        for number, (step, last) in enumerate(self.consumers):
            body = [_meet(everyone), *self._takes(number, step, last)]
            roles.append(Role(f"consumer{number}", 1, 32, body, counters=(f"c{number}",)))
        barriers = [
            Barrier("full", self.full_count, self.slots, tx=True, offset=4096),
            Barrier("empty", self.empty_count, self.slots, offset=4160),
        ]
        return Kernel(
            "main", roles, buffers=[Buffer("A", f32, (const(16),), "shared", versions=self.slots)], barriers=barriers
        )

    def _fills(self, everyone: int) -> Body:
        p = sym("p")
        step: Body = []
        for word, n in self.producer:
            if word == "WaitEmpty":
                step.append(_sync("mbar.wait", "empty", p, by="elect", phase=(p // self.slots + n) % 2))
            elif word == "Tell":
                step.append(_sync("mbar.expect", "full", p, by="elect", bytes=const(n * BYTES)))
            else:
                assert word == "Fill", word
                for _ in range(n):
                    signal = MemRef("full", (), p)
                    dst, src = MemRef("A", (sym("$0"),), p), MemRef("X", (sym("$0"),))
                    step.append(
                        Copy(engine="tma.load", dst=dst, src=src, box=(16,), signal=signal, map="mX", by="elect")
                    )
        start: Body = [
            Sync(kind="mbar.init", object=MemRef("full", ()), by="elect"),
            Sync(kind="mbar.init", object=MemRef("empty", ()), by="elect"),
            Sync(kind="fence.mbar_init", by="elect"),
            _meet(everyone),
        ]
        return [*start, _loop("k", [*step, Advance(counter="p")])]

    def _takes(self, number: int, step: Sequence[Act], last: Sequence[Act]) -> Body:
        counter, var = f"c{number}", f"k{number}"
        c = sym(counter)
        body: Body = []
        for word, n in step:
            if word == "WaitFull":
                body.append(_sync("mbar.wait", "full", c, phase=(c // self.slots + n) % 2))
            elif word == "Read":
                body.append(Load(dst=f"v{number}", src=MemRef("A", (sym("$0"),), c)))
            else:
                assert word == "Give", word
                give = _sync("mbar.arrive", "empty", c - n, by="warp")
                body.append(give if n == 0 else If(conds=(ge(sym(var), n),), then=[give]))
        after: Body = []
        for word, n in last:
            assert word == "Give", word
            after.append(_sync("mbar.arrive", "empty", c - n, by="warp"))
        return [_loop(var, [*body, Advance(counter=counter)]), *after]


WORDS = ("WaitFull", "WaitEmpty", "Tell", "Fill", "Read", "Give")


def _numbers(acts: Sequence[Act]) -> list[int]:
    return [len(acts), *(x for word, n in acts for x in (WORDS.index(word), n))]


def _sync(kind: str, name: str, version: object, by: str = "", **args: object) -> Sync:
    return Sync(kind=kind, object=MemRef(name, (), version), by=by, args=tuple(args.items()))


def _meet(everyone: int) -> Sync:
    return Sync(kind="barrier.sync", args=(("id", const(0)), ("threads", const(everyone))))


def _loop(var: str, body: list[Stmt | Control]) -> Loop:
    return Loop(var=var, lo=const(0), hi=sym("K"), step=const(1), body=body)


# Right and wrong ways to write each part. Every wrong one is a real fault: a race, an early pass or a wait for ever.
WAIT, READ = ("WaitFull", 0), ("Read", 0)
RIGHT_STEPS: tuple[tuple[tuple[Act, ...], tuple[Act, ...]], ...] = tuple(
    step
    for reads in ((READ,), (READ, READ))
    for step in (
        ((WAIT, *reads, ("Give", 0)), ()),
        ((WAIT, ("Give", 1), *reads), (("Give", 1),)),
        ((WAIT, *reads, ("Give", 1)), (("Give", 1),)),
    )
)
WRONG_STEPS: tuple[tuple[tuple[Act, ...], tuple[Act, ...]], ...] = (
    ((("WaitFull", 1), READ, ("Give", 0)), ()),
    ((WAIT, ("Give", 0), READ), ()),
    ((WAIT, READ, ("Give", 0), READ), ()),
    ((READ, WAIT, ("Give", 0)), ()),
    ((WAIT, READ), ()),
    ((READ, ("Give", 0)), ()),
)
RIGHT_ORDER = ("WaitEmpty", "Tell", "Fill")
WRONG_ORDERS = (("Tell", "Fill", "WaitEmpty"), ("Tell", "Fill"))

# Right, and refused by the checker's rule, which knows one shape of producer: it fills a slot and then waits until that
# same version has been given back.
CONSERVATIVE = RingText(2, 4, 1, 1, 1, (("Tell", 1), ("Fill", 1), ("WaitEmpty", 0)), (RIGHT_STEPS[0],))


def texts(seed: int) -> Iterator[RingText]:
    """Distinct random protocols: right in every part, or with one or several faults."""
    dice = random.Random(seed)
    seen: set[RingText] = set()
    while True:
        text = _draw(dice)
        if text not in seen:
            seen.add(text)
            yield text


def _draw(dice: random.Random) -> RingText:
    slots = dice.randint(1, 3)
    many = dice.randint(1, 3 if slots < 3 else 2)
    whole = dice.randint(1, 3 if slots * many < 4 else 1)
    if dice.random() < 0.5:  # right, but for giving back one behind in a ring of one slot
        consumers = tuple(dice.choice(RIGHT_STEPS) for _ in range(many))
        producer = (("WaitEmpty", 1), ("Tell", whole), ("Fill", whole))
        # In a ring of one slot, giving back one behind waits for ever from the second version on.
        trips = dice.randint(2, slots + 3)
        return RingText(slots, trips, 1, many, whole, producer, consumers)

    def fault(chance: float) -> bool:
        return dice.random() < chance

    order = dice.choice(WRONG_ORDERS) if fault(0.15) else RIGHT_ORDER
    numbers = {
        "WaitEmpty": 0 if order == RIGHT_ORDER and fault(0.1) else 1,
        "Tell": whole + dice.choice((-1, 1)) if fault(0.2) else whole,
        "Fill": whole,
    }
    return RingText(
        slots=slots,
        trips=slots + 2,
        full_count=2 if fault(0.1) else 1,
        empty_count=max(1, many + (dice.choice((-1, 1)) if fault(0.2) else 0)),
        whole=whole,
        producer=tuple((word, numbers[word]) for word in order),
        consumers=tuple(dice.choice(WRONG_STEPS) if fault(0.2) else dice.choice(RIGHT_STEPS) for _ in range(many)),
    )
