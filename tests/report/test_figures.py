"""Figures show all that they are given: bars from zero, to the top of the highest."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

from dse.report import figures
from dse.studies.run import StudyResult
from dse.studies.summary import relative_to

mpl.use("Agg")


@pytest.mark.parametrize("name", ["figure_6a", "figure_6b", "figure_7", "figure_8", "figure_9"])
def test_every_bar_is_inside_its_panel_and_as_high_as_its_value(attention: StudyResult, name: str) -> None:
    figure = next(each for each in attention.study.figures if each.name == name)
    stacked = figure.by == "einsum"
    drawing = (figures._stacked_by_einsum if stacked else figures._grouped_bars)(attention, figure)
    panels = [panel for panel in drawing.axes if panel.get_visible()]
    tops = []
    for panel in panels:
        low, high = panel.get_ylim()
        assert low == 0
        for bars in panel.collections:
            corners = np.concatenate([path.vertices for path in bars.get_paths()])
            assert corners[:, 1].max() <= high
            assert panel.get_xlim()[0] <= corners[:, 0].min() <= corners[:, 0].max() <= panel.get_xlim()[1]
            tops.append(corners[:, 1].max())
    if not stacked:
        frame = attention.frame if figure.baseline is None else relative_to(attention, figure.baseline)
        frame = frame[(frame["accounting"] == "published") & (frame["design"] != figure.baseline)]
        assert max(tops) == frame[figure.value].max()
