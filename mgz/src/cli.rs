//! The command line of `mgz`.

use crate::agent::push::Collector;
use crate::{agent, doctor, fix, measured, report, run, serve, tools, viewed};
use clap::{CommandFactory, Parser, Subcommand};
use mgz_annotations_schema::tell;
use mgz_collector::objects::heap::blocks::HeapBlocks;
use mgz_collector::options::args::Pattern;
use mgz_collector::program::refusal::Refusal;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Exit status: `mgz` itself failed. Statuses below belong to the program.
pub const FAILED: i32 = 125;

/// Exit status of `mgz fix` if it fails or refuses a program.
const FIX_FAILED: i32 = 1;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz run -- ./app input.dat
      record app and write a report, app.mgz/report.html
  mgz run --heap -- ./app input.dat     log more of its heap blocks
  mgz run --libs -- xz -k big.tar       record its libraries too
  mgz run --overhead 5% -- ./app        more windows, for narrower intervals
  mgz run -- ./train.py                 a script: record its interpreter
  mgz report trace
      write trace.html, the report of a trace made by mgz-record
  mgz serve app.mgz
      show the report in a browser and analyse what you select there
  mgz compare old.mgz new.mgz
      compare two builds: what is better, worse or the same
  mgz compare --html diff.html old.mgz new.mgz   the same as an HTML report
  mgz what-if app.mgz/trace --remedy 'split of particles'
      predict the time that a remedy would save
  mgz fix -- ./app input.dat
      write app.fixed, a faster copy of app, if a remedy helps
  mgz agent --name '^shop' -o /var/lib/mgz
      record running services for ten seconds every ten minutes
  mgz doctor
      show what this machine can record, and the remedy for what it cannot
  mgz doctor --measure
      measure how long loads take on this machine, by cache level
  mgz record --mode full -- ./app.inst
      the steps of mgz run one by one: mgz instrument, mgz record, mgz analyze";

const AFTER: &str = "\
Exit status of mgz run: that of the program, or 128+n if signal n ended it; 3 if the program cannot be \
instrumented safely; 125 if mgz itself fails; 126 if the program cannot be executed; 127 if it is not found. \
Exit status of mgz report: 0 done; 1 error, or part of the trace was damaged and skipped.

A report contains the command line, paths, function names and source lines of recorded loads: check it before \
you share it.";

/// Show how a program uses memory: instrument it, record its loads, analyse them and write a
/// report.
#[derive(Debug, Parser)]
#[command(name = "mgz", version, before_help = EXAMPLES_HELP, after_help = AFTER, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `mgz`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program and make a report of how it uses memory
    Run(Run),
    /// Make a report of a trace
    Report(Report),
    /// Show a report in a browser and analyse what you select there: a time range, a thread, data
    Serve(Serve),
    /// Record running services for some seconds, again and again, and keep profiles
    Agent(Agent),
    /// Try the remedies of the findings on the compiled program, and keep those that measurably
    /// save time
    Fix(Fix),
    /// Show what this machine can record, and the remedy for what it cannot
    Doctor(Doctor),
    /// Run mgz-instrument
    #[command(disable_help_flag = true)]
    Instrument(Rest),
    /// Run mgz-record
    #[command(disable_help_flag = true)]
    Record(Rest),
    /// Run mgz-analyze
    #[command(disable_help_flag = true)]
    Analyze(Rest),
    /// Compare the ranks of a parallel job (runs mgz-analyze ranks)
    #[command(disable_help_flag = true)]
    Ranks(Rest),
    /// Compare two builds: what is better, worse or the same (runs mgz-analyze compare)
    #[command(disable_help_flag = true)]
    Compare(Rest),
    /// Write a trace in the format of another tool (runs mgz-analyze export)
    #[command(disable_help_flag = true)]
    Export(Rest),
    /// Make a trace from a trace of another tool (runs mgz-analyze import)
    #[command(disable_help_flag = true)]
    Import(Rest),
    /// Query a trace in SQL (runs mgz-analyze query)
    #[command(disable_help_flag = true)]
    Query(Rest),
    /// Predict the time that a remedy would save (runs mgz-analyze what-if)
    #[command(disable_help_flag = true)]
    WhatIf(Rest),
    /// Choose a few windows with weights that represent the run (runs mgz-analyze simpoints)
    #[command(disable_help_flag = true)]
    Simpoints(Rest),
    /// Print a completion script
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff)
    Man,
}

