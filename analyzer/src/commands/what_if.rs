//! `mgz-analyze what-if`.

use crate::columns;
use crate::commands::{Common, finish, open_trace, start};
use crate::data::code_map::LineName;
use crate::estimate::time_shares::TimeShares;
use crate::findings::Cost;
use crate::findings::gains::{Changed, Costs, Saved};
use crate::findings::mechanisms::title;
use crate::findings::saved_time::in_words;
use crate::findings::windows;
use crate::input::call_paths::read_call_paths;
use crate::input::objects::read_objects;
use crate::input::weights::read_weights;
use crate::input::{ColumnSet, Trace};
use crate::misses::Hierarchy;
use crate::misses::Misses;
use crate::misses::caches::usable;
use crate::output::document::{ColumnUnit, Document, DocumentColumn, DocumentTable, maybe, value};
use crate::what_if::offered::{Offered, offered};
use crate::what_if::remedy::Spec;
use crate::what_if::replay::{Plan, Replayed};
use crate::what_if::target::{described, place};
use anyhow::Context;
use clap::Args;
use mgz_annotations_schema::{shell, tell};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz what-if app.mgz
      the remedies that can be asked for the findings
  mgz what-if app.mgz --remedy 'split of particles'
      the time that a structure of arrays would save
  mgz what-if trace --remedy 'exchange-loops of grid.c:10'
  mgz what-if trace --remedy 'pool of nodes' --remedy 'hot-cold of nodes'
      both, in this order
  mgz what-if trace --remedy 'transpose of grid by 32K' --format json

Kinds of remedies, each with its target:
  smaller-elements of OBJECT by N   each element takes 1/N of the bytes; N is 2 if left out
  split of OBJECT                   each field in an array of its own
  interleave of OBJECT              arrays become one array of structures
  hot-cold of OBJECT                fields that are often read are apart from the others
  pack of OBJECT                    structures have no bytes that nobody reads
  reorder of OBJECT                 fields that are often read come first
  transpose of OBJECT by BYTES      rows of this many bytes become columns
  exchange-loops of CODE            the outer loop becomes the inner loop
  block of CODE                     loops go through tiles that fit the L2
  pool of OBJECT                    nodes are in the order of their first visits
  wider-nodes of OBJECT             a node of a list or tree has the elements of several lines
  sort of CODE                      loads come in the order of their addresses
  prefetch of CODE                  addresses are prefetched some iterations ahead
  pad of OBJECT by BYTES            rows of this many bytes are longer by a cache line
  align of OBJECT                   data of different threads is in different cache lines
  stream-stores of CODE             stores go around the caches
  huge-pages of OBJECT              its memory has pages of 2 MiB

OBJECT is a name that mgz-analyze --objects shows, or a part of it, or a part of a type. CODE is FILE:LINE or a \
function. BYTES are those of a row; they are only needed if no column-wise walk shows them.

mgz moves the recorded addresses as the remedy would move the data, predicts the misses at the new addresses, \
and compares the waits. docs/guide/what-if.md explains the numbers and their limits.

Exit status: 0 done; 1 error, or part of the trace was damaged and skipped; 2 wrong usage.";

/// Arguments of `what-if`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct WhatIfArguments {
    /// The folder that mgz-record wrote.
    pub trace: PathBuf,
    /// Remedy: 'KIND of TARGET'. Several are applied in order. Without one, the remedies that can be
    /// asked for the findings are listed.
    #[arg(long = "remedy", value_name = "REMEDY", value_parser = remedy)]
    pub remedies: Vec<Named>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// A remedy as it was named.
#[derive(Clone, Debug)]
pub struct Named(Spec);

fn remedy(text: &str) -> Result<Named, String> {
    Spec::parse(text).map(Named)
}

/// Runs `what-if`.
pub fn run_what_if(arguments: &WhatIfArguments) -> anyhow::Result<ExitCode> {
    start(&arguments.common)?;
    let mut document = Document::new("what-if");
    let trace = open_trace(&arguments.trace, &arguments.common, &mut document)?;
    let specs: Vec<Spec> = arguments.remedies.iter().map(|r| r.0.clone()).collect();
    let damaged = answer(&trace, &specs, &mut document)?;
    finish(
        (document, damaged || !trace.damage.is_empty()),
        &arguments.common,
    )
}

