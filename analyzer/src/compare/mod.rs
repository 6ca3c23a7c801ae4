//! `mgz-analyze compare`: two sets of runs, and the numbers that are better, worse, the same or
//! uncertain.
//!
//! [`inputs`] reads traces, [`entries`] computes numbers with intervals, [`matching`] finds
//! corresponding entries, [`judge`] compares them, [`findings`] finds findings of one side only,
//! [`fix`] finds fixes of `mgz fix`, [`mod@repeat`] advises more runs, [`words`] and [`show`] print
//! the result. `docs/reference/compare.md` has the definitions.

pub mod change;
pub mod entries;
pub mod findings;
pub mod fix;
pub mod gate;
pub mod inputs;
pub mod judge;
pub mod matching;
pub mod original;
pub mod picture;
mod repeat;
pub mod report_data;
pub mod show;
pub mod words;

#[cfg(test)]
mod tests;

use crate::compare::entries::{Metric, RunEntries};
use crate::compare::findings::RunFindings;
use crate::compare::gate::{Condition, GateOutcome};
use crate::report::questions::Questions;
use anyhow::Context;
use clap::{Args, ValueEnum};
use mgz_annotations_schema::{shell, tell};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status if a condition of `--fail-if` is violated.
pub const VIOLATED: u8 = 3;

/// Exit status of a wrong command line, as of `clap`.
const WRONG_USAGE: u8 = 2;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz compare old.mgz new.mgz
      what is better, worse or the same
  mgz compare old1 old2 old3 -- new1 new2 new3
      several runs a side: narrower intervals
  mgz compare base/ new/                              folders of traces
  mgz compare --fail-if 'F>10%,time.kernel>5%,misses.L2>5%' old new
  mgz compare --html changes.html old new             also an HTML report
  mgz compare --format markdown old new >> \"$GITHUB_STEP_SUMMARY\"

Conditions are METRIC[.NAME]>PERCENT%: METRIC is time, share, cpu, loads, F, growth, D50, D90, D99, size (of an \
object) or misses.L1, misses.L2, …; NAME is a function, an object, FILE:LINE, or * for any of them; without \
NAME, the condition is about the whole run.
docs/reference/compare.md has the definitions and the keys of the JSON.

Exit status: 0 done; 1 error; 2 wrong usage; 3 a number is worse, not by chance, by more than its limit.";

/// Formats of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// The verdict in words, and a table.
    Text,
    /// The same for summaries and comments.
    Markdown,
    /// One JSON document.
    Json,
    /// Test cases: one for each condition of --fail-if.
    Junit,
    /// Numbers of the new build for github-action-benchmark.
    #[value(name = "customSmallerIsBetter")]
    CustomSmallerIsBetter,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct CompareArguments {
    /// The base: traces, folders of mgz run, partial results, or folders of these. Two paths
    /// without -- are the base and the new build.
    #[arg(required = true, value_name = "BASE")]
    pub base: Vec<PathBuf>,
    /// Traces to compare with it.
    #[arg(last = true, value_name = "NEW")]
    pub new: Vec<PathBuf>,
    /// End with status 3 if one of these numbers is worse, not by chance, by more than its limit.
    #[arg(long, value_name = "CONDITIONS", value_parser = conditions)]
    pub fail_if: Option<Gate>,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub format: CompareFormat,
    /// Also write the comparison to FILE in another format: FORMAT=FILE. May be given several
    /// times.
    #[arg(long, value_name = "FORMAT=FILE", value_parser = also)]
    pub also: Vec<Also>,
    /// Rows of the table.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub rows: usize,
    /// Compare predicted misses of sampled traces too (misses of full traces are counted, and
    /// always compared).
    #[arg(long)]
    pub misses: bool,
    /// Threads to use; 0: one per CPU.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Also write an HTML report to FILE (only mgz compare can: mgz-analyze has no viewer).
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// For `mgz compare --html`: writes the JSON of all that a report shows to FILE.
    #[arg(long, hide = true, value_name = "FILE")]
    pub report_data: Option<PathBuf>,
}

impl CompareArguments {
    /// The paths of the base and of the new build. The error says how to write them.
    fn sides(&self) -> Result<(&[PathBuf], &[PathBuf]), String> {
        let shown = |path: &PathBuf| shell::quoted(&path.to_string_lossy());
        match self.base.as_slice() {
            base if !self.new.is_empty() => Ok((base, self.new.as_slice())),
            [_, _] => Ok(self.base.split_at(1)),
            [first, _, .., last] => Err(format!(
                "which runs are those of the new build? Write -- before them: mgz compare {} … -- … {}",
                shown(first),
                shown(last)
            )),
            base => Err(format!(
                "the new build is missing: mgz compare {} NEW",
                base.first().map_or("BASE".into(), shown)
            )),
        }
    }
}

/// Conditions of `--fail-if`.
#[derive(Clone, Debug)]
pub struct Gate(pub Vec<Condition>);

/// A further output.
#[derive(Clone, Debug)]
pub struct Also(pub CompareFormat, pub PathBuf);

fn conditions(text: &str) -> Result<Gate, String> {
    gate::parse_conditions(text)
        .map(Gate)
        .map_err(|e| e.to_string())
}

