//! `mgz-analyze reuse --rdx` on traces of `mgz-record --mode watch`: use–reuse pairs seen by
//! hardware watchpoints.

use crate::contexts::Contexts;
use crate::rdx::{CodeName, Truth, compare, histograms, jackknife, pair_table, with_interval};
use crate::reuse::{Engine, ReuseArguments, histogram_rows};
use anyhow::Context;
use mgz_analyzer::commands::stream::Accesses;
use mgz_analyzer::commands::{open_trace, require_full, visit, warn_of_gaps};
use mgz_analyzer::data::frame::{self, Frame};
use mgz_analyzer::data::memory_units::WORD_BYTES;
use mgz_analyzer::input::{ColumnSet, manifest_of, quietly};
use mgz_analyzer::output::document::{ColumnUnit, Document, DocumentTable, value};
use mgz_annotations_schema::manifest::{CALL_PATHS, Manifest, WATCH};
use mgz_models::histogram::{Bin, Scale, cut};
use mgz_models::sampling::rdx::{Estimate, Observation, estimate};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A sample.
struct Row {
    thread: (u64, u64),
    sample: u64,
    /// Number of the thread's last sample while it was watched.
    until: u64,
    near: bool,
    crowded: bool,
    reused: bool,
    stepped: u64,
    cpu_ns: u64,
    counted: Option<u64>,
    context: u32,
    reuse: u32,
}

/// Source of the lengths of reuse intervals.
enum Time {
    /// The PMU counted accesses.
    Counted,
    /// Stepped accesses, and CPU time with this number of accesses per nanosecond.
    Rate(f64),
    /// CPU time.
    Cpu,
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_watched(
    arguments: &ReuseArguments,
    manifest: &Manifest,
) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("reuse");
    document
        .warnings
        .extend(manifest.problems.iter().map(|p| format!("recorder: {p}")));
    let (rows, contexts) = read(&arguments.trace, arguments.stores)?;
    let what = if arguments.stores { "access" } else { "load" };
    anyhow::ensure!(
        rows.iter().any(|r| r.reused),
        "{}: no sampled {what} was reused ({} samples); record a longer run, or with a higher --rate",
        arguments.trace.display(),
        rows.len()
    );
    let exact = arguments
        .compare
        .then(|| full(arguments, manifest, &mut document))
        .transpose()?;
    let (time, accesses) = time(
        arguments,
        manifest,
        &rows,
        exact.as_ref().map(|e| e.accesses),
        &mut document,
    )?;
    let crowded = rows.iter().filter(|r| r.crowded).count();
    if crowded > 0 {
        document.warnings.push(format!("{crowded} of {} samples were given up, because their places were stored to again and again before the next load; they count as not reused by then", rows.len()));
    }
    document.warnings.extend(shortcoming(&time, manifest));
    let observations = observations(&rows, &time);
    let estimated = estimate(&observations, arguments.attribution.into());
    let total = accesses.unwrap_or(observations.len() as u64);
    let (times, distances) = histograms(&observations, &estimated, total);
    let watched = Watched {
        arguments,
        manifest,
        rows: &rows,
        time: &time,
        accesses,
        observations: &observations,
    };
    watched.put_summary(&estimated, &mut document);
    if let Some(exact) = &exact {
        compare(
            &mut document,
            WORD_BYTES,
            (&times, &distances),
            &exact.truth,
        );
    }
    let spread = jackknife(&observations, arguments.attribution.into(), total);
    let samples = observations.len();
    if !matches!(time, Time::Cpu) {
        document.tables.push(with_interval(
            "distances",
            "Reuse distance D, in blocks of 8 bytes (estimate by Shen's model)",
            &distances,
            &spread.1,
            samples,
        ));
        document.tables.push(with_interval(
            "intervals",
            "Reuse interval, in accesses (estimate)",
            &times,
            &spread.0,
            samples,
        ));
    } else {
        document.tables.push(with_interval(
            "intervals",
            "Reuse interval, in ns of CPU time (estimate; [0, 1) are those that were stepped)",
            &times,
            &spread.0,
            samples,
        ));
        document.tables.push(near(&rows));
    }
    watched.add_pairs(&contexts, &estimated, &mut document);
    Ok((document, false))
}

/// The samples of a watched run.
struct Watched<'a> {
    arguments: &'a ReuseArguments,
    manifest: &'a Manifest,
    rows: &'a [Row],
    time: &'a Time,
    /// Accesses of the run, if their number is known.
    accesses: Option<u64>,
    observations: &'a [Observation],
}

