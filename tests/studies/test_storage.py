"""Trials on a journal file and in databases: processes that are killed, that share a study, and what is refused."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest

from dse.specs.source import SpecError
from dse.specs.study import load_study_file
from dse.studies import storage as storages
from dse.studies.explore import explore
from dse.studies.storage import close, create_or_join, open_storage, unusable

Write = Callable[[str, object], Path]

STUDY: dict[str, Any] = {
    "name": "shared",
    "sweep": {"model": ["BERT"], "seq_len": ["4K"]},
    "designs": {"flat": {"architecture": "flat", "workload": "attention_3pass", "mapping": "flat"}},
    "search": {
        "parameters": {"flat": {"rows": {"powers_of_two": [32, 512]}, "lanes": {"powers_of_two": [64, 2048]}}},
        "objectives": [{"metric": "latency_s"}, {"metric": "area_um2"}],
        "method": "random",
        "seed": 3,
    },
}
WORKER = """
import sys, time
from pathlib import Path
from dse.specs.study import load_study_file
from dse.studies import sampling
from dse.studies.candidates import Pricer
from dse.studies.explore import explore
from dse.studies.storage import Shared

path, url, trials, told, together = sys.argv[1:]
sampling.SHARED_BATCH = 5
price, tell = Pricer.price, Shared.tell

def slowly(self, places):
    time.sleep(0.1)
    return price(self, places)

def noted(self, trial, *given):
    tell(self, trial, *given)
    with open(told, "a") as file:
        print(trial.number, file=file)

Pricer.price, Shared.tell = slowly, noted
study = load_study_file(Path(path))
Path(told + ".ready").touch()
while len(list(Path(told).parent.glob("*.ready"))) < int(together):  # begin at the same time
    time.sleep(0.01)
explore(study, trials=int(trials), storage=url)
"""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The URL of a database of a server that runs for these tests; skips where none is installed."""
    found = shutil.which("initdb") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))[::-1]), None)
    if found is None:
        pytest.skip("no PostgreSQL server (initdb) on this machine")
    pytest.importorskip("psycopg")
    prefix = []
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:  # a server does not run as root
        try:
            shutil.chown(folder, "postgres")
        except LookupError:
            pytest.skip("PostgreSQL runs as another user than root, and there is no user postgres")
        prefix = ["runuser", "-u", "postgres", "--"]

    def run(program: str, *arguments: str) -> None:
        command = [*prefix, str(Path(found).parent / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=60)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run("initdb", "-A", "trust", "-U", "dse", "--no-sync")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run("pg_ctl", "-w", "-o", options, "-l", str(folder / "log"), "start")
    try:
        yield f"postgresql://dse@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture(params=["journal", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage of each kind, in turn."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgresql"))
    return {"journal": f"{tmp_path}/search.journal", "sqlite": f"sqlite:///{tmp_path}/search.db"}[request.param]


@pytest.fixture
def path(write_spec: Write, url: str) -> Path:
    """A study file, of another name for each test since databases keep theirs."""
    return write_spec("shared.yaml", {**STUDY, "name": f"shared{time.time_ns()}"})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storages, "HEARTBEAT_S", 1)
    monkeypatch.setattr(storages, "GRACE_S", 2)


def worker(path: Path, url: str, trials: int, told: Path, together: int = 1) -> subprocess.Popen[bytes]:
    """A process at a search, which begins when as many as are `together` are ready, and notes the trials that it tells."""
    return subprocess.Popen([sys.executable, "-c", WORKER, str(path), url, str(trials), str(told), str(together)])


def trials_of(path: Path, url: str) -> list[optuna.trial.FrozenTrial]:
    name = f"{load_study_file(path).name}.flat"
    backend = open_storage(url)
    try:
        return optuna.load_study(storage=backend, study_name=name).get_trials()
    finally:
        close(backend)


def in_state(trials: list[optuna.trial.FrozenTrial], state: str) -> dict[int, list[float]]:
    """Values by number."""
    return {trial.number: trial.values for trial in trials if trial.state.name == state}


pytestmark = pytest.mark.xdist_group("storage")


