//! The command line of `mgz-record`.

use crate::convert::Compression;
use crate::machine::backend::Backend;
use crate::machine::trigger::{Asked, By, RATE};
use crate::objects::heap::blocks::HeapBlocks;
use crate::options::amount::{Amount, Wanted};
use crate::watch::events::Counter;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use mgz_annotations_schema::shell;
use mgz_models::util::size::size;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-instrument -o app.inst ./app
      instruments app (app.inst.mgza is written beside it)
  mgz-record -- ./app.inst input.dat
      windows of 1,000 records for 1% of the CPU time, into ./trace
  mgz-record --mode full -o t -- ./app.inst small.dat
      every load, in order (small inputs: the trace grows fast)
  mgz-record --rate 5000 --force -- ./app.inst
      denser sampling, replacing the trace of the last run
  mgz-record --mode ring --period 100000 -- ./app.inst
      the last 1,000 records of every 100,000: the same windows in each run
  mgz-record -- mpirun -n 4 ./app.inst
      one trace for each rank: trace.0, trace.1, …
  mpirun -n 4 mgz-record -- ./app.inst    the same, with any launcher
  mgz-record --calibrate -- ./app.inst
      counts how often each load is executed, and records windows in a second run
  mgz-record --mode watch -- ./app
      reuse pairs by hardware watchpoints; needs no instrumentation
  mgz-record --attach 4711 --duration 10
      ten seconds of a running process whose program is app.inst
  mgz-record --hot -- ./app input.dat
      shows which functions take the time, to choose what to instrument
  mgz-record --recover trace
      finishes a trace whose recorder was killed
  mgz-record --backend pt -- ./app.inst
      with Intel PT, where the processor has ptwrite
  mgz-record --probe
      shows what this machine can record, and the remedy for what it cannot
  mgz-record --import perf.data -o t
      a trace from an Intel PT recording made with perf
  mgz-record --import perf.data --raw     prints its ptwrites
  mgz-analyze trace                       analyses the trace

Record memory accesses of programs that mgz-instrument has prepared.
It leaves the program's input, output and exit status unchanged.";

const AFTER: &str = "\
Exit status: that of the program, or 128+n if signal n ended it; 125 if mgz-record itself fails (the program was \
not recorded), 126 if the program cannot be executed, 127 if it is not found.

Traces contain the program's command line, paths and addresses; only you can read their files.";

/// Record memory accesses of programs that mgz-instrument has prepared.
#[derive(Parser, Clone, Debug)]
#[command(name = "mgz-record", version, before_help = EXAMPLES_HELP, after_help = AFTER, about = None, long_about = None, max_term_width = 100)]
pub struct Cli {
    /// Folder for the trace; %r is replaced by the rank in a parallel job, %h by the host, %p by
    /// the process id, %q{NAME} by an environment variable [default in a parallel job: trace.%r]
    #[arg(short, long, value_name = "DIR", default_value = "trace")]
    pub output: PathBuf,

    /// Record only these ranks of a parallel job; the others run without recording: mpirun -n 32
    /// mgz-record --ranks 0,7,16-19 -- ./app.inst
    #[arg(long, value_name = "LIST", conflicts_with_all = ["attach", "hot", "recover", "import"])]
    pub ranks: Option<crate::options::rank_list::RankList>,

    /// Which records are kept [default: burst if the program is instrumented for it, else ring]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,

    /// Count the loads of each function and line and keep no addresses; `mgz-analyze
    /// --weights-from` uses the counts as weights for other traces of the same command (short for
    /// --mode count)
    #[arg(long, conflicts_with_all = ["mode", "hot", "recover", "import", "attach", "probe"])]
    pub count: bool,

    /// Run the program twice: first to count its loads, then to record it; the trace contains both,
    /// and mgz-analyze weights its windows by the counts
    #[arg(long, conflicts_with_all = ["count", "hot", "recover", "import", "attach", "probe"])]
    pub calibrate: bool,

    /// How records get out of the program
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,

    /// Records (mode ring) or loads (--trigger loads; Intel PT) from the end of one window to the
    /// end of the next [default: 1000000; mode burst: 10000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub period: Option<u64>,

