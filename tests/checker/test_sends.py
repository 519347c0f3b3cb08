"""Stores to other workgroups of a cluster that signal their bytes, and their wrong twins."""

from __future__ import annotations

import pytest
from tests.checker.peer_text import FOLD, MEET, MINE
from tests.checker.send_text import ADVANCE, EXPECT, IN_A_LOOP, TO_BOTH, VERSION, WAIT, text
from tests.checker.test_peers import BARRIER, trials
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda

RIGHT = {
    "to both": text(),
    "in a loop, of all threads": text(IN_A_LOOP),
    "two phases": text(slots=2),
    "announced behind the stores": text(TO_BOTH + EXPECT, first=""),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_verified_and_run(name: str) -> None:
    machine = parse_machine(RIGHT[name])
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    for m, n in ((5, 50), (1, 20), (2, 64), (0, 3)):
        assert not trials(machine, m, n, 6)


ONE = TO_BOTH.splitlines(keepends=True)[0]
OWN_PLAIN = (
    "      store S@(1 - cta.rank)[cta.rank] = p signal full@(1 - cta.rank){c} by elect\n"
    "      store S[cta.rank] = p by elect\n"
)
OTHER_PLAIN = (
    "      store S@(1 - cta.rank)[cta.rank] = p by elect\n"
    "      store S@(cta.rank)[cta.rank] = p signal full@(cta.rank){c} by elect\n"
)
READ = FOLD.replace("SLOT", "S[i]")


def kept(before: str = "", behind: str = "") -> str:
    """Each workgroup sends its part to itself, too, into another buffer, and reads it before or behind the wait."""
    sends = f"{TO_BOTH}      version T ; {OWN}\n      store T@(cta.rank)[0] = p signal full@(cta.rank){{c}} by elect\n"
    made = text(sends + before, first=EXPECT.replace("= 8", "= 12"), wait=WAIT + behind)
    return made.replace("  frag x f32[32]", "  buffer T f32[1] shared align 16 @ 16\n  frag x f32[32]", 1)


OWN = f"%s[t] over (n) : {MINE.format('cta.rank')}"
ITSELF = f"      q = load T[0] ; {OWN}\n"
RIGHT["to itself"] = kept(behind=ITSELF)
WRONG = {
    "its own part read behind a barrier of its threads": (kept(before=BARRIER + ITSELF), (3, 50)),
    "a wait of the workgroup's scope": (text(wait=WAIT.replace(", cluster = 1", "")), (3, 50)),
    "no wait": (text(wait=""), (3, 50)),
    "met, not waited for": (text(wait=MEET), (3, 50)),
    "waited for too late": (text(wait="").replace(READ, READ + WAIT.replace("VV", "1")), (3, 50)),
    "waits for the phase before": (text(wait=WAIT.replace("c // VV", "(c + 1) // VV")), (3, 50)),
    "one thread waits": (text(wait=WAIT.replace("\n", " by elect\n")), (3, 50)),
    "half the bytes": (text(first=EXPECT.replace("= 8", "= 4")), (3, 50)),
    "more bytes than come": (text(first=EXPECT.replace("= 8", "= 12")), (1, 50)),
    "nothing announced": (text(first=""), (1, 50)),
    "announced twice": (text(first=EXPECT + EXPECT), (1, 50)),
    "not met behind": (text(last=""), (4, 50)),
    "own threads met behind": (text(last=BARRIER), (4, 50)),
    "sent to one only": (text(ONE), (1, 50)),
    "all to the first": (text(TO_BOTH.replace("@(1)", "@(0)")), (1, 50)),
    "signals the other": (text(TO_BOTH.replace("full@(0)", "full@(1)", 1)), None),
    "one place for both": (text(TO_BOTH.replace("[cta.rank]", "[0]")), (1, 50)),
    "sent under a condition": (
        text(f"      if cta.rank == 0 scope workgroup {{\n{TO_BOTH}      }}\n"),
        (1, 50),
    ),
    "a part of it read elsewhere": (text().replace("q = load S[i]", "q = load S@(1 - cta.rank)[i]"), (3, 50)),
    "written again before the cluster met": (
        text().replace(READ, READ + VERSION + "      store S[0] = p by elect\n"),
        None,
    ),
    "its own part stored plainly, not met": (text(OWN_PLAIN, first=EXPECT.replace("= 8", "= 4")), (3, 50)),
    "the other's part stored plainly": (text(OTHER_PLAIN, first=EXPECT.replace("= 8", "= 4")), (3, 50)),
    "the counter stands": (text().replace(ADVANCE, ""), (3, 50)),
    "a barrier without bytes": (text().replace(" tx @", " @"), (1, 50)),
    "a barrier of two": (text().replace("full count 1", "full count 2"), (1, 50)),
    "not set up": (text().replace("    sync mbar.init full by elect\n", ""), (1, 50)),
    "set up without a fence": (text().replace("    sync fence.mbar_init by elect\n", ""), (1, 50)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    wrong, seen = WRONG[name]
    assert wrong not in RIGHT.values()
    machine = parse_machine(wrong)
    verdict = check(machine)
    assert verdict.status != "verified", str(verdict)
    if seen is not None:
        assert trials(machine, *seen, 30)


@pytest.mark.parametrize("name", ["to both", "in a loop, of all threads"])
def test_no_mutant_is_accepted_and_wrong(name: str) -> None:
    machine = parse_machine(RIGHT[name])
    seen, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::4]:
        if judged(mutant) != "verified" or executed(mutant.program) in seen:
            continue
        seen.add(executed(mutant.program))
        count += 1
        for m, n in ((3, 50), (1, 5)):
            assert not trials(mutant.program, m, n, 3), str(mutant)
    assert count


@assembled
def test_they_assemble() -> None:
    for one in (text(), text(IN_A_LOOP, slots=2)):
        emitted = emit(parse_machine(one))
        compiled = compile_cuda(emitted.source, arch=emitted.arch, name="sums")
        assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
        assert "st.async" in emitted.source and "acquire.cluster" in emitted.source
        assert not [m for m in compiled.messages if m.code]
