//! `mgz-analyze cache`: hit rates of caches by exact simulation, and by the stack-distance cache
//! model (Barai et al. 2019).

pub mod arguments;
mod arranged;
pub mod evaluate;
mod exact;
mod levels;
mod misses;
mod pieces;
pub mod spec;

use crate::beside;
use crate::cache::arguments::CacheArguments;
use crate::cache::exact::Counted;
use crate::cache::levels::{LevelRows, Of};
use crate::cache::spec::check_hierarchy;
use crate::threads::{load, recorded};
use anyhow::Context;
use arranged::Arranged;
use clap::Parser;
use evaluate::{LevelOutcome, Setup};
use mgz_analyzer::commands::{
    open_nameless, open_rest, open_trace, require_full, size, warn_of_gaps,
};
use mgz_analyzer::input::Trace;
use mgz_analyzer::output::document::{ColumnUnit, Document};
use mgz_models::cache::{LevelSpec, Seen, Shape};
use serde_json::Value;
use std::path::Path;

/// The data caches of this machine.
fn machine() -> anyhow::Result<Vec<LevelSpec>> {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let mut levels: Vec<(u64, Shape)> = Vec::new();
    let remedy = "name the caches with --level SIZE:WAYS";
    for entry in std::fs::read_dir(folder).with_context(|| {
        format!(
            "{}: the caches of this machine are unknown; {remedy}",
            folder.display()
        )
    })? {
        let path = entry?.path();
        let read = |name: &str| {
            std::fs::read_to_string(path.join(name))
                .map(|t| t.trim().to_string())
                .unwrap_or_default()
        };
        if !path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("index"))
            || read("type") == "Instruction"
        {
            continue;
        }
        let number = |name: &str| read(name).parse::<u64>().ok();
        if let (Some(level), Ok(bytes), Some(ways), Some(line)) = (
            number("level"),
            size(&read("size")),
            number("ways_of_associativity"),
            number("coherency_line_size"),
        ) {
            let shape = Shape::new(bytes, ways, line).with_context(|| {
                format!(
                    "{}: the description of this machine's caches is invalid; {remedy}",
                    path.display()
                )
            })?;
            levels.push((level, shape));
        }
    }
    levels.sort_by_key(|l| l.0);
    anyhow::ensure!(
        !levels.is_empty(),
        "{}: the caches of this machine are unknown; {remedy}",
        folder.display()
    );
    Ok(levels.into_iter().map(|l| l.1.into()).collect())
}

