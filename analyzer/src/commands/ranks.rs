//! `ranks`: many traces of one job, by rank.

use crate::cli::Arguments;
use crate::commands::counted::is_counted;
use crate::commands::{Common, is_watched, refuse_watched};
use crate::data::memory_units::LINE_BYTES;
use crate::input::Trace;
use crate::output::document::Document;
use crate::ranks::file::is_result;
use crate::ranks::view::document;
use crate::ranks::{Gap, Ranks, input_key, of_trace};
use crate::report::build::examine;
use crate::report::counted::find_counts;
use crate::report::questions::Questions;
use anyhow::{Context, bail};
use clap::{Args, Parser};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-analyze ranks trace.*
      all ranks of a job, analysed one after the other
  mgz-analyze ranks trace.7 --partial 7.ranks
      the result of one rank, for example from a job of its own
  mgz-analyze ranks *.ranks                     the same tables from such files
  mgz ranks *.ranks --html ranks.html           also an HTML report
  mgz-analyze ranks 1?.ranks --partial 1x.ranks   merges some results first

--partial does nothing if FILE holds the result of the same traces already.";

/// Arguments of `ranks`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct RanksArguments {
    /// Traces, or files that --partial has written, or both.
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// Write the result to FILE, to be merged with others, instead of showing it.
    #[arg(long, value_name = "FILE")]
    pub partial: Option<PathBuf>,
    /// Continue without inputs that cannot be read. Each is shown as a gap, and the exit status is
    /// 1.
    #[arg(long)]
    pub keep_going: bool,
    /// Show NAME as a gap: something without a result, such as a rank that failed: NAME or
    /// NAME=WHY.
    #[arg(long, value_name = "NAME=WHY")]
    pub gap: Vec<String>,
    /// Block size of reuse distances, in bytes: a power of two.
    #[arg(long, default_value_t = LINE_BYTES, value_parser = super::block_size)]
    pub block: u64,
    /// Also write an HTML report to FILE (only mgz ranks can: mgz-analyze has no viewer).
    #[arg(long, value_name = "FILE", conflicts_with = "partial")]
    pub html: Option<PathBuf>,
    /// For `mgz ranks --html`: writes the JSON of all that a report shows to FILE.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "partial")]
    pub report_data: Option<PathBuf>,
    /// Arguments of all subcommands.
    #[command(flatten)]
    pub common: Common,
}

/// Questions for each trace: everything that tables of ranks show.
fn questions(block: u64) -> anyhow::Result<Questions> {
    let words = ["mgz-analyze".into(), ".".into(), format!("--block={block}")];
    let arguments = Arguments::try_parse_from(words)?;
    Ok(Questions {
        zoom: true,
        ..arguments.questions()?
    })
}

/// The key that identifies the input `trace`.
pub fn key_of(trace: &Path, block: u64) -> anyhow::Result<String> {
    let options = format!("ranks 1, block {block}");
    input_key::key_of_trace(trace, &options).map_err(anyhow::Error::msg)
}

/// Result of one trace. The flag is true if a part of it was damaged.
pub fn of_trace(folder: &Path, block: u64, annotations: bool) -> anyhow::Result<(Ranks, bool)> {
    if is_watched(folder) {
        return Err(refuse_watched(folder, "mgz-analyze ranks"));
    }
    if is_counted(folder) {
        bail!(
            "{0}: a trace of mgz-record --count has numbers of loads and no rows; see them with mgz-analyze {0}",
            folder.display()
        );
    }
    let key = key_of(folder, block)?;
    let trace = Trace::open(folder, annotations)?;
    let mut questions = questions(block)?;
    questions.objects = folder.join("objects.parquet").exists();
    questions.counted = find_counts(&trace, None).map_err(anyhow::Error::msg)?;
    let (analysis, damage) = examine(&trace, &questions, &|_| ())?;
    let name = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    let found = of_trace::ranks_of_trace(&analysis, &trace.manifest, &name, key);
    Ok((found, !damage.is_empty() || !trace.damage.is_empty()))
}

/// Result of one input.
fn of_input(input: &Path, arguments: &RanksArguments) -> anyhow::Result<(Ranks, bool)> {
    if is_result(input) {
        return Ok((Ranks::read(input)?, false));
    }
    of_trace(input, arguments.block, !arguments.common.no_annotations)
}

/// The keys of all input traces; none if they are not known before the result is computed.
fn keys(arguments: &RanksArguments) -> Option<BTreeSet<String>> {
    let mut keys = BTreeSet::new();
    for input in &arguments.inputs {
        if is_result(input) {
            keys.extend(Ranks::read(input).ok()?.ranks.into_iter().map(|r| r.key));
        } else {
            keys.insert(key_of(input, arguments.block).ok()?);
        }
    }
    Some(keys)
}

/// True if the file already has the result.
fn is_done(file: &Path, arguments: &RanksArguments) -> bool {
    let Ok(there) = Ranks::read(file) else {
        return false;
    };
    let there_keys: BTreeSet<String> = there.ranks.into_iter().map(|r| r.key).collect();
    there.gaps.is_empty() && arguments.gap.is_empty() && keys(arguments) == Some(there_keys)
}

fn gap_of(text: &str) -> Gap {
    let (input, why) = text.split_once('=').unwrap_or((text, "it has no result"));
    Gap {
        input: input.to_owned(),
        why: why.to_owned(),
    }
}

/// Result of all inputs together. The flag is true if something is missing or damaged.
fn all(arguments: &RanksArguments) -> anyhow::Result<(Ranks, bool)> {
    let mut all = Ranks::default();
    let mut lacking = false;
    all.gaps = arguments.gap.iter().map(|gap| gap_of(gap)).collect();
    all.gaps.sort();
    all.gaps.dedup();
    for input in &arguments.inputs {
        let merged = of_input(input, arguments).and_then(|(found, damaged)| {
            lacking |= damaged;
            all.merge(found)
                .map_err(|cause| anyhow::anyhow!("{}: {cause}", input.display()))
        });
        match merged {
            Ok(()) => {}
            Err(error) if arguments.keep_going => {
                lacking = true;
                all.gaps.push(Gap {
                    input: input
                        .file_name()
                        .unwrap_or(input.as_os_str())
                        .to_string_lossy()
                        .into_owned(),
                    why: format!("{error:#}"),
                });
                all.gaps.sort();
            }
            Err(error) => {
                return Err(error.context("--keep-going goes on without it"));
            }
        }
    }
    Ok((all, lacking))
}

/// Runs the command. There is no document if a file was written. The flag is true if something is
/// missing or damaged.
pub fn run_ranks(arguments: &RanksArguments) -> anyhow::Result<(Option<Document>, bool)> {
    if let Some(file) = &arguments.html {
        bail!(
            "--html: the viewer of reports is in mgz, not in mgz-analyze; call mgz ranks --html {}",
            file.display()
        );
    }
    if let Some(file) = &arguments.partial {
        if is_done(file, arguments) {
            return Ok((None, false));
        }
        let (found, lacking) = all(arguments)?;
        found.write(file).context("the result of the ranks")?;
        return Ok((None, lacking));
    }
    let (found, lacking) = all(arguments)?;
    let document = document(&found);
    if let Some(file) = &arguments.report_data {
        let all = document.json().map_err(anyhow::Error::msg)?;
        std::fs::write(file, serde_json::to_vec(&all)?)
            .with_context(|| format!("{}: cannot write", file.display()))?;
    }
    Ok((Some(document), lacking))
}
