//! Output for a trace of `mgz-record --count`: the number of loads that each function and line
//! executed.

use crate::columns;
use crate::data::code_map::Target;
use crate::input::{Trace, executions, manifest_of};
use crate::output::document::{ColumnUnit, Document, DocumentTable, value};
use anyhow::anyhow;
use mgz_annotations_schema::TraceMode;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// True if a folder has a trace of `mgz-record --count`. Errors of the folder are reported when it
/// is opened.
pub fn is_counted(folder: &Path) -> bool {
    manifest_of(folder).is_ok_and(|m| m.mode == TraceMode::Count)
}

/// Reads the trace. The flag is true if a part of it could not be read.
pub fn run_counted(folder: &Path) -> anyhow::Result<(Document, bool)> {
    let trace = Trace::open(folder, true)?;
    let counts = executions::read_executions(&trace)
        .map_err(|e| anyhow!("{e}, so that the trace cannot be shown; record it again"))?;
    let mut document = Document::new("count");
    document
        .warnings
        .extend(trace.warnings.iter().chain(&trace.damage).cloned());
    let totals = &trace.manifest.totals;
    let all: f64 = counts.values().sum();
    document.put("command", ColumnUnit::Text, trace.command().join(" "));
    document.put("loads", ColumnUnit::Count, whole(all));
    document.put(
        "complete",
        ColumnUnit::Flag,
        totals.loads_executed.is_some(),
    );
    document.put("at_most", ColumnUnit::Count, totals.loads_counted_at_most);
    let table = |target: Target| -> Vec<(usize, f64)> {
        let mut rows: HashMap<u32, f64> = HashMap::new();
        for (&piece, loads) in &counts {
            for &row in trace.code.targets_of_piece(target, piece) {
                *rows.entry(row).or_default() += loads;
            }
        }
        let mut rows: Vec<_> = rows.into_iter().map(|(r, n)| (r as usize, n)).collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        rows
    };
    let share = |loads: f64| value(loads / all.max(1.0));
    let functions = table(Target::Function).into_iter().map(|(row, loads)| {
        let name = &trace.code.functions[row];
        vec![
            name.function.clone().into(),
            name.module.clone().into(),
            whole(loads),
            share(loads),
        ]
    });
    document.tables.push(DocumentTable {
        name: "functions",
        title: "Functions, most loads first".into(),
        columns: columns![function: Text, module: Text, loads: Count, share: Share].to_vec(),
        rows: functions.collect(),
        text_rows: usize::MAX,
    });
    let lines = table(Target::Line).into_iter().map(|(row, loads)| {
        let name = &trace.code.lines[row];
        vec![
            name.function.clone().into(),
            name.file.clone().into(),
            name.line.into(),
            whole(loads),
            share(loads),
        ]
    });
    document.tables.push(DocumentTable {
        name: "lines",
        title: "Lines, most loads first".into(),
        columns: columns![
            function: Text, file: Text, line: Line, loads: Count, share: Share,
        ]
        .to_vec(),
        rows: lines.collect(),
        text_rows: usize::MAX,
    });
    Ok((document, !trace.damage.is_empty()))
}

fn whole(loads: f64) -> Value {
    (loads as u64).into()
}