/// `mgz doctor`.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Measure the latencies and bandwidths of the caches and of memory instead, and keep them for
    /// later traces
    #[arg(long)]
    pub measure: bool,
    /// Print the measurement as JSON
    #[arg(long, requires = "measure")]
    pub json: bool,
}

/// `mgz run`.
#[derive(Debug, Default, clap::Args)]
pub struct Run {
    /// Folder for the report and the trace; replaces those of an earlier run [default: NAME.mgz]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Log more of the program's heap blocks, so that data are named by their allocation sites:
    /// blocks of 4 KiB and more and a sample of smaller ones, or all blocks [default: budget]
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "sampled")]
    pub heap: Option<HeapBlocks>,
    /// Log no heap blocks and do not wrap the allocator
    #[arg(long, conflicts_with = "heap")]
    pub no_heap: bool,
    /// Instrument also the libraries that the program needs: all but the C library, or those in
    /// LIST [default: those that took 2 % of the time or more in an earlier run; all except those
    /// of languages and the system if they have more code than the program]
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub libs: Option<String>,
    /// Instrument only the program's own file, even if most of the code is in its libraries
    #[arg(long, conflicts_with = "libs")]
    pub no_libs: bool,
    /// Record stores too: shows which cache lines threads take from each other
    #[arg(long)]
    pub stores: bool,
    /// Fetch debug information that is not on this machine from the servers in DEBUGINFOD_URLS
    /// (needs debuginfod-find)
    #[arg(long)]
    pub debuginfod: bool,
    /// Percent of the program's CPU time that recording may cost [default: 1]
    #[arg(long, value_name = "PERCENT")]
    pub overhead: Option<String>,
    /// Record every load, in order (small inputs: the trace grows fast)
    #[arg(long, conflicts_with = "overhead")]
    pub full: bool,
    /// Put the instrumented file beside the program instead of into the cache folder: for programs
    /// that look for files in their own folder
    #[arg(long)]
    pub beside: bool,
    /// Do not instrument the Python extension modules that the program imports
    #[arg(long)]
    pub no_modules: bool,
    /// Leave the source lines out of the report
    #[arg(long)]
    pub no_source: bool,
    /// Do not open the report, even where there is a display
    #[arg(long)]
    pub no_open: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM [ARGS]…"
    )]
    pub program: Vec<OsString>,
}

const FIX_EXAMPLES: &str = "\
Examples:
  mgz fix -- ./app input.dat
      records app, tries the remedies of its findings, writes ./app.fixed
  mgz fix -o /opt/bin/app.fast -- ./app input.dat
  mgz fix --stdin words.txt -- ./sort
  mgz fix --files out.bin -- ./app -o out.bin
      out.bin of the fixed program must be the same
  mgz fix --check 'diff -r -I ^Time' -- ./app
      lines that begin with Time may differ
  mgz fix --trace app.mgz -- ./app input.dat
      takes the findings of an earlier mgz run
  mgz fix --apply app.fix.json -o app.fixed -- ./app
      applies the same fix again, without measuring
  mgz fix --source -- ./app input.dat
      writes app.patch for the sources, and recipes where no patch is safe
  mgz fix --verify 'make' -- ./app input.dat
      builds a copy of the sources with each patch, and keeps what is faster
  mgz fix --apply app.patch
      applies the patch to the sources, completely or not at all";

const FIX_AFTER: &str = "\
mgz makes a copy of the program with each remedy. It runs the copy and the original in turn with the same \
arguments; output and exit status must be the same. A remedy is kept if the 95 % interval of its gain lies above \
1 %. The kept remedies are then joined and measured together. Times are CPU times of a program with one thread, \
and wall times of a program with more threads: let nothing else run meanwhile.

