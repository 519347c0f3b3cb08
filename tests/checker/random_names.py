"""Shapes of the grammar in `random_machines` in which roles tell things apart by more than their names.

`named` draws another shape of several roles and changes it where names and words mean something in one role only: names
of one role are given to other things of another, numbers of steps stand behind `let`s that two roles call alike, a word
of a protocol stands in a loop of no, one or two iterations, two rings have one barrier. Which of that is wrong is for
the interleavings to say. `lengths_text` draws loops whose bounds are loaded.
"""

from __future__ import annotations

import re
from typing import Any

from tests.checker.lengths_text import LENGTHS
from tests.checker.random_later import Sizes, changed

OF_ROLES = ("ring", "relay", "pair", "pair", "channel", "handover", "copied ring", "handover ring", "cleared")
DECLARED = (r"counters \(([^)]*)\)", r"\bindex (\w+)", r"\bloop (\w+) =", r"\btasks \(([^)]*)\)", r"\blet (\w+) =")
NAME = re.compile(r"\b[a-z]\w*\b")


def roles_of(text: str) -> list[str]:
    """A text cut before each of its roles; joined it is itself."""
    return re.split(r"(?m)^(?=  role )", text)


def names_of(role: str) -> list[str]:
    """The counters, numbers, variables and lets of a role."""
    found = (name for pattern in DECLARED for part in re.findall(pattern, role) for name in declared(part))
    return list(dict.fromkeys(found))


def declared(part: str) -> list[str]:
    """Names of a list, without what they are below."""
    return [m[0] for piece in part.split(",") if (m := NAME.match(piece.strip()))]


def renamed(role: str, names: dict[str, str]) -> str:
    """A role with other names of its own. Values of the program, fragments that are read and words keep theirs."""
    return re.sub(r"(?<![%\w.])[a-z]\w*\b(?![.\w])", lambda m: names.get(m[0], m[0]), role)


def one_name(draw: Any, text: str) -> str:
    """A role calls some thing of its own as another role calls another thing."""
    head, *roles = roles_of(text)
    if len(roles) < 2:
        return text
    this, other = draw.random.sample(range(len(roles)), 2)
    mine, theirs = names_of(roles[this]), names_of(roles[other])
    used = set(re.findall(r"[a-z]\w*", roles[this])) | set(re.findall(r"\b(?:frag|buffer|barrier|let) (\w+)", head))
    free = [n for n in theirs if n not in used]
    old, new = (draw.random.choice(some) if some else "" for some in (mine, free))
    if not old or not new:
        return text
    roles[this] = renamed(roles[this], {old: new})
    return head + "".join(roles)


def by_lets(draw: Any, text: str) -> str:
    """Numbers of steps of several roles stand behind lets of one name."""
    head, *roles = roles_of(text)
    for i, role in enumerate(roles):
        found = re.search(r"(?m)^( *)loop (\w+) = 0 \.\. (NT|\(N \+ 63\) // 64) step 1", role)
        if found is None:
            continue
        count = draw.pick(found[3], f"{found[3]} + 1", f"max({found[3]}, 2)") if draw.flip(0.4) else found[3]
        lines = f"{found[1]}let often = {count}\n{found[1]}loop {found[2]} = 0 .. often step 1"
        roles[i] = role[: found.start()] + lines + role[found.end() :]
    return head + "".join(roles)


def looped(draw: Any, text: str) -> str:
    """A word of the first role's protocol stands in a loop of its own."""
    head, first, *others = roles_of(text)
    trips = draw.pick("1", "0", "2", "min(M, 2)")
    words = list(re.finditer(rf"(?m)^( {{6,}})sync mbar\.({'wait' if trips == '1' else 'wait|expect'}).*\n", first))
    if not words:
        return text
    at = draw.random.choice(words)
    loop = f"{at[1]}loop turn = 0 .. {trips} step 1 {{\n  {at[0]}{at[1]}}}\n"
    return head + first[: at.start()] + loop + first[at.end() :] + "".join(others)


def one_barrier(draw: Any, text: str) -> str:
    """Two rings have a barrier together."""
    kind = draw.random.choice(("full", "empty"))
    keep, gone = draw.random.choice((("A", "B"), ("B", "A")))
    text = re.sub(rf"(?m)^ *(barrier|sync mbar\.init) {kind}{gone}\b.*\n", "", text)
    return text.replace(f"{kind}{gone}{{", f"{kind}{keep}{{")


def named(draw: Any, kind: str, text: str) -> str:
    """The text of a shape, changed so."""
    for _ in range(draw.one(1, 2, 3)):
        text = one_name(draw, text)
    text = by_lets(draw, text) if draw.flip() else text
    text = looped(draw, text) if draw.flip() else text
    return one_barrier(draw, text) if kind == "pair" and draw.pick("own", "one") == "one" else text


def lengths_text(draw: Any) -> tuple[str, Sizes]:
    """Two roles in loops whose bounds each loads, of elements that names or numbers of one role tell."""
    offset = draw.random.choice(("", " + 1"))
    one, two = f"2 * t{offset}", f"2 * u{offset}"
    two = draw.pick(two, "2 * u + w", "2 * u + 1 - w", "2 * u + 1" if not offset else "2 * u")
    text = LENGTHS.replace("ONE", one if offset else draw.pick(one, f"{one} + w")).replace("TWO", two)
    text = changed(
        draw,
        text,
        (
            ("loop i = 0 .. k() step 1", ("loop i = 0 .. k() step 2", "loop i = 0 .. k() + 1 step 1")),
            ("        sync barrier.sync (id = 2, threads = 96)\n", ("",)),
            ("        sync barrier.sync (id = 1, threads = 96)\n", ("",)),
        ),
    )
    return one_name(draw, text), ({"M": 2}, {"M": 4})
