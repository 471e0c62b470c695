"""Sensitivities: indices against functions that have them in closed form, headlines against the study, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import dse
from dse.report.sensitivity import headline_lines, sensitivity_figures
from dse.specs.quantity import COUNT
from dse.specs.sensitivity import Factor
from dse.specs.source import SpecError
from dse.specs.study import Study, load_study, load_study_file
from dse.studies.output import write_results
from dse.studies.run import run_study, with_settings
from dse.studies.sensitivity import HeadlinePricer, nominal_headlines, run_sensitivity, sobol_indices_of

mpl.use("Agg")
Write = Callable[[str, object], Path]
Points = NDArray[np.float64]


def factor(name: str, low: float, high: float, **more: Any) -> Factor:
    return Factor(name, name, (), COUNT, low, high, **more)


def data(**block: Any) -> dict[str, Any]:
    """A small study of two designs with a bandwidth that both have and two factors of one design each."""
    return {
        "name": "small",
        "sweep": {"model": ["BERT", "XLM"], "seq_len": ["4K", "256K"]},
        "designs": {
            "flat": {"architecture": "flat", "workload": "attention_3pass", "mapping": "flat"},
            "fusemax": {"architecture": "fusemax", "workload": "attention_1pass", "mapping": "fusemax"},
        },
        "sensitivity": {
            "factors": {
                "bandwidth": {
                    "targets": ["flat.bandwidth", "fusemax.bandwidth"],
                    "low": "100 GiB/s",
                    "high": "800 GiB/s",
                    "scale": "log",
                    "because": "a test",
                },
                "exp": {"targets": ["fusemax.exp_macs"], "values": [4, 6, 8], "because": "a test"},
                "lanes": {"targets": ["flat.lanes"], "values": [256, 1024], "because": "a test"},
            },
            "headlines": {
                "speedup": {"value": "speedup", "design": "fusemax", "baseline": "flat"},
                "edp": {"value": "edp", "design": "fusemax", "baseline": "flat", "mean": "geometric"},
                "worst": {"value": "latency_s", "design": "fusemax", "mean": "worst"},
            },
            "samples": 64,
            **block,
        },
    }


def changed(kind: str, name: str, **changes: Any) -> dict[str, Any]:
    """The small study with one factor or headline changed; None takes a key out."""
    written = data()
    entry = written["sensitivity"][kind][name]
    entry.update(changes)
    for key in [key for key, value in entry.items() if value is None]:
        del entry[key]
    return written


def small(write_spec: Write, **block: Any) -> Study:
    return load_study_file(write_spec("small.yaml", data(**block)))


def test_indices_of_ishigamis_function_are_the_known_ones() -> None:
    """f = sin x + 7 sin^2 y + z^4 sin(x) / 10 on [-pi, pi]; Ishigami and Homma 1990 (closed form: Saltelli et al. 2008)."""

    def price(points: Points) -> Points:
        x, y, z = points.T
        return np.stack([np.sin(x) + 7 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x), np.full(len(points), 5.0)])

    a, b, pi = 7.0, 0.1, np.pi
    variance = a**2 / 8 + b * pi**4 / 5 + b**2 * pi**8 / 18 + 0.5
    together = 8 * b**2 * pi**8 / 225 / variance
    first = np.array([0.5 * (1 + b * pi**4 / 5) ** 2, a**2 / 8, 0]) / variance
    found = sobol_indices_of(price, [factor(name, -pi, pi) for name in "xyz"], 8192, 0, 5000)
    np.testing.assert_allclose(first, [0.3139, 0.4424, 0], atol=5e-5)
    np.testing.assert_allclose(found.first[0], first, atol=0.01)
    np.testing.assert_allclose(found.total[0], first + np.array([together, 0, together]), atol=0.01)
    assert (found.first_bounds[0, 0] <= first).all()
    assert (first <= found.first_bounds[1, 0]).all()
    assert not found.first[1].any()  # nothing moves a constant
    assert not found.total_bounds[:, 1].any()


def test_a_product_of_powers_has_the_closed_form_in_logarithms() -> None:
    """log(x^2 y) with both log-uniform: variances as 4 (log 2)^2 to (log 8)^2; of listed values by their own variance."""
    factors = [factor("x", 1, 2, log=True), factor("y", 1, 8, log=True), factor("z", 0, 3, values=(0.0, 1.0, 3.0))]

    def price(points: Points) -> Points:
        x, y, z = points.T
        return np.stack([np.log(x**2 * y), np.log(x) + z])

    found = sobol_indices_of(price, factors, 4096, 1, 1 << 20)
    by_x, by_y = 4 * np.log(2) ** 2, np.log(8) ** 2
    np.testing.assert_allclose(found.first[0], np.array([by_x, by_y, 0]) / (by_x + by_y), atol=0.01)
    by_x, by_z = np.log(2) ** 2 / 12, np.var([0, 1, 3])
    np.testing.assert_allclose(found.total[1], np.array([by_x, 0, by_z]) / (by_x + by_z), atol=0.01)
    np.testing.assert_allclose(np.quantile(found.points[:, 1], 0.5), np.sqrt(8), rtol=0.01)
    assert np.unique(found.points[:, 2], return_counts=True)[1] / 8192 == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_blocks_of_any_size_give_the_same() -> None:
    factors = [factor("x", 0, 1), factor("y", 0, 2)]

    def price(points: Points) -> Points:
        return np.prod(points, axis=1)[None]

    one, other = (sobol_indices_of(price, factors, 64, 0, rows) for rows in (1, 10**6))
    assert one.total.tolist() == other.total.tolist()
    assert one.outputs.tolist() == other.outputs.tolist()


def test_the_shipped_study_stands_on_the_published_speedup() -> None:
    """6.723 (Nayak et al., MICRO 2024); the energy is that of the corrected accounting."""
    study = load_study("sensitivity")
    assert study.sensitivity is not None
    nominal = nominal_headlines(study.sensitivity, run_study(study).frame)
    assert nominal == pytest.approx([6.7226, 0.8017], abs=5e-5)
    now = np.array([[400 * 2**33, 940e6, 6, 1, 1, 1, 1, 0.78]])
    assert [each.name for each in study.sensitivity.factors][:4] == ["bandwidth", "clock", "fusemax_exp", "flat_exp"]
    assert HeadlinePricer(study)(now)[:, 0] == pytest.approx(nominal, rel=1e-13)
    at_two = HeadlinePricer(study)(np.where(np.arange(8) == 3, 2, now))[0, 0]
    fixed = run_study(with_settings(study, ["flat.exp_cycles=2"])).frame
    assert at_two == pytest.approx(nominal_headlines(study.sensitivity, fixed)[0], rel=1e-13)
    assert at_two == pytest.approx(7.9659, abs=5e-5)


def test_samples_cost_what_each_costs_alone(write_spec: Write) -> None:
    study = small(write_spec)
    analysis = run_sensitivity(study).analysis
    assert analysis is not None
    assert len(analysis.samples) == 128
    for row in analysis.samples.iloc[::31].to_dict("records"):
        ratios, products, latencies = [], [], []
        for model in ("BERT", "XLM"):
            for length in ("4K", "256K"):
                own = {"model": model, "seq_len": length, "bandwidth": row["bandwidth_bytes_per_s"] * 8}
                flat = dse.evaluate("flat", "attention_3pass", lanes=int(row["lanes"]), **own)
                ours = dse.evaluate("fusemax", "attention_1pass", exp_macs=int(row["exp"]), **own)
                ratios.append(flat.latency_s / ours.latency_s)
                products.append(ours.latency_s * ours.energy_pj / (flat.latency_s * flat.energy_pj))
                latencies.append(ours.latency_s)
        assert row["speedup"] == pytest.approx(np.mean(ratios), rel=1e-12)
        assert row["edp"] == pytest.approx(np.exp(np.mean(np.log(products))), rel=1e-12)
        assert row["worst"] == pytest.approx(max(latencies), rel=1e-12)


def test_scales_of_energy_are_by_component() -> None:
    """Energy is a sum over components: twice the DRAM's adds the DRAM's once more, and nothing else."""
    own = {"model": "BERT", "seq_len": "4K"}
    for name, memory in (("dram_energy", "DRAM"), ("sram_energy", "GLB")):
        once, twice = (
            dse.evaluate("fusemax", "attention_1pass", **own, **{name: scale}).to_frame("component") for scale in (1, 2)
        )
        scales = np.where(once["component"] == memory, 2, 1)
        assert scales.sum() == len(once) + 1
        rounding = 1e-14 * once["energy_pj"].sum()  # parts are rounded so that they add up exactly
        np.testing.assert_allclose(twice["energy_pj"], once["energy_pj"] * scales, rtol=1e-12, atol=rounding)
        assert twice["area_um2"].equals(once["area_um2"])


def test_the_same_seed_gives_the_same_files_and_another_seed_others(write_spec: Write, tmp_path: Path) -> None:
    texts = []
    for number, seed in enumerate((0, 0, 1)):
        folder = tmp_path / str(number)
        write_results(run_sensitivity(small(write_spec, seed=seed)), folder, None, {})
        names = ("sensitivity.csv", "distribution.csv", "samples.csv", "results.csv")
        texts.append([(folder / name).read_bytes() for name in names])
    assert texts[0] == texts[1]
    assert all(one != other for one, other in zip(texts[0][:3], texts[2][:3], strict=True))
    indices = pd.read_csv(tmp_path / "0" / "sensitivity.csv")
    assert indices.columns.tolist() == [
        "headline", "factor", "first_order", "first_low", "first_high", "total_order", "total_low", "total_high",
    ]  # fmt: skip
    for _, rows in indices.groupby("headline"):
        assert len(rows) == 3
        assert rows["total_order"].is_monotonic_decreasing
    spread = pd.read_csv(tmp_path / "0" / "distribution.csv")
    assert (spread["p05"] < spread["median"]).all()
    assert (spread["median"] < spread["p95"]).all()
    assert dict(zip(indices["headline"] + indices["factor"], indices["total_order"], strict=True))["worstlanes"] == 0


def test_a_factor_stands_in_for_what_the_design_sets(write_spec: Write) -> None:
    study = small(write_spec)
    plain, wide = (run_sensitivity(with_settings(study, own)).analysis for own in ([], ["flat.lanes=1024"]))
    assert plain is not None
    assert wide is not None
    pd.testing.assert_frame_equal(plain.samples, wide.samples)
    nominal = [analysis.distribution.set_index("headline")["nominal"] for analysis in (plain, wide)]
    assert nominal[0]["speedup"] > nominal[1]["speedup"]
    assert nominal[0]["worst"] == nominal[1]["worst"]


def test_figures_name_the_headline_its_range_and_what_matters(write_spec: Write) -> None:
    import matplotlib.pyplot as plt

    result = run_sensitivity(small(write_spec))
    assert result.analysis is not None
    drawings = dict(sensitivity_figures(result))
    assert set(drawings) == {"sensitivity", "distribution"}
    panels = drawings["sensitivity"].axes
    indices = result.analysis.indices
    row = result.analysis.distribution.iloc[0]
    title = panels[0].get_title(loc="left").replace("\n", " ")
    assert title.startswith(f"Speedup of fusemax over flat, mean: {row['nominal']:.3g} as the study has it")
    assert f"5-95 %: {row['p05']:.3g} to {row['p95']:.3g}" in title
    for panel, (name, rows) in zip(panels, indices.groupby("headline", sort=False), strict=True):
        moving = rows[rows["total_order"] > 0]
        names = [label.get_text().split("\n")[0] for label in panel.get_yticklabels()]
        assert names == moving["factor"].tolist()
        lengths = [bar.get_width() for bar in panel.patches]
        assert lengths == [*moving["first_order"], *moving["total_order"]]
        sentence = next(line for line in headline_lines(result) if line.startswith(f"{name}: "))
        most, share = moving["factor"].iloc[0], moving["total_order"].iloc[0]
        assert f"hangs (total order) on {most} ({share:.2f})" in sentence
        assert panel.get_title(loc="left").endswith(f"\nhangs most on {most}")
    plt.close("all")


@pytest.mark.parametrize(
    ("written", "key", "message"),
    [
        (changed("factors", "exp", targets=["fusemx.exp_macs"]), "- fusemx.exp_macs", "unknown design 'fusemx'; did you mean 'fusemax'?"),
        (changed("factors", "exp", targets=["fusemax.exp_mac"]), "- fusemax.exp_mac", "unknown parameter 'exp_mac' of fusemax; did you mean 'exp_macs'?"),
        (changed("factors", "exp", targets=["exp_macs"]), "- exp_macs", "a target is DESIGN.PARAMETER, found 'exp_macs'"),
        (changed("factors", "exp", targets=[]), "targets: []", "exp: name one DESIGN.PARAMETER or more"),
        (changed("factors", "exp", targets=["fusemax.seq_len"]), "- fusemax.seq_len", "seq_len is swept; a sensitivity cannot vary it too"),
        (changed("factors", "exp", targets=["fusemax.bandwidth"]), "- fusemax.bandwidth", "fusemax.bandwidth is a target of bandwidth already"),
        (changed("factors", "exp", targets=["fusemax.exp_macs", "fusemax.clock"]), "- fusemax.clock", "fusemax.exp_macs is a plain number, fusemax.clock a frequency"),
        (changed("factors", "bandwidth", low="800 GiB/s"), "low: 800 GiB/s", "the range is empty: low is below high, found 800 GiB/s and 800 GiB/s"),
        (changed("factors", "bandwidth", low="0 GiB/s"), "low: 0 GiB/s", "low is above 0 on a scale of logarithms"),
        (changed("factors", "bandwidth", low="-1 GiB/s"), "low: -1 GiB/s", "a value is 0 or more, found '-1 GiB/s'"),
        (changed("factors", "bandwidth", low="940 MHz"), "low: 940 MHz", "low takes a bandwidth (B/s, MiB/s, GiB/s, GB/s), found a frequency"),
        (changed("factors", "bandwidth", low="clock"), "low: clock", "a range is of numbers with their units, found 'clock'"),
        (changed("factors", "bandwidth", low=None), "bandwidth:", "key 'low' is missing; either low and high, or values"),
        (changed("factors", "bandwidth", scale="cubic"), "scale: cubic", "'log' or 'linear', found 'cubic'"),
        (changed("factors", "bandwidth", because=" "), "because: ' '", "say why this range, or where it is from"),
        (changed("factors", "exp", low=1), "low: 1", "either values, or low, high and scale"),
        (changed("factors", "exp", values=[]), "values: []", "two values or more, each once; found []"),
        (changed("factors", "exp", values=[4, 4]), "values:", "two values or more, each once; found [4, 4]"),
        (changed("headlines", "worst", value="latency"), "value: latency", "unknown value 'latency'; did you mean 'latency_s'?"),
        (changed("headlines", "worst", design="fusemx"), "design: fusemx", "unknown design 'fusemx'; did you mean 'fusemax'?"),
        (changed("headlines", "speedup", baseline="falt"), "baseline: falt", "unknown design 'falt'; did you mean 'flat'?"),
        (changed("headlines", "speedup", baseline=None), "speedup:", "speedup is relative; name its baseline"),
        (changed("headlines", "speedup", baseline="fusemax"), "baseline: fusemax", "fusemax is compared with itself"),
        (data(samples=100), "samples: 100", "samples is a power of two from 64 to 131,072, found 100"),
        (data(samples=32), "samples: 32", "samples is a power of two from 64 to 131,072, found 32"),
        (data(factors={}), "factors: {}", "factors: name one or more"),
        (data(headlines={}), "headlines: {}", "headlines: name one or more"),
        (data(accounting="published"), "accounting: published", "unknown accounting 'published'; allowed: corrected"),
        ({**data(), "search": {"parameters": {}, "objectives": [{"metric": "latency_s"}]}}, "sensitivity:", "a study has a search or a sensitivity, found both"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_where_it_stands(write_spec: Write, written: Any, key: str, message: str) -> None:
    path = write_spec("small.yaml", written)
    with pytest.raises(SpecError) as raised:
        load_study_file(path)
    (line,) = raised.value.lines
    place, number, said = line.split(":", 2)
    assert place.endswith("small.yaml")
    assert message in said
    assert path.read_text().splitlines()[int(number) - 1].strip() == key


def test_a_searched_mapping_is_refused(write_spec: Write) -> None:
    written = data()
    written["designs"]["fusemax"] = {"architecture": "three_level", "workload": "attention_1pass", "map": {}}
    written["sensitivity"]["factors"] = {"lanes": data()["sensitivity"]["factors"]["lanes"]}
    with pytest.raises(
        SpecError, match="speedup: fusemax's mapping is searched; a sensitivity takes designs with a mapping"
    ):
        load_study_file(write_spec("small.yaml", written))


def test_assumptions_under_which_a_design_cannot_be_are_named(write_spec: Write) -> None:
    """No SRAM of 4 KiB at 4,096 bits is in the tables."""
    written = changed("factors", "lanes", targets=["flat.buffer"], values=["32 MiB", "4 KiB"])
    study = load_study_file(write_spec("small.yaml", written))
    with pytest.raises(SpecError, match=r"small.yaml:\d+: flat cannot be where bandwidth = .*lanes = 32768: .*no SRAM"):
        run_sensitivity(study)
    with pytest.raises(SpecError, match="iso_area_published has no sensitivity: block"):
        dse.analyze_sensitivity("iso_area_published")
