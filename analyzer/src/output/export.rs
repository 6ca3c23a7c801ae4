//! The tables as CSV or Parquet files.

use crate::data::frame::{self, ColumnKind, Frame};
use crate::output::{generated, measured, misses};
use crate::report::Analysis;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// File format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Comma-separated values with a header line.
    Csv,
    /// Apache Parquet.
    Parquet,
}

/// Why tables could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}; choose another folder with -o or make room")]
pub struct ExportError {
    /// File or folder.
    pub path: String,
    /// The error.
    pub cause: String,
}

/// A histogram.
const BINS: ColumnKind = ColumnKind::List(&ColumnKind::Record(&[
    ("from", ColumnKind::Whole),
    ("to", ColumnKind::Whole),
    ("count", ColumnKind::Whole),
]));
/// Differences between addresses, counted.
const STRIDES: ColumnKind = ColumnKind::List(&ColumnKind::Record(&[
    ("from", ColumnKind::Signed),
    ("to", ColumnKind::Signed),
    ("count", ColumnKind::Whole),
    ("pct", ColumnKind::Number),
]));
/// Estimated shares of differences between addresses.
const STRIDE_SHARES: ColumnKind = ColumnKind::List(&ColumnKind::Record(&[
    ("from", ColumnKind::Signed),
    ("to", ColumnKind::Signed),
    ("pct", ColumnKind::Number),
]));
/// Static and observed classes.
const CLASSES: ColumnKind = ColumnKind::List(&ColumnKind::Record(&[
    ("static", ColumnKind::Text),
    ("observed", ColumnKind::Text),
    ("step", ColumnKind::Signed),
    ("sites", ColumnKind::Whole),
    ("steps", ColumnKind::Whole),
    ("pct", ColumnKind::Number),
]));
/// Functions or lines that load an object.
const CODE_PARTS: ColumnKind = ColumnKind::List(&ColumnKind::Record(&[
    ("function", ColumnKind::Text),
    ("module", ColumnKind::Text),
    ("file", ColumnKind::Text),
    ("line", ColumnKind::Whole),
    ("A", ColumnKind::Whole),
    ("A_pct", ColumnKind::Number),
    ("D_mean", ColumnKind::Number),
    ("D_max", ColumnKind::Whole),
]));
/// Lower end, estimate, upper end.
const RANGE: ColumnKind = ColumnKind::List(&ColumnKind::Number);
/// Predicted misses.
const MISSES: ColumnKind = ColumnKind::Record(&[
    (
        "levels",
        ColumnKind::List(&ColumnKind::Record(&[
            ("level", ColumnKind::Text),
            ("size", ColumnKind::Whole),
            ("processor_size", ColumnKind::Whole),
            ("ratio", RANGE),
            ("share", RANGE),
            ("count", RANGE),
            ("prefetchable", ColumnKind::Number),
        ])),
    ),
    ("stall_ns", RANGE),
    ("memory_bound_pct", RANGE),
    (
        "curve",
        ColumnKind::List(&ColumnKind::Record(&[
            ("size", ColumnKind::Whole),
            ("ratio", RANGE),
        ])),
    ),
]);
/// Loads by field.
const FIELDS: ColumnKind = ColumnKind::List(&ColumnKind::Record(&[
    ("field", ColumnKind::Text),
    ("offset", ColumnKind::Whole),
    ("bytes", ColumnKind::Whole),
    ("rows", ColumnKind::Whole),
    ("A_pct", ColumnKind::Number),
]));
const TEXTS: ColumnKind = ColumnKind::List(&ColumnKind::Text);
/// Allocation sites of a finding.
const ALLOCATION_SITES: ColumnKind = ColumnKind::List(&ColumnKind::Record(&[
    ("object", ColumnKind::Text),
    ("A_pct", ColumnKind::Number),
    ("largest_bytes", ColumnKind::Whole),
    ("return_addresses", TEXTS),
]));

