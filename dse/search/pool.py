"""Work done side by side, in processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """Does tasks here or, with several `jobs`, in processes; a problem on the way out ends it at once."""

    def __init__(self, jobs: int) -> None:
        # Ctrl-C ends a worker without a word of its own
        stops = (signal.SIGINT, signal.SIG_DFL)
        self.pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=stops) if jobs > 1 else None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *problem: object) -> None:
        if self.pool is None:
            return
        if problem[0] is None:
            self.pool.shutdown()
        else:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def done(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], size: Callable[[Task], float]
    ) -> Iterator[tuple[int, Result]]:
        """The place and the result of each task as it ends; the largest are begun first."""
        order = sorted(range(len(tasks)), key=lambda place: -size(tasks[place]))
        if self.pool is None:
            yield from ((place, function(tasks[place])) for place in order)
            return
        places = {self.pool.submit(function, tasks[place]): place for place in order}
        yield from ((places[future], future.result()) for future in as_completed(places))

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], size: Callable[[Task], float]
    ) -> list[Result]:
        """The result of each task, in order."""
        found = dict(self.done(function, tasks, size))
        return [found[place] for place in range(len(tasks))]
