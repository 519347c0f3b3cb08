"""Two roles that hand whole blocks over by named barriers; the last one, which may be shorter, only one of them needs."""

from __future__ import annotations

from typing import Any

from tests.checker.random_handovers import FREE, FULL, HEAD, KERNEL

WHOLE = "64 * {v} + 63 < N"
STEP = """        x = load X[t, 64 * j + $0] where 64 * j + $0 < N ; %x[t, 64 * j + $0] where 64 * j + $0 < N
{one1}        version S ; %x[t, 64 * j + $0] where 64 * j + $0 < N
        store S[$0] = x where 64 * j + $0 < N
{one2}"""
READ = "        z = load S[$0] where 64 * i + $0 < N ; %x[u, 64 * i + $0] where 64 * i + $0 < N\n"
REST = READ.replace("load S[$0]", "load X[u, 64 * i + $0]")
fill, take = FULL.format("arrive"), FULL.format("sync")
free, reuse = FREE.format("arrive"), FREE.format("sync")
RIGHT: dict[str, list[str]] = {"one2": [fill, reuse], "two1": [take], "two2": [free]}


def text(first: str = WHOLE, second: str = WHOLE, rest: str = REST, **lines: list[str]) -> str:
    """`first`, `second`: where the one fills, and where the other takes; `rest`: what it does elsewhere."""
    lines = lines or RIGHT
    parts = {
        p: "".join(f"        sync {line}\n" for line in lines.get(p, []))
        for p in ("one0", "one1", "one2", "one3", "two0", "two1", "two2", "two3")
    }
    made = KERNEL.replace(STEP, f"        if {first.format(v='j')} {{{{\n{STEP}        }}}}\n")
    taken = (
        f"        if {second.format(v='i')} {{{{\n{{two1}}{READ}{{two2}}        }}}} else {{{{\n{rest}        }}}}\n"
    )
    made = made.replace(f"{{two1}}{READ}{{two2}}", taken)
    return HEAD + made.format(**parts)


def some_text(draw: Any) -> tuple[str, tuple[dict[str, int], ...]]:
    """The shape drawn: conditions of the two, lines lost or turned."""
    others = ("64 * {v} < N", "64 * {v} + 64 < N", "1 <= {v}", "0 <= {v}")
    one, two = draw.pick(WHOLE, *others), draw.pick(WHOLE, *others)
    both = draw.random.choice((WHOLE, "1 <= {v}", "64 * {v} + 64 < N"))
    first, second = draw.pick(f"{both}|{both}", f"{one}|{two}").split("|")
    lines = {place: list(some) for place, some in RIGHT.items()}
    for place in list(lines):
        for line in list(lines[place]):
            at = lines[place].index(line)
            match draw.pick("keep", "lose", "turn", "number"):
                case "lose":
                    del lines[place][at]
                case "turn":
                    lines[place][at] = (
                        line.replace("sync", "arrive") if "sync" in line else line.replace("arrive", "sync")
                    )
                case "number":
                    lines[place][at] = (
                        line.replace("id = 1", "id = 3") if "id = 1" in line else line.replace("id = 2", "id = 1")
                    )
                case _:
                    pass
    return text(first, second, **lines), ({"M": 1, "N": 40}, {"M": 2, "N": 130}, {"M": 3, "N": 64})
