//! The tables as CSV or Parquet files.

use crate::frame::{Cells, Frame};
use crate::report::Analysis;
use serde::Serialize;
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
    /// What went wrong.
    pub cause: String,
}

/// Makes a frame of rows by way of their JSON form, so that files and JSON have the same keys. Lists
/// are joined by `; `.
fn frame<T: Serialize>(rows: &[T]) -> Result<Frame, String> {
    let values: Vec<serde_json::Map<String, serde_json::Value>> = rows
        .iter()
        .map(|r| match serde_json::to_value(r) {
            Ok(serde_json::Value::Object(map)) => Ok(map),
            Ok(_) => Err("a row is not an object".to_string()),
            Err(e) => Err(e.to_string()),
        })
        .collect::<Result<_, _>>()?;
    let Some(first) = values.first() else {
        return Ok(Frame::default());
    };
    let mut columns = Vec::new();
    for name in first.keys() {
        let cells: Vec<&serde_json::Value> = values
            .iter()
            .map(|v| v.get(name).unwrap_or(&serde_json::Value::Null))
            .collect();
        let numbers = cells.iter().all(|c| c.is_null() || c.is_number());
        let whole = cells.iter().all(|c| c.is_null() || c.is_u64());
        let cells = if numbers && whole {
            Cells::Whole(cells.iter().map(|c| c.as_u64()).collect())
        } else if numbers {
            Cells::Number(cells.iter().map(|c| c.as_f64()).collect())
        } else {
            Cells::Text(cells.iter().map(|c| text(c)).collect())
        };
        columns.push((name.clone(), cells));
    }
    Frame::new(columns)
}

fn text(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(s) => Some(s.clone()),
        serde_json::Value::Array(items) => {
            Some(items.iter().filter_map(text).collect::<Vec<_>>().join("; "))
        }
        other => Some(other.to_string()),
    }
}

/// A tree as rows, parents first. Lists (children, functions, lines) are left out; ids tell the tree.
fn flat<T: Serialize>(root: &T, children: fn(&T) -> &[T]) -> Result<Frame, String> {
    let mut rows = Vec::new();
    let mut todo = vec![root];
    while let Some(node) = todo.pop() {
        let serde_json::Value::Object(map) =
            serde_json::to_value(node).map_err(|e| e.to_string())?
        else {
            return Err("a node is not an object".into());
        };
        rows.push(
            map.into_iter()
                .filter(|(_, v)| !v.is_array())
                .collect::<serde_json::Map<_, _>>(),
        );
        todo.extend(children(node).iter().rev());
    }
    frame(&rows)
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
    // First a temporary file: what exists is replaced only by something complete.
    let temporary = folder.join(format!(".{name}.{extension}.tmp{}", std::process::id()));
    let written = std::fs::File::create(&temporary)
        .map_err(|e| e.to_string())
        .and_then(|file| match format {
            FileFormat::Csv => made.write_csv(file).map_err(|e| e.to_string()),
            FileFormat::Parquet => made.write_parquet(file),
        });
    let done = written.and_then(|()| std::fs::rename(&temporary, &path).map_err(|e| e.to_string()));
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    done.map_err(fail)?;
    Ok(path)
}

/// Writes `summary`, `functions`, `lines`, `loops`, `windows`, `distances` and, if there, the zoom tables into
/// `folder`, which is made if need be. Returns the files.
pub fn write(
    analysis: &Analysis,
    folder: &Path,
    format: FileFormat,
) -> Result<Vec<PathBuf>, ExportError> {
    std::fs::create_dir_all(folder).map_err(|e| ExportError {
        path: folder.display().to_string(),
        cause: e.to_string(),
    })?;
    let mut files = Vec::new();
    let mut table = |name: &str, made: Result<Frame, String>| -> Result<(), ExportError> {
        files.push(write_frame(folder, name, made, format)?);
        Ok(())
    };
    let summary = serde_json::to_value(&analysis.summary)
        .map_err(|e| e.to_string())
        .map(|value| {
            let scalars = value
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(_, v)| !v.is_object() && !v.is_array());
            scalars
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect::<serde_json::Map<_, _>>()
        });
    table("summary", summary.and_then(|s| frame(&[s])))?;
    table("functions", frame(&analysis.functions))?;
    table("lines", frame(&analysis.lines))?;
    table("loops", frame(&analysis.loops))?;
    table("windows", frame(&analysis.windows))?;
    table("distances", frame(&analysis.summary.distances))?;
    table("intervals", frame(&analysis.summary.intervals))?;
    table("growth", frame(&analysis.growth))?;
    table("objects", frame(&analysis.objects))?;
    table("diagnoses", frame(&analysis.diagnoses))?;
    if let Some(map) = &analysis.heat_map {
        table("heat_map", frame(&map.cells()))?;
    }
    if let Some(zoom) = &analysis.time_zoom {
        table("time_zoom", flat(&zoom.root, |n| n.children.as_slice()))?;
    }
    if let Some(zoom) = &analysis.location_zoom {
        table("location_zoom", flat(&zoom.root, |r| r.children.as_slice()))?;
    }
    Ok(files)
}
