"""The cache under processes that are killed at any moment: entries are whole or absent, the size stays bounded."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from treadle.runtime.cache import Cache

BOUND = 400_000
WRITER = """
import hashlib, random, sys
from treadle.runtime.cache import Cache

cache, turn = Cache(sys.argv[1], bound=int(sys.argv[2])), random.Random(int(sys.argv[3]))
print("ready", flush=True)
wrong = 0
while True:
    number = turn.randrange(60)
    key = hashlib.sha256(str(number).encode()).hexdigest()[:40]
    files = {f"{i}.bin": hashlib.sha256(f"{number} {i}".encode()).digest() * 400 for i in range(3)}
    act = turn.random()
    if act < 0.45:
        cache.put(key, files, {"number": number})
    elif act < 0.9:
        entry = cache.get(key)
        if entry is not None and (entry.files != files or entry.meta != {"number": number}):
            print("wrong", number, flush=True)
    elif act < 0.97:
        cache.drop(key)
    else:
        cache.clear() if act > 0.995 else cache.stats()
"""


def start(folder: Path, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(BOUND), str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_killed_at_random(tmp_path: Path) -> None:
    folder, turn = tmp_path / "cache", random.Random(3)
    running = [start(folder, i) for i in range(3)]
    said: list[str] = []
    for seed in range(12):
        victim = running.pop(0)
        assert victim.stdout is not None and victim.stdout.readline() == "ready\n"
        time.sleep(0.05 + turn.random() * 0.2)
        os.kill(victim.pid, signal.SIGKILL)
        said += victim.communicate()[0].splitlines()
        running.append(start(folder, 100 + seed))
    for process in running:
        process.kill()
        said += [line for line in process.communicate()[0].splitlines() if line != "ready"]
    assert said == [], "no reader ever saw half an entry, or another's"
    cache = Cache(folder, bound=BOUND)
    found = 0
    for number in range(60):
        entry = cache.get(hashlib.sha256(str(number).encode()).hexdigest()[:40])
        if entry is not None:
            found += 1
            assert entry.meta == {"number": number}
            assert entry.files["2.bin"] == hashlib.sha256(f"{number} 2".encode()).digest() * 400
    stats = cache.stats()
    assert 0 < found <= stats.entries
    # Each of the processes that write at once may be one entry over the bound before it notices.
    assert stats.bytes <= BOUND + 4 * 40_000
    # What was left aside by the dead goes with the rest, and the cache works on.
    assert cache.clear() == stats.entries
    assert list((folder / "v1" / "aside").iterdir()) == []
    cache.put("a" * 40, {"x": b"1"})
    assert cache.get("a" * 40) is not None and cache.stats().entries == 1
