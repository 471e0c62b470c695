"""The attention study, priced once."""

from __future__ import annotations

import pytest

from dse.specs.study import load_study
from dse.studies.run import StudyResult, run_study


@pytest.fixture(scope="session")
def attention() -> StudyResult:
    return run_study(load_study("fusemax_attention"))