The program runs some 20 to 100 times. It must succeed, take 0.1 s or more, and print the same each time. It \
gets no terminal. To undo a fix, delete the written files.

Exit status: 0 a fix was written, 1 error or refused, 4 nothing was kept and nothing was written.";

/// `mgz fix`.
#[derive(Debug, clap::Args)]
#[command(before_help = FIX_EXAMPLES, after_help = FIX_AFTER)]
pub struct Fix {
    /// The fixed program [default: NAME.fixed]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// JSON file with what was tried and measured [default: NAME.fix.json beside the fixed program]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Maximum number of pairs of runs per comparison; clear cases take four
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = pairs)]
    pub pairs: usize,
    /// Command that compares two runs: it gets two folders with stdout, stderr and the files of
    /// --files, and succeeds if they are equivalent [default: all bytes must be the same]
    #[arg(long, value_name = "CMD")]
    pub check: Option<String>,
    /// A file or folder that the program writes; it is compared too
    #[arg(long, value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Standard input of each run [default: that of mgz if it is a file or a pipe, else empty]
    #[arg(long, value_name = "FILE")]
    pub stdin: Option<PathBuf>,
    /// Take the findings of this earlier recording of the same build instead of recording again
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Apply the fix of this JSON file without measuring, or apply this patch to the sources
    /// [default: the fix in this folder]
    #[arg(long, value_name = "FIX", num_args = 0..=1, default_missing_value = ".", conflicts_with_all = ["json", "check", "files", "stdin", "trace", "pairs", "source", "verify"])]
    pub apply: Option<PathBuf>,
    /// Write a patch for the sources [default: NAME.patch] instead of a fixed program, and recipes
    /// in words where no patch is safe
    #[arg(long)]
    pub source: bool,
    /// Build a copy of the sources with each patch by this command, and keep the patches that
    /// measurably save time
    #[arg(long, value_name = "BUILD COMMAND")]
    pub verify: Option<String>,
    /// Folder of the sources [default: the common folder of the sources and the program]
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// Do not store predicted and measured gains in the cache folder (also MGZ_NO_KEEP=1)
    #[arg(long)]
    pub no_keep: bool,
    /// The program and its arguments
    #[arg(
        required_unless_present_any = ["apply", "trace"],
        trailing_var_arg = true,
        value_name = "PROGRAM [ARGS]…"
    )]
    pub program: Vec<OsString>,
}

const AGENT_EXAMPLES: &str = "\
Examples:
  mgz agent --name '^shop' -o /var/lib/mgz
      ten seconds of each process whose name begins with shop, every ten minutes
  mgz agent --exe /opt/shop/shop.inst --every 1h --for 30s -o /var/lib/mgz
      the processes of an instrumented file
  mgz agent --name shop -o /var/lib/mgz --metrics /var/lib/node_exporter/mgz.prom
      also writes metrics for node_exporter's textfile collector
  mgz agent --name shop -o /var/lib/mgz --push http://localhost:4040/ingest
      also sends the profiles to Pyroscope
  mgz agent --name shop -o /var/lib/mgz --push http://localhost:4318/v1development/profiles
      also sends the profiles to an OpenTelemetry collector
  mgz report /var/lib/mgz/20260102T030405Z-shop.inst-4711
      the report of a recording; its profile is profile.pb.gz (go tool pprof)";

const AGENT_AFTER: &str = "\
Only processes that run a file made by mgz-instrument can be recorded; others are named once. Run the agent as \
root, or as the user of the processes. It enters containers (processes in other namespaces) by itself.

The processes of a turn are recorded one after the other. A turn is left out while the machine is busy \
(--max-pressure), and after a recording that cost more than --overhead.

Exit status: 0 ended by a signal or the stop file, 1 error.";