/// Fills the document. True if a part of the trace could not be read.
fn answer(trace: &Trace, specs: &[Spec], document: &mut Document) -> anyhow::Result<bool> {
    let source = trace.source(ColumnSet { time: true });
    let objects = read_objects(&trace.folder).map_err(anyhow::Error::msg)?;
    let replayed = Replayed {
        trace,
        source: &*source,
        objects: objects.as_ref(),
        weights: read_weights(&trace.folder, trace.manifest.triggers_by_time())
            .map_err(anyhow::Error::msg)?
            .map(Arc::new),
        hierarchy: Hierarchy::new(
            usable(&trace.manifest.caches),
            trace.manifest.memory_costs.as_ref(),
        ),
    };
    let (outcome, predicted) = replayed.count(None);
    let predicted = predicted.with_context(|| {
        format!(
            "{}: misses are not predicted, as the trace has no windows",
            trace.folder.display()
        )
    })?;
    let paths = read_call_paths(&trace.folder).map_err(anyhow::Error::msg)?;
    let windows = windows::read(&*source, objects.as_ref());
    let by_time = trace.manifest.triggers_by_time();
    let named = (objects.as_ref(), paths.as_ref());
    let pages = replayed.count_pages(None);
    let times = by_time.then(|| (TimeShares::new(&outcome, &trace.code), trace.waited()));
    let costs = Costs::new(
        &trace.code,
        named,
        &windows,
        (&outcome, &predicted, pages.as_ref()),
        times,
    );
    if specs.is_empty() {
        show_offered(document, &offered(&costs));
        return Ok(!outcome.damage.is_empty());
    }
    let mut plan = Plan::default();
    let mut limits = Vec::new();
    let mut targets = Vec::new();
    for spec in specs {
        let kind = spec.kind().map_err(anyhow::Error::msg)?;
        let made = (kind.make)(&costs, spec).map_err(anyhow::Error::msg)?;
        // Code with stores alone has no loads to describe.
        let target = described(&costs, kind.target, &spec.target);
        targets.push(target.unwrap_or_else(|_| spec.target.clone()));
        limits.extend(made.limits().into_iter().map(|limit| (spec.text(), limit)));
        plan.remedies.push(made);
    }
    let after = match plan.moves() {
        true => replayed.count(Some(&plan)).1,
        false => None,
    };
    let after = after.as_ref().unwrap_or(&predicted);
    let pages_after = match plan.changes_pages() {
        true => replayed.count_pages(Some(&plan)),
        false => None,
    };
    let moved = plan.windows(&windows, objects.as_ref());
    let saved = costs.saved(&Changed {
        windows: &moved,
        predicted: after,
        pages: pages_after.as_ref().or(pages.as_ref()),
        is_prefetched: &|site| plan.prefetches(site),
        is_sorted: &|site| plan.sorts(site),
        has_other_pages: plan.mixes_pages(),
        left: &|site| plan.left(site),
        spared: plan.spared(),
    });
    if !by_time {
        document.warnings.push("the windows were not taken by time: shares of the time are taken from loads, so the saved time is a rough estimate".into());
    }
    document.warnings.extend(source.notes());
    for (remedy, limit) in &limits {
        tell!("mgz-analyze: note: {remedy}: {limit}");
    }
    show(document, (specs, &targets, &limits), (&costs, &saved));
    Ok(!outcome.damage.is_empty())
}

fn show(
    document: &mut Document,
    (specs, targets, limits): (&[Spec], &[String], &[(String, String)]),
    (costs, saved): (&Costs, &Saved),
) {
    let names: Vec<String> = specs.iter().map(Spec::text).collect();
    document.put("remedy", ColumnUnit::Whole, names.join("; "));
    document.put("target", ColumnUnit::Whole, targets.join("; "));
    match reason(costs, saved) {
        Some(reason) => {
            document.put("result", ColumnUnit::Whole, "no gain is known");
            document.put("reason", ColumnUnit::Whole, reason);
        }
        None => document.put("result", ColumnUnit::Whole, in_words(saved.time)),
    }
    let [lo, middle, hi] = saved.time.map(|pct| value(rounded(pct)));
    document.put("saved_pct", ColumnUnit::Number, middle);
    document.put("saved_pct_lo", ColumnUnit::Number, lo);
    document.put("saved_pct_hi", ColumnUnit::Number, hi);
    document.put("cost_pct", ColumnUnit::Number, value(rounded(saved.cost)));
    let most = saved.cost_of_findings[2].max(saved.cost);
    document.put("cost_pct_hi", ColumnUnit::Number, value(rounded(most)));
    document.tables.push(code_table(costs, saved));
    document.tables.push(DocumentTable {
        name: "limits",
        title: "Assumptions".into(),
        columns: columns![remedy: Text, limit: Text].to_vec(),
        rows: limits
            .iter()
            .map(|(remedy, limit)| vec![remedy.as_str().into(), limit.as_str().into()])
            .collect(),
        // The notes have the full text.
        text_rows: 0,
    });
}

