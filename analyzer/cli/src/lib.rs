//! The command line of `mgz-analyze`: the analysis, and subcommands from several crates.

use clap::{Parser, Subcommand};
use mgz_analyzer::cli::Arguments;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-record -o trace -- ./app.inst input
      record a program that mgz-instrument has instrumented
  mgz-analyze trace
      what is slow about memory, where, and what to try
  mgz-analyze trace --all
      every table: loads, footprints and reuse by code
  mgz-analyze trace --zoom
      also: when, and in which memory, locality is worst
  mgz-analyze trace --zoom --node 0.3
      the same, starting at a node of the time tree
  mgz-analyze trace --thread worker --to 3.5
      only threads of this name, up to this time
  mgz-analyze trace --function '^parse' --objects
      only these functions, with the objects that they load from
  mgz-analyze trace --partial a.part
      write the results of one pass, to be merged later
  mgz-analyze --merge a.part b.part
      the tables of several traces together
  mgz-analyze trace --block 4096               reuse distance in pages
  mgz-analyze trace --format json | jq '.functions[0]'
  mgz-analyze trace --format csv -o tables     one file per table
  mgz-analyze reuse trace
      locality models: see mgz-analyze help COMMAND

Write ./reuse for a trace folder that has the name of a command.

Symbols: A recorded loads, F footprint (distinct addresses), ΔF footprint growth per load, C addresses with \
reuse, S addresses without reuse, D reuse distance (distinct blocks between two accesses to a block). Names that \
end in _hat are estimates for the whole run; all others are exact counts over the recorded loads.
docs/reference/metrics.md has the definitions, docs/reference/analysis-json.md the keys of the JSON.

Exit status: 0 done; 1 error, or part of the trace was damaged and skipped; 2 wrong usage.";

/// Show how a recorded program uses memory: footprint and its growth, reuse distance and access
/// classes, by function, line and window size, and with --zoom by time and memory region.
#[derive(Debug, Parser)]
#[command(name = "mgz-analyze", version, after_help = EXAMPLES_HELP, max_term_width = 110, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Cli {
    /// A command other than the analysis.
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
    /// Compare the ranks of a parallel job: imbalance, outliers, groups of similar ranks.
    Ranks(mgz_analyzer::commands::ranks::RanksArguments),
    /// Compare two builds: which functions, lines, loops and objects are better, worse or the
    /// same.
    Compare(mgz_analyzer::compare::CompareArguments),
    /// Predict the time that a remedy (another layout or order, prefetches) would save, from the
    /// recorded addresses.
    WhatIf(mgz_analyzer::commands::what_if::WhatIfArguments),
    /// Write a trace in the format of another tool: a profiler, or a simulator of caches or
    /// memory.
    Export(mgz_export::ExportArguments),
    /// Make a trace folder from a trace of valgrind's lackey, DynamoRIO's drmemtrace, ChampSim or
    /// gem5.
    Import(mgz_export::import::ImportArguments),
    /// Query functions, lines, objects, windows, samples and rows in SQL.
    Query(mgz_analyzer::query::QueryArguments),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Summaries speak in the imperative: "Compare two builds", not "Compares two builds".
    #[test]
    fn summaries_are_imperative() {
        for command in Cli::command().get_subcommands() {
            let about = command
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let first = about.split(' ').next().unwrap_or_default();
            assert!(!first.is_empty() && !first.ends_with('s'), "{about}");
        }
    }
}
