"""Work done side by side, in processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Generic, TypeVar

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

    @property
    def alone(self) -> bool:
        """Whether there are no other processes."""
        return self.pool is None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *problem: object) -> None:
        if problem[0] is None and self.pool is not None:
            self.pool.shutdown()
        self.stop()

    def stop(self) -> None:
        """Begin nothing more, and wait for nothing."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def begin(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], size: Callable[[Task], float]
    ) -> Batch[Task, Result]:
        """Tasks to be done after those begun before, the largest first; without processes when they are asked for."""
        order = sorted(range(len(tasks)), key=lambda place: -size(tasks[place]))
        futures = None if self.pool is None else {self.pool.submit(function, tasks[place]): place for place in order}
        return Batch(function, tasks, order, futures)


@dataclass
class Batch(Generic[Task, Result]):
    """Tasks begun, in the order given by their places; `futures` are those that processes do."""

    function: Callable[[Task], Result]
    tasks: Sequence[Task]
    order: Sequence[int]
    futures: Mapping[Future[Result], int] | None

    def done(self) -> Iterator[tuple[int, Result]]:
        """The place and the result of each task as it ends."""
        if self.futures is None:
            yield from ((place, self.function(self.tasks[place])) for place in self.order)
            return
        yield from ((self.futures[future], future.result()) for future in as_completed(self.futures))

    def results(self) -> list[Result]:
        """The result of each task, in order."""
        found = dict(self.done())
        return [found[place] for place in range(len(self.tasks))]