/// Kind of a column's values. Columns of the same name have the same kind in all tables, except for
/// means.
fn kind_of(table: &str, column: &str) -> Option<ColumnKind> {
    Some(match (table, column) {
        ("windows", "F" | "F_str" | "F_irr" | "C" | "S") => ColumnKind::Number,
        ("call_paths", "id" | "parent" | "call_line") | ("by_path", "id") => ColumnKind::Whole,
        ("misses" | "measured", "level") => ColumnKind::Text,
        ("measured", "row_samples") => ColumnKind::Whole,
        ("measured", "differs") => ColumnKind::Flag,
        (
            "measured",
            "latency" | "latency_lo" | "latency_hi" | "served_pct" | "served_pct_lo"
            | "served_pct_hi" | "miss_ratio" | "miss_ratio_lo" | "miss_ratio_hi" | "predicted"
            | "predicted_lo" | "predicted_hi",
        ) => ColumnKind::Number,
        ("misses", "size") => ColumnKind::Whole,
        (
            "misses",
            "miss_ratio" | "miss_ratio_lo" | "miss_ratio_hi" | "miss_share" | "miss_share_lo"
            | "miss_share_hi" | "misses_hat" | "prefetchable" | "stall_ns" | "memory_bound_pct",
        ) => ColumnKind::Number,
        ("lines", "inlined_into")
        | (
            _,
            "stack" | "also" | "path" | "load_addresses" | "return_addresses" | "program_changes",
        ) => TEXTS,
        (_, "allocation_sites") => ALLOCATION_SITES,
        (_, "D_hist" | "interval_hist") => BINS,
        (_, "strides") => STRIDES,
        (_, "fields") => FIELDS,
        (_, "misses") => MISSES,
        (_, "classes") => CLASSES,
        (_, "F_str_observed" | "F_irr_observed") => ColumnKind::Whole,
        (_, "dF_str_observed_pct" | "dF_irr_observed_pct") => ColumnKind::Number,
        (_, "strides_hat") => STRIDE_SHARES,
        (_, "functions" | "lines") => CODE_PARTS,
        (
            _,
            "A" | "A_const" | "F" | "F_64" | "F_4k" | "F_bytes" | "F_str" | "F_irr" | "C" | "S"
            | "D_max" | "reuses" | "first_touches" | "stores" | "samples_seen" | "line" | "depth"
            | "instances" | "bytes" | "blocks" | "W" | "windows" | "count" | "from" | "to"
            | "samples" | "from_ns" | "to_ns" | "process" | "thread" | "sample" | "first_load"
            | "page" | "column" | "block" | "rows" | "sample_min" | "sample_max" | "processes"
            | "threads" | "element_bytes" | "largest_bytes",
        ) => ColumnKind::Whole,
        (
            _,
            "first_pct" | "time_pct" | "time_pct_lo" | "time_pct_hi" | "A_const_pct" | "A_pct"
            | "A_parent_pct" | "A_cold_pct" | "A_irr_pct" | "A_per_block" | "kappa" | "line_bytes"
            | "line_bytes_set" | "dF" | "dF_str" | "dF_irr" | "dF_str_pct" | "dF_irr_pct"
            | "D_mean" | "D_p50" | "D_p90" | "D_p99" | "interval_mean" | "F_sample"
            | "F_str_sample" | "F_irr_sample" | "A_hat" | "A_lo" | "A_hi" | "F_hat" | "F_lo"
            | "F_hi" | "F_str_hat" | "F_str_lo" | "F_str_hi" | "F_irr_hat" | "F_irr_lo"
            | "F_irr_hi" | "F_64_hat" | "F_64_lo" | "F_64_hi" | "F_4k_hat" | "F_memgaze_hat"
            | "F_bytes_hat" | "D_mean_lo" | "D_mean_hi" | "rho" | "sample_mean" | "score"
            | "score_lo" | "score_hi" | "saved_pct" | "saved_pct_lo" | "saved_pct_hi"
            | "waiting_pct" | "waiting_pct_lo" | "waiting_pct_hi" | "self_pct" | "path_pct"
            | "with_calls_pct",
        ) => ColumnKind::Number,
        (
            _,
            "undersampled" | "F_undersampled" | "F_str_undersampled" | "F_irr_undersampled"
            | "measured" | "exact" | "hot" | "on_path" | "inlined" | "own" | "later" | "python",
        ) => ColumnKind::Flag,
        (
            _,
            "function" | "module" | "file" | "inlined_into" | "address" | "outer" | "object"
            | "kind" | "type" | "title" | "level" | "allocated" | "finding" | "advice" | "region"
            | "latencies" | "start" | "end" | "id" | "rho_source" | "call_file" | "estimator"
            | "name" | "gain" | "remedy" | "tier" | "source" | "machine_function",
        ) => ColumnKind::Text,
        _ => return None,
    })
}

