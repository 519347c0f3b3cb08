"""The progress bar of a search, where standard error is a terminal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from treadle.driver.tuning_process import Progress


@contextmanager
def progress_bar(name: str) -> Generator[Progress | None]:
    """A bar that is gone when the search ends; None where nobody would see it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[told]}"))
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(f"tuning {name}", total=1.0, told="")
        yield lambda share, text: bars.update(task, completed=share, told=text)
