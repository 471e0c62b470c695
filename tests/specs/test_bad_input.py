"""Every kind of wrong input ends in one line with file, line and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dse.model.evaluate import evaluate
from dse.specs.library import library_folder, load_architecture, load_mapping, load_workload
from dse.specs.source import SpecError
from dse.specs.study import load_study_file
from dse.studies.check import check_file
from dse.studies.run import run_study

Write = Callable[[str, object], Path]
ROOT = library_folder("archs").parent


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def fault(path: Path, use: Callable[[Path], Any] = check_file) -> str:
    """The one line that a file is refused with, its folder left out."""
    with pytest.raises(SpecError) as raised:
        use(path)
    (line,) = raised.value.lines
    name, number, _ = line.split(":", 2)
    assert name.endswith(path.name)
    assert int(number) >= 1
    return line[line.index(path.name) :]


def with_fusemax(
    architecture: str = "fusemax", workload: str = "attention_1pass", **parameters: int
) -> Callable[[Path], Any]:
    def run(path: Path) -> None:
        evaluate(load_architecture(architecture), load_workload(workload), load_mapping(str(path)), parameters)

    return run


@pytest.mark.parametrize(
    ("name", "old", "new", "line", "message"),
    [
        # keys
        ("arch_specs/fusemax.yaml", "memories:\n", "memory:\n", None, "unknown key 'memory'; did you mean 'memories'? allowed:"),
        ("workloads/attention_1pass.yaml", "word: 16 bit", "wordd: 16 bit", None, "unknown key 'wordd'; did you mean 'word'?"),
        ("arch_specs/fusemax.mapping.yaml", "unit: 1d, spatial: {lane: \"p:P0\"}, keep: {GLB: [RM]}", "unti: 1d", None, "einsums.RM: unknown key 'unti'; did you mean 'unit'?"),
        ("studies/fusemax_attention.yaml", "baselines:", "baseline:", None, "unknown key 'baseline'; did you mean 'baselines'?"),
        # names
        ("workloads/attention_3pass.yaml", "K[b,h,e,m]\n", "K[b,h,e,z]\n", None, "unknown rank variable 'z' in 'K[b,h,e,z]'; allowed:"),
        ("workloads/attention_3pass.yaml", "A[b,h,m,p] * V", "AA[b,h,m,p] * V", None, "unknown tensor 'AA'; known here:"),
        ("workloads/attention_3pass.yaml", "exp(QK", "exq(QK", None, "unknown operator 'exq'; did you mean 'exp'?"),
        ("arch_specs/fusemax.yaml", "path: [DRAM, GLB, RF1,", "path: [DRAM, GLC, RF1,", None, "unknown memory 'GLC'; did you mean 'GLB'?"),
        ("arch_specs/fusemax.yaml", "energy_scale: dram_energy", "energy_scale: dram_enrgy", None, "unknown parameter 'dram_enrgy' in 'dram_enrgy'"),
        ("arch_specs/fusemax.yaml", "energy_scale: dram_energy", "energy_scale: 0 - 2", None, "energy_scale is 0 or more, found -2 from '0 - 2'"),
        ("arch_specs/fusemax.yaml", "energy_scale: dram_energy", "depth_exponent: 1", None, "DRAM: a dram has no 'depth_exponent'"),
        ("arch_specs/fusemax.yaml", "class: fp_max", "class: fp_mux", None, "unknown component class 'fp_mux'; did you mean 'fp_max'?"),
        ("arch_specs/fusemax.yaml", "sub_exp: {mac: exp_macs, add: 1, cycles: exp_macs + 1} #", "sub_exq: {mac: 6} #", None, "unknown operator 'exq' in op 'sub_exq'"),
        ("arch_specs/fusemax.yaml", "div: {divide: 1}", "div: {divid: 1}", None, "no component of 1d does 'divid'; did you mean 'divide'?"),
        ("arch_specs/fusemax.mapping.yaml", "DRAM: [b, h, p, m1]", "DRAM: [b, h, p, m2]", 14, "unknown rank variable 'm2'; did you mean 'm1'?"),
        ("arch_specs/fusemax.mapping.yaml", "keep: {DRAM: [AV], GLB: [RNV, RD]}", "keep: {DRAM: [AV], GLB: [RNV, RX]}", None, "unknown tensor 'RX' of AV"),
        ("arch_specs/fusemax.mapping.yaml", "keep: {DRAM: [AV], GLB: [RNV, RD]}", "keep: {DRAM: [AV], L2: [RNV, RD]}", None, "unknown memory 'L2' on the path of 1d; allowed: DRAM, GLB, RF1"),
        ("arch_specs/fusemax.mapping.yaml", "RM: {unit: 1d,", "RM: {unit: 1e,", None, "unknown unit '1e'; did you mean '1d'?"),
        ("arch_specs/fusemax.mapping.yaml", "- {1d: [RM]}", "- {1d: [RN]}", None, "unknown Einsum 'RN'; did you mean 'RNV'?"),
        ("arch_specs/fusemax.mapping.yaml", "- {1d: [RM]}", "- {2d: [RM]}", None, "RM runs on 1d, not on 2d"),
        ("arch_specs/fusemax.mapping.yaml", "- {1d: [RM]}", "- {1d: [RD]}", None, "RD is scheduled twice"),
        ("arch_specs/fusemax.mapping.yaml", "      - {1d: [RM]}\n", "", None, "RM is in no phase's steps"),
        ("arch_specs/fusemax.mapping.yaml", "architecture: fusemax", "architecture: fusemux", 5, "unknown architecture 'fusemux'; did you mean 'fusemax'?"),
        ("studies/fusemax_attention.yaml", "model: [BERT,", "model: [BART,", 7, "unknown model 'BART'; did you mean 'BERT'?"),
        ("studies/fusemax_attention.yaml", "seq_len: [1K, 4K, 16K, 64K, 256K, 1M]", "seq_length: [1K]", None, "unknown parameter 'seq_length'; did you mean 'seq_len'?"),
        ("studies/fusemax_attention.yaml", "seq_len: [1K, 4K, 16K, 64K, 256K, 1M]", "seq_len: []", 8, "seq_len: the range is empty"),
        ("studies/fusemax_attention.yaml", "accounting: [published, corrected]", "accounting: [publishd]", None, "unknown accounting 'publishd'; did you mean 'published'?"),
        ("studies/fusemax_attention.yaml", "choices: flat_choices.csv", "choices: none.csv", None, "cannot read"),
        ("studies/fusemax_attention.yaml", "value: util_1d", "value: util_3d", None, "unknown value 'util_3d'"),
        # cascades
        ("workloads/attention_3pass.yaml", "  - GM[b,h,p] = max_m(QK[b,h,m,p])\n", "", None, "unknown tensor 'GM'; known here:"),
        ("workloads/attention_3pass.yaml", "exp(QK[b,h,m,p] - GM[b,h,p])", "exp(QK[b,h,m,p] - A[b,h,m,p])", None, "A[b,h,m,p] is read before A is made"),
        ("workloads/attention_3pass.yaml", "SN[b,h,m,p] / SD", "SN[b,m,p] / SD", None, "SN[b,m,p] has 3 ranks; SN has (B, H, M, P)"),
        ("workloads/attention_1pass.yaml", "  - RD[b,h,0,p] = 0 # running denominator\n", "", None, "RD[b,h,m1,p] is read before RD is made"),
        ("workloads/attention_3pass.yaml", "F: head_dim # value embedding", "F: 2*head_dim", None, None),
        # quantities
        ("arch_specs/fusemax.yaml", "clock: 940 MHz", "clock: 16 MiB", None, "clock takes a frequency (Hz, kHz, MHz, GHz), found an amount of data"),
        ("arch_specs/fusemax.yaml", "buffer: 16 MiB", "buffer: 16 MHz", None, "capacity takes an amount of data (bit, B, KiB, MiB, GiB), found a frequency"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: -4", None, "y is a whole number from 1 to 2^53, found -4"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: 0", None, "y is a whole number from 1 to 2^53, found 0"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: 2.5", None, "found 2.5"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: nan", None, "unknown parameter 'nan'"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: 1e17", None, "y is a whole number from 1 to 2^53"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: cols", None, None),
        ("arch_specs/fusemax.yaml", "rows: 256\n  cols: 256", "rows: cols\n  cols: rows", None, "rows depends on itself: rows -> cols -> rows"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: __import__('os').getpid()", None, "holds more than arithmetic"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: [256]", None, "rows: expected a number or an expression, found [256]"),
        # YAML
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: [256", None, "not YAML:"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: &a 256", 7, "anchors, aliases and tags are not used here"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: !!python/object:os.system 1", 7, "anchors, aliases and tags are not used here"),
        ("arch_specs/fusemax.yaml", "rows: 256", "rows: 256\n  rows: 128", 8, "key 'rows' stands here twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(
    name: str, old: str, new: str, line: int | None, message: str | None, write_spec: Write
) -> None:
    text = text_of(name)
    assert old in text, "the mistake is made in what ships"
    path = write_spec(Path(name).name, text.replace(old, new, 1))
    for beside in (ROOT / "studies").glob("*.csv"):
        write_spec(beside.name, beside.read_text())
    if message is None:
        check_file(path)
        return
    found = fault(path)
    assert message in found
    where = line or next(
        n
        for n, (a, b) in enumerate(zip(text.splitlines(), [*path.read_text().splitlines(), *[""] * 3], strict=False), 1)
        if a != b
    )
    if line is not None or message.startswith(("unknown", "no component", "rows", "einsums")):
        assert found.startswith(f"{path.name}:{where}:"), found


@pytest.mark.parametrize(
    ("old", "new", "parameters", "message"),
    [
        ("M0: rows #", "M0: 100 #", {}, "M = 1024 does not divide by 100 (M0); nearest divisors: 64 and 128"),
        ("P0: cols", "P0: 384", {}, "P / P0 = 2.66667 is no whole number from 1 to 2^53 (P = 1024, P0 = 384); nearest divisors of P: 256 and 512"),
        ("P0: cols", "P0: 512", {}, "BQK: spatial factor 512 on axis 'x' of 2d, which has 256"),
        ("keep: {GLB: [RM]}}", "keep: {GLB: [RM], RF1: []}}", {}, "RM: tensor LM is kept nowhere; keep it in one of DRAM, GLB, RF1"),
        ("keep: {DRAM: [AV], GLB: [RNV, RD]}", "keep: {GLB: [RNV, RD]}", {}, "AV: AV enters or leaves attention_1pass, so DRAM must keep it"),
        ("GLB: [\"p:P1\"]", "GLB: [\"p:P1\", p]", {}, "two loops over 'p' without a factor; give all but one a factor, as p:4"),
        ("DRAM: [b, h, p, m1]", "DRAM: [b, h, m1]", {"seq_len": 2**20}, "its loops over 'p' cover 32768 of P = 1048576; add a loop 'p'"),
        ("P1: {largest_divisor_of: P / P0, fits: GLB}", "P1: 512", {"seq_len": 2**17}, "GLB needs 34,144,256 B for"),
    ],
)  # fmt: skip
def test_a_mapping_that_cannot_be_says_why(
    old: str, new: str, parameters: dict[str, int], message: str, write_spec: Write
) -> None:
    text = text_of("arch_specs/fusemax.mapping.yaml")
    assert old in text
    path = write_spec("mine.mapping.yaml", text.replace(old, new, 1))
    found = fault(path, with_fusemax(**parameters))
    assert message in found


def test_an_overflow_says_what_is_needed_and_what_is_there(write_spec: Write) -> None:
    path = write_spec("mine.mapping.yaml", text_of("arch_specs/fusemax.mapping.yaml"))
    found = fault(path, with_fusemax(buffer=8 * 2**16))
    assert "GLB needs 132,096 B for the smallest tiles (P1 = 1); has 65,536 B: 66,560 B too many" in found


def test_a_unit_without_the_operation_is_named(write_spec: Write) -> None:
    text = text_of("arch_specs/fusemax.mapping.yaml").replace(
        'AV: {unit: 1d, loops: {GLB: [f]}, spatial: {lane: "p:P0"}',
        'AV: {unit: 2d, loops: {GLB: [f]}, spatial: {x: "p:P0"}',
    )
    path = write_spec(
        "mine.mapping.yaml",
        text.replace("1d: [RD, RNV, AV]", "1d: [RD, RNV]").replace("2d: [BQK, LM]", "2d: [BQK, LM, AV]"),
    )
    assert "2d has no op 'div', which AV needs; it has mac, mul, add, max, sub_exp" in fault(path, with_fusemax())


def test_yaml_that_is_no_spec(write_spec: Write, tmp_path: Path) -> None:
    assert "a spec is a mapping of keys to values, found a list" in fault(write_spec("a.yaml", "- 1\n"))
    assert "found nothing" in fault(write_spec("b.yaml", ""))
    assert "cannot tell what this is" in fault(write_spec("c.yaml", "name: x\n"))
    assert "nested more than 30 deep" in fault(write_spec("d.yaml", "a: " + "[" * 60 + "]" * 60))
    assert "not UTF-8" in fault(_bytes(tmp_path / "e.yaml", b"\xff\xfe\x00"))
    assert "a spec has at most" in fault(write_spec("f.yaml", "a: " + "x" * 1_100_000))
    bomb = "a: &a [x,x,x]\n" + "\n".join(f"k{n}: &k{n} [*a,*a,*a]" for n in range(9))
    assert "aliases" in fault(write_spec("g.yaml", bomb))
    assert "cannot be read: No such file" in fault(tmp_path / "none.yaml")


def _bytes(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "BERT,1024,elsewhere,offchip,offchip,offchip,onchip,onchip,output,output,1024,0",
            "q_at has no choice 'elsewhere'",
        ),
        ("BERT,1024,onchip", "12 values expected"),
        ("BERT,x,offchip,offchip,offchip,offchip,onchip,onchip,output,output,1024,0", "seq_len: unknown parameter 'x'"),
        (
            "BERT,1024,offchip,offchip,offchip,offchip,onchip,onchip,output,output,1024,0\n" * 2,
            "a second row for BERT, 1024",
        ),
    ],
)
def test_a_table_of_choices_is_checked_row_by_row(row: str, message: str, write_spec: Write) -> None:
    study = write_spec("s.yaml", text_of("studies/fusemax_attention.yaml"))
    head = text_of("studies/flat_choices.csv").splitlines()[0]
    write_spec("flat_choices.csv", f"{head}\n{row}\n")
    with pytest.raises(SpecError) as raised:
        check_file(study)
    assert "flat_choices.csv:" in raised.value.lines[0]
    assert message in raised.value.lines[0]


def test_a_point_that_cannot_be_is_named(write_spec: Write) -> None:
    data = yaml.safe_load(text_of("studies/fusemax_attention.yaml"))
    data["sweep"]["seq_len"] = ["1K", 1000]
    data["designs"] = {"fusemax": data["designs"]["fusemax"]}
    data.update(baselines=[], reference=[], figures=[])
    with pytest.raises(SpecError) as raised:
        run_study(load_study_file(write_spec("s.yaml", data)))
    assert raised.value.lines[0].endswith("nearest divisors of P: 250 and 500 (fusemax at model BERT, seq_len 1000)")


def test_mapping_options_are_checked() -> None:
    flat = load_mapping("flat")
    with pytest.raises(SpecError, match="unknown option 'q_in'; did you mean"):
        flat.plan({"q_in": "onchip"})
    with pytest.raises(SpecError, match="q_at has no choice 'here'; allowed: offchip, onchip"):
        flat.plan({"q_at": "here"})


def test_a_mapping_that_extends_itself_is_refused(write_spec: Write) -> None:
    write_spec("b.mapping.yaml", "name: b\nextends: a\n")
    path = write_spec("a.mapping.yaml", "name: a\nextends: b\n")
    with pytest.raises(SpecError, match="extends itself"):
        check_file(path)
