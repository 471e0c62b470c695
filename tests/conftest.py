"""What several tests share: golden tables, and specs written to a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from dse.specs.study import load_study
from dse.studies.run import StudyResult, run_study

DATA = Path(__file__).parent / "data"


def golden(name: str) -> pd.DataFrame:
    """A table of tests/data; case numbers stay text."""
    return pd.read_csv(DATA / name, dtype={"case": str}, keep_default_na=False, na_values=[""])


class _Plain(yaml.SafeDumper):
    """Writes values out where they repeat: specs have no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@pytest.fixture
def write_spec(tmp_path: Path) -> Callable[[str, object], Path]:
    """Write a spec (text, or data as YAML) to a file of a name and return its path."""

    def write(name: str, content: object) -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.dump(content, Dumper=_Plain, sort_keys=False))
        return path

    return write


@pytest.fixture(scope="session")
def attention() -> StudyResult:
    """The attention study, priced once."""
    return run_study(load_study("fusemax_attention"))
