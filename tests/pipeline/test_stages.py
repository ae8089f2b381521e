"""A run in stages, the choice of the engine, and copies of damaged segments."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.cli.option_table import ROWS
from kseg.extras.pipeline import load_rows
from kseg.extras.pipeline.pipeline_run import STAGES, Pipeline
from kseg.extras.pipeline.pipeline_settings import read_settings
from kseg.findings import do_nothing
from tests.support.damage import flip
from tests.support.growing_logs import batch, write
from tests.support.pipelines import TRANSACTIONS, config, rows, run_in_process, split_log


def damaged_source(home: Path) -> Path:
    """Write a log whose first segment has a damaged batch; return the segment."""
    folder = home / "source" / "orders-0"
    folder.parent.mkdir(parents=True)
    write(folder, [batch(number) for number in range(3)])
    write(folder, [batch(number) for number in range(3, 6)], first=3)
    log = folder / f"{0:020}.log"
    log.write_bytes(flip(log.read_bytes(), len(batch(0)) + 70))
    log.with_suffix(".index").write_bytes(b"")
    return log


def state_of(home: Path) -> str:
    return str(json.loads((home / "state" / "manifest.json").read_text())["state"])


def test_stages_one_by_one_give_the_rows_and_the_report_of_one_run(tmp_path: Path) -> None:
    """Each stage ends with its state and writes nothing of later ones; all of them are one run. Only the bytes that its last
    stage reads again are fewer."""
    found = {}
    for name, stages in (("whole", ["report"]), ("stages", list(STAGES))):
        home = tmp_path / name
        damaged_source(home)
        path = config(home)
        for stage in stages:
            done = run_in_process(path, "run", "--stage", stage)
            assert done.returncode == (0 if stage == "list" else 1), done.stderr
            assert state_of(home) == ("DONE" if stage == "report" else STAGES[stage])
            order = list(STAGES).index(stage)
            assert (home / "quarantine").exists() == (order >= 2)
            assert (home / "lake").exists() == (order >= 3)
            assert (home / "reports").exists() == (order >= 4)
            if stage == "check":
                assert "to load" in done.stdout
        (report,) = (home / "reports").iterdir()
        (listed,) = (home / "quarantine").iterdir()
        texts = [one.read_text().replace(str(home), "").replace(report.stem, "RUN") for one in (report, listed)]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        found[name] = rows(home, "parquet"), [{**line, "stamp": None, "segments": None, "size": None} for line in lines]
    assert found["stages"] == found["whole"]
    assert [row[1] for row in found["whole"][0]] == [*range(4), *range(8, 24)]


def test_the_stages_of_the_option_are_those_of_a_run(tmp_path: Path) -> None:
    """Other actions have none."""
    assert ROWS["stage"].type is not None
    assert ROWS["stage"].type().choices == tuple(STAGES)  # type: ignore[attr-defined]
    damaged_source(tmp_path)
    done = run_in_process(config(tmp_path), "plan", "--stage", "check")
    assert (done.returncode, "--stage is for run, not for plan" in done.stderr) == (2, True)


@pytest.mark.parametrize("stages", [("report",), ("check", "quarantine", "load", "report")])
def test_copies_of_damaged_segments_are_in_the_quarantine(tmp_path: Path, stages: tuple[str, ...]) -> None:
    """The segment and its indexes, byte by byte; sound segments are not copied. The list names the copies at each stage."""
    logs = [damaged_source(tmp_path / broker) for broker in ("one", "two")]
    path = config(tmp_path, source="*/source")
    text = path.read_text().replace("[quarantine]\n", '[quarantine]\nmode = "copy"\n')
    path.write_text(text)
    assert [run_in_process(path, "run", "--stage", stage).returncode for stage in stages][-1] == 1
    (listed,) = (tmp_path / "quarantine").glob("*.jsonl")
    found = [json.loads(line) for line in listed.read_text().splitlines()]
    copies = sorted((tmp_path / "quarantine" / listed.stem).rglob("*.*"))
    assert {row["copy"] for row in found} == {str(one) for one in copies if one.suffix == ".log"}
    for row in found:
        assert Path(row["copy"]).read_bytes() == Path(row["file"]).read_bytes()
    assert {row["file"] for row in found} <= set(map(str, logs))
    assert {one.name for one in copies} == {
        logs[0].with_suffix(f".{kind}").name for kind in ("log", "index", "timeindex")
    }
    assert len(copies) == 3  # the one that is read; the other replica has the same damage


def test_the_engine_is_chosen_by_the_bytes_to_read(tmp_path: Path) -> None:
    """Spark above the limit and processes up to it; plan says which and why; what is loaded does not count."""
    shutil.copytree(TRANSACTIONS, tmp_path / "source" / "orders-0")
    size = sum(one.stat().st_size for one in (tmp_path / "source" / "orders-0").glob("*.log"))
    path = config(tmp_path)
    plain = path.read_text()
    sizes: list[int] = []

    def run() -> int:
        def workers(found: int) -> nullcontext[None]:
            sizes.append(found)
            return nullcontext()

        Pipeline(read_settings(str(path))).run(do_nothing, workers)
        return sizes[-1]

    for limit, engine in ((size - 1, "Spark, local[2]"), (size, "processes of this machine")):
        more = f'engine = "auto"\nspark = "local[2]"\nspark_above = "{limit} B"\n'
        path.write_text(plain.replace("[pipeline]\n", f"[pipeline]\n{more}"))
        text = " ".join(run_in_process(path, "plan").stdout.split())
        assert f"engine: {engine}" in text
        assert f"pipeline.spark_above = {limit:,} bytes" in text or "KiB" in text
    assert run() == size
    assert run() <= size
    done = run_in_process(path, "plan", "--spark", "local[4]")
    assert "engine: Spark, local[4]: asked for by --spark" in done.stdout


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('engine = "auto"', "pipeline.spark: expected a master of Spark"),
        ('spark = "local[2]"', "pipeline.spark: expected a master of Spark"),
        ('engine = "cloud"', "pipeline.engine: expected processes, auto"),
        ('spark_above = "1 GB"', "pipeline.spark_above: expected engine"),
    ],
)
def test_a_wrong_engine_is_one_line(tmp_path: Path, lines: str, message: str) -> None:
    """The keys that only the choice has are refused without it."""
    path = config(tmp_path)
    path.write_text(path.read_text().replace("[pipeline]\n", f"[pipeline]\n{lines}\n"))
    done = run_in_process(path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr


def metrics_of(text: str) -> dict[str, float]:
    """Return the values of Prometheus' text by series."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_of_a_run_and_of_its_state(tmp_path: Path) -> None:
    """Bytes, records, damage and lag of a run; the status has the lag that grows until the next one."""
    log = damaged_source(tmp_path)
    sizes = [path.stat().st_size for path in log.parent.glob("*.log")]
    path = config(tmp_path)
    path.write_text(path.read_text().replace('to = ["reports/{run}.jsonl"]', 'to = ["night.prom"]'))
    assert run_in_process(path).returncode == 1
    own = '{pipeline="night"}'
    found = metrics_of((tmp_path / "night.prom").read_text())
    loaded = len(rows(tmp_path, "parquet"))
    assert found[f"kseg_pipeline_exit_code{own}"] == 1
    assert found['kseg_pipeline_rows{pipeline="night",topic="orders"}'] == loaded > 0
    assert found['kseg_pipeline_bytes{pipeline="night",topic="orders"}'] == sum(sizes)
    assert found[f"kseg_pipeline_checked_bytes{own}"] == sum(sizes)
    assert found[f"kseg_pipeline_checked_records{own}"] >= loaded
    assert found[f"kseg_pipeline_checked_lost_bytes{own}"] == len(batch(1))
    assert found[f"kseg_pipeline_damaged_places{own}"] == 1
    lag = 'kseg_pipeline_lag{pipeline="night",topic="orders",partition="0"}'
    assert found[lag] == 0
    write(log.parent, [batch(number) for number in range(6, 9)], first=6)
    done = run_in_process(path, "status", "--format", "prometheus")
    found = metrics_of(done.stdout)
    assert found[lag] == 12
    assert found['kseg_pipeline_partitions{pipeline="night",status="to load"}'] == 1
    assert found['kseg_pipeline_partitions{pipeline="night",status="failed"}'] == 0