@pytest.mark.usefixtures("impatient")
def test_a_killed_process_loses_no_trial_and_none_counts_twice(path: Path, url: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    killed = worker(path, url, 40, told)
    deadline = time.monotonic() + 60
    while not told.exists() or len(told.read_text().split()) < 15:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    before = trials_of(path, url)
    done = in_state(before, "COMPLETE")
    assert 15 <= len(done) < 40
    found = explore(load_study_file(path), trials=40, storage=url).trials
    after = trials_of(path, url)
    finished = in_state(after, "COMPLETE")
    assert len(found) == len(finished) == 40
    assert {number: finished[number] for number in done} == done
    assert not in_state(after, "RUNNING")
    assert not in_state(after, "WAITING")
    lost = [trial for trial in before if trial.state.name == "RUNNING"]
    again = {trial.system_attrs.get("failed_trial"): trial for trial in after}
    for trial in lost:  # tried again: the same candidate, as far as it was known
        assert again[trial.number].params.items() >= trial.params.items()


def test_processes_share_a_study_without_a_duplicate(path: Path, url: str, tmp_path: Path) -> None:
    told = [tmp_path / "one", tmp_path / "other"]
    workers = [worker(path, url, 50, each, together=2) for each in told]
    assert [each.wait(120) for each in workers] == [0, 0]
    one, other = ({int(line) for line in each.read_text().split()} for each in told)
    finished = in_state(trials_of(path, url), "COMPLETE")
    assert len(finished) == 50
    assert not one & other
    assert one | other == set(finished)
    assert min(len(one), len(other)) > 0


@pytest.mark.usefixtures("impatient")
def test_another_process_ends_the_run_of_one_that_was_killed(path: Path, url: str, tmp_path: Path) -> None:
    told = [tmp_path / "killed", tmp_path / "left"]
    killed, left = (worker(path, url, 50, each, together=2) for each in told)
    deadline = time.monotonic() + 60
    while not all(each.exists() for each in told):
        assert killed.poll() is left.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    found = explore(load_study_file(path), trials=50, storage=url).trials  # gives up what was killed at once
    assert left.wait(120) == 0
    assert len(found) == len(in_state(trials_of(path, url), "COMPLETE")) == 50


@pytest.mark.filterwarnings("ignore:Heartbeat")
def test_a_trial_that_others_gave_up_is_told_to_nobody(path: Path, url: str) -> None:
    shared = create_or_join(url, "given up", 1, {})
    trial = shared.study.ask()
    assert shared.fail(trial.number)
    with shared.alive([trial]):
        shared.tell(trial, [1.0], {"violation": 1.0})
    assert not shared.fail(trial.number)
    assert not shared.finished()
    close(shared.backend)


def test_jobs_do_as_many_trials_as_are_asked_for(write_spec: Write) -> None:
    study = load_study_file(write_spec("shared.yaml", STUDY))
    assert len(explore(study, trials=45, jobs=2).trials) == 45


def test_the_same_seed_gives_the_same_trials_on_a_journal(write_spec: Write, tmp_path: Path) -> None:
    study = load_study_file(write_spec("shared.yaml", STUDY))
    runs = [explore(study, trials=30, storage=f"{tmp_path}/{name}.journal").trials for name in ("one", "other")]
    pd.testing.assert_frame_equal(*runs)
    more = explore(study, trials=60, storage=f"{tmp_path}/one.journal").trials
    pd.testing.assert_frame_equal(more.head(30).drop(columns="on_front"), runs[0].drop(columns="on_front"))
    first, second = (more[["rows", "lanes"]].iloc[rows].reset_index(drop=True) for rows in (slice(30), slice(30, 60)))
    assert not first.equals(second)  # a run that goes on does not ask for the same again


def test_a_storage_of_no_known_kind_is_refused(write_spec: Write) -> None:
    study = load_study_file(write_spec("shared.yaml", STUDY))
    for given in ("search.db", "nowhere://at/all"):
        with pytest.raises(SpecError, match=f"^--storage {given}: "):
            explore(study, trials=5, storage=given)
    assert not Path("search.db").exists()


def test_passwords_are_not_printed_and_drivers_named() -> None:
    error = unusable("postgresql://me:secret@host/base", ImportError("psycopg"))
    assert str(error) == (
        "--storage postgresql://me@host/base: cannot be used: its driver is not installed: pip install 'dse[postgresql]'"
    )
