//! `mgz-analyze query`: SQL over the tables of an analysis and the rows of a trace.
//!
//! The engine is SQLite. Tables of the analysis that the query names are put into a database in
//! memory; `rows` is read piece by piece ([`rows`]). Beyond a limit, sorting and grouping use
//! temporary files.

mod rows;
mod tables;

use crate::cli::OutputFormat;
use crate::cli::trace;
use crate::data::frame::{self, ColumnKind};
use crate::input::measured::read_measured;
use crate::input::{Trace, objects};
use crate::output::text_table::unruled_table;
use crate::report::Analysis;
use crate::report::build::examine;
use crate::report::measured_beside::no_samples;
use crate::report::questions::Questions;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use comfy_table::{Cell, CellAlignment};
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::manifest::MEASURED;
use mgz_annotations_schema::tell;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Rows};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz query trace 'SELECT function, A, F FROM functions ORDER BY A DESC LIMIT 5'
  mgz query trace 'SELECT file, line, D_mean FROM lines WHERE D_mean > 1000'
  mgz query trace 'SELECT object, bytes, F_64 * 64 AS touched FROM objects WHERE kind = \"heap\"'
  mgz query trace 'SELECT function, count(*), count(DISTINCT address / 64) FROM rows GROUP BY function'
  mgz query trace 'SELECT line, level, miss_ratio, predicted FROM measured WHERE kind = \"line\"'
  mgz query trace --format csv 'SELECT * FROM samples' > samples.csv
  mgz query trace --format parquet -o hot.parquet 'SELECT * FROM rows WHERE size = 64'

Tables: findings, functions, lines, loops, objects, windows, growth, misses, threads, processes, distances, intervals \
(as in the files of mgz-analyze --format csv), samples and rows; with memory samples also measured and memory_samples. The dialect is SQLite's.
docs/reference/query.md has the columns.";

/// Tables that only traces with memory samples have.
const SAMPLE_TABLES: [&str; 2] = [tables::MEASURED, "memory_samples"];

/// Arguments of `query`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct QueryArguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(value_parser = trace())]
    pub trace: PathBuf,
    /// The query.
    pub sql: String,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    pub format: OutputFormat,
    /// The file; without it: standard output. Needed by parquet.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Rows of a table on stdout; 0: all.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub rows: usize,
    /// Memory for sorting and grouping in MiB; the rest goes to temporary files (in TMPDIR).
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub memory: u64,
    /// Predict misses of sampled traces too, for the table misses.
    #[arg(long)]
    pub misses: bool,
    /// Trace with memory samples of another run of the same program, for the tables measured and
    /// memory_samples [default: the trace's own samples].
    #[arg(long, value_name = "TRACE")]
    pub measured: Option<PathBuf>,
}

/// Words of a query, outside of its texts.
fn words(sql: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut text = false;
    for part in sql.split('\'') {
        if !text {
            let words = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            out.extend(words.filter(|w| !w.is_empty()).map(str::to_ascii_lowercase));
        }
        text = !text;
    }
    out
}

/// The analysis of a trace. `beside` is true if predicted misses are needed for comparison with
/// measured ones.
fn analysis(trace: &Trace, arguments: &QueryArguments, beside: bool) -> anyhow::Result<Analysis> {
    let questions = Questions {
        counted: crate::report::counted::find_counts(trace, None).map_err(anyhow::Error::msg)?,
        measured: arguments.measured.clone(),
        misses: arguments.misses || beside,
        ..Questions::tables(arguments.misses)
    };
    Ok(examine(trace, &questions, &|_| {})?.0)
}

/// A value as JSON.
fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => {
            serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number)
        }
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => bytes
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect::<String>()
            .into(),
    }
}