impl Watched<'_> {
    /// Writes the numbers of the whole run.
    fn put_summary(&self, estimated: &Estimate, document: &mut Document) {
        let (manifest, samples) = (self.manifest, self.observations.len());
        document.put("method", ColumnUnit::Text, "RDX, hardware watchpoints");
        document.put(
            "time",
            ColumnUnit::Text,
            match self.time {
                Time::Counted => "accesses, counted by the PMU",
                Time::Rate(_) => "accesses: stepped ones exactly, others from CPU time",
                Time::Cpu => "ns of CPU time",
            },
        );
        document.put("samples_by", ColumnUnit::Text, manifest.trigger.as_str());
        let counted = if self.arguments.stores {
            "loads and stores"
        } else {
            "loads"
        };
        document.put("counted", ColumnUnit::Text, counted);
        document.put("block", ColumnUnit::Bytes, WORD_BYTES);
        let accesses = self.accesses.map_or(Value::Null, Value::from);
        document.put("A_hat", ColumnUnit::Count, accesses);
        if let Time::Rate(rate) = self.time {
            document.put(
                "accesses_per_second_hat",
                ColumnUnit::Number,
                value(rate * 1e9),
            );
        }
        document.put(
            "cpu_seconds",
            ColumnUnit::Number,
            value(manifest.cpu_seconds),
        );
        document.put("samples", ColumnUnit::Count, samples);
        let reused = self.observations.iter().filter(|o| o.reuse.is_some());
        document.put("samples_reused", ColumnUnit::Count, reused.count());
        let near = self.rows.iter().filter(|r| r.near);
        document.put(
            "samples_reused_while_stepped",
            ColumnUnit::Count,
            near.count(),
        );
        let never = value(estimated.never / samples as f64);
        document.put("never_reused_share_hat", ColumnUnit::Share, never);
    }

    /// Adds the tables of pairs. Contexts include call paths; the tables sum the pairs by line.
    fn add_pairs(&self, contexts: &Contexts, estimated: &Estimate, document: &mut Document) {
        let lines: Vec<Observation> = self
            .observations
            .iter()
            .map(|o| Observation {
                context: contexts.line(o.context),
                reuse: o.reuse.map(|reuse| contexts.line(reuse)),
                ..*o
            })
            .collect();
        document.tables.push(pair_table(
            &lines,
            estimated,
            &|line| contexts.name(line),
            matches!(self.time, Time::Cpu),
        ));
        let tables = contexts.table(self.observations, estimated);
        document.tables.extend(tables);
    }
}

/// Reason why distances in accesses are unknown.
fn shortcoming(time: &Time, manifest: &Manifest) -> Option<String> {
    match time {
        Time::Counted => None,
        Time::Rate(_) => Some(format!(
            "{}; intervals beyond the stepped instructions are CPU time at the mean rate of accesses of the whole run",
            manifest.backend_why
        )),
        Time::Cpu => Some(format!(
            "{}; so intervals are in CPU time and are not converted to reuse distances: give --accesses-from TRACE with a full or ring trace of the same command for their rate",
            manifest.backend_why
        )),
    }
}

/// Unit of time, and the number of accesses of the run if it is known.
fn time(
    arguments: &ReuseArguments,
    manifest: &Manifest,
    rows: &[Row],
    recorded: Option<u64>,
    document: &mut Document,
) -> anyhow::Result<(Time, Option<u64>)> {
    if let Some(accesses) = if arguments.stores {
        manifest.totals.accesses_executed
    } else {
        manifest.totals.loads_executed
    } && rows.iter().all(|r| r.counted.is_some())
    {
        return Ok((Time::Counted, Some(accesses)));
    }
    let Some(folder) = &arguments.accesses_from else {
        return Ok((Time::Cpu, None));
    };
    let other = manifest_of(folder)?;
    let totals = &other.totals;
    let rows = totals
        .loads_executed
        .map(|n| n as f64)
        .or(totals.loads_executed_estimate);
    let rows = rows.with_context(|| {
        format!(
            "{}: it has no number of executed accesses (mode {}); record with --mode full or ring",
            folder.display(),
            other.mode
        )
    })?;
    let rows = rows + totals.stores_executed();
    anyhow::ensure!(
        rows > 0.0,
        "{}: no access was counted in it, so it gives no rate; instrument all of the program (no --functions) and record again",
        folder.display()
    );
    same_command(&other, manifest, folder)?;
    let count = match recorded {
        Some(accesses) => accesses as f64,
        None => rows * share(folder, arguments, document)?,
    };
    anyhow::ensure!(
        manifest.cpu_seconds > 0.0,
        "{}: the run had no CPU time",
        arguments.trace.display()
    );
    Ok((
        Time::Rate(count / (manifest.cpu_seconds * 1e9)),
        Some(count as u64),
    ))
}