    /// Records in a window (modes ring and burst)
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub window: u64,

    /// Percent of the program's CPU time that recording may cost (mode burst); in the first half
    /// second it may cost more, up to 28 ms, so that short runs have hundreds of windows [default:
    /// 1]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "rate")]
    pub overhead: Option<f64>,

    /// Windows (mode burst) or samples (mode watch) per second of a thread's CPU time, whatever
    /// they cost [default: as --overhead allows; mode watch: 100]
    #[arg(long, value_name = "HZ", value_parser = parse_rate)]
    pub rate: Option<f64>,

    /// Event that starts windows (mode burst) [default: loads if the PMU counts them and --rate is
    /// not given]
    #[arg(long, value_enum)]
    pub trigger: Option<By>,

    /// The event that counts loads, as type and config of perf_event_attr, for processors that
    /// mgz-record does not know (mode burst)
    #[arg(long, value_name = "TYPE:CONFIG", value_parser = crate::machine::trigger::parse_event)]
    pub loads_event: Option<Counter>,

    /// Signal that starts windows (modes burst and watch); change it if the program uses this one
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(34..=64))]
    pub signal: u32,

    /// Hardware watchpoints for each thread (mode watch)
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub watchpoints: u32,

    /// Instructions that are single-stepped after each sample to find near reuses (mode watch)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub near: u64,

    /// Stop recording after this many seconds; the program continues
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub duration: Option<f64>,

    /// Start recording only after this time (2s, 500ms, 3min) or number of recorded loads
    /// (1e9loads, 100Mloads) since the program's start
    #[arg(long, value_name = "AMOUNT", value_parser = clap::value_parser!(Amount))]
    pub start_after: Option<Amount>,

    /// Stop recording this time (2s, 500ms, 3min) or number of recorded loads (100Mloads) after its
    /// start; the program continues
    #[arg(long, value_name = "AMOUNT", value_parser = clap::value_parser!(Amount))]
    pub stop_after: Option<Amount>,

    /// Start recording when a function whose name matches is entered for the first time, in each
    /// process
    #[arg(long, value_name = "REGEX", value_parser = clap::value_parser!(Pattern), conflicts_with = "attach")]
    pub from_function: Option<Pattern>,

    /// Record the whole run, even if the program marks phases by mgz_start() and mgz_stop()
    #[arg(long)]
    pub ignore_markers: bool,

    /// End the program when its phase has been recorded: when --stop-after or --duration is over,
    /// at the stop marker of the first phase, or when --max-size is reached. The program gets
    /// SIGTERM, and SIGKILL two seconds later; the exit status is then 0
    #[arg(long, conflicts_with_all = ["attach", "hot", "recover", "import"])]
    pub exit_after: bool,

    /// Keep the trace in memory, analyse it after the recording, and leave nothing on disk. OPTIONS
    /// are those of mgz-analyze, as in --analyze='--all --rows 20'. With --mode full, cache and
    /// reuse --no-objects analyse while the program runs. The analysis goes to standard error,
    /// since standard output is the program's
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["output", "keep_spill", "hot", "recover", "import", "probe"])]
    pub analyze: Option<String>,

    /// Predict the whole run by a model that mgz-analyze predict --save has written, and print its
    /// reuse distances and miss ratios while the program runs, as soon as the input size shows.
    /// Same as --mode full --analyze='predict --model MODEL'
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["analyze", "output", "keep_spill", "hot", "recover", "import", "probe"])]
    pub predict: Option<PathBuf>,

    /// With --analyze: write the analysis to this file
    #[arg(long, value_name = "FILE", requires = "analyze")]
    pub analysis: Option<PathBuf>,

    /// Record a running process whose program was instrumented, until it ends, --duration is over
    /// or you press Ctrl-C; the process continues (mode burst)
    #[arg(long, value_name = "PID", conflicts_with_all = ["program", "hot", "recover", "import", "heap", "no_aslr", "functions", "pt"], value_parser = clap::value_parser!(i32).range(1..))]
    pub attach: Option<i32>,

    /// Show progress on standard error while the program runs, even if the program writes to the
    /// same terminal [default: only if it does not]
    #[arg(long)]
    pub progress: bool,

    /// Record only instrumented functions whose names match (Intel PT, as far as the processor has
    /// address filters)
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["hot", "recover", "import"])]
    pub functions: Option<String>,

    /// Settings of Intel PT: mtc[=N], cyc, tsc=0 (timing), psb=N (a PSB every 2^(11+N) bytes),
    /// bytes=N (of PT data in a window), clock[=HZ] (samples by CPU time), pause=0 (trace
    /// between samples too), keep (the capture, beside the trace)
    #[arg(long, value_name = "KEY[=VALUE],…", value_parser = crate::options::pt_settings::parse_pt_settings, conflicts_with_all = ["hot", "recover", "import"])]
    pub pt: Option<crate::options::pt_settings::Settings>,

    /// Replace the trace that the folder holds; a folder without a trace is never touched
    #[arg(long)]
    pub force: bool,

    /// Log the program's heap blocks too, with allocation sites and their call stacks, so that
    /// mgz-analyze --objects distinguishes them: blocks of 4 KiB and more, and a sample by bytes of
    /// smaller ones, which costs some 2 ns for each block. --heap=all logs every block, which costs
    /// up to a microsecond for each, or several if the recorder does not keep up
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "sampled", conflicts_with_all = ["hot", "recover", "import"])]
    pub heap: Option<HeapBlocks>,

    /// With --heap: log also the blocks of this function of a shared library. KIND names the
    /// argument with the block's size: alloc (the first), alloc2 (the second), calloc (the product
    /// of both), realloc (the second); or, of a function that frees, the argument with the block:
    /// free (the first), free2 (the second); may be given several times
    #[arg(long, value_name = "KIND=NAME", requires = "heap")]
    pub heap_hook: Vec<crate::objects::heap::hooks::Hook>,

    /// Do not read call stacks at the start of windows (modes ring and burst, and call chains of
    /// Intel PT recordings): tables by call path and the user's own frame of a finding are then
    /// unknown
    #[arg(long)]
    pub no_stacks: bool,

    /// Set no watchpoints at the end of windows (mode burst). They show when an address of a window
    /// is accessed again; without them, reuses between windows are not seen
    #[arg(long)]
    pub no_reuse_pairs: bool,

    /// Leave spill/ as it is and do not convert it to samples/
    #[arg(long)]
    pub keep_spill: bool,

    /// Compression of the columns
    #[arg(long, value_enum, default_value_t = Compression::Lz4, value_name = "CODEC")]
    pub compress: Compression,

    /// Maximum size of the trace, e.g. 500M, 20G; the program continues when it is reached
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub max_size: Option<u64>,

    /// Turn address randomisation off, so that runs can be compared
    #[arg(long)]
    pub no_aslr: bool,

    /// Format of the last line (on standard error, since standard output is the program's)
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub format: OutputFormat,

    /// Show where the program spends its time, and the --functions option for mgz-instrument that
    /// covers it
    #[arg(long, conflicts_with_all = ["recover", "mode", "keep_spill"])]
    pub hot: bool,

    /// Convert the spill files of a trace whose recording was interrupted
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["program", "hot"])]
    pub recover: Option<PathBuf>,

    /// Make a trace from a perf.data file with Intel PT data, memory samples, or both (- for
    /// standard input) instead of running a program
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "hot", "recover", "mode", "no_aslr"])]
    pub import: Option<PathBuf>,

    /// Sidecars of the imported recording's programs, if they are not beside the programs
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "import", conflicts_with = "import_form")]
    pub annotations: Vec<PathBuf>,

    /// Print every ptwrite of the imported file: sample, time_ns, tid, ip, payload
    #[arg(
        long,
        group = "import_form",
        requires = "import",
        conflicts_with = "program"
    )]
    pub raw: bool,

    /// Print every Intel PT packet of the imported file
    #[arg(
        long,
        group = "import_form",
        requires = "import",
        conflicts_with = "program"
    )]
    pub packets: bool,

    /// Show what this machine can record, and the remedy for what it cannot
    #[arg(long, conflicts_with_all = ["program", "hot", "recover", "import"])]
    pub probe: bool,

    /// Print a completion script
    #[arg(long, value_enum, value_name = "SHELL", exclusive = true)]
    pub completions: Option<clap_complete::Shell>,

    /// Print the manual page (roff)
    #[arg(long, exclusive = true)]
    pub man: bool,

    /// The name that the program gets as `argv[0]` (for mgz run, which starts another file than the
    /// user has named)
    #[arg(long, value_name = "NAME", hide = true)]
    pub argv0: Option<OsString>,

    /// For mgz run: what is missing is said by what follows
    #[arg(long, hide = true)]
    pub for_run: bool,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM [ARGS]…")]
    pub program: Vec<OsString>,

    /// Options given on the command line, by their names in this parser, without those that have
    /// their default.
    #[arg(skip)]
    pub given: BTreeSet<String>,

    /// True if `--` stands before the program.
    #[arg(skip)]
    pub separated: bool,

    /// The process's id and the folder of the trace as the user gave them, if the recorder has
    /// entered a container.
    #[arg(skip)]
    pub entered_from: Option<(i32, PathBuf)>,

    /// An analysis that takes rows while the program runs.
    #[arg(skip)]
    pub online: Option<std::sync::Arc<crate::convert::online::Online>>,
}

