//! Options of the analysis.
//!
//! The command line of `mgz-analyze` with its subcommands is in the crate of that name.

use crate::data::detail::Detail;
use crate::data::memory_units::LINE_BYTES;
use crate::estimate::row_estimates::Estimator;
use crate::filter::Conditions;
use crate::input::folder_of;
use crate::output::screen;
use crate::report::questions::Questions;
use crate::views::time_tree::Look;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, ValueEnum};
use mgz_annotations_schema::manifest::Cache;
use mgz_models::util::size::size;
use regex::Regex;
use std::path::PathBuf;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text tables on stdout.
    Table,
    /// One JSON document on stdout.
    Json,
    /// CSV files in the folder given with -o.
    Csv,
    /// Parquet files in the folder given with -o.
    Parquet,
}

/// Options of the analysis.
#[derive(Debug, Parser)]
#[command(name = "mgz-analyze")]
pub struct Arguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(required_unless_present_any = ["completions", "man", "merge"], value_parser = trace())]
    pub trace: Option<PathBuf>,
    /// Add the time tree and the location tree.
    #[arg(long)]
    pub zoom: bool,
    /// Print every table instead of one screen.
    #[arg(long)]
    pub all: bool,
    /// Block size of reuse distances, in bytes: a power of two.
    #[arg(long, default_value_t = LINE_BYTES, value_parser = block)]
    pub block: u64,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    pub format: OutputFormat,
    /// Folder for --format csv and parquet; created if missing. With json: also write
    /// DIR/analysis.json.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Rows of the function and line tables on stdout.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub rows: usize,
    /// A subregion is hot if it has at least this share of its parent's accesses, in percent (the τ
    /// of the location zoom).
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT", value_parser = share)]
    pub tau: f64,
    /// Page size at which the location zoom ends: a power of two.
    #[arg(long, default_value_t = crate::views::location::STOP, value_name = "BYTES", value_parser = block)]
    pub stop: u64,
    /// Add the table of data objects, if the trace has them (also added by --zoom).
    #[arg(long)]
    pub objects: bool,
    /// Add the table of call paths at the starts of windows, with their shares of the time and the
    /// memory that their loads touch.
    #[arg(long)]
    pub call_paths: bool,
    /// Add the tables of functions, lines, loops and objects by call path.
    #[arg(long)]
    pub by_path: bool,
    /// Add the table of cache misses by function, line, loop and object. Misses of sampled traces
    /// are predicted, with an interval that holds in nine cases of ten.
    #[arg(long)]
    pub misses: bool,
    /// Predict misses of these caches instead of the recording machine's:
    /// L1=32K/8,L2=1M/16,L3=32M/16 (size/ways), or skylake, skylake-server, icelake-server,
    /// sapphire-rapids, zen3 or zen4.
    #[arg(long, value_name = "CACHES", value_parser = caches)]
    pub caches: Option<Caches>,
    /// The part of the run to analyse.
    #[command(flatten)]
    pub filters: Filters,
    /// Time zoom: goes down to this node (an id such as 0.3.2) instead of the worst one, and
    /// continues from there.
    #[arg(long, value_name = "ID", requires = "zoom")]
    pub node: Option<String>,
    /// Estimator for footprints of the whole run from samples.
    #[arg(long, value_enum, default_value_t = Estimator::Recapture)]
    pub estimator: Estimator,
    /// A trace of the same command with counted loads (mgz-record --count, --mode full or --mode
    /// ring). Its counts are shown for the run, the functions and the lines, and windows are
    /// weighted by them. Default: the counts that mgz-record --calibrate has put into the trace.
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["partial", "merge"])]
    pub weights_from: Option<PathBuf>,
    /// A trace with memory samples of the same command (mgz-record --import of a recording of perf
    /// mem): the misses that the processor measured are shown beside the predicted ones. Default:
    /// the trace's own memory samples.
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["partial", "merge"], value_parser = trace())]
    pub measured: Option<PathBuf>,
    /// Write the results of one pass over the trace to FILE instead of showing them, to be merged
    /// by --merge.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["zoom", "objects"])]
    pub partial: Option<PathBuf>,
    /// Merge partial results (of --partial) and show the result. With --partial FILE: write it
    /// instead.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["trace", "zoom", "objects"])]
    pub merge: Vec<PathBuf>,
    /// Do not read the sidecars: addresses are analysed, but code has no names.
    #[arg(long)]
    pub no_annotations: bool,
    /// Memory for footprints, e.g. 512M; the rest goes to temporary files (in TMPDIR). Default: a
    /// quarter of the available memory.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub memory: Option<u64>,
    /// Threads to use; 0: one per CPU.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// For `mgz run`: writes the JSON of all that a report shows to FILE, and prints the screen.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["partial", "merge"])]
    pub report_data: Option<PathBuf>,
    /// For `mgz run`: the command line as its user gave it, a JSON list of words. The trace has
    /// that of the copy.
    #[arg(long, hide = true, value_name = "WORDS", value_parser = words)]
    pub command_line: Option<Words>,
    /// Print completions for a shell and end.
    #[arg(long, value_name = "SHELL", exclusive = true)]
    pub completions: Option<clap_complete::Shell>,
    /// Print the manual page (roff) and end.
    #[arg(long, exclusive = true)]
    pub man: bool,
}

