"""SRAM against the CACTI runs that it looks up. Source: dse/components/data/sram.csv, direct runs of CACTI 7."""

from __future__ import annotations

import numpy as np
import pytest

from dse.components.sram import sram
from dse.components.tables import SRAM_COLUMNS, ComponentError, rows, sram_runs


def test_every_run_is_returned_as_it_is() -> None:
    table = rows("sram.csv")
    assert len(table) == 1396
    for row in table:
        found = sram(*(int(row[key]) for key in ("capacity_bytes", "width_bits", "banks", "ports", "technology_nm")))
        for column in SRAM_COLUMNS:
            assert getattr(found, column) == float(row[column])


def test_corrected_buffers_of_32_banks_cost_what_the_runs_say() -> None:
    buffer = sram(16 * 2**20, 4096, banks=32)
    assert (buffer.read_pj, buffer.area_um2, buffer.cycle_ns) == (pytest.approx(22974.4), 141957000.0, 8.90081)


def test_between_capacities_the_logarithms_are_interpolated() -> None:
    left, middle, right = (sram(2**20 * size, 2048) for size in (2, np.sqrt(8), 4))
    assert middle.read_pj == pytest.approx(np.sqrt(left.read_pj * right.read_pj), rel=1e-12)


def test_leaving_a_run_out_shows_how_good_interpolation_is() -> None:
    """At twice the table's spacing, half of the runs are off by under 10 % in energy; the worst are CACTI's own steps."""
    errors = []
    for runs in sram_runs().values():
        for number in range(1, len(runs) - 1):
            capacities, reads = runs[[number - 1, number, number + 1], 0], runs[[number - 1, number, number + 1], 2]
            share = np.log(capacities[1] / capacities[0]) / np.log(capacities[2] / capacities[0])
            guess = np.exp(np.log(reads[0]) * (1 - share) + np.log(reads[2]) * share)
            errors.append(abs(guess / reads[1] - 1))
    assert np.median(errors) < 0.10


def test_arrays_of_capacity_and_width_are_looked_up_together() -> None:
    found = sram(np.array([2**20, 2**21, 2**22]), np.array([512, 4096, 512]), banks=32)
    assert found.read_pj.tolist() == [sram(c, w, 32).read_pj for c, w in ((2**20, 512), (2**21, 4096), (2**22, 512))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2**20, 3000), r"no SRAM 3000 bit wide with 1 bank\(s\) and 1 port\(s\); nearest: 2048 bit and 3072 bit"),
        ((2**20, 16), r"nearest: 32 bit"),
        ((2**10, 4096), r"no SRAM of 1,024 bytes at 4096 bit; the table holds 32,768 to 67,108,864 bytes"),
        ((2**20, 4096, 3), r"no SRAM with 3 bank\(s\) and 1 port\(s\) at 45 nm"),
        ((2**20, 4096, 1, 1, 16), r"no SRAM with 1 bank\(s\) and 1 port\(s\) at 16 nm"),
    ],
)
def test_outside_the_table_is_refused_with_what_there_is(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        sram(*arguments)