/// A regular expression on the command line.
#[derive(Clone, Debug)]
pub struct Pattern(pub regex::Regex);

impl std::str::FromStr for Pattern {
    type Err = regex::Error;

    fn from_str(text: &str) -> Result<Pattern, regex::Error> {
        regex::Regex::new(text).map(Pattern)
    }
}

impl Cli {
    /// Reads a command line, the program's name first.
    pub fn read(line: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let line: Vec<OsString> = line.collect();
        let matches = Cli::command().try_get_matches_from(&line)?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        let given = |id: &&clap::Id| {
            matches.value_source(id.as_str()) == Some(clap::parser::ValueSource::CommandLine)
        };
        cli.given = matches
            .ids()
            .filter(given)
            .map(|id| id.as_str().to_owned())
            .collect();
        let before = line.len().saturating_sub(cli.program.len());
        if cli.count {
            cli.mode = Some(Mode::Count);
        }
        if let Some(model) = &cli.predict {
            let model = shell::quoted(&model.to_string_lossy());
            cli.analyze = Some(format!("predict --model {model}"));
            cli.mode.get_or_insert(Mode::Full);
        }
        cli.separated = before > 0 && line[before - 1] == "--";
        Ok(cli)
    }

    /// The program's arguments, its name included.
    pub fn argv(&self) -> Vec<OsString> {
        let name = self.argv0.iter().chain(self.program.first()).take(1);
        name.chain(self.program.iter().skip(1)).cloned().collect()
    }

