"""Analytical design-space exploration for tensor accelerators.

    import dse

    dse.load_workload("mine.yaml")  # what is computed: a cascade of Einsums
    dse.analyze_passes("mine.yaml")  # what that says before any mapping
    dse.verify("mine.yaml")  # whether it is right
    dse.load_architecture("chip.yaml")  # on what
    dse.load_mapping("chip.mapping.yaml")  # how
    dse.evaluate("chip.yaml", "mine.yaml", mapping="chip.mapping.yaml", seq_len="64K")  # what it costs -> Result
    dse.map_workload("chip.yaml", "mine.yaml")  # the best how, with proof
    dse.run_study("sweep.yaml")  # a sweep -> DataFrame
    dse.analyze_sensitivity("sensitivity")  # how sure its headlines are, and what they hang on
    dse.pareto_front(frame, minimize=["latency_s", "area_um2"])  # the rows that none beats

Shipped specs go by name instead of path: `dse list` shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dse.api import (
        analyze_passes,
        analyze_sensitivity,
        evaluate,
        map_bound,
        map_front,
        map_workload,
        reduce_passes,
        run_study,
        verify,
    )
    from dse.model.result import Result
    from dse.search.front import pareto_front
    from dse.specs.library import load_architecture, load_mapping, load_workload
    from dse.specs.source import SpecError
    from dse.specs.study import load_study

__all__ = [
    "Result",
    "SpecError",
    "analyze_passes",
    "analyze_sensitivity",
    "evaluate",
    "load_architecture",
    "load_mapping",
    "load_study",
    "load_workload",
    "map_bound",
    "map_front",
    "map_workload",
    "pareto_front",
    "reduce_passes",
    "run_study",
    "verify",
]

_HOMES = {
    "Result": "dse.model.result",
    "SpecError": "dse.specs.source",
    "load_architecture": "dse.specs.library",
    "load_mapping": "dse.specs.library",
    "load_study": "dse.specs.study",
    "load_workload": "dse.specs.library",
    "pareto_front": "dse.search.front",
}
"""Modules of the public names that are not defined in `dse.api`."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import dse` and `dse --help` stay fast."""
    if name not in __all__:
        raise AttributeError(f"module 'dse' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "dse.api")), name)