/// `mgz agent`.
#[derive(Clone, Debug, clap::Args)]
#[command(before_help = AGENT_EXAMPLES, after_help = AGENT_AFTER, group(clap::ArgGroup::new("rule").args(["name", "exe", "pid"]).required(true)))]
pub struct Agent {
    /// Record processes whose name, or the file name of whose executable, matches
    #[arg(long, value_name = "REGEX", value_parser = process_name)]
    pub name: Option<Pattern>,
    /// Record the processes of this executable, an instrumented file (in a container: its path
    /// there)
    #[arg(long, value_name = "PATH")]
    pub exe: Option<PathBuf>,
    /// Record this process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Folder for recordings, each in a folder of its own
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Time from one turn to the next
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub every: Duration,
    /// Length of a recording
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time)]
    pub duration: Duration,
    /// Percent of a process's CPU time that recording may cost
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = overhead)]
    pub overhead: f64,
    /// Leave a turn out if some task waited for a processor during this percentage of the last ten
    /// seconds, or more (/proc/pressure/cpu; else by the load)
    #[arg(long, value_name = "PERCENT", default_value_t = 40.0, value_parser = percent)]
    pub max_pressure: f64,
    /// Size of the folder: the oldest recordings are removed
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = mgz_models::util::size::size)]
    pub keep: u64,
    /// Remove recordings that are older
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = time)]
    pub keep_for: Duration,
    /// End as soon as this file exists
    #[arg(long, value_name = "FILE")]
    pub stop_file: Option<PathBuf>,
    /// Write metrics about the agent to this file after each turn, in Prometheus' text format
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Answer GET /metrics at this address, as in 127.0.0.1:9464
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Send each profile to this server (http only): http://HOST:4318/v1development/profiles for OTLP,
    /// http://HOST:4040/ingest for Pyroscope. May be given several times
    #[arg(long, value_name = "URL")]
    pub push: Vec<Collector>,
}

/// Parses a pattern for names. An empty one, as of a variable that is not set, would match all.
fn process_name(text: &str) -> Result<Pattern, String> {
    match text.is_empty() {
        true => Err("an empty pattern matches every process; write '.' if you mean that".into()),
        false => text.parse().map_err(|error| format!("{error}")),
    }
}

/// Parses a time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
    ];
    let seconds = UNITS.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        (number > 0.0 && number < 1e7).then_some(number * factor)
    });
    let wrong = || format!("{text:?} is not a time; give a unit, as in 30s, 10m, 2h or 7d");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Parses a percentage.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err("write a number from 0 to 100".into()),
    }
}

/// Parses the cost of recording, within the limits of mgz-record.
fn overhead(text: &str) -> Result<f64, String> {
    match percent(text) {
        Ok(number) if (0.01..=50.0).contains(&number) => Ok(number),
        _ => Err("write percent from 0.01 to 50".into()),
    }
}

/// Parses the number of pairs.
fn pairs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 4..=1000) => Ok(number),
        _ => Err("write a number from 4 to 1000".into()),
    }
}

/// `mgz report`.
#[derive(Debug, clap::Args)]
pub struct Report {
    /// The folder that mgz-record or mgz run wrote
    pub trace: PathBuf,
    /// The report [default: TRACE.html, or report.html in the folder of mgz run]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Leave the source lines out of the report
    #[arg(long)]
    pub no_source: bool,
    /// Trace with memory samples of another run of the same program (mgz-record --import), shown beside
    /// the predicted misses [default: the trace's own samples]
    #[arg(long, value_name = "TRACE")]
    pub measured: Option<PathBuf>,
}

/// `mgz serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The folder that mgz-record or mgz run wrote
    pub trace: PathBuf,
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,
    /// Leave the source lines out
    #[arg(long)]
    pub no_source: bool,
    /// Trace with memory samples of another run of the same program (mgz-record --import), shown beside
    /// the predicted misses [default: the trace's own samples]
    #[arg(long, value_name = "TRACE")]
    pub measured: Option<PathBuf>,
    /// Do not open the page, even where there is a display
    #[arg(long)]
    pub no_open: bool,
}

/// Arguments of another command.
#[derive(Debug, clap::Args)]
pub struct Rest {
    /// Its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub arguments: Vec<OsString>,
}