    /// `--period` where records are counted, or loads by Intel PT.
    pub fn records(&self) -> u64 {
        self.period.unwrap_or(1_000_000)
    }

    /// `--rate`.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or(RATE)
    }

    /// The user's options about phases.
    pub fn phases(&self) -> Wanted {
        Wanted {
            start: self.start_after,
            stop: self.stop_after,
            function: self.from_function.as_ref().map(|p| p.0.clone()),
            ignore_markers: self.ignore_markers,
            exit: self.exit_after,
        }
    }

    /// The place of the trace, in words for the user.
    pub fn shown_output(&self) -> &Path {
        match (&self.analyze, &self.entered_from) {
            (Some(_), _) => Path::new("memory"),
            (None, Some((_, output))) => output,
            (None, None) => &self.output,
        }
    }

    /// The user's options about triggers.
    pub fn triggers(&self) -> Asked {
        Asked {
            by: self.trigger,
            event: self.loads_event.clone(),
            period: self.period,
            rate: self.rate,
            overhead: self.overhead,
        }
    }
}

/// `--mode`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every record, in order, nothing dropped
    Full,
    /// Counts of all loads by function and line; no addresses (--count)
    Count,
    /// The last --window records of every --period records; the same ones in every run
    Ring,
    /// Windows of --window records, started by --trigger; between windows, the program runs at its
    /// own speed
    Burst,
    /// Sampled addresses and their next accesses, by hardware watchpoints (RDX); needs no
    /// instrumentation
    Watch,
    /// The runtime is in place but nothing is installed: for the single-step reference
    #[value(hide = true)]
    Off,
}