/// Checks that another trace is of the same command: otherwise its rate and distances are not valid
/// here.
fn same_command(other: &Manifest, watched: &Manifest, folder: &Path) -> anyhow::Result<()> {
    // Names may differ: one of the two may be the instrumented file.
    let rest = |m: &Manifest| m.command.get(1..).unwrap_or_default().to_vec();
    anyhow::ensure!(
        rest(other) == rest(watched),
        "{}: another command ({}) than the one that was watched ({}); the rate of accesses would not be its own",
        folder.display(),
        other.command.join(" "),
        watched.command.join(" ")
    );
    Ok(())
}

/// Results of a full trace of the same command, for --compare.
struct Exact {
    truth: Truth,
    /// Number of its accesses. Loads that records imply have no address and are left out.
    accesses: u64,
}

fn full(
    arguments: &ReuseArguments,
    manifest: &Manifest,
    document: &mut Document,
) -> anyhow::Result<Exact> {
    let Some(folder) = &arguments.accesses_from else {
        anyhow::bail!(
            "{}: --compare needs every load of the run, and this trace has samples of it; give a full trace of the same command with --accesses-from TRACE",
            arguments.trace.display()
        );
    };
    same_command(&manifest_of(folder)?, manifest, folder)?;
    let trace = open_trace(folder, &arguments.common, document)?;
    require_full(&trace, "--compare", "")?;
    warn_of_gaps(&trace, document);
    let mut engine = Engine::new(WORD_BYTES.trailing_zeros(), None);
    let mut truth = Truth::new();
    let (mut accesses, mut implied, mut stores) = (0u64, 0u64, 0u64);
    let mut buffer = Accesses::default();
    visit(&trace, ColumnSet::default(), document, &mut |segment| {
        if segment.starts {
            engine.begin();
            truth.begin();
        }
        implied += segment.implied();
        stores += segment.stores.len() as u64;
        let view = segment.accesses(arguments.stores, &mut buffer);
        accesses += view.len() as u64;
        engine.run(view.tagged(), &mut truth);
    });
    anyhow::ensure!(
        !arguments.stores || stores > 0,
        "{}: it has no stores, and --stores counts them; instrument with mgz-instrument --stores and record again",
        folder.display()
    );
    if implied * 20 > accesses {
        document.warnings.push(format!("{}: {implied} loads of constant addresses have no rows beside {accesses} accesses that have; samples of them are compared with nothing", folder.display()));
    }
    document.put("A", ColumnUnit::Count, accesses);
    Ok(Exact { truth, accesses })
}

/// The share of a trace's accesses that are counted: all with `--stores`, else its loads.
fn share(
    folder: &Path,
    arguments: &ReuseArguments,
    document: &mut Document,
) -> anyhow::Result<f64> {
    let trace = open_trace(folder, &arguments.common, document)?;
    let (mut loads, mut stores) = (0u64, 0u64);
    visit(
        &trace,
        ColumnSet { time: false },
        document,
        &mut |segment| {
            loads += segment.loads.len() as u64 + segment.implied();
            stores += segment.stores.len() as u64;
        },
    );
    anyhow::ensure!(
        !arguments.stores || stores > 0,
        "{}: it has no stores, and --stores counts them; instrument with mgz-instrument --stores and record again",
        folder.display()
    );
    Ok(if arguments.stores || stores == 0 {
        1.0
    } else {
        loads as f64 / (loads + stores) as f64
    })
}

fn observations(rows: &[Row], time: &Time) -> Vec<Observation> {
    let mut streams: HashMap<(u64, u64), u32> = HashMap::new();
    let age = |row: &Row| match time {
        Time::Counted => row.counted.unwrap_or(0),
        Time::Rate(rate) => row.stepped + (row.cpu_ns as f64 * rate).round() as u64,
        Time::Cpu => row.cpu_ns,
    };
    rows.iter()
        .map(|row| Observation {
            context: row.context,
            age: if matches!(time, Time::Cpu) {
                age(row)
            } else {
                age(row).max(u64::from(row.reused))
            },
            reuse: row.reused.then_some(row.reuse),
            stream: {
                let next = streams.len() as u32;
                *streams.entry(row.thread).or_insert(next)
            },
            sample: row.sample,
            until: row.until,
        })
        .collect()
}

/// Exact distances of the samples that were reused while the program was stepped.
fn near(rows: &[Row]) -> DocumentTable {
    let mut bars: BTreeMap<u64, f64> = BTreeMap::new();
    rows.iter()
        .filter(|r| r.near)
        .for_each(|r| *bars.entry(r.stepped.max(1)).or_default() += 1.0);
    let bins = bars.into_iter().map(|(at, count)| Bin {
        from: at as f64,
        to: at as f64 + 1.0,
        count,
        sum: count * at as f64,
    });
    histogram_rows(
        "near_intervals",
        "Reuse interval of samples that were reused while stepped, in accesses (exact)",
        &cut(bins, &Scale::Log),
    )
}

