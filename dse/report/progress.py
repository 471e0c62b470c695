"""Bars on stderr for a person who watches; nothing where stderr is a file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dse.studies.tally import Status


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


@contextmanager
def search_bar(name: str) -> Iterator[Callable[[Status], None]]:
    """A bar of a search's candidates: how many a second, which share can be, the least of each objective so far, and an
    estimate of the time left; nothing where stderr is a file."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda status: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    whole = Column(no_wrap=True, min_width=8)
    columns = (
        TextColumn("{task.fields[design]}", table_column=whole),
        BarColumn(bar_width=10),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}", table_column=replace(whole, min_width=14)),
        TimeRemainingColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1, design=name)
        now, begun, before = "", 0.0, 0

        def advance(status: Status) -> None:
            nonlocal now, begun, before
            if status.design != now:
                now, begun, before = status.design, time.monotonic(), status.done
                bar.reset(task, total=status.wanted, completed=status.done)
            seconds = time.monotonic() - begun
            rate = f"{(status.done - before) / seconds:,.0f}/s" if seconds > 0 and status.done > before else ""
            share = f"{status.feasible / status.done:.0%} can be" if status.done else ""
            best = [f"{column} {value:.4g}" for column, value in status.best.items() if value < math.inf]
            described = "; ".join(part for part in (rate, share, f"least {', '.join(best)}" if best else "") if part)
            bar.update(task, completed=status.done, total=status.wanted, design=now, description=described)

        yield advance
