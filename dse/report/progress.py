"""Bars on stderr for a person who watches; nothing where stderr is a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def step_bar(name: str, steps: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr for a person who watches; nothing where stderr is a file."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[study]}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=steps, study=name)
        yield lambda step: bar.update(task, advance=1, description=step)


@contextmanager
def share_bar(name: str) -> Iterator[Callable[[str, float], None]]:
    """A bar of the share that is done, with an estimate of the time left; nothing where stderr is a file."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda part, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(name),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        furthest = 0.0

        def advance(part: str, share: float) -> None:
            nonlocal furthest
            furthest = max(furthest, share)
            bar.update(task, completed=furthest, description=part)

        yield advance
