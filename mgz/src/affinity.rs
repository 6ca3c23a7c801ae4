//! Data that is used together, for a report. Only traces of all loads show it.

use crate::html::Part;
use crate::tools;
use mgz_annotations_schema::TraceMode;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Larger traces are not read two more times for a report, rows.
const ROWS: u64 = 50_000_000;

/// The part of the report; `None` if the trace does not show it, or is too large for that in each
/// report.
pub fn part(trace: &Path, manifest: &Value) -> Option<Part> {
    if manifest["mode"] != TraceMode::Full.as_str() {
        return None;
    }
    let rows = manifest["threads"].as_array()?.iter();
    let rows: u64 = rows.filter_map(|t| t["rows"].as_u64()).sum();
    if rows == 0 || rows > ROWS {
        return None;
    }
    let found = Command::new(tools::find_tool("mgz-analyze").ok()?)
        .args(["affinity", "--hot", "24", "--format", "json"])
        .arg(std::path::absolute(trace).ok()?)
        .stdin(Stdio::null())
        // The analysis has already printed its messages about the trace.
        .stderr(Stdio::null())
        .output()
        .ok()?;
    Some(("affinity", serde_json::from_slice(&found.stdout).ok()?))
}