fn also(text: &str) -> Result<Also, String> {
    let (format, file) = text
        .split_once('=')
        .ok_or("write FORMAT=FILE, such as junit=mgz.xml")?;
    Ok(Also(CompareFormat::from_str(format, false)?, file.into()))
}

/// Runs the command.
pub fn run_compare(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    if let Some(file) = &arguments.html {
        anyhow::bail!(
            "--html: the viewer of reports is in mgz, not in mgz-analyze; call mgz compare --html {}",
            file.display()
        );
    }
    let (base, new) = match arguments.sides() {
        Ok(sides) => sides,
        Err(usage) => {
            tell!("mgz-analyze: {usage}");
            return Ok(ExitCode::from(WRONG_USAGE));
        }
    };
    let gate = arguments.fail_if.as_ref().map_or(&[][..], |g| &g.0);
    let wants_misses = gate.iter().any(|c| matches!(c.metric, Metric::Misses(_)));
    let questions = Questions {
        // Findings need them even if the numbers are not compared.
        misses: true,
        gains: false,
        ..Questions::tables(arguments.misses || wants_misses)
    };
    let base = read_all(base, &questions)?;
    let new = read_all(new, &questions)?;
    let wanted: BTreeSet<String> = gate.iter().filter_map(|c| c.name.clone()).collect();
    let mut comparison = judge::compare(&base, &new, &wanted);
    comparison.warnings = different(&base, &new);
    let of_runs = |runs: &[RunEntries]| -> Vec<Option<RunFindings>> {
        runs.iter().map(|run| run.findings.clone()).collect()
    };
    comparison.findings = findings::changed(&of_runs(&base), &of_runs(&new));
    comparison.fix = fix::known(&base, &new, &comparison.changes);
    comparison.narrowing = repeat::advice(&base, &new, &comparison);
    for warning in &comparison.warnings {
        tell!("mgz-analyze: warning: {warning}");
    }
    let outcomes: Vec<GateOutcome> = gate
        .iter()
        .map(|c| c.check(&comparison, words::sentence))
        .collect();
    for condition in gate {
        if !condition.names_something(&comparison) {
            anyhow::bail!(
                "--fail-if {}: neither side has that name; the names that were compared are in --format json",
                condition.text
            );
        }
    }
    let mut out = std::io::stdout().lock();
    let width = std::io::stdout()
        .is_terminal()
        .then(|| comfy_table::Table::new().width())
        .flatten();
    let shape = |format: CompareFormat, width: Option<u16>| -> anyhow::Result<String> {
        Ok(match format {
            CompareFormat::Text => {
                show::comparison_text(&comparison, &outcomes, arguments.rows, width)
            }
            CompareFormat::Markdown => show::markdown(&comparison, &outcomes, arguments.rows),
            CompareFormat::Json => {
                serde_json::to_string_pretty(&show::json(&comparison, &outcomes)?)? + "\n"
            }
            CompareFormat::Junit => show::junit(&comparison, &outcomes),
            CompareFormat::CustomSmallerIsBetter => {
                serde_json::to_string_pretty(&show::smaller_is_better(&comparison))? + "\n"
            }
        })
    };
    for Also(format, file) in &arguments.also {
        std::fs::write(file, shape(*format, None)?)
            .with_context(|| format!("{}: cannot write", file.display()))?;
    }
    if let Some(file) = &arguments.report_data {
        let pictures = [&base, &new].map(|runs| runs.iter().map(|r| &r.picture).collect());
        let whole = report_data::whole(&comparison, &outcomes, pictures)?;
        std::fs::write(file, serde_json::to_vec(&whole)?)
            .with_context(|| format!("{}: cannot write", file.display()))?;
    }
    out.write_all(shape(arguments.format, width)?.as_bytes())?;
    out.flush()?;
    let violated = outcomes.iter().any(|o| !o.violations.is_empty());
    Ok(if violated {
        ExitCode::from(VIOLATED)
    } else {
        ExitCode::SUCCESS
    })
}

fn read_all(paths: &[PathBuf], questions: &Questions) -> anyhow::Result<Vec<RunEntries>> {
    let mut all = Vec::new();
    for path in paths {
        for one in inputs::expand(path)? {
            all.push(inputs::read_compared(
                &one,
                questions,
                &crate::util::progress::bar,
            )?);
        }
    }
    Ok(all)
}

/// Differences that make the two sides hard to compare.
fn different(base: &[RunEntries], new: &[RunEntries]) -> Vec<String> {
    let exact = |runs: &[RunEntries]| runs.iter().filter(|r| r.exact).count();
    let (a, b) = (exact(base), exact(new));
    let mut out = Vec::new();
    if a != 0 && a != base.len() || b != 0 && b != new.len() || (a == 0) != (b == 0) {
        out.push("some of the traces have every load and others have samples: reuse distances of the two are not comparable; record all in one mode".into());
    }
    let given = |runs: &[RunEntries]| match runs.first() {
        Some(run) if !run.arguments.is_empty() => format!("`{}`", run.arguments.join(" ")),
        _ => "none".to_string(),
    };
    if given(base) != given(new) {
        out.push(format!(
            "the programs had different arguments ({} and {}): what differs may be the input and not the build",
            given(base),
            given(new)
        ));
    }
    out
}
