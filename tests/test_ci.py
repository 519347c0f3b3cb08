"""What .ci/run does about packages of Debian, with stand-ins for the commands that it finds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[1] / ".ci" / "run"
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")


def tried(tmp_path: Path, *, there: str = "", apt: str | None = None, user: int = 0) -> tuple[int, str, list[str]]:
    """Status, what was written, and the calls of apt-get (`apt` is what it does; None: there is none)."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci" / "run")
    commands = tmp_path / "bin"
    commands.mkdir()
    calls = tmp_path / "calls"
    calls.touch()
    stand_ins = {name: "" for name in there.split()} | {"id": f"echo {user}"}
    if apt is not None:
        stand_ins["apt-get"] = f'echo "$@" >>{calls}\n{apt}'
    for name, body in stand_ins.items():
        _script(commands / name, body)
    _script(tmp_path / "dev", "echo tests ran")
    for name in ("dirname", "mktemp", "tail", "rm", "sleep", "touch", "chmod"):
        found = shutil.which(name)
        assert found is not None
        (commands / name).symlink_to(found)
    done = subprocess.run(
        [str(BASH), str(tmp_path / ".ci" / "run")],
        capture_output=True,
        text=True,
        env={"PATH": str(commands), "TREADLE_CI_PAUSE": "0"},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines()


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!{BASH}\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    assert tried(tmp_path, there="coqc chromium", apt="exit 1") == (0, "tests ran\n", [])


def test_what_can_be_installed_is(tmp_path: Path) -> None:
    made = f"touch {tmp_path}/bin/chromium; chmod +x {tmp_path}/bin/chromium"
    status, said, calls = tried(tmp_path, there="coqc", apt=f"{made}; exit 0")
    assert (status, said) == (0, "tests ran\n")
    assert len(calls) == 1 and calls[0].endswith("chromium fonts-dejavu-core")


def test_what_cannot_be_installed_ends_it(tmp_path: Path) -> None:
    status, said, calls = tried(tmp_path, there="chromium", apt="echo no such mirror; exit 100")
    assert status == 1 and "tests ran" not in said
    assert "no such mirror" in said and "CI cannot go on without coq" in said
    assert [c.split()[0] for c in calls] == ["install", "update", "install", "update", "install", "update"]


@pytest.mark.parametrize("apt, user", [(None, 0), ("exit 0", 1000)])
def test_where_nothing_can_be_installed_tests_run_without(tmp_path: Path, apt: str | None, user: int) -> None:
    assert tried(tmp_path, apt=apt, user=user) == (0, "tests ran\n", [])