/// Executes the command line. Returns the exit status.
pub fn main(cli: Cli) -> i32 {
    let (done, failed) = match cli.command {
        Command::Run(run) => (run::run_program(&run), FAILED),
        Command::Report(report) => (report::run_report(&report), 1),
        Command::Serve(served) => (serve::run_serve(&served), 1),
        Command::Agent(asked) => (agent::command(&asked), 1),
        Command::Fix(asked) => (fix::run_fix(&asked), FIX_FAILED),
        Command::Doctor(asked) if asked.measure => (measured::show(asked.json), 1),
        Command::Doctor(_) => (doctor::run_doctor(), 1),
        Command::Instrument(rest) => (
            tools::become_tool("mgz-instrument", "mgz instrument", &rest.arguments),
            1,
        ),
        Command::Record(rest) => (
            tools::become_tool("mgz-record", "mgz record", &rest.arguments),
            FAILED,
        ),
        Command::Analyze(rest) => (
            tools::become_tool("mgz-analyze", "mgz analyze", &rest.arguments),
            1,
        ),
        Command::Ranks(rest) => (viewed::run_viewed("ranks", rest.arguments), 1),
        Command::Compare(rest) => (viewed::run_viewed("compare", rest.arguments), 1),
        Command::Export(rest) => (subcommand("export", rest), 1),
        Command::Import(rest) => (subcommand("import", rest), 1),
        Command::Query(rest) => (subcommand("query", rest), 1),
        Command::WhatIf(rest) => (subcommand("what-if", rest), 1),
        Command::Simpoints(rest) => (subcommand("simpoints", rest), 1),
        Command::Completions { shell } => {
            let mut bytes = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "mgz", &mut bytes);
            (print(&bytes), 1)
        }
        Command::Man => {
            let mut bytes = Vec::new();
            let made = clap_mangen::Man::new(Cli::command()).render(&mut bytes);
            (made.map_err(Into::into).and_then(|()| print(&bytes)), 1)
        }
    };
    done.unwrap_or_else(|error| {
        tell!("mgz: {error:#}");
        error
            .downcast_ref::<Refusal>()
            .map_or(failed, Refusal::status)
    })
}

/// Executes a subcommand of `mgz-analyze` in place of this process.
fn subcommand(name: &str, rest: Rest) -> anyhow::Result<i32> {
    let mut arguments = vec![OsString::from(name)];
    arguments.extend(rest.arguments);
    tools::become_tool("mgz-analyze", "mgz", &arguments)
}

/// Writes to standard output. A closed pipe is not a failure.
pub fn print(bytes: &[u8]) -> anyhow::Result<i32> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
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
        let parse = |line: &[&str]| Cli::try_parse_from([&["mgz"], line].concat());
        let Ok(Cli {
            command: Command::Run(run),
        }) = parse(&["run", "--heap", "--", "./a", "--libs", "-o", "x"])
        else {
            panic!("not a run");
        };
        assert!(run.heap.is_some() && run.libs.is_none() && run.output.is_none());
        assert_eq!(run.program, ["./a", "--libs", "-o", "x"]);
        assert!(parse(&["run"]).is_err());
        for (percent, is_valid) in [("0", false), ("0.01", true), ("50", true), ("100", false)] {
            let agent = parse(&["agent", "--name", "a", "-o", "b", "--overhead", percent]);
            assert_eq!(agent.is_ok(), is_valid, "{percent}");
        }
        assert!(parse(&["run", "--frobnicate", "--", "a"]).is_err());
        let Ok(Cli {
            command: Command::Record(rest),
        }) = parse(&["record", "--help"])
        else {
            panic!("not a record");
        };
        assert_eq!(rest.arguments, ["--help"]);
        for line in [&["a", "--", "b"][..], &["--rows", "3", "a", "b", "--", "c"]] {
            let Ok(Cli {
                command: Command::Compare(rest),
            }) = parse(&[&["compare"], line].concat())
            else {
                panic!("not a comparison");
            };
            assert_eq!(rest.arguments, line);
        }
    }

    #[test]
    fn help_begins_with_examples() {
        let help = Cli::command().render_help().to_string();
        assert!(help.starts_with("Examples:"), "{help}");
    }
}
