"""On-chip SRAM: a lookup in direct CACTI 7 runs, log-log between capacities, and a refusal everywhere else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.components.tables import SRAM_COLUMNS, ComponentError, Value, sram_runs


@dataclass(frozen=True)
class Sram:
    """What one SRAM costs; each field has the shape of the capacity asked for."""

    area_um2: Value
    read_pj: Value
    write_pj: Value
    leakage_mw: Value
    access_ns: Value
    cycle_ns: Value
    between_runs: Value = False
    """Where the capacity lies between two runs, so that the figures are interpolated."""


INTERPOLATION_ERROR = 0.05
"""Median relative error of areas and energies where a run between two others is left out, measured by
`tests/components/test_sram.py`; nine in ten are off by under 22 %, the worst by a factor of 3."""


def sram(
    capacity_bytes: Value, width_bits: Value, banks: Value = 1, ports: Value = 1, technology_nm: Value = 45
) -> Sram:
    """Cost of an SRAM of a capacity, row width, number of banks and of read/write ports. Arrays broadcast.

    Exact at the capacities that CACTI was run at, log-log between two of them, to `INTERPOLATION_ERROR`.
    Widths, banks, ports and technologies are not interpolated: the steps between them are not smooth.

    Raises ComponentError outside the table, naming what it holds.
    """
    capacity, width, bank, port, node = np.broadcast_arrays(capacity_bytes, width_bits, banks, ports, technology_nm)
    kinds = _kinds(node, width, bank, port)
    between = np.zeros(capacity.size, dtype=bool)
    found = np.empty((len(SRAM_COLUMNS), capacity.size))
    for kind in np.unique(kinds):
        chosen = kinds == kind
        first = int(np.argmax(chosen))
        runs = _runs(node.ravel()[first], width.ravel()[first], bank.ravel()[first], port.ravel()[first])
        asked, back = np.unique(capacity.ravel()[chosen].astype(np.float64), return_inverse=True)
        low, high = runs[0, 0], runs[-1, 0]
        if asked[0] < low or asked[-1] > high:
            outside = asked[0] if asked[0] < low else asked[-1]
            bits = width.ravel()[first]
            raise ComponentError(
                f"no SRAM of {outside:,.0f} bytes at {bits:.0f} bit; the table holds {low:,.0f} to {high:,.0f} bytes"
            )
        found[:, chosen] = _interpolate(runs, asked)[:, back]
        between[chosen] = ~np.isin(asked, runs[:, 0])[back]
    if not capacity.ndim:
        return Sram(
            **{name: float(values[0]) for name, values in zip(SRAM_COLUMNS, found, strict=True)},
            between_runs=bool(between[0]),
        )
    costs = {name: values.reshape(capacity.shape) for name, values in zip(SRAM_COLUMNS, found, strict=True)}
    return Sram(**costs, between_runs=between.reshape(capacity.shape))


def sram_exists(
    capacity_bytes: Value, width_bits: Value, banks: Value = 1, ports: Value = 1, technology_nm: Value = 45
) -> Value:
    """Where `sram` has an answer: True or False for each of the sizes asked for."""
    capacity, width, bank, port, node = np.broadcast_arrays(capacity_bytes, width_bits, banks, ports, technology_nm)
    kinds, kind_of = np.unique(_kinds(node, width, bank, port), return_inverse=True)
    first = np.zeros(len(kinds), dtype=np.int64)
    first[kind_of[::-1]] = np.arange(capacity.size)[::-1]
    bounds = np.full((len(kinds), 2), [np.inf, -np.inf])
    for number, place in enumerate(first.tolist()):
        key = tuple(float(each.ravel()[place]) for each in (node, width, bank, port))
        runs = sram_runs().get(tuple(map(int, key))) if all(map(float.is_integer, key)) else None  # type: ignore[arg-type]
        if runs is not None:
            bounds[number] = runs[0, 0], runs[-1, 0]
    found = (capacity.ravel() >= bounds[kind_of, 0]) & (capacity.ravel() <= bounds[kind_of, 1])
    return found.reshape(capacity.shape)


def _kinds(node: Value, width: Value, bank: Value, port: Value) -> Value:
    """One number for each technology, width, number of banks and of ports."""
    return (((node * 2.0**20 + width) * 2**10 + bank) * 2**10 + port).ravel()


def _runs(technology_nm: float, width: float, banks: float, ports: float) -> Value:
    table = sram_runs()
    runs = table.get((int(technology_nm), int(width), int(banks), int(ports)))
    if runs is not None and width == int(width):
        return runs
    same = [key for key in table if key[0] == technology_nm and key[2:] == (int(banks), int(ports))]
    if not same:
        grids = sorted({key[2:] for key in table if key[0] == technology_nm})
        raise ComponentError(
            f"no SRAM with {banks:.0f} bank(s) and {ports:.0f} port(s) at {technology_nm:g} nm; (banks, ports) in the table: {grids}"
        )
    widths = sorted(key[1] for key in same)
    near = [
        f"{bits} bit"
        for bits in (
            max((b for b in widths if b < width), default=None),
            min((b for b in widths if b > width), default=None),
        )
        if bits
    ]
    raise ComponentError(
        f"no SRAM {width:g} bit wide with {banks:.0f} bank(s) and {ports:.0f} port(s); nearest: {' and '.join(near)}"
    )


def _interpolate(runs: Value, capacity: Value) -> Value:
    """Rows `SRAM_COLUMNS` at each capacity, log-log between the neighbouring runs, exact on them."""
    at = (
        np.clip(np.searchsorted(runs[:, 0], capacity), 1, len(runs) - 1)
        if len(runs) > 1
        else np.zeros(capacity.size, dtype=int)
    )
    right = runs[at]
    left = runs[np.maximum(at - 1, 0)]
    span = np.log(right[:, 0] / left[:, 0])
    share = np.log(capacity / left[:, 0]) / np.where(span > 0, span, 1)
    between = np.exp(np.log(left[:, 1:]) * (1 - share[:, None]) + np.log(right[:, 1:]) * share[:, None])
    between = np.where((capacity == right[:, 0])[:, None], right[:, 1:], between)
    between = np.where((capacity == left[:, 0])[:, None], left[:, 1:], between)
    return between.T
