//! The command line of `mgz-analyze`: the analysis, and subcommands from several crates.

use clap::{Parser, Subcommand};
use mgz_analyzer::cli::Arguments;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-record -o trace -- ./app.inst input
      record a program that mgz-instrument has prepared
  mgz-analyze trace
      what is slow about memory, where, and what to try
  mgz-analyze trace --all
      every table: loads, footprints and reuse by code
  mgz-analyze trace --zoom
      also: when and in which memory the worst locality is
  mgz-analyze trace --zoom --node 0.3
      the same, and a look into a node of the time tree
  mgz-analyze trace --thread worker --to 3.5
      only of threads of that name, up to a time
  mgz-analyze trace --function '^parse' --objects
      what functions load, and from which objects
  mgz-analyze trace --partial a.part
      what one pass finds, to be merged later
  mgz-analyze --merge a.part b.part
      the tables of several traces together
  mgz-analyze trace --block 4096               reuse distance in pages
  mgz-analyze trace --format json | jq '.functions[0]'
  mgz-analyze trace --format csv -o tables     one file per table
  mgz-analyze reuse trace
      locality models: see mgz-analyze help COMMAND

A folder named like a command is given as ./reuse.

Symbols: A recorded loads, F footprint (distinct addresses), ΔF footprint growth per load, C addresses \
with reuse, S without, D reuse distance (distinct blocks between two accesses to a block). What ends in \
_hat is an estimate for the whole run; everything else is an exact count over the recorded loads.
docs/reference/metrics.md has the definitions, docs/reference/analysis-json.md the keys of the JSON.

Exit status: 0 done; 1 error, or part of the trace was damaged and skipped; 2 wrong usage.";

/// Shows the memory behaviour in a trace of mgz-record: footprint, its growth, reuse distance,
/// access classes, by function, line, window size, and, with --zoom, time and memory region.
#[derive(Debug, Parser)]
#[command(name = "mgz-analyze", version, after_help = EXAMPLES_HELP, max_term_width = 110, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Cli {
    /// Something else than the analysis.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of the analysis.
    #[command(flatten)]
    pub analysis: Arguments,
}

/// Commands other than the analysis.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    #[allow(missing_docs)]
    Model(mgz_model_commands::Command),
    /// Many traces of one job: imbalance, outliers, ranks that are alike.
    Ranks(mgz_analyzer::commands::ranks::RanksArguments),
    /// Compares another build: tells which functions, lines, loops and objects are better, worse or
    /// the same.
    Compare(mgz_analyzer::compare::CompareArguments),
    /// The time that a remedy would save: other layouts, orders and prefetches, predicted from the
    /// recorded addresses.
    WhatIf(mgz_analyzer::commands::what_if::WhatIfArguments),
    /// The trace in a format of other tools: profilers, cache and memory simulators.
    Export(mgz_export::ExportArguments),
    /// A trace folder from a trace of valgrind's lackey or DynamoRIO's drmemtrace.
    Import(mgz_export::import::ImportArguments),
    /// SQL over functions, lines, objects, windows, samples and rows.
    Query(mgz_analyzer::query::QueryArguments),
}