def test_a_task_has_the_transactions_of_its_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log with many aborted transactions is not sent once with each task; the rows are those of one task."""
    split_log(TRANSACTIONS, tmp_path / "source" / "orders-0")
    path, shipped, every = config(tmp_path, table='file_size = "1 KB"'), [], set()
    real = load_rows.load_parts

    def load_parts(task: load_rows.PartsTask) -> load_rows.LoadedParts:
        for plan in {id(plan): plan for _, plan in task.parts}.values():
            ends = [(part.first, part.end) for part, one in task.parts if one is plan]
            assert plan.committed
            spans = [span for found in plan.committed.aborted.values() for span in found]
            assert all(span[1] >= ends[0][0] and span[0] < ends[-1][1] for span in spans)
            shipped.append(len(spans))
            every.update(spans)
        return real(task)

    monkeypatch.setattr(load_rows, "load_parts", load_parts)
    assert run_in_process(path).returncode == 0
    assert len(shipped) > 3
    assert 0 < sum(shipped) < len(every) * len(shipped)
    found = rows(tmp_path, "parquet")
    shutil.copytree(tmp_path / "source", tmp_path / "one" / "source")
    assert run_in_process(config(tmp_path / "one")).returncode == 0
    assert found == rows(tmp_path / "one", "parquet")


def test_spark_by_size_without_pyspark_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line has the reason for the choice and what to do."""
    damaged_source(tmp_path)
    path = config(tmp_path)
    auto = '[pipeline]\nengine = "auto"\nspark = "local[2]"\nspark_above = "1 B"\n'
    path.write_text(path.read_text().replace("[pipeline]\n", auto))
    monkeypatch.setattr("kseg.cli.pipeline_command.find_spec", lambda name: None)
    done = run_in_process(path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "to read is more than pipeline.spark_above = 1 byte, and pyspark is missing" in done.stderr
    assert 'or set pipeline.engine to "processes"' in done.stderr
