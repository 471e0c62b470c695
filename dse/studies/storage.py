"""Where a search's trials are kept: in memory, a journal file or a database, shared by any number of processes.

Optuna numbers the trials of a study in the order in which they begin. A trial is part of a run if fewer trials than are
wanted began before it, those that failed not counted; so processes that know nothing of each other end with exactly as
many as are wanted. Trials of a process that died are given up after a while, and tried again.
"""

from __future__ import annotations

import copy
import os
import socket
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.specs.source import SpecError

if TYPE_CHECKING:
    import optuna

HEARTBEAT_S = 10
"""How often a process says that it is still at its trials."""
GRACE_S = 30
"""Silence after which a trial is given up, and tried again."""
TRIES = 4
"""How often a trial is tried, if the processes at it die."""
LOCKED_S = 60
"""How long a process waits for others that write to an SQLite file."""
PAUSE_S = 0.2
"""Between looks at what others are about to do."""
JOURNAL = ".journal"
DRIVERS = {"postgresql": "'dse[postgresql]'"}
"""What to install for a database, where its driver is missing."""
WORKER = "worker"
"""The attribute of a trial that says which process, on which machine, priced it."""
DESCRIPTION = "search"
"""The attribute that says what a study on disk searches."""


def open_storage(storage: str) -> optuna.storages.BaseStorage:
    """A journal file, by a path that ends so, or a database, by its URL. Raises SpecError where it cannot be reached."""
    if "://" not in storage and not storage.endswith(JOURNAL):
        raise SpecError(
            f"--storage {storage}: allowed: FILE{JOURNAL}, sqlite:///FILE, postgresql://USER@HOST/DATABASE, or another "
            "URL that SQLAlchemy knows"
        )
    tries = 3
    while True:
        try:
            return _journal(storage) if "://" not in storage else _database(storage)
        except Exception as error:  # whatever the database's driver raises
            tries -= 1
            if not tries or isinstance(error, ImportError):
                raise unusable(storage, error) from None
            time.sleep(PAUSE_S)  # another process may be about to make the tables


def _journal(path: str) -> optuna.storages.BaseStorage:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(path))


def _database(storage: str) -> optuna.storages.BaseStorage:
    import optuna

    is_sqlite = storage.startswith("sqlite")
    with warnings.catch_warnings(action="ignore"):  # heartbeats are Optuna's, but called experimental
        backend = optuna.storages.RDBStorage(
            storage.replace("postgresql://", "postgresql+psycopg://"),  # whatever SQLAlchemy takes by default
            engine_kwargs={"connect_args": {"timeout": LOCKED_S}} if is_sqlite else {"pool_pre_ping": True},
            heartbeat_interval=HEARTBEAT_S,
            grace_period=GRACE_S,
            heartbeat_stale_trial_callback=_try_again(),
        )
    if is_sqlite:
        _write_ahead(backend)
    return backend


@contextmanager
def reached(storage: str) -> Iterator[None]:
    """Raises SpecError where a storage is lost meanwhile."""
    import optuna
    import sqlalchemy

    try:
        yield
    except optuna.exceptions.StorageInternalError as error:  # which says nothing of the cause
        cause = error.__cause__
        raise unusable(storage, cause if isinstance(cause, Exception) else error) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise unusable(storage, error) from None


def close(backend: optuna.storages.BaseStorage) -> None:
    """Close the connections of a storage; it opens others when it is used again."""
    import optuna

    if isinstance(backend, optuna.storages.RDBStorage):
        backend.remove_session()
        backend.engine.dispose()