/// The levels, and the first shared one, from 0.
fn given_levels(arguments: &CacheArguments) -> anyhow::Result<(Vec<LevelSpec>, usize)> {
    let levels = if arguments.level.is_empty() {
        machine()?
    } else {
        arguments.level.clone()
    };
    check_hierarchy(&levels).map_err(anyhow::Error::msg)?;
    let shared = arguments
        .shared_from
        .map_or(levels.len() - 1, |n| n as usize - 1);
    anyhow::ensure!(
        shared < levels.len(),
        "--shared-from {} is beyond the last of {} levels",
        shared + 1,
        levels.len()
    );
    let in_order = arguments.mimic.is_empty() && arguments.turns.is_none();
    anyhow::ensure!(
        in_order || !levels.iter().any(|l| l.prefetch.stride),
        "stride: instructions are followed in the recorded order only; leave out stride, or --mimic and --turns"
    );
    Ok((levels, shared))
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_cache(arguments: &CacheArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("cache");
    let (levels, shared) = given_levels(arguments)?;
    let begun = arguments.online.then(|| {
        beside::refuse(&[
            (arguments.misses, "--misses"),
            (arguments.models, "--models"),
            (arguments.sets.is_some(), "--sets"),
            (arguments.weights_from.is_some(), "--weights-from"),
            (!arguments.mimic.is_empty(), "--mimic"),
            (arguments.turns.is_some(), "--turns"),
            (levels.iter().any(|l| l.prefetch.stride), "stride"),
        ]);
        exact::Begun::take(&levels, arguments)
    });
    let begun = begun.transpose()?;
    let models = arguments.models
        || arguments.sets.is_some()
        || arguments.weights_from.is_some()
        || !arguments.mimic.is_empty();
    let code = models || arguments.turns.is_some() || exact::asks_for_code(&levels, arguments);
    let (folder, common) = (&arguments.trace, &arguments.common);
    let trace = match code {
        _ if arguments.online => open_rest(folder, false, &mut document)?,
        true => open_trace(folder, common, &mut document)?,
        false => open_nameless(folder, common, &mut document)?,
    };
    require_full(&trace, "the hit rate of a cache", "")?;
    warn_of_gaps(&trace, &mut document);
    let follow = models.then(|| arguments.sets.unwrap_or(4096));
    let mut rows = LevelRows::new(arguments.stack_reads);
    if arguments.mimic.is_empty() && arguments.turns.is_none() {
        let mut beside = Document::new("cache");
        let found = exact::simulate(&trace, &levels, shared, arguments, begun, &mut beside)?;
        document.put("A", ColumnUnit::Count, found.counted.rows);
        document.put("A_const", ColumnUnit::Count, found.counted.implied);
        document.put("threads", ColumnUnit::Count, found.threads);
        put_counted(&mut document, arguments, found.counted);
        document.summary.append(&mut beside.summary);
        document.warnings.append(&mut beside.warnings);
        let setup = Setup {
            levels,
            shared: found.shared,
            follow,
            simulate: false,
        };
        let (mut outcomes, mut thread) = (vec![LevelOutcome::default(); setup.levels.len()], None);
        if models {
            // The rows are read a second time, and kept.
            let (mut threads, ..) = load(&trace, arguments.stores, &mut Document::new("cache"))?;
            let order = |next: &mut dyn FnMut(usize, usize)| recorded(&threads, next);
            outcomes = evaluate::evaluate(&threads, &order, &setup).map_err(anyhow::Error::msg)?;
            thread = threads.pop().filter(|_| threads.is_empty());
        }
        for (outcome, seen) in outcomes.iter_mut().zip(&found.seen) {
            outcome.seen = *seen;
        }
        let accesses = found.counted.loads + found.counted.stores;
        let modelled = models.then_some(found.counted.rows);
        let run = Of {
            threads: found.threads as u64,
            order: "recorded",
            accesses,
            implied: found.counted.implied,
            modelled,
        };
        rows.push(&run, &setup, &outcomes, None);
        rows.tables(&mut document);
        document.tables.append(&mut beside.tables);
        if let Some(thread) = thread {
            let shapes: Vec<Shape> = setup.levels.iter().map(|l| l.shape).collect();
            pieces::put_pieces(&thread, &trace, &shapes, arguments, &mut document)?;
        }
        return Ok((document, found.damaged));
    }
    let arranged = Arranged {
        arguments,
        trace: &trace,
        levels: &levels,
        shared,
        follow,
    };
    let damaged = arranged.run(rows, &mut document)?;
    Ok((document, damaged))
}

/// Counts of the levels for a full trace, with all its threads in the order of their recorded times
/// and a shared last level: the counts of this command without options. The sentences report
/// unreadable parts.
///
/// # Errors
///
/// A trace that is sampled or empty, and incompatible levels.
pub fn levels_of_trace(
    trace: &Trace,
    levels: &[LevelSpec],
) -> anyhow::Result<(Vec<Seen>, Vec<String>)> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cache: CacheArguments,
    }
    require_full(trace, "the simulation of caches", "")?;
    let arguments = Line::try_parse_from(["cache".as_ref(), trace.folder.as_os_str()])?.cache;
    let mut document = Document::new("cache");
    let shared = levels.len().saturating_sub(1);
    let found = exact::simulate(trace, levels, shared, &arguments, None, &mut document)?;
    let mut lacking = trace.damage.clone();
    if found.damaged {
        lacking.append(&mut document.warnings);
    }
    Ok((found.seen, lacking))
}

/// Writes the counts of the rows.
fn put_counted(document: &mut Document, arguments: &CacheArguments, counted: Counted) {
    document.put("skipped", ColumnUnit::Count, arguments.skip);
    document.put("warm_up", ColumnUnit::Count, arguments.warm_up);
    document.put("loads", ColumnUnit::Count, counted.loads);
    document.put("stores", ColumnUnit::Count, counted.stores);
    document.put(
        "stack_reads",
        ColumnUnit::Count,
        arguments.stack_reads.map_or(Value::Null, Value::from),
    );
}
