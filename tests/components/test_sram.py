"""SRAM against the CACTI runs that it looks up. Source: dse/components/data/sram.csv, direct runs of CACTI 7."""

from __future__ import annotations

import numpy as np
import pytest

from dse.components.sram import INTERPOLATION_ERROR, sram
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
    """The figures that README and `INTERPOLATION_ERROR` give."""
    errors = []
    for runs in sram_runs().values():
        for number in range(1, len(runs) - 1):
            left, middle, right = runs[number - 1], runs[number], runs[number + 1]
            share = np.log(middle[0] / left[0]) / np.log(right[0] / left[0])
            errors.append(np.abs(np.exp(np.log(left) * (1 - share) + np.log(right) * share) / middle - 1))
    found = np.array(errors)[:, [1, 2, 3]]  # area, read, write
    assert len(found) == 1152
    assert np.median(found, axis=0) == pytest.approx([0.056, 0.043, 0.049], abs=5e-4)
    assert np.quantile(found, 0.9, axis=0) == pytest.approx([0.207, 0.213, 0.144], abs=5e-4)
    assert found.max() == pytest.approx(2.044, abs=5e-4)
    assert np.median(found) == pytest.approx(INTERPOLATION_ERROR, abs=0.005)


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
