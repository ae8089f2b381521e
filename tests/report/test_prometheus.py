"""Prometheus metrics of several runs in one folder of the node exporter's textfile collector."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from kseg.report import prometheus
from tests.support import fleet
from tests.support.cli import kseg_here as kseg

_SAMPLE = re.compile(r'(kseg_\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (-?\d+)')
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def series_of(text: str) -> tuple[dict[str, list[str]], list[tuple[str, frozenset[tuple[str, str]]]]]:
    """Parse as strictly as the collector: HELP and TYPE before the samples of a metric, which are together."""
    heads: dict[str, list[str]] = {}
    series: list[tuple[str, frozenset[tuple[str, str]]]] = []
    current = ""
    for line in text.splitlines():
        if line.startswith("# "):
            _, kind, name, value = line.split(" ", 3)
            assert (kind == "HELP") == (name not in heads), f"{name} is declared twice or not together"
            heads.setdefault(name, []).append(value)
            current = name
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        assert sample[1] == current, "the samples of a metric follow its head"
        pairs = _PAIR.findall(sample[2])
        assert len(pairs) == len({name for name, _ in pairs}), "a label occurs once"
        series.append((sample[1], frozenset(pairs)))
    return heads, series


@pytest.mark.slow
def test_files_of_several_runs_lie_in_one_folder(tmp_path: Path) -> None:
    """The collector rejects a series that is in two files, and a metric with two heads."""
    brokers = fleet.make(tmp_path)
    runs = [[broker.name] for broker in brokers]
    runs += [["--label", "check=shallow", "--shallow", brokers[1].name], [broker.name for broker in brokers]]
    heads: dict[str, list[str]] = {}
    found: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    for run in runs:
        head, series = series_of(kseg("validate", "--format", "prometheus", *run, cwd=tmp_path).stdout)
        heads = heads or head
        assert head == heads
        found.update(series)
    assert [one for one, count in found.items() if count > 1] == []
    assert any(name == "kseg_partition_errors" for name, _ in found)
    assert "kseg_last_run_timestamp_seconds" in heads
    for _, pairs in found:
        assert dict(pairs)["path"]
        assert not {name for name, _ in pairs} - {"path", "check", *prometheus.LABELS}


def test_a_damaged_partition_has_its_own_series(tmp_path: Path) -> None:
    """An alert names the partition, its topic and the consequence."""
    fleet.make(tmp_path)
    text = kseg("validate", "--format", "prometheus", "broker-2", cwd=tmp_path).stdout
    labels = 'folder="broker-2/orders-0",topic="orders",partition="0",consequence="loses records"'
    assert f'kseg_partition_errors{{path="broker-2",{labels}}} 1\n' in text


@pytest.mark.slow
@pytest.mark.parametrize("label", ["a", "=b", "1a=b", "a-b=c", "__a=b", "rule=b", "é=1"])
def test_a_wrong_label_is_refused(label: str, tmp_path: Path) -> None:
    """The collector would reject the whole file."""
    run = kseg("validate", "--format", "prometheus", "--label", label, tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert "--label" in run.stderr


def test_the_value_of_a_label_is_data(tmp_path: Path) -> None:
    """A quote, a backslash or a line break must not end the label."""
    fleet.make(tmp_path)
    for path in ("broker-1",):
        text = kseg("validate", "--format", "prometheus", "--label", 'x=a"b\\c\nd', path, cwd=tmp_path).stdout
        _, series = series_of(text)
        assert ("x", r"a\"b\\c\\nd") in series[0][1]
