"""A study's results on disk: every file appears whole, and only after all of them were made."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from dse.model.accounting import SWITCHES
from dse.specs.source import SpecError
from dse.specs.study import MapSearch, Part
from dse.studies.run import StudyResult, accountings
from dse.studies.summary import compare

SEARCH_FIGURES = ("front", "comparison", "budgets", "winners", "convergence")
"""What a search draws by itself."""
SENSITIVITY_FIGURES = ("sensitivity", "distribution")
"""What a sensitivity draws by itself."""
VERSIONS_OF = ("dse", "numpy", "scipy", "pandas", "matplotlib")


@contextmanager
def all_or_nothing(folder: Path, stale: Sequence[str] = ()) -> Iterator[Path]:
    """A scratch folder whose files move into `folder` when the block ends well, and vanish otherwise.

    `stale` names files of an earlier run that the new ones make untrue; they go once the new ones are there.

    Raises SpecError where `folder` cannot be written.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    except OSError as error:
        raise SpecError(f"cannot write to {folder}: {error.strerror}; give another folder with -o") from None
    try:
        yield scratch
        for path in scratch.iterdir():
            if (folder / path.name).is_dir():
                raise SpecError(f"cannot write to {folder}: {path.name} is a folder there; give another folder with -o")
        for path in sorted(scratch.iterdir()):
            os.replace(path, folder / path.name)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise SpecError(f"cannot write to {folder}: {error.strerror}; nothing there was half written") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with suppress(OSError):  # a folder with results in it stays
            for each in made:
                each.rmdir()


def write_results(
    result: StudyResult, folder: Path, draw: Callable[[Path], None] | None, settings: Mapping[str, Any]
) -> None:
    """Write results.csv, breakdown.csv, components.csv, run.yaml and what `draw` makes into `folder`."""
    names = [figure.name for figure in result.study.figures]
    if result.explored is not None:
        names += SEARCH_FIGURES
    if result.analysis is not None:
        names += SENSITIVITY_FIGURES
    drawn = [f"{name}.{kind}" for name in names for kind in ("png", "pdf")]
    with all_or_nothing(folder, () if draw else drawn) as scratch:
        write_csv(result.frame, scratch / "results.csv")
        write_csv(result.breakdown, scratch / "breakdown.csv")
        write_csv(result.components, scratch / "components.csv")
        if result.explored is not None:
            write_csv(result.explored.trials, scratch / "trials.csv")
            if result.explored.convergence is not None:
                write_csv(result.explored.convergence, scratch / "convergence.csv")
            budgets = result.explored.budgets
            if budgets is not None:
                write_csv(budgets.overall, scratch / "budgets.csv")
                if budgets.by_axis is not None:
                    write_csv(budgets.by_axis, scratch / f"budgets_by_{budgets.axis}.csv")
            for baseline in result.study.baselines[:1]:
                write_csv(compare(result, baseline), scratch / "comparison.csv")
        if result.analysis is not None:
            write_csv(result.analysis.indices, scratch / "sensitivity.csv")
            write_csv(result.analysis.distribution, scratch / "distribution.csv")
            write_csv(result.analysis.samples, scratch / "samples.csv")
        if result.maps:
            (scratch / "mappings.txt").write_text(nests_text(result), encoding="utf-8")
        record = {
            "study": result.study.data,
            "settings": dict(settings),
            "resolved": _resolved(result),
            **({} if result.explored is None else {"searched": dict(result.explored.method)}),
            "versions": {name: version(name) for name in VERSIONS_OF},
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        (scratch / "run.yaml").write_text(yaml.safe_dump(record, sort_keys=False, allow_unicode=True), encoding="utf-8")
        if draw is not None:
            draw(scratch)


def nests_text(result: StudyResult) -> str:
    """The mappings that were searched as loop nests, each with its proof."""
    from dse.report.nests import nest_lines, proof_line

    blocks = []
    for (design, _, point), found in result.maps.items():
        for each in found.einsums.values():
            blocks.append("\n".join([f"# {design}, {point}", *nest_lines(each), proof_line(each.found.proof)]))
    return "\n\n".join(blocks) + "\n"


def _resolved(result: StudyResult) -> dict[str, Any]:
    """What the study came to: files, options and own parameters of each design, and the switches of each accounting."""
    designs = {
        name: {
            "architecture": design.architecture.source.path,
            "parts": [
                {
                    **({"part": part.name} if part.name else {}),
                    "workload": part.workload.source.path,
                    "mapping": _mapping_of(part),
                    "choices": part.choices.path if part.choices else None,
                    "options": dict(part.options),
                }
                for part in design.parts
            ],
            "parameters": {label: located.expression.text for label, located in design.parameters.items()},
        }
        for name, design in result.study.designs.items()
    }
    switches = {
        name: {switch: getattr(accounting, switch) for switch in SWITCHES}
        for name, accounting in accountings(result.study).items()
    }
    return {"designs": designs, "accounting": switches}


def _mapping_of(part: Part) -> str | dict[str, str]:
    if isinstance(part.mapping, MapSearch):
        return {"objective": part.mapping.objective, "mapspace": part.mapping.mapspace.source.path}
    return part.mapping.source.path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A scratch file that becomes `path` when the block ends well, and vanishes otherwise.

    Raises SpecError where `path` cannot be written.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise SpecError(f"cannot write {path}: it is no regular file")
    if not path.parent.is_dir():
        raise SpecError(f"cannot write {path}: there is no folder {path.parent}")
    scratch = path.with_name(f".unfinished-{path.name}")
    try:
        yield scratch
        os.replace(scratch, path)
    except OSError as error:
        raise SpecError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            scratch.unlink()


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a table so that reading it back gives the same numbers."""
    frame.to_csv(path, index=False, lineterminator="\n")