type Map = serde_json::Map<String, Value>;

fn map_of<T: Serialize>(row: &T) -> Result<Map, String> {
    match serde_json::to_value(row) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err("a row is not an object".to_string()),
        Err(e) => Err(e.to_string()),
    }
}

/// Makes a table of rows from their JSON form, so that files and JSON have the same keys. Columns
/// exist even without rows.
fn table_of<T: Serialize + Default>(table: &str, rows: &[T]) -> Result<Frame, String> {
    let values: Vec<Map> = rows.iter().map(map_of).collect::<Result<_, _>>()?;
    frame_of(table, &map_of(&T::default())?, &values)
}

/// Tables whose rows include stores.
const WITH_STORES: [&str; 6] = [
    "functions",
    "lines",
    "loops",
    "threads",
    "processes",
    "time_zoom",
];

/// A table with the columns of `like`.
fn frame_of(table: &str, like: &Map, values: &[Map]) -> Result<Frame, String> {
    let mut names: BTreeSet<&String> = like.keys().collect();
    let stores = "stores".to_string();
    if WITH_STORES.contains(&table) {
        names.insert(&stores);
    }
    let columns = names.into_iter().map(|name| {
        let kind = kind_of(table, name).ok_or_else(|| format!("column {name:?} has no type"))?;
        let cells: Vec<&Value> = values
            .iter()
            .map(|v| v.get(name).unwrap_or(&Value::Null))
            .collect();
        frame::column(name, kind, &cells)
    });
    frame::frame(columns.collect::<Result<_, _>>()?)
}

/// A tree as rows, parents first. Lists (children, functions, lines) are left out; ids encode the
/// tree.
fn flat<T: Serialize + Default>(
    table: &str,
    root: &T,
    children: fn(&T) -> &[T],
) -> Result<Frame, String> {
    let plain = |node: &T| {
        let map = map_of(node)?;
        Ok::<Map, String>(map.into_iter().filter(|(_, v)| !v.is_array()).collect())
    };
    let mut rows = Vec::new();
    let mut todo = vec![root];
    while let Some(node) = todo.pop() {
        rows.push(plain(node)?);
        todo.extend(children(node).iter().rev());
    }
    frame_of(table, &plain(&T::default())?, &rows)
}

/// Writes a table into `folder`, as `NAME.csv` or `NAME.parquet`.
pub(crate) fn write_frame(
    folder: &Path,
    name: &str,
    made: Result<Frame, String>,
    format: FileFormat,
) -> Result<PathBuf, ExportError> {
    let extension = if format == FileFormat::Csv {
        "csv"
    } else {
        "parquet"
    };
    let path = folder.join(format!("{name}.{extension}"));
    let fail = |cause: String| ExportError {
        path: path.display().to_string(),
        cause,
    };
    let made = made.map_err(fail)?;
    // A temporary file is written first: an existing file is replaced only by a complete one.
    let temporary = folder.join(format!(".{name}.{extension}.tmp{}", std::process::id()));
    let written = std::fs::File::create(&temporary)
        .map_err(|e| e.to_string())
        .and_then(|file| match format {
            FileFormat::Csv => frame::write_csv(&made, file),
            FileFormat::Parquet => frame::write_parquet(&made, file),
        });
    let done = written.and_then(|()| std::fs::rename(&temporary, &path).map_err(|e| e.to_string()));
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    done.map_err(fail)?;
    Ok(path)
}