def _write_ahead(backend: optuna.storages.RDBStorage) -> None:
    """Let an SQLite file write a log ahead, which no power cut can spoil, and not wait for the disk at every commit."""
    import sqlalchemy

    def prepare(connection: Any, record: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    sqlalchemy.event.listen(backend.engine, "connect", prepare)
    backend.engine.dispose()  # those open already know nothing of it


def _try_again() -> Callable[[optuna.Study, optuna.trial.FrozenTrial], None]:
    """Queues a trial of a process that died, for another."""
    import optuna

    with warnings.catch_warnings(action="ignore"):
        retry = optuna.storages.RetryHeartbeatStaleTrialCallback(TRIES - 1)

    def again(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        own = copy.copy(trial)
        own.user_attrs = {name: value for name, value in trial.user_attrs.items() if name != WORKER}
        retry(study, own)

    return again


def unusable(storage: str, error: Exception) -> SpecError:
    """Says why a storage cannot be used."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    needed = DRIVERS.get(storage.partition("://")[0].partition("+")[0])
    if isinstance(error, ImportError) and needed is not None:
        reason = f"its driver is not installed: pip install {needed}"
    return SpecError(f"--storage {_without_password(storage)}: cannot be used: {reason}")


def _without_password(storage: str) -> str:
    scheme, found, rest = storage.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{found}{user.partition(':')[0]}{at}{host}"


@dataclass(frozen=True)
class Shared:
    """A study of a storage, which other processes may work on at the same time; `new` if this one created it; when it saw
    trials under way for the first time."""

    backend: optuna.storages.BaseStorage
    study: optuna.Study
    new: bool
    seen: dict[int, float] = field(default_factory=dict)

    def seed(self, seed: int) -> int:
        """The seed of whoever creates the study; another for a process that goes on with it, or works beside others, so
        that it asks for other trials."""
        if self.new:
            return seed
        begun = len(self.study.get_trials(deepcopy=False))
        parts = [seed, begun, zlib.crc32(socket.gethostname().encode()), os.getpid()]
        return int(np.random.SeedSequence(parts).generate_state(1)[0])

    def finished(self) -> list[optuna.trial.FrozenTrial]:
        """Trials that are done, in the order in which they began."""
        return self._trials("COMPLETE")

    def left(self, wanted: int) -> int:
        """How many trials are neither done nor begun, once those of processes that died are given up."""
        self._give_up_silent()
        return wanted - len(self._trials("COMPLETE", "RUNNING"))

    def within(self, asked: Sequence[optuna.Trial], wanted: int) -> list[optuna.Trial]:
        """Those of the trials asked for that are part of the run; the others, one too many, fail."""
        begun = np.array([trial.number for trial in self._trials("COMPLETE", "RUNNING", "WAITING")])
        kept = [trial for trial in asked if int((begun < trial.number).sum()) < wanted]
        for trial in asked:
            if trial not in kept:
                self.fail(trial.number)
        return kept

    def tell(self, trial: optuna.Trial, values: Sequence[float], attributes: Mapping[str, Any]) -> None:
        """Say what a trial came to, unless others have given it up meanwhile."""
        import optuna

        with suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
            for name, value in attributes.items():
                trial.set_user_attr(name, value)
            self.study.tell(trial, values)

    def fail(self, number: int) -> bool:
        """Whether this process, and no other, made a trial fail."""
        import optuna

        try:
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)
        except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
            return False
        return True

    @contextmanager
    def alive(self, trials: Sequence[optuna.Trial]) -> Iterator[None]:
        """Say every now and then that these trials are being worked on, where the storage has heartbeats."""
        import optuna

        beat = getattr(self.backend, "record_heartbeat", lambda trial_id: None)
        over = threading.Event()

        def work() -> None:
            while not over.wait(HEARTBEAT_S):
                for trial in trials:
                    beat(trial._trial_id)
            self.backend.remove_session()

        for trial in trials:
            beat(trial._trial_id)
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                trial.set_user_attr(WORKER, f"{socket.gethostname()}:{os.getpid()}")
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _trials(self, *states: str) -> list[optuna.trial.FrozenTrial]:
        import optuna

        return self.study.get_trials(deepcopy=False, states=[optuna.trial.TrialState[state] for state in states])

    def _give_up_silent(self) -> None:
        """Fail trials whose process says nothing any more, and queue them again.

        Optuna knows those that had a heartbeat. Others have been under way for too long, as far as this process has seen:
        a journal has no heartbeats, and a process may die before the first one.
        """
        import optuna

        with warnings.catch_warnings(action="ignore"):
            optuna.storages.fail_stale_trials(self.study)
        beats, again, now = hasattr(self.backend, "record_heartbeat"), _try_again(), time.monotonic()
        for trial in self._trials("RUNNING"):
            since = self.seen.setdefault(trial.number, now)
            if now - since > GRACE_S and not (beats and WORKER in trial.user_attrs) and self.fail(trial.number):
                again(self.study, trial)


def create_or_join(storage: str, name: str, objectives: int, described: Mapping[str, Any]) -> Shared:
    """A study of a storage with so many objectives, all to be small. Raises SpecError where that cannot be used, or has the
    study with another search."""
    import optuna

    backend = open_storage(storage)
    try:
        try:
            study = optuna.create_study(storage=backend, study_name=name, directions=["minimize"] * objectives)
            study.set_user_attr(DESCRIPTION, dict(described))
            return Shared(backend, study, new=True)
        except optuna.exceptions.DuplicatedStudyError:
            study = optuna.load_study(storage=backend, study_name=name)
        known: Mapping[str, Any] | None = None
        for _ in range(25):  # whoever creates it is about to say what it searches
            known = study.user_attrs.get(DESCRIPTION)
            if known is not None:
                break
            time.sleep(PAUSE_S)
    except Exception as error:  # whatever the database's driver raises
        close(backend)
        raise unusable(storage, error) from None
    known = known or {}
    differs = [
        _named(part, known.get(part), described[part]) for part in described if known.get(part) != described[part]
    ]
    if differs:
        close(backend)
        raise SpecError(
            f"--storage {_without_password(storage)}: {name} is there with another search (not the same: "
            f"{', '.join(differs)}); nothing was changed; give another storage, or the study another name"
        )
    return Shared(backend, study, new=False)


def _named(part: str, known: Any, described: Any) -> str:
    """What differs: of a mapping, the names that do."""
    if not (isinstance(known, Mapping) and isinstance(described, Mapping)):
        return part
    names = [name for name in {**known, **described} if known.get(name) != described.get(name)]
    return f"{part} of {' and '.join(names)}"