fn values(row: &Row<'_>, columns: usize) -> anyhow::Result<Vec<Value>> {
    (0..columns).map(|at| Ok(json(row.get_ref(at)?))).collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn csv(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// Runs the command.
pub fn run_query(arguments: &QueryArguments) -> anyhow::Result<ExitCode> {
    let folder = &arguments.trace;
    let mode = crate::input::manifest_of(folder)?.mode;
    if mode == TraceMode::Watch || mode == TraceMode::Count {
        bail!(
            "{}: mgz-analyze query takes rows of loads, and a trace of mode {mode} has none; record with another --mode",
            folder.display()
        );
    }
    if arguments.format == OutputFormat::Parquet && arguments.output.is_none() {
        bail!("--format parquet is no text; give a file with -o");
    }
    let database = open(arguments.memory)?;
    let trace = Trace::open(folder, true)?;
    let damaged = !trace.damage.is_empty();
    let lacks_samples = add_tables(&database, trace, arguments)?;
    database.pragma_update(None, "query_only", true)?;
    let mut statement = database.prepare(&arguments.sql).map_err(|e| {
        let of_samples = SAMPLE_TABLES.map(|table| format!("no such table: {table}"));
        match lacks_samples {
            Some(why) if of_samples.iter().any(|text| e.to_string().contains(text)) => anyhow!(why),
            _ => anyhow!(
                "the query cannot be run: {e}; docs/reference/query.md has the tables and their columns"
            ),
        }
    })?;
    if statement.column_count() == 0 || !statement.readonly() {
        bail!("only queries (SELECT) can be run: the trace is not changed");
    }
    let columns: Vec<String> = statement.column_names().map(String::from).collect();
    let found = statement.query([])?;
    write_result(arguments, Found { columns, found })?;
    Ok(if damaged {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// Opens a database in memory. `memory`: MiB that sorting and grouping may take.
fn open(memory: u64) -> anyhow::Result<Connection> {
    let database = Connection::open_in_memory()?;
    database.pragma_update(None, "temp_store", 1)?;
    // Negative numbers are KiB.
    let size = -(memory as i64) * 1024;
    database.pragma_update(None, "cache_size", size)?;
    database.pragma_update(Some("temp"), "cache_size", size)?;
    Ok(database)
}

/// Adds the tables that the query names. If the query names a table of memory samples and the trace
/// has none, the reason is returned. (Columns may also have these names.)
fn add_tables(
    database: &Connection,
    trace: Trace,
    arguments: &QueryArguments,
) -> anyhow::Result<Option<String>> {
    let folder = &arguments.trace;
    let measured = arguments.measured.as_deref().unwrap_or(folder);
    let mut lacks_samples = None;
    let asked = words(&arguments.sql);
    let names = |table: &str| asked.iter().any(|w| w == table);
    if tables::ANALYSED.iter().any(|t| names(t)) {
        let beside = names(tables::MEASURED) && measured.join(MEASURED).exists();
        let analysis = analysis(&trace, arguments, beside)?;
        let has_samples = analysis.measured.is_some();
        if !has_samples {
            let damage = read_measured(measured).err();
            lacks_samples = Some(damage.unwrap_or_else(|| no_samples(measured)));
        }
        let made = |table: &&&str| names(table) && (has_samples || **table != tables::MEASURED);
        for table in tables::ANALYSED.iter().filter(made) {
            tables::add_analysis_table(database, table, &analysis)?;
        }
    }
    if names("samples") {
        tables::add_samples(database, &trace)?;
    }
    if names("memory_samples") && !tables::add_memory_samples(database, measured)? {
        lacks_samples = Some(no_samples(measured));
    }
    for sentence in trace.warnings.iter().chain(&trace.damage) {
        tell!("mgz-analyze: warning: {sentence}");
    }
    if names("rows") {
        let objects = objects::read_objects(folder).map_err(|e| anyhow!(e))?;
        if trace.stored_rows(0).is_none() && trace.manifest.totals.rows > 0 {
            bail!(
                "{}: its rows have not been converted to samples/ yet; run mgz-record --recover on it first",
                folder.display()
            );
        }
        rows::add_row_table(database, Arc::new(rows::RowTableSource { trace, objects }))?;
    }
    Ok(lacks_samples)
}

/// The result of a query.
struct Found<'a> {
    columns: Vec<String>,
    found: Rows<'a>,
}

impl Found<'_> {
    fn next(&mut self) -> anyhow::Result<Option<Vec<Value>>> {
        let row = self.found.next();
        let row = row.map_err(|e| anyhow!("the query failed: {e}"))?;
        row.map(|row| values(row, self.columns.len())).transpose()
    }
}

/// Writes the result in the requested format.
fn write_result(arguments: &QueryArguments, mut found: Found<'_>) -> anyhow::Result<()> {
    let mut out: Box<dyn Write> = match &arguments.output {
        Some(file) if arguments.format != OutputFormat::Parquet => {
            Box::new(std::io::BufWriter::new(
                std::fs::File::create(file)
                    .with_context(|| format!("{}: cannot write", file.display()))?,
            ))
        }
        _ => Box::new(std::io::BufWriter::new(std::io::stdout().lock())),
    };
    match arguments.format {
        OutputFormat::Csv => write_csv(&mut out, &mut found)?,
        OutputFormat::Json => write_json(&mut out, &mut found)?,
        OutputFormat::Table => write_table(&mut out, &mut found, arguments)?,
        OutputFormat::Parquet => {
            let mut rows = Vec::new();
            while let Some(row) = found.next()? {
                rows.push(row);
            }
            if let Some(file) = &arguments.output {
                parquet(&found.columns, &rows, file)?;
            }
        }
    }
    Ok(out.flush()?)
}

fn write_csv(out: &mut dyn Write, found: &mut Found<'_>) -> anyhow::Result<()> {
    let line = |cells: &mut dyn Iterator<Item = String>| {
        cells.map(|c| csv(&c)).collect::<Vec<_>>().join(",")
    };
    writeln!(out, "{}", line(&mut found.columns.iter().cloned()))?;
    while let Some(row) = found.next()? {
        writeln!(out, "{}", line(&mut row.iter().map(plain)))?;
    }
    Ok(())
}

fn write_json(out: &mut dyn Write, found: &mut Found<'_>) -> anyhow::Result<()> {
    write!(out, "[")?;
    let mut separator = "\n";
    while let Some(row) = found.next()? {
        // Written in the order of the query, which a map of serde_json does not keep.
        let cells = found.columns.iter().zip(row);
        let cells: Vec<String> = cells
            .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
            .collect();
        write!(out, "{separator}{{{}}}", cells.join(","))?;
        separator = ",\n";
    }
    writeln!(out, "\n]")?;
    Ok(())
}

fn write_table(
    out: &mut dyn Write,
    found: &mut Found<'_>,
    arguments: &QueryArguments,
) -> anyhow::Result<()> {
    let most = if arguments.rows == 0 {
        usize::MAX
    } else {
        arguments.rows
    };
    let (mut shown, mut more) = (Vec::new(), 0u64);
    while let Some(row) = found.next()? {
        if shown.len() < most {
            shown.push(row);
        } else {
            more += 1;
        }
    }
    // A file or a pipe has no width, as for other tables.
    let to_terminal = arguments.output.is_none() && std::io::stdout().is_terminal();
    let width = to_terminal
        .then(|| comfy_table::Table::new().width())
        .flatten();
    write!(out, "{}", text(&found.columns, &shown, width))?;
    if more > 0 {
        writeln!(out, "… {more} more (--rows 0 shows all)")?;
    }
    Ok(())
}

/// Minimum mean width of columns; narrower tables are turned into blocks. Source: Chosen.
const MIN_MEAN_COLUMNS: usize = 10;

/// Rows as a table that fits into `width`. If there are too many columns, each row is a block of
/// names and values.
fn text(columns: &[String], rows: &[Vec<Value>], width: Option<u16>) -> String {
    if let Some(width) = width.filter(|w| columns.len() * MIN_MEAN_COLUMNS > usize::from(*w))
        && !fits(&flat(columns, rows, None), width)
    {
        return turned(columns, rows, width);
    }
    flat(columns, rows, width)
}

fn fits(text: &str, width: u16) -> bool {
    text.lines()
        .all(|line| line.trim_end().chars().count() <= width.into())
}

fn flat(columns: &[String], rows: &[Vec<Value>], width: Option<u16>) -> String {
    let mut table = unruled_table(width);
    let numbers: Vec<bool> = (0..columns.len())
        .map(|at| rows.iter().any(|r| r[at].is_number()))
        .collect();
    let align = |at: usize| match numbers[at] {
        true => CellAlignment::Right,
        false => CellAlignment::Left,
    };
    table.set_header(
        columns
            .iter()
            .enumerate()
            .map(|(at, c)| Cell::new(c).set_alignment(align(at))),
    );
    for row in rows {
        table.add_row(
            row.iter()
                .enumerate()
                .map(|(at, v)| Cell::new(plain(v)).set_alignment(align(at))),
        );
    }
    format!("{table}\n")
}

/// A block for each row. Missing values are not shown.
fn turned(columns: &[String], rows: &[Vec<Value>], width: u16) -> String {
    let blocks: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let mut table = unruled_table(Some(width));
            for (name, value) in columns.iter().zip(row).filter(|c| !c.1.is_null()) {
                table.add_row([name.clone(), plain(value)]);
            }
            format!("row {}\n{table}\n", number + 1)
        })
        .collect();
    blocks.join("\n")
}

/// Columns have the type of all their values: whole numbers, numbers, or texts.
fn parquet(columns: &[String], rows: &[Vec<Value>], file: &Path) -> anyhow::Result<()> {
    let made = columns.iter().enumerate().map(|(at, name)| {
        let cells: Vec<&Value> = rows.iter().map(|r| &r[at]).collect();
        let all = |is: &dyn Fn(&Value) -> bool| cells.iter().all(|v| v.is_null() || is(v));
        if !cells.iter().all(|v| v.is_null()) && all(&|v| v.is_i64()) {
            frame::column(name, ColumnKind::Signed, &cells)
        } else if !cells.iter().all(|v| v.is_null()) && all(&|v| v.is_number()) {
            frame::column(name, ColumnKind::Number, &cells)
        } else {
            let texts: Vec<Value> = cells
                .iter()
                .map(|v| {
                    if v.is_null() {
                        Value::Null
                    } else {
                        plain(v).into()
                    }
                })
                .collect();
            frame::column(name, ColumnKind::Text, &texts.iter().collect::<Vec<_>>())
        }
    });
    let table = made
        .collect::<Result<_, _>>()
        .and_then(frame::frame)
        .map_err(|e| anyhow!(e))?;
    let to =
        std::fs::File::create(file).with_context(|| format!("{}: cannot write", file.display()))?;
    frame::write_parquet(&table, to).map_err(|e| anyhow!("{}: {e}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_outside_of_texts() {
        assert_eq!(
            words("SELECT a.F FROM rows WHERE x = 'lines'''"),
            ["select", "a", "f", "from", "rows", "where", "x"]
        );
    }

    #[test]
    fn tables_fit_into_the_width() {
        for count in [1, 4, 8, 12, 40] {
            let columns: Vec<String> = (0..count).map(|n| format!("column_{n}")).collect();
            let long = Value::from("a long text of several words ".repeat(8));
            let mut row: Vec<Value> = (0..count)
                .map(|n| Value::from(n * 1_000_000_000_000_000i64))
                .collect();
            row[0] = long;
            let rows = vec![row.clone(), row];
            for width in [60, 80, 132] {
                let table = text(&columns, &rows, Some(width));
                assert!(fits(&table, width), "{width}:\n{table}");
                // Names and values of a turned table are not broken.
                if count == 40 {
                    assert_eq!(table.matches("row ").count(), 2);
                    assert!(columns.iter().all(|name| table.contains(name.as_str())));
                }
            }
            // Lines are not broken without a terminal.
            assert_eq!(text(&columns, &rows, None).lines().count(), 3);
        }
    }

    #[test]
    fn cells_of_csv() {
        assert_eq!(csv("a"), "a");
        assert_eq!(csv("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
