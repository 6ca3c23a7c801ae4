"""Notebooks: executed, and looked at."""

import re

import nbclient
import nbformat

import mgz


def executed(cells, folder):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute()
    return notebook.cells


def shown(cell):
    found = [o.data.get("text/html", "") for o in cell.outputs if "data" in o]
    return "".join(found)


def test_a_notebook(full, program, tmp_path):
    cells = executed(
        [
            f"import mgz\n%load_ext mgz\ntrace = mgz.open({str(full)!r})",
            "trace",
            "trace.functions",
            "trace.findings",
            "trace.summary",
            "trace.report(height=321)",
            f"%%mgz --full -o here\n{program} 2",
            "import polars\npolars.DataFrame(trace.functions).select('function', 'A')",
        ],
        tmp_path,
    )
    trace, functions, findings, summary, report, magic, frame = map(shown, cells[1:])
    assert "gather" in trace and "<table>" in trace
    assert "<td" in functions and "gather" in functions
    assert "<ol>" in findings or "<p>" in findings
    assert "F_64" in summary
    # Static: nothing that runs, nothing that is fetched.
    for html in (trace, functions, findings, summary):
        assert not re.search(r"<script|javascript:|https?://|\son\w+=", html)
    assert report.startswith("<iframe") and 'sandbox="allow-scripts"' in report
    assert "allow-same-origin" not in report and 'height="321"' in report
    assert "&lt;script" in report and "<script" not in report
    assert "columns" in magic and (tmp_path / "here" / "report.html").exists()
    assert "gather" in frame


def test_names_are_escaped():
    from mgz._tables import table_html

    html = table_html(["<b>"], [{"<b>": "std::map<int, int>&"}], 1)
    assert "<b>" not in html and "std::map&lt;int, int&gt;&amp;" in html


def test_reports_are_kept(full, tmp_path):
    report = mgz.open(full).report(tmp_path / "kept.html")
    assert (tmp_path / "kept.html").read_text() == report.html
    report.save(tmp_path / "again.html")
    assert (tmp_path / "again.html").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "again.html").read_text() == report.html
