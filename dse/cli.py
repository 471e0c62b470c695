"""The command line: parses, calls, prints. Exit 0 done, 1 the work failed, 2 the input is wrong."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from dse.report.tables import Rows
    from dse.specs.workload import Workload

app = typer.Typer(
    help="Analytical design-space exploration for tensor accelerators: what a cascade of Einsums costs on an accelerator under a mapping.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Format = Annotated[str, typer.Option("--format", help="How to print: table, csv or json.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PARAMETER=VALUE", help="Set a parameter or an option of the mapping; repeat for more."
    ),
]


def main() -> None:
    """Run the command line; turns wrong input into lines on stderr and exit code 2, never into a traceback."""
    interrupted = 130
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        code = interrupted
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        print(f"cannot write: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        reported = _report(error)
        if reported is None:
            raise
        code = reported
    if code == interrupted:
        print("stopped; nothing was half written", file=sys.stderr)
    sys.exit(code)


def _report(error: Exception) -> int | None:
    """Print an error that a person can act on and give its exit code; None for one that is ours."""
    from dse.specs.source import SpecError

    if isinstance(error, SpecError):
        for line in error.lines:
            print(line, file=sys.stderr)
        return 2
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        context = getattr(error, "ctx", None)
        usage = f" (see '{context.command_path} --help')" if context else ""
        print(f"{error.format_message()}{usage}", file=sys.stderr)
        return 2
    return None


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A shipped study (dse list studies) or a path to a study file.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for the results; default results/STUDY."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="DESIGN.PARAMETER=VALUE", help="Set a design's parameter; repeat for more."),
    ] = None,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the study's figures.")] = True,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", min=1, help="Mappings searched side by side; of a search that samples, processes at it."
        ),
    ] = 1,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, help="Of a search that samples: trials in all, earlier runs included."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage",
            metavar="URL",
            help="Keep a search's trials there, go on with them, and share them with other processes: FILE.journal, "
            "sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
        ),
    ] = None,
    form: Format = "table",
) -> None:
    """Run a study: price every design at every point, or search for the best; write results.csv, figures and run.yaml."""
    _check_format(form)
    from dse.report.progress import step_bar
    from dse.specs.source import SpecError
    from dse.specs.study import load_study
    from dse.studies.output import write_results
    from dse.studies.run import run_study, with_settings
    from dse.studies.summary import (
        budget_table,
        compare,
        convergence_table,
        front_table,
        summarize,
        summarize_area,
        winners_table,
    )

    loaded = with_settings(load_study(study), settings or [])
    folder = output or Path("results") / loaded.name
    steps = len(loaded.designs) * len(loaded.accounting) + (len(loaded.figures) if figures else 0)
    with step_bar(loaded.name, steps) as advance:
        if loaded.search is not None:
            from dse.report.progress import search_bar
            from dse.studies.explore import run_search

            try:
                with search_bar(loaded.name) as progress:
                    result = run_search(loaded, advance, trials=trials, storage=storage, jobs=jobs, progress=progress)
            except KeyboardInterrupt:
                if storage is not None:
                    print("trials done so far are kept: the same command goes on with them", file=sys.stderr)
                raise
        elif trials is not None or storage is not None:
            raise SpecError(f"--trials and --storage are of a search; {loaded.name} has none")
        elif loaded.sensitivity is not None:
            from dse.report.progress import share_bar
            from dse.studies.sensitivity import run_sensitivity

            with share_bar(f"{loaded.name}: assumptions") as share:
                result = run_sensitivity(loaded, advance, lambda done: share("samples", done))
        else:
            result = run_study(loaded, advance, jobs)

        def draw(scratch: Path) -> None:
            from dse.report.figures import draw_figures

            draw_figures(result, scratch, advance)

        write_results(
            result,
            folder,
            draw if figures and (loaded.figures or loaded.search or loaded.sensitivity) else None,
            {"set": settings or []},
        )
    if result.explored is not None and form == "table":
        for name, how in result.explored.method.items():
            print(f"{name}: {how}")
        if storage is not None:
            print("trials are kept: --trials N with the same --storage goes on to N")
        _print(front_table(result), form, "The front", digits=6)
        budgets = result.explored.budgets
        if budgets is not None:
            _print(budget_table(budgets), form, "The best of each design within each budget")
            if budgets.by_axis is not None:
                _print(winners_table(budgets), form, f"The best design by budget and {budgets.axis}")
        if result.explored.convergence is not None:
            _print(convergence_table(result.explored.convergence), form, "Samplers: share of the front's hypervolume")
        for baseline in loaded.baselines[:1]:
            _print(compare(result, baseline), form, "As published and searched: geometric means over the models")
    if result.analysis is not None:
        from dse.report.sensitivity import headline_lines

        _print(result.analysis.indices, form, "Sobol' indices: share of each headline's variance, with 95 % bounds")
        if form != "table":
            return
        _print(result.analysis.distribution, form, "Headlines: as the study has them, median, 5 % and 95 %")
        print("\n".join(headline_lines(result)))
    summary = summarize(result)
    if len(summary):
        _print(summary, form, "Means over the points: speedup and energy relative to the baseline")
    if form == "table":
        area = summarize_area(result)
        if len(area):
            over = f", and relative to {loaded.baselines[0]}" if loaded.baselines else ""
            _print(area, form, f"Chip area in mm2{over}", digits=7)
        from dse.report.figures import breakdown_tables

        for title, table in breakdown_tables(result):
            _print(table, form, title, digits=6)
        print(f"{len(result.frame)} rows: {folder / 'results.csv'}")


@app.command()
def evaluate(
    architecture: Annotated[str, typer.Argument(help="A shipped architecture (dse list archs) or a path.")],
    workload: Annotated[str, typer.Argument(help="A shipped workload (dse list workloads) or a path.")],
    mapping: Annotated[
        str | None, typer.Option("--mapping", help="A shipped mapping or a path; default: the one for the two.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Take parameters from a model (dse list models).")
    ] = None,
    seq_len: Annotated[str | None, typer.Option("--seq-len", help="Sequence length, e.g. 64K.")] = None,
    settings: Settings = None,
    by: Annotated[str | None, typer.Option("--by", help="Open the cost by einsum, component or action.")] = None,
    accounting: Annotated[str, typer.Option("--accounting", help="published, corrected or leaking.")] = "corrected",
    form: Format = "table",
) -> None:
    """Price one design point; --by opens it by Einsum, component or action."""
    _check_format(form)
    from dse.api import evaluate as evaluate_point
    from dse.model.result import GROUPINGS
    from dse.specs.source import SpecError
    from dse.wording import allowed

    if by is not None and by not in GROUPINGS:
        raise SpecError(f"--by: unknown grouping {by!r}; {allowed(by, GROUPINGS)}")
    given = dict(_setting(text) for text in settings or [])
    if seq_len is not None:
        given["seq_len"] = seq_len
    result = evaluate_point(
        architecture, workload, mapping=mapping, model=model, accounting=accounting, parameters=given
    )
    frame = result.to_frame(by)
    if form != "table":
        _print(frame, form)
        return
    if by is not None:
        _print(frame, form, f"{architecture}, {workload}: by {by}")
    totals = result.to_frame().iloc[0]
    _print([{"total": name, "value": value} for name, value in totals.items()], form)
    for note in result.notes():
        print(note)


@app.command()
def plot(
    table: Annotated[Path, typer.Argument(metavar="RESULTS.csv", help="A table that dse run wrote, or any like it.")],
    x: Annotated[str | None, typer.Option("--x", metavar="COLUMN", help="Along.")] = None,
    y: Annotated[str | None, typer.Option("--y", metavar="COLUMN", help="Up.")] = None,
    color: Annotated[str | None, typer.Option("--color", metavar="COLUMN", help="One colour for each value.")] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="bars, lines, pareto, breakdown (by component or Einsum) or roofline.")
    ] = None,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Mark the rows that none beats in both: --kind pareto.")
    ] = False,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Only rows with this value; repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="PNG or PDF; default: beside the table.")
    ] = None,
) -> None:
    """Draw a table of results: bars, lines, a Pareto front, the parts of a whole, or a roofline."""
    from dse.report.plots import draw_table
    from dse.specs.source import SpecError

    if pareto and kind not in (None, "pareto"):
        raise SpecError(f"--pareto is --kind pareto, found --kind {kind} too")
    print(draw_table(table, "pareto" if pareto else kind, x, y, color, where or [], output))


@app.command("map")
def map_(
    architecture: Annotated[str, typer.Argument(help="A shipped architecture (dse list archs) or a path.")],
    workload: Annotated[str, typer.Argument(help="A shipped workload (dse list workloads) or a path.")],
    objective: Annotated[
        str | None, typer.Option("--objective", help="energy (the default), latency, edp or dram.")
    ] = None,
    front: Annotated[
        str | None,
        typer.Option(
            "--front", metavar="METRIC,METRIC", help="Pareto front of energy, latency, capacity, dram instead."
        ),
    ] = None,
    bound: Annotated[
        str | None,
        typer.Option(
            "--bound",
            metavar="MEMORY",
            help="Least DRAM traffic over what is held from MEMORY inward; with --fuse, of the whole cascade too.",
        ),
    ] = None,
    mapspace: Annotated[
        str | None,
        typer.Option("--mapspace", help="Demands on the mapping: a name, a path, or free; default: those for the two."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Take parameters from a model (dse list models).")
    ] = None,
    seq_len: Annotated[str | None, typer.Option("--seq-len", help="Sequence length, e.g. 64K.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter or a rank; repeat for more."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the mapping (dse evaluate --mapping FILE)."),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="With --bound: draw it, as PNG or PDF.")
    ] = None,
    fuse: Annotated[
        bool | None,
        typer.Option("--fuse/--no-fuse", help="Search all ways to fuse Einsums too; default: as the mapspace demands."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Einsums searched side by side; by default one a core.")
    ] = None,
    form: Format = "table",
) -> None:
    """Find the best mapping of each Einsum, or of all fused, with proof, and print it as a loop nest."""
    _check_format(form)
    from dse.api import map_bound, map_front, map_workload
    from dse.report.nests import front_rows, level_rows, map_lines, map_rows, proof_line, totals_lines
    from dse.report.progress import share_bar
    from dse.search.pool import usable_cores
    from dse.specs.source import SpecError
    from dse.studies.output import whole_file

    jobs = jobs or usable_cores()
    given = dict(_setting(text) for text in settings or [])
    if seq_len is not None:
        given["seq_len"] = seq_len
    chosen: dict[str, Any] = {"mapspace": mapspace, "model": model, "parameters": given}
    if figure is not None and bound is None:
        raise SpecError("--figure draws what --bound MEMORY finds; give both")
    if front is not None or bound is not None:
        if output is not None or objective is not None or (front is not None and bound is not None):
            raise SpecError(
                "--front and --bound each print a table of their own; give one of them, without -o and --objective"
            )
        if fuse and bound is None:
            raise SpecError("--front is of each Einsum on its own; give it without --fuse")
        if bound is not None and mapspace is not None:
            raise SpecError("--bound holds for any mapping; give it without --mapspace")
        metrics = tuple(part.strip() for part in (front or "capacity,dram").split(","))
        if bound is not None:
            with share_bar(f"{workload} in {bound}") as progress:
                found = map_bound(
                    architecture,
                    workload,
                    memory=bound,
                    model=model,
                    parameters=given,
                    fuse=bool(fuse),
                    jobs=jobs,
                    progress=progress,
                )
        else:
            found = map_front(architecture, workload, metrics=metrics, **chosen)
        if figure is not None:
            from dse.report.figures import draw_bounds

            draw_bounds(found, figure)
        if form != "table":
            _print([row for name, each in found.items() for row in front_rows(name, each, metrics)], form)
            return
        for name, each in found.items():
            _print(front_rows(name, each, metrics), form, f"{name}: {proof_line(each.proof)}", digits=6)
        return
    with ExitStack() as stack:
        scratch = stack.enter_context(whole_file(output)) if output is not None else None
        progress = stack.enter_context(share_bar(f"{workload} on {architecture}"))
        best = map_workload(
            architecture, workload, objective=objective or "energy", fuse=fuse, jobs=jobs, progress=progress, **chosen
        )
        if scratch is not None:
            scratch.write_text(best.to_yaml(), encoding="utf-8")
    if form != "table":
        _print(map_rows(best), form)
    else:
        print("\n".join(map_lines(best)))
        _print(level_rows(best.result, list(best.einsums)), form, "Cost by level, in words and actions", digits=7)
        print("\n".join([*totals_lines(best), *([str(output)] if output is not None else [])]))
    if not best.proven:
        raise KeyboardInterrupt  # the best known is printed, and written, above


@app.command()
def passes(
    workloads: Annotated[list[str], typer.Argument(help="Shipped workloads (dse list workloads) or paths.")],
    rank: Annotated[
        str | None,
        typer.Option("--rank", help="The rank to analyse, or a part of one; default the one with most passes."),
    ] = None,
    reduce: Annotated[
        bool, typer.Option("--reduce", help="Rewrite one workload to fewer passes and print it as a file.")
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="Draw the least buffer over sequence length, as PNG or PDF."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="With --reduce: write the workload there.")
    ] = None,
    form: Format = "table",
) -> None:
    """Say how many passes a cascade must make over a rank and why, what stays live, and what it computes."""
    _check_format(form)
    import json

    from dse.api import analyze_passes
    from dse.report.cascades import pass_lines, pass_record, pass_rows, pass_tables
    from dse.specs.library import load_workload
    from dse.specs.source import SpecError

    loaded = [load_workload(name) for name in workloads]
    if reduce:
        if len(loaded) > 1:
            raise SpecError(f"--reduce takes one workload, found {len(loaded)}")
        _reduce(loaded[0], rank, output)
        return
    reports = [(workload, analyze_passes(workload, rank)) for workload in loaded]
    if figure is not None:
        from dse.report.figures import draw_footprints

        draw_footprints(reports, figure)
    if form == "json":
        records = [pass_record(workload, report) for workload, report in reports]
        print(json.dumps(records[0] if len(records) == 1 else records, indent=2))
        return
    if form == "csv":
        _print(pass_rows(reports), form)
        return
    for workload, report in reports:
        print("\n".join(pass_lines(workload, report, alone=len(reports) == 1)))
        for title, table in pass_tables(workload, report) if len(reports) == 1 else ():
            _print(table, form, title)


@app.command()
def verify(
    workload: Annotated[str, typer.Argument(help="A shipped workload or a path; it names its reference.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=SIZE", help="Set a parameter, a rank or a part of one, e.g. seq_len=1K or M0=128."
        ),
    ] = None,
    form: Format = "table",
) -> None:
    """Run a cascade on numbers and compare it with its reference; exit 1 where it differs."""
    _check_format(form)
    from dse.api import verify as verify_workload
    from dse.report.cascades import trial_rows, verdict
    from dse.specs.library import load_workload

    loaded = load_workload(workload)
    trials = verify_workload(loaded, **dict(_setting(text) for text in settings or []))
    right, sentence = verdict(loaded, trials)
    _print(trial_rows(loaded, trials), form, f"{loaded.name} against {loaded.reference}")
    if form == "table":
        print(sentence)
    if not right:
        print(sentence, file=sys.stderr)
        raise typer.Exit(1)


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="archs, mappings, workloads, studies or models; default all.")
    ] = None,
    form: Format = "table",
) -> None:
    """List what ships: names to use with the other commands."""
    _check_format(form)
    from dse.specs.catalogue import catalogue

    _print(catalogue(kind), form)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A shipped architecture, mapping, workload, study or model.")],
) -> None:
    """Print a shipped spec as it is written; redirect it to a file to start your own."""
    from dse.specs.catalogue import text_of

    print(text_of(name), end="")


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Spec files: architectures, mappings, workloads, studies.")],
) -> None:
    """Check spec files without running anything; prints a line for each fault."""
    from dse.specs.source import SpecError
    from dse.studies.check import check_file

    faults: list[str] = []
    for path in files:
        try:
            print(f"{path}: {check_file(path)}")
        except SpecError as error:
            faults.extend(error.lines)
    if faults:
        raise SpecError(*faults)


def _reduce(workload: Workload, rank: str | None, output: Path | None) -> None:
    """Print the rewritten workload with its steps as comments, or write it to a file and print the steps."""
    from dse.api import reduce_passes
    from dse.specs.workload import write_workload
    from dse.studies.output import whole_file

    reduction = reduce_passes(workload, rank)
    steps = [f"{number}. {step}" for number, step in enumerate(reduction.steps, 1)]
    remarks = [*steps, *(f"stays: {barrier}" for barrier in reduction.left)] or ["one pass already: nothing to reduce"]
    about = f"{workload.name} rewritten to fewer passes. " + " ".join(f"{step}." for step in steps)
    text = write_workload(workload, reduction.cascade, f"{workload.name}_reduced", about)
    if output is None:
        print("".join(f"# {remark}\n" for remark in remarks) + text, end="")
        return
    with whole_file(output) as scratch:
        scratch.write_text(text, encoding="utf-8")
    print("\n".join([*remarks, str(output)]))


def _setting(text: str) -> tuple[str, str]:
    from dse.specs.source import SpecError

    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise SpecError(f"--set {text}: expected PARAMETER=VALUE, e.g. rows=128")
    return name.strip(), value.strip()


def _check_format(form: str) -> None:
    from dse.report.tables import FORMATS
    from dse.specs.source import SpecError
    from dse.wording import allowed

    if form not in FORMATS:
        raise SpecError(f"--format: unknown format {form!r}; {allowed(form, FORMATS)}")


def _print(table: Rows | pd.DataFrame, form: str, title: str = "", digits: int = 4) -> None:
    """Print rows, or a data frame, in the format asked for."""
    from dse.report.tables import as_table, as_text, rows_of

    rows = table if isinstance(table, list) else rows_of(table)  # type: ignore[arg-type]

    if form != "table":
        print(as_text(rows, form), end="")
        return
    from rich.console import Console

    console = Console()
    shown: Any = as_table(rows, digits)
    if not console.is_terminal:
        console = Console(
            width=max(console.width, console.measure(shown, options=console.options.update(width=1000)).maximum)
        )
    if title:
        print(title)
    console.print(shown)


if __name__ == "__main__":
    main()