/// The rows of `watch.parquet` and the names of code that they refer to.
fn read(folder: &Path, stores: bool) -> anyhow::Result<(Vec<Row>, Contexts)> {
    let path = folder.join(WATCH);
    let file = std::fs::File::open(&path).with_context(|| {
        format!(
            "{}: the samples of a watched run are missing; record again",
            path.display()
        )
    })?;
    let damaged =
        |why: String| anyhow::anyhow!("{}: damaged ({why}); record again", path.display());
    let table = quietly(|| frame::read_parquet(file))
        .and_then(|r| r)
        .map_err(&damaged)?;
    let (rows, mut contexts) = rows(&table, stores).map_err(&damaged)?;
    contexts.read_calls(folder).map_err(|why| {
        anyhow::anyhow!(
            "{}: damaged ({why}); record again",
            folder.join(CALL_PATHS).display()
        )
    })?;
    Ok((rows, contexts))
}

fn rows(table: &Frame, stores: bool) -> Result<(Vec<Row>, Contexts), String> {
    let numbers = |name: &str| frame::numbers(table, name);
    let texts = |name: &str| -> Result<Vec<String>, String> {
        Ok(frame::texts(table, name)?
            .into_iter()
            .map(|text| text.unwrap_or_default().to_string())
            .collect())
    };
    let (process, thread, sample, until) = (
        numbers("process")?,
        numbers("thread")?,
        numbers("sample")?,
        numbers("until")?,
    );
    let (loads, written, cpu) = (
        numbers("stepped_loads")?,
        numbers("stepped_stores")?,
        numbers("cpu_ns")?,
    );
    let (counted_loads, counted_stores) = (
        frame::whole(table, "loads")?,
        frame::whole(table, "stores")?,
    );
    let (outcome, counts) = (texts("outcome")?, texts("counts")?);
    let mut contexts = Contexts::default();
    let mut codes = |prefix: &str| -> Result<Vec<u32>, String> {
        let (function, file, line) = (
            texts(&format!("{prefix}_function"))?,
            texts(&format!("{prefix}_file"))?,
            numbers(&format!("{prefix}_line"))?,
        );
        // Older recorders lack it.
        let path = numbers(&format!("{prefix}_path")).unwrap_or_else(|_| vec![0; line.len()]);
        Ok((0..function.len())
            .map(|i| {
                let name = CodeName::new(&function[i], &file[i], line[i]);
                contexts.number(name, path[i] as u32)
            })
            .collect())
    };
    let (used, reused) = (codes("use")?, codes("reuse")?);
    let row = |i: usize| Row {
        thread: (process[i], thread[i]),
        sample: sample[i],
        until: until[i],
        near: outcome[i] == "near",
        crowded: outcome[i] == "crowded",
        reused: matches!(outcome[i].as_str(), "near" | "watched"),
        stepped: loads[i].saturating_add(if stores { written[i] } else { 0 }),
        cpu_ns: cpu[i],
        counted: if stores {
            counted_loads[i]
                .zip(counted_stores[i])
                .map(|(l, s)| l.saturating_add(s))
        } else {
            counted_loads[i]
        },
        context: used[i],
        reuse: reused[i],
    };
    // A load whose next access is a store has two rows: one counts all accesses, the other loads.
    let own = if stores { "accesses" } else { "loads" };
    Ok((
        (0..table.height())
            .filter(|&i| counts[i] == own || counts[i] == "both")
            .map(row)
            .collect(),
        contexts,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sample: u64, until: u64, reused: bool, stepped: u64, cpu_ns: u64) -> Row {
        Row {
            thread: (1, 1),
            sample,
            until,
            near: cpu_ns == 0,
            crowded: false,
            reused,
            stepped,
            cpu_ns,
            counted: Some(stepped + cpu_ns),
            context: 0,
            reuse: 1,
        }
    }

    #[test]
    fn ages_follow_from_what_was_counted() {
        let rows = [
            row(1, 3, true, 10, 500),
            row(2, 2, true, 7, 0),
            row(3, 3, false, 100, 0),
        ];
        let ages = |time| {
            observations(&rows, &time)
                .iter()
                .map(|o| o.age)
                .collect::<Vec<_>>()
        };
        assert_eq!(ages(Time::Counted), [510, 7, 100]);
        assert_eq!(ages(Time::Rate(2.0)), [1010, 7, 100]);
        assert_eq!(ages(Time::Cpu), [500, 0, 0]);
    }

    #[test]
    fn a_table_without_its_columns_is_refused() {
        let one = Value::from(1);
        let process = frame::column("process", frame::ColumnKind::Whole, &[&one]).unwrap();
        let table = frame::frame(vec![process]).unwrap();
        assert!(rows(&table, false).is_err_and(|e| e.contains("thread")));
    }
}