/// `--format`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// One line for people
    Text,
    /// One line of JSON
    Json,
}

/// A rate per second.
fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|r| (0.1..=50_000.0).contains(r));
    rate.ok_or_else(|| {
        format!("{text:?} is not a rate; give windows per second, from 0.1 to 50000")
    })
}

/// A share of the CPU time.
fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text
        .trim()
        .trim_end_matches('%')
        .parse::<f64>()
        .ok()
        .filter(|p| (0.01..=50.0).contains(p));
    percent.ok_or_else(|| {
        format!("{text:?} is not a share of the CPU time; give percent, from 0.01 to 50")
    })
}

/// A time.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let time = text
        .trim()
        .trim_end_matches('s')
        .parse::<f64>()
        .ok()
        .filter(|t| *t > 0.0 && *t < 1e9);
    time.ok_or_else(|| format!("{text:?} is not a time; give seconds"))
}

/// A size that is not 0.
fn parse_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err(format!("{text:?} is not a usable size")),
        bytes => Ok(bytes),
    }
}

/// Writes the completion script for a shell to `out`.
pub fn completions(shell: clap_complete::Shell, out: &mut impl std::io::Write) {
    clap_complete::generate(shell, &mut Cli::command(), "mgz-record", out);
}

/// Writes the manual page to `out`.
pub fn man(out: &mut impl std::io::Write) -> std::io::Result<()> {
    // The longer text of the help refers to its examples.
    let about = "Record memory accesses of programs that mgz-instrument has prepared";
    clap_mangen::Man::new(Cli::command().about(about)).render(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_behind_the_program_are_its_own() {
        let cli = Cli::try_parse_from([
            "mgz-record",
            "--mode",
            "full",
            "--",
            "./a",
            "--mode",
            "x",
            "-o",
        ])
        .unwrap();
        assert_eq!(cli.mode, Some(Mode::Full));
        assert_eq!(cli.program, ["./a", "--mode", "x", "-o"]);
        let cli = Cli::try_parse_from(["mgz-record", "./a", "--force", "--", "b"]).unwrap();
        assert!(!cli.force);
        assert_eq!(cli.program, ["./a", "--force", "--", "b"]);
        assert!(Cli::try_parse_from(["mgz-record", "--frobnicate", "--", "a"]).is_err());
    }

    #[test]
    fn an_import_says_what_to_print() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["mgz-record"], args].concat());
        assert!(
            parse(&["--import", "perf.data", "--raw"]).is_ok_and(|cli| cli.raw && !cli.packets)
        );
        assert!(parse(&["--import", "-", "--packets"]).is_ok_and(|cli| cli.packets));
        assert!(
            parse(&["--import", "x", "--annotations", "a", "b", "-o", "t"])
                .is_ok_and(|cli| cli.annotations.len() == 2)
        );
        assert!(parse(&["--import", "x"]).is_ok());
        for bad in [
            &["--annotations", "x"][..],
            &["--import", "x", "--annotations", "a", "--raw"],
            &["--raw", "--", "x"],
            &["--import", "x", "--raw", "--packets"],
            &["--probe", "--", "x"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1234"), Ok(1234));
        assert_eq!(parse_size("3k"), Ok(3072));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        for bad in ["", "x", "3X", "-1", "0", "99999999999T", "1.5G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn help_and_manual_begin_with_examples() {
        let help = Cli::command().render_help().to_string();
        assert!(help.starts_with("Examples:"), "{help}");
        let mut manual = Vec::new();
        man(&mut manual).unwrap();
        assert!(String::from_utf8(manual).unwrap().contains("mgz\\-record"));
    }
}