/// A command line.
#[derive(Clone, Debug)]
pub struct Words(pub Vec<String>);

fn words(text: &str) -> Result<Words, String> {
    serde_json::from_str(text)
        .map(Words)
        .map_err(|error| error.to_string())
}

/// Levels of caches.
#[derive(Clone, Debug)]
pub struct Caches(pub Vec<Cache>);

fn caches(text: &str) -> Result<Caches, String> {
    crate::misses::caches::parse(text).map(Caches)
}

/// The folder of a trace; a folder that `mgz run` wrote is accepted as well.
pub fn trace() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(folder_of)
}

/// Bytes of a block: a power of two up to 1 GiB.
pub fn block(text: &str) -> Result<u64, String> {
    let value: u64 = text
        .parse()
        .map_err(|_| "not a number of bytes".to_string())?;
    if !value.is_power_of_two() || value > 1 << 30 {
        return Err("must be a power of two from 1 to 1073741824".into());
    }
    Ok(value)
}

/// Only a part of the trace is analysed: all tables and views are of that. Of several values of one
/// option one has to be met, of several options all.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct Filters {
    /// Only threads with this id or name.
    #[arg(long, value_name = "THREAD", conflicts_with_all = ["partial", "merge"])]
    pub thread: Vec<String>,
    /// Only processes with this id or name.
    #[arg(long, value_name = "PROCESS", conflicts_with_all = ["partial", "merge"])]
    pub process: Vec<String>,
    /// Only loads of functions whose name matches, also where they were inlined.
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["partial", "merge"])]
    pub function: Vec<Regex>,
    /// Only loads from data objects whose name matches.
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["partial", "merge"])]
    pub object: Vec<Regex>,
    /// Only loads from this range of addresses, with its first and last address:
    /// 0x7f0000001000-0x7f0000001fff.
    #[arg(long, value_name = "FIRST-LAST", conflicts_with_all = ["partial", "merge"], value_parser = addresses)]
    pub addresses: Vec<(u64, u64)>,
    /// Only from this time on, in seconds after the first sample.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["partial", "merge"], value_parser = seconds)]
    pub from: Option<f64>,
    /// Only up to this time, in seconds after the first sample.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["partial", "merge"], value_parser = seconds)]
    pub to: Option<f64>,
}

impl Filters {
    /// Conditions of the filters.
    pub fn conditions(&self) -> Conditions {
        Conditions {
            threads: self.thread.clone(),
            processes: self.process.clone(),
            functions: self.function.clone(),
            objects: self.object.clone(),
            addresses: self.addresses.clone(),
            from: self.from,
            to: self.to,
        }
    }
}

impl Arguments {
    /// Memory for footprints, bytes.
    pub fn footprint_bytes(&self) -> usize {
        self.memory.map_or_else(
            || crate::util::memory_limit::memory() / 4,
            |bytes| usize::try_from(bytes).unwrap_or(usize::MAX),
        )
    }

    /// Extent of the shown result.
    pub fn detail(&self) -> Detail {
        let more = [
            self.all,
            self.zoom,
            self.objects,
            self.misses,
            self.call_paths,
            self.by_path,
            self.report_data.is_some(),
        ];
        match self.format == OutputFormat::Table && !more.contains(&true) {
            true => Detail::Screen(self.screen_rows()),
            false => Detail::All,
        }
    }

    /// Functions and lines of a screen whose memory is estimated.
    pub fn screen_rows(&self) -> usize {
        self.rows.min(screen::ROWS)
    }

    /// True if a screen is shown and the data of a report are written.
    pub fn is_screen_with_report(&self) -> bool {
        let tables = [
            self.all,
            self.zoom,
            self.objects,
            self.misses,
            self.call_paths,
            self.by_path,
        ];
        self.report_data.is_some() && self.format == OutputFormat::Table && !tables.contains(&true)
    }

    /// Questions for the analysis.
    pub fn questions(&self) -> anyhow::Result<Questions> {
        Ok(Questions {
            zoom: self.zoom || self.report_data.is_some(),
            objects: self.objects || self.report_data.is_some(),
            block: self.block,
            tau: self.tau,
            stop: self.stop,
            estimator: self.estimator,
            footprint_bytes: self.footprint_bytes(),
            misses: true,
            asked_for_misses: self.misses,
            gains: true,
            caches: self.caches.clone().map(|c| c.0).unwrap_or_default(),
            counted: None,
            measured: self.measured.clone(),
            detail: Detail::All,
            by_path: self.by_path,
            call_paths: self.call_paths || self.all || self.report_data.is_some(),
            filter: self.filters.conditions(),
            look: Look {
                node: self
                    .node
                    .as_deref()
                    .map(Look::path)
                    .transpose()
                    .map_err(anyhow::Error::msg)?
                    .unwrap_or_default(),
            },
        })
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_string())?;
    if !(0.0..1e9).contains(&value) {
        return Err("must be 0 or more".into());
    }
    Ok(value)
}

fn addresses(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| {
        let digits = text.trim().strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let ends = text.split_once('-');
    ends.and_then(|(first, last)| Some((number(first)?, number(last)?)))
        .filter(|(first, last)| first <= last)
        .ok_or_else(|| "write the first and the last address, such as 0x1000-0x1fff".into())
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if !(value > 0.0 && value <= 100.0) {
        return Err("must be above 0 and at most 100".into());
    }
    Ok(value)
}