/// The reason why nothing is saved. `None` if something is.
fn reason(costs: &Costs, saved: &Saved) -> Option<String> {
    if rounded(saved.cost) > 0.0 || rounded(saved.spared) != 0.0 {
        return None;
    }
    let slow = costs.causes.iter().filter(|cause| !cause.rule.is_good);
    let most = slow
        .map(|cause| (cause, Cost::of(&costs.context, cause).score[1]))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, cost)| rounded(*cost) > 0.0);
    let elsewhere = most.map_or_else(String::new, |(cause, cost)| {
        format!(
            "; most waits are at {} ({}, {cost:.0} % of the time)",
            place(&cause.line),
            title(cause)
        )
    });
    Some(format!(
        "no load that this remedy makes faster is known to wait for memory{elsewhere}"
    ))
}

/// The remedies that can be asked for.
fn show_offered(document: &mut Document, list: &[Offered]) {
    let known = list.iter().find(|of| of.unknown.is_none());
    let result = match (known, list.is_empty()) {
        (Some(first), _) => format!(
            "ask for one of these, for example --remedy {}",
            shell::quoted(&first.remedy)
        ),
        (None, true) => "no finding costs enough to have a remedy".into(),
        (None, false) => "no remedy can be predicted from this recording".into(),
    };
    document.put("result", ColumnUnit::Whole, result);
    document.tables.push(DocumentTable {
        name: "remedies",
        title: "Remedies for the findings".into(),
        columns: vec![
            DocumentColumn("remedy", ColumnUnit::Whole),
            DocumentColumn("line", ColumnUnit::Text),
            DocumentColumn("finding", ColumnUnit::Text),
            DocumentColumn("cost_pct", ColumnUnit::Number),
            DocumentColumn("not_known", ColumnUnit::Whole),
        ],
        rows: list
            .iter()
            .map(|of| {
                vec![
                    of.remedy.as_str().into(),
                    of.place.as_str().into(),
                    of.finding.into(),
                    value(rounded(of.cost)),
                    of.unknown.as_deref().into(),
                ]
            })
            .collect(),
        text_rows: usize::MAX,
    });
}

/// Misses by code before and after.
fn code_table(costs: &Costs, saved: &Saved) -> DocumentTable {
    let ratios = |misses: &Option<Misses>, level: usize| {
        let of = misses.as_ref().and_then(|m| m.levels.get(level));
        maybe(of.and_then(|l| l.ratio).map(|r| r[1]))
    };
    let row = |change: &crate::findings::gains::ChangeOfCause| {
        let cause = &costs.causes[change.cause];
        let line: &LineName = &cause.line;
        let mut row: Vec<Value> = vec![
            place(line).into(),
            line.function.as_str().into(),
            title(cause).into(),
            value(rounded(change.saved)),
        ];
        for level in 0..LEVELS_SHOWN {
            row.extend(change.misses.iter().map(|m| ratios(m, level)));
        }
        row
    };
    // Code whose misses cost nothing before and after is left out.
    let counts = |c: &&crate::findings::gains::ChangeOfCause| rounded(c.saved) != 0.0;
    let mut changes: Vec<_> = saved.causes.iter().filter(counts).collect();
    changes.sort_by(|a, b| b.saved.abs().total_cmp(&a.saved.abs()));
    let text = |name| DocumentColumn(name, ColumnUnit::Text);
    let share = |name| DocumentColumn(name, ColumnUnit::Share);
    DocumentTable {
        name: "code",
        title: "By code: saved time in percent, misses per load before and after".into(),
        columns: vec![
            text("line"),
            text("function"),
            text("mechanism"),
            DocumentColumn("saved_pct", ColumnUnit::Number),
            share("L1_before"),
            share("L1_after"),
            share("L2_before"),
            share("L2_after"),
            share("L3_before"),
            share("L3_after"),
        ],
        rows: changes.into_iter().map(row).collect(),
        text_rows: usize::MAX,
    }
}

/// Cache levels of the table.
const LEVELS_SHOWN: usize = 3;

/// Percent with one decimal.
fn rounded(pct: f64) -> f64 {
    (10.0 * pct).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::EXAMPLES_HELP;
    use crate::what_if::remedies::KINDS;

    #[test]
    fn help_names_all_kinds_with_their_targets() {
        for kind in KINDS {
            let words = format!("  {}", kind.usage());
            assert!(EXAMPLES_HELP.contains(&words), "{words}");
        }
    }
}
