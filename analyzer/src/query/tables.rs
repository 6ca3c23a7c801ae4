//! The tables of an analysis, and the samples of a trace, in the database.

use crate::data::frame::{self, Column, Frame};
use crate::data::rows::Run;
use crate::input::measured::read_measured_rows;
use crate::input::{ColumnSet, Trace};
use crate::output::export::table_frame;
use crate::report::Analysis;
use anyhow::{Context, anyhow};
use mgz_annotations_schema::manifest::WINDOWS;
use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params_from_iter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Tables of an analysis.
pub const ANALYSED: [&str; 13] = [
    "findings",
    "functions",
    "lines",
    "loops",
    "objects",
    "windows",
    "growth",
    "misses",
    "threads",
    "processes",
    "distances",
    "intervals",
    MEASURED,
];
/// The table of memory samples, which only some traces have.
pub const MEASURED: &str = "measured";

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A value for the database: lists and records become JSON.
fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::Bool(flag) => Cell::Integer((*flag).into()),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Cell::Integer(whole),
            // Addresses of the kernel keep their 64 bits, as in `rows`.
            (None, Some(whole)) => Cell::Integer(whole as i64),
            (None, None) => Cell::Real(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cell::Text(text.clone()),
        other => Cell::Text(other.to_string()),
    }
}

/// Puts a table into the database.
fn insert(database: &Connection, name: &str, table: &Frame) -> anyhow::Result<()> {
    let columns: Vec<&str> = table.columns().iter().map(Column::name).collect();
    let list: Vec<String> = columns.iter().map(|c| quoted(c)).collect();
    database.execute(
        &format!("CREATE TABLE {} ({})", quoted(name), list.join(", ")),
        [],
    )?;
    let marks = vec!["?"; columns.len()].join(", ");
    let mut statement =
        database.prepare(&format!("INSERT INTO {} VALUES ({marks})", quoted(name)))?;
    // Inserted row by row, since there may be many memory samples.
    for at in 0..table.height() {
        let row = frame::json_row(table, at);
        let cells = columns
            .iter()
            .map(|c| cell(row.get(*c).unwrap_or(&Value::Null)));
        statement.execute(params_from_iter(cells))?;
    }
    Ok(())
}

/// Puts a table of an analysis into the database.
pub fn add_analysis_table(
    database: &Connection,
    name: &str,
    analysis: &Analysis,
) -> anyhow::Result<()> {
    let table = table_frame(analysis, name).map_err(|e| anyhow!("the table {name}: {e}"))?;
    insert(database, name, &table)
}

/// Puts the memory samples of a trace into the database, one per row. False if it has none.
pub fn add_memory_samples(database: &Connection, folder: &Path) -> anyhow::Result<bool> {
    let table = read_measured_rows(folder).map_err(anyhow::Error::msg)?;
    if let Some(table) = &table {
        insert(database, "memory_samples", table)?;
    }
    Ok(table.is_some())
}

/// A sample: its rows and times.
#[derive(Default)]
struct Sample {
    loads: u64,
    implied: u64,
    stores: u64,
    begin_ns: u64,
    end_ns: u64,
}

/// Puts the table `samples` into the database.
pub fn add_samples(database: &Connection, trace: &Trace) -> anyhow::Result<()> {
    let mut samples: BTreeMap<(u32, u32, u32), Sample> = BTreeMap::new();
    let source = trace.source(ColumnSet { time: true });
    for piece in 0..source.pieces() {
        for chunk in source.read(&[piece]) {
            let chunk = chunk.map_err(|e| anyhow!(e.0))?;
            let rows = chunk.loads.rows();
            for run in &chunk.runs {
                let Run {
                    process,
                    thread,
                    sample,
                    ..
                } = *run;
                let entry = samples.entry((process, thread, sample)).or_insert(Sample {
                    begin_ns: run.first_time,
                    ..Sample::default()
                });
                entry.loads += run.loads.len() as u64;
                entry.stores += run.stores.len() as u64;
                entry.implied += rows
                    .slice(run.loads.clone())
                    .implied
                    .iter()
                    .map(|&i| u64::from(i))
                    .sum::<u64>();
                entry.end_ns = run.last_time;
            }
        }
    }
    // Weight and time of each window, if the trace has them.
    let mut times: BTreeMap<(u64, u64, u64), (Option<f64>, Option<f64>)> = BTreeMap::new();
    let path = trace.folder.join(WINDOWS);
    if let Ok(file) = std::fs::File::open(&path) {
        let named = |e: String| anyhow!("{}: damaged ({e}); record again", path.display());
        let table = frame::read_parquet(file).map_err(named)?;
        let ids = ["process", "thread", "sample"].map(|c| frame::numbers(&table, c).map_err(named));
        let [process, thread, sample] = ids;
        let (process, thread, sample) = (process?, thread?, sample?);
        let (stands, time) = (
            frame::floats(&table, "stands_for"),
            frame::floats(&table, "time_ns"),
        );
        let (stands, time) = (stands.map_err(named)?, time.map_err(named)?);
        for row in 0..table.height() {
            times.insert(
                (process[row], thread[row], sample[row]),
                (stands[row], time[row]),
            );
        }
    }
    database.execute(
        "CREATE TABLE samples (process, thread, sample, A, A_const, stores, begin_ns, end_ns, stands_for, time_ns)",
        [],
    )?;
    let mut statement =
        database.prepare("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for ((process, thread, sample), of) in samples {
        let key = (process.into(), thread.into(), sample.into());
        let (stands, time) = times.get(&key).copied().unwrap_or_default();
        let real = |x: Option<f64>| x.map_or(Cell::Null, Cell::Real);
        let whole = |x: u64| i64::try_from(x).map(Cell::Integer);
        let ids = [process, thread, sample].map(|id| Cell::Integer(id.into()));
        let counts = [of.loads, of.implied, of.stores, of.begin_ns, of.end_ns].map(whole);
        let counts: Vec<Cell> = counts
            .into_iter()
            .collect::<Result<_, _>>()
            .context("a number is too large")?;
        let cells = ids
            .into_iter()
            .chain(counts)
            .chain([real(stands), real(time)]);
        statement.execute(params_from_iter(cells))?;
    }
    Ok(())
}