/// A table of an analysis by its name.
pub(crate) fn table_frame(analysis: &Analysis, name: &str) -> Result<Frame, String> {
    match name {
        "processes" => table_of(name, &analysis.processes),
        "threads" => table_of(name, &analysis.threads),
        "functions" => table_of(name, &analysis.functions),
        "lines" => table_of(name, &analysis.lines),
        "loops" => table_of(name, &analysis.loops),
        "windows" => table_of(name, &analysis.windows),
        "distances" => table_of(name, &analysis.summary.distances),
        "intervals" => table_of(name, &analysis.summary.intervals),
        "growth" => table_of(name, &analysis.growth),
        "objects" => table_of(name, &analysis.objects),
        "misses" => table_of(name, &misses::flat(analysis)),
        "findings" => table_of(name, &analysis.findings.list),
        "measured" => {
            let of = analysis.measured.as_ref();
            table_of(name, &of.map_or_else(Vec::new, measured::flat))
        }
        _ => Err(format!("there is no table {name:?}")),
    }
}

/// The tables `summary`, `processes`, `threads`, `functions`, `lines`, `loops`, `windows` and so
/// on, and those of the zooms if there are any, by name. An error names the table.
pub fn export_tables(analysis: &Analysis) -> Result<Vec<(&'static str, Frame)>, String> {
    let summary = map_of(&analysis.summary).map(|map| {
        map.into_iter()
            .filter(|(_, v)| !v.is_object() && !v.is_array())
            // Here they are objects or null, so they are no columns.
            .filter(|(name, _)| name != "store_footprint" && name != "misses")
            .collect::<Map>()
    });
    let summary = summary.and_then(|s| frame_of("summary", &s, std::slice::from_ref(&s)));
    let mut made = vec![
        ("summary", summary),
        ("processes", table_of("processes", &analysis.processes)),
        ("threads", table_of("threads", &analysis.threads)),
        ("functions", table_of("functions", &analysis.functions)),
        ("lines", table_of("lines", &analysis.lines)),
        ("loops", table_of("loops", &analysis.loops)),
        ("windows", table_of("windows", &analysis.windows)),
        (
            "distances",
            table_of("distances", &analysis.summary.distances),
        ),
        (
            "intervals",
            table_of("intervals", &analysis.summary.intervals),
        ),
        ("growth", table_of("growth", &analysis.growth)),
        ("objects", table_of("objects", &analysis.objects)),
        (
            "call_paths",
            table_of("call_paths", &analysis.call_paths.calls),
        ),
        ("misses", table_of("misses", &misses::flat(analysis))),
        ("findings", table_of("findings", &analysis.findings.list)),
        // The old name. It will be removed in version 0.3.
        ("diagnoses", table_of("diagnoses", &analysis.findings.list)),
    ];
    let in_generated_code = generated::flat(&analysis.summary.trace.coverage);
    if !in_generated_code.is_empty() {
        made.push(("generated", table_of("generated", &in_generated_code)));
    }
    if let Some(of) = &analysis.measured {
        let rows = measured::flat(of);
        made.push(("measured", table_of("measured", &rows)));
    }
    if let Some(python) = &analysis.python {
        made.push((
            "python_functions",
            table_of("python_functions", &python.functions),
        ));
        made.push(("python_lines", table_of("python_lines", &python.lines)));
    }
    if let Some(rows) = &analysis.by_path {
        made.push(("by_path", table_of("by_path", rows)));
    }
    if let Some(map) = &analysis.heat_map {
        made.push(("heat_map", table_of("heat_map", &map.cells())));
    }
    if let Some(zoom) = &analysis.time_zoom {
        let rows = flat("time_zoom", &zoom.root, |n| n.children.as_slice());
        made.push(("time_zoom", rows));
    }
    if let Some(zoom) = &analysis.location_zoom {
        let rows = flat("location_zoom", &zoom.root, |r| r.children.as_slice());
        made.push(("location_zoom", rows));
    }
    made.into_iter()
        .map(|(name, table)| Ok((name, table.map_err(|e| format!("table {name}: {e}"))?)))
        .collect()
}

/// Writes the [`export_tables`] into `folder`, which is created if necessary. Returns the files.
pub fn write_tables(
    analysis: &Analysis,
    folder: &Path,
    format: FileFormat,
) -> Result<Vec<PathBuf>, ExportError> {
    let fail = |cause: String| ExportError {
        path: folder.display().to_string(),
        cause,
    };
    std::fs::create_dir_all(folder).map_err(|e| fail(e.to_string()))?;
    export_tables(analysis)
        .map_err(fail)?
        .into_iter()
        .map(|(name, table)| write_frame(folder, name, Ok(table), format))
        .collect()
}
