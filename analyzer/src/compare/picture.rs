//! Data of each run that the report of a comparison shows next to the compared numbers: distances,
//! growth, and callers.

use crate::report::Analysis;
use serde_json::{Value, json};

/// Maximum number of lines of a run: the tree by code is cut there. Source: Chosen.
const MAX_LINES_PER_RUN: usize = 2000;

/// Data of a run, as JSON.
pub fn run_picture(path: &str, analysis: &Analysis) -> Value {
    let summary = &analysis.summary;
    let lines: Vec<Value> = analysis
        .lines
        .iter()
        .take(MAX_LINES_PER_RUN)
        .map(|row| {
            let loads = &row.loads;
            let time = loads.time;
            json!({
                "function": row.function,
                "module": row.module,
                "file": row.file,
                "line": row.line,
                "pct": time.value.or(loads.share),
                "lo": time.value.and(time.lo),
                "hi": time.value.and(time.hi),
            })
        })
        .collect();
    json!({
        "path": path,
        "command": summary.trace.command,
        "started": summary.trace.started,
        "mode": summary.trace.mode,
        "by_time": summary.trace.by_time,
        "wall_seconds": summary.trace.wall_seconds,
        "caches": summary.trace.caches,
        "samples": summary.samples,
        "block": summary.block,
        "first_touches": summary.metrics.first_touches,
        "D_hist": summary.distances,
        "growth": analysis.growth,
        "windows": analysis.windows,
        "call_paths": analysis.call_paths,
        "lines": lines,
    })
}
