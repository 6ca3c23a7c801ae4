"""What Python shows is what the commands print."""

import json

import duckdb
import numpy
import pandas
import polars
import pytest

import mgz

TABLES = {
    "functions": "functions",
    "lines": "lines",
    "loops": "loops",
    "windows": "windows",
    "objects": "objects",
    "threads": "threads",
    "findings": "findings",
    "diagnoses": "findings",
}


def printed(trace, *options):
    return json.loads(mgz.command("mgz-analyze", trace, "--format", "json", *options))


def plain(value):
    """Without what JSON cannot tell apart."""
    if isinstance(value, dict):
        # Records of tables have a value for each key.
        return {k: plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple | numpy.ndarray):
        return [plain(v) for v in value]
    if value is None or value is pandas.NA:
        return None
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, float):
        return None if value != value else round(value, 9)
    return value


def expected(rows, columns):
    # Columns without a value in any row are not in the JSON of a table with optional columns.
    return [{c: plain(row.get(c)) for c in columns} for row in rows]


@pytest.mark.parametrize("kind", ["full", "sampled"])
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_command(request, kind, name):
    path = request.getfixturevalue(kind)
    trace = mgz.open(path)
    options = ["--objects"] if (path / "objects.parquet").exists() else []
    rows = printed(path, *options)[TABLES[name]]
    table = trace.analyse().tables[name]
    want = expected(rows, table.columns)
    assert len(table) == len(rows)
    assert expected(table.to_dicts(), table.columns) == want
    assert expected(polars.DataFrame(table).to_dicts(), table.columns) == want
    frame = table.to_pandas()
    assert expected(frame.to_dict("records"), table.columns) == want
    assert name in ("objects", "findings", "diagnoses") or rows
    mine = table
    found = duckdb.sql("select * from mine")
    assert found.columns == table.columns
    names = list(found.columns)
    got = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    assert expected(got, table.columns) == want
    assert len(mine) == len(got)


def test_summary_findings_and_trees(full):
    trace = mgz.open(full)
    document = printed(full, "--zoom", "--objects")
    assert trace.summary["A"] == document["summary"]["A"]
    assert trace.analyse().json()["summary"] == printed(full, "--objects")["summary"]
    assert [v.kind for v in trace.findings] == [d["kind"] for d in document["findings"]]
    assert len(trace.findings) > 0 or trace.findings.none
    tree = trace.time_tree.to_dicts()
    assert tree[0]["id"] == "" and tree[0]["A"] == document["time_zoom"]["root"]["A"]
    regions = trace.location_tree.to_dicts()
    assert regions[0]["A"] == document["location_zoom"]["root"]["A"]
    assert trace.manifest["mode"] == "full"
    assert any("table" in o["object"] or "main" in o["object"] for o in trace.objects)
    assert trace.heat_map["A"]


def test_rows_are_streamed_with_names(full):
    trace = mgz.open(full)
    frame = polars.DataFrame(trace.rows())
    loads = frame.filter(polars.col("access") == "load")
    assert loads.height == trace.summary["A"]
    assert loads["address"].n_unique() == trace.summary["F"]
    by_function = {r["function"]: r["A"] for r in trace.functions}
    counted = dict(loads.group_by("function").len().iter_rows())
    assert {k: v for k, v in by_function.items() if v} == counted
    # A filter, and one column: rows of one function.
    one = polars.DataFrame(trace.rows(["address"], {"function": "^gather$"}))
    assert one.columns == ["address"] and one.height == counted["gather"]
    rows = trace.rows(["size"])
    assert duckdb.sql("select count(*) from rows").fetchall() == [(frame.height,)]
    assert polars.DataFrame(rows)["size"].sum() == frame["size"].sum()
    with pytest.raises(mgz.Error, match='no column "colour"'):
        trace.rows(["colour"])
    with pytest.raises(mgz.Error, match="no filter 'colour'"):
        trace.rows(["size"], {"colour": "red"})
    with pytest.raises(Exception, match="nothing of the trace is left"):
        polars.DataFrame(trace.rows(["size"], {"function": "nowhere"}))


def test_filters_and_miss_ratios(full, sampled):
    trace = mgz.open(full)
    document = printed(full, "--function", "gather")
    only = trace.analyse(filter={"function": "gather"}, objects=False)
    assert only.summary["A"] == document["summary"]["A"]
    sizes = [4096, 1 << 15, 1 << 20, 1 << 24]
    whole = trace.miss_ratio(sizes)
    assert [row["size"] for row in whole] == sizes
    ratios = [row["miss_ratio"] for row in whole]
    assert ratios == sorted(ratios, reverse=True) and 0 < ratios[-1] < ratios[0] < 1
    assert all(row["lo"] == row["miss_ratio"] == row["hi"] for row in whole)
    by = {
        (r["function"], r["size"]): r["miss_ratio"] for r in trace.miss_ratio(sizes, by="function")
    }
    assert by["gather", 4096] > 0.5 > by["gather", 1 << 24]
    assert len(trace.miss_ratio(sizes, by="line")) == len(sizes) * len(trace.lines)
    predicted = mgz.open(sampled).miss_ratio(sizes)
    assert all(r["miss_ratio"] is None or r["lo"] <= r["miss_ratio"] <= r["hi"] for r in predicted)
    with pytest.raises(mgz.Error, match="ascend"):
        trace.miss_ratio([64, 64])


def test_errors_have_the_sentences_of_the_commands(tmp_path, full):
    with pytest.raises(mgz.CommandError) as told:
        mgz.command("mgz-analyze", tmp_path)
    with pytest.raises(mgz.Error) as raised:
        mgz.open(tmp_path)
    assert str(told.value) == f"mgz-analyze: {raised.value}"
    assert told.value.status == 1
    with pytest.raises(mgz.CommandError) as told:
        mgz.command("mgz-analyze", full, "--function", "nowhere")
    with pytest.raises(mgz.Error) as raised:
        mgz.open(full).analyse(filter={"function": "nowhere"})
    assert str(told.value) == f"mgz-analyze: {raised.value}"
    with pytest.raises(mgz.Error, match="power of two"):
        mgz.open(full).analyse(block=3)


def test_partial_results_merge(full, tmp_path):
    part, both = tmp_path / "a.part", tmp_path / "b.part"
    mgz.command("mgz-analyze", full, "--partial", part)
    merged = mgz.merge([part, part], both)
    assert merged.summary["A"] == 2 * mgz.open(full).summary["A"]
    again = json.loads(mgz.command("mgz-analyze", "--merge", both, "--format", "json"))
    assert again["summary"]["A"] == merged.summary["A"]
    with pytest.raises(mgz.Error, match="not a partial result"):
        mgz.merge([full / "manifest.json"])


def test_run_instruments_records_and_analyses(program, tmp_path):
    trace = mgz.run([program, "2"], output=tmp_path / "out", full=True)
    assert {"gather", "columns"} <= set(trace.functions["function"])
    assert trace.path == tmp_path / "out" / "trace"
    assert mgz.open(tmp_path / "out").path == trace.path
    with pytest.raises(mgz.CommandError) as raised:
        mgz.run([program, "1", "7"], output=tmp_path / "seven", full=True)
    assert raised.value.status == 7


def test_compare(full):
    if "\n  compare " not in mgz.command("mgz-analyze", "--help"):
        pytest.skip("this mgz-analyze does not compare")
    document = mgz.compare(full, [mgz.open(full)])
    words = ["--format", "json", full, "--", full]
    assert document == json.loads(mgz.command("mgz-analyze", "compare", *words))
