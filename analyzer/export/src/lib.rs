//! `mgz-analyze export`: a trace in the formats of other tools. [`import`]: the way back.
//!
//! Formats of profilers are made from a [`profile`]: loads by place, class, object, thread and
//! time. Formats of every access ([`accesses`]) need complete traces. Notes on numbers that do not
//! add up, and on missing data, are written to the file if the format allows it, and to standard
//! error. `docs/reference/export.md` describes the formats.

pub mod accesses;
pub mod dhat;
pub mod import;
pub mod lld_order;
pub mod module_files;
pub mod named_output;
pub mod otlp;
pub mod perfetto;
pub mod pprof;
pub mod profile;
pub mod protobuf;
pub mod rfc3339;
pub mod sarif;
pub mod text_profiles;
pub mod values;

use accesses::Format;
use anyhow::bail;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use mgz_analyzer::cli::trace;
use mgz_analyzer::commands::{is_watched, refuse_watched};
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::report::Analysis;
use mgz_analyzer::report::build::examine;
use mgz_analyzer::report::questions::Questions;
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::manifest::Cache;
use mgz_annotations_schema::tell;
use mgz_model_commands::cache::spec::hierarchy;
use mgz_models::cache::{LevelSpec, Shape};
use named_output::{NamedOutput, write_file};
use profile::Profile;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use values::Weight;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz export trace --to pprof -o loads.pb.gz
      then: go tool pprof -http : loads.pb.gz
  mgz export trace --to otlp -o loads.otlp --service shop
      then: curl -H 'Content-Type: application/x-protobuf' --data-binary @loads.otlp \\
                http://localhost:4318/v1development/profiles
  mgz export trace --to speedscope -o loads.speedscope.json
  mgz export trace --to perfetto -o loads.pftrace  for https://ui.perfetto.dev
  mgz export trace --to callgrind -o callgrind.out.mgz; callgrind_annotate callgrind.out.mgz
  mgz export trace --to collapsed --weight time | flamegraph.pl > time.svg
  mgz export trace --to sarif -o mgz.sarif
      findings beside the lines of a pull request
  mgz export trace --to lld-order -o order
      then: clang -fuse-ld=lld -Wl,--symbol-ordering-file=order …
  mgz export full --to drmemtrace -o drmemtrace.app.dir
  mgz export full --to ramulator2 --behind 32K:8:plru:stride,1M:16 -o misses.trace

docs/reference/export.md describes the contents of each format.";

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// pprof: loads, misses, footprint, reuses, by place, class, object and thread.
    Pprof,
    /// OpenTelemetry: the values of pprof, as a request of OTLP (profiles/v1development).
    Otlp,
    /// The Firefox profiler: loads in time.
    Firefox,
    /// speedscope: loads in time.
    Speedscope,
    /// One line for each stack, for flame graphs.
    Collapsed,
    /// Callgrind: loads and misses by line.
    Callgrind,
    /// Perfetto: windows, and loads per time.
    Perfetto,
    /// DHAT: heap blocks and the reads of them.
    Dhat,
    /// Findings for code hosts (SARIF 2.1.0).
    Sarif,
    /// Functions and variables in an order for linkers (ld.lld --symbol-ordering-file).
    LldOrder,
    /// Valgrind's lackey: every access of a complete trace.
    Lackey,
    /// Dinero's traces: every access of a complete trace.
    Din,
    /// DynamoRIO's drmemtrace: every access of a complete trace; a folder.
    Drmemtrace,
    /// ChampSim: every access of a complete trace, as an instruction that does nothing else.
    Champsim,
    /// Ramulator 2 (load-store traces): every access of a complete trace.
    Ramulator2,
}

impl To {
    /// The writer of the format. A new format must be named here, or this does not compile.
    fn writer(self) -> Writer {
        match self {
            To::Lackey => Writer::Accesses(Format::Lackey),
            To::Din => Writer::Accesses(Format::Din),
            To::Drmemtrace => Writer::Accesses(Format::Drmemtrace),
            To::Champsim => Writer::Accesses(Format::Champsim),
            To::Ramulator2 => Writer::Accesses(Format::Ramulator2),
            To::Sarif => Writer::Analysis(|analysis, arguments| {
                let log = sarif::sarif_log(analysis, &arguments.source_root);
                let mut bytes = serde_json::to_vec_pretty(&log)?;
                bytes.push(b'\n');
                Ok(bytes)
            }),
            To::LldOrder => Writer::Symbols(lld_order::order_symbols),
            To::Pprof => Writer::Profile(|profile, _| Ok(pprof::encode_pprof(profile)?)),
            To::Otlp => Writer::Profile(|profile, arguments| {
                let service = arguments.service.as_deref();
                Ok(otlp::encode_otlp(profile, service))
            }),
            To::Perfetto => Writer::Profile(|profile, _| Ok(perfetto::encode_perfetto(profile))),
            To::Firefox => Writer::Weighted(|profile, weight| {
                Ok(serde_json::to_vec(&text_profiles::firefox(
                    profile, weight,
                ))?)
            }),
            To::Speedscope => Writer::Weighted(|profile, weight| {
                let file = text_profiles::speedscope(profile, weight);
                Ok(serde_json::to_vec(&file)?)
            }),
            To::Collapsed => Writer::Weighted(|profile, weight| {
                Ok(text_profiles::collapsed(profile, weight).into_bytes())
            }),
            To::Callgrind => {
                Writer::Profile(|profile, _| Ok(text_profiles::callgrind(profile).into_bytes()))
            }
            To::Dhat => Writer::Profile(|profile, arguments| {
                let heap =
                    dhat::write_dhat(&arguments.trace, profile).map_err(anyhow::Error::msg)?;
                Ok(serde_json::to_vec(&heap)?)
            }),
        }
    }

    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |v| v.get_name().to_string())
    }

    /// True if its bytes are no text for a terminal. A folder has its own message instead.
    fn is_binary(self) -> bool {
        match self {
            To::Pprof | To::Otlp | To::Perfetto | To::Champsim => true,
            To::Firefox
            | To::Speedscope
            | To::Collapsed
            | To::Callgrind
            | To::Dhat
            | To::Sarif
            | To::LldOrder
            | To::Lackey
            | To::Din
            | To::Drmemtrace
            | To::Ramulator2 => false,
        }
    }

    /// Names of the formats whose writers are of a kind, as a list in words.
    fn list(is_one: fn(&Writer) -> bool) -> String {
        let all = To::value_variants().iter();
        let mut names: Vec<String> = all
            .filter(|to| is_one(&to.writer()))
            .map(|to| to.name())
            .collect();
        let last = names.pop().unwrap_or_default();
        format!("{} or {last}", names.join(", "))
    }
}

/// The way a format is written.
enum Writer {
    /// From every access of a complete trace.
    Accesses(Format),
    /// From the tables and findings of the analysis.
    Analysis(fn(&Analysis, &ExportArguments) -> anyhow::Result<Vec<u8>>),
    /// From windows and the tables of the analysis: an order of symbols.
    Symbols(fn(&Trace, &Analysis) -> anyhow::Result<lld_order::Order>),
    /// From loads by place, class, object, thread and time.
    Profile(fn(&Profile, &ExportArguments) -> anyhow::Result<Vec<u8>>),
    /// The same, with one kind of value as the weight of stacks.
    Weighted(fn(&Profile, &Weight) -> anyhow::Result<Vec<u8>>),
}

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct ExportArguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(value_parser = trace())]
    pub trace: PathBuf,
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: To,
    /// The file, or the folder of drmemtrace; without it: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// For formats with every access: writes only the lines that miss in these caches. Levels are
    /// written as for mgz-analyze cache (32K:8:plru:stride,1M:16:exclusive), or as for mgz-analyze
    /// --caches (L1=32K/8,L2=1M/16, or a name).
    #[arg(long, value_name = "CACHES", value_parser = caches)]
    pub behind: Option<Behind>,
    /// Add predicted misses of a sampled trace (full traces always have misses).
    #[arg(long)]
    pub misses: bool,
    /// speedscope, Firefox, collapsed: weight of stacks: loads, time, misses_L1 or another level
    /// [default: loads].
    #[arg(long, value_name = "VALUE")]
    pub weight: Option<String>,
    /// OTLP: name of the service [default: name of the program].
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub service: Option<String>,
    /// SARIF: folder that paths are given relative to.
    #[arg(long, value_name = "DIR", default_value = "")]
    pub source_root: String,
}

/// Caches in front of a memory.
#[derive(Clone, Debug)]
pub struct Behind(pub Vec<LevelSpec>);

fn caches(text: &str) -> Result<Behind, String> {
    if text.contains(':') {
        return hierarchy(text).map(Behind);
    }
    let of = |c: &Cache| Shape::new(c.size, c.ways, c.line).map(LevelSpec::from);
    let caches = mgz_analyzer::misses::caches::parse(text)?;
    let levels: Result<Vec<_>, _> = caches.iter().map(of).collect();
    levels.map(Behind).map_err(|e| e.to_string())
}

/// The tables of a trace.
fn analysis(trace: &Trace, misses: bool) -> anyhow::Result<(Analysis, Vec<String>)> {
    let questions = Questions::tables(misses);
    let source = trace.source(ColumnSet::default());
    let bar =
        mgz_analyzer::util::progress::bar((0..source.pieces()).map(|p| source.piece_rows(p)).sum());
    drop(source);
    let found = examine(trace, &questions, &|rows| bar.inc(rows));
    bar.finish_and_clear();
    Ok(found?)
}

/// Runs the command.
pub fn run_export(arguments: &ExportArguments) -> anyhow::Result<ExitCode> {
    let (to, folder) = (arguments.to, &arguments.trace);
    if is_watched(folder) {
        return Err(refuse_watched(folder, "mgz-analyze export"));
    }
    if arguments.output.is_none() && to.is_binary() && std::io::stdout().is_terminal() {
        bail!(
            "--to {} is no text for a terminal; give a file with -o",
            to.name()
        );
    }
    let trace = Trace::open(folder, true)?;
    let mode = &trace.manifest.mode;
    if *mode == TraceMode::Count {
        bail!(
            "{}: mgz-analyze export needs rows of loads, and a trace of mgz-record --count has only numbers of loads; record with another --mode",
            folder.display()
        );
    }
    if let Writer::Accesses(format) = to.writer() {
        if !mode.has_all_loads() {
            bail!(
                "{}: --to {} needs every access of the run, and this trace is sampled (mode {mode}); record with mgz-record --mode full",
                folder.display(),
                to.name()
            );
        }
        return every_access(&trace, format, arguments);
    }
    if arguments.behind.is_some() {
        bail!(
            "--behind filters accesses, and --to {} has no accesses; choose {}",
            to.name(),
            To::list(|writer| matches!(writer, Writer::Accesses(_)))
        );
    }
    let is_weighted = |writer: &Writer| matches!(writer, Writer::Weighted(_));
    if arguments.weight.is_some() && !is_weighted(&to.writer()) {
        bail!(
            "--weight chooses one kind of value, and --to {} has all or none; choose {}",
            to.name(),
            To::list(is_weighted)
        );
    }
    let (analysis, mut damage) = analysis(&trace, arguments.misses)?;
    let bytes = match to.writer() {
        Writer::Analysis(write) => write(&analysis, arguments)?,
        Writer::Symbols(write) => {
            let order = write(&trace, &analysis)?;
            add_damage(order.damaged, &mut damage);
            tell(&order.notes);
            order.text.into_bytes()
        }
        Writer::Profile(write) => {
            let profile = profile::build(&trace, &analysis);
            add_damage(profile.damaged, &mut damage);
            tell(&profile.notes);
            write(&profile, arguments)?
        }
        Writer::Weighted(write) => {
            let profile = profile::build(&trace, &analysis);
            let name = arguments.weight.as_deref().unwrap_or("loads");
            let weight = profile.weight(name).map_err(anyhow::Error::msg)?;
            add_damage(profile.damaged, &mut damage);
            tell(&profile.notes);
            write(&profile, &weight)?
        }
        Writer::Accesses(_) => unreachable!("written from the rows, above"),
    };
    match &arguments.output {
        Some(file) => write_file(file, &bytes)?,
        None => {
            let mut out = NamedOutput::stdout();
            out.write_all(&bytes)?;
            out.flush()?;
        }
    }
    let whole = damage.is_empty() && trace.damage.is_empty();
    tell(&damage);
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn add_damage(damaged: bool, damage: &mut Vec<String>) {
    if damaged && damage.is_empty() {
        damage.push("part of the trace could not be read".into());
    }
}

fn tell(notes: &[String]) {
    for note in notes {
        tell!("mgz-analyze: note: {note}");
    }
}

fn every_access(
    trace: &Trace,
    format: Format,
    arguments: &ExportArguments,
) -> anyhow::Result<ExitCode> {
    let levels = arguments.behind.as_ref().map_or(&[][..], |b| &b.0);
    let mut done = accesses::export(trace, format, arguments.output.as_deref(), levels)?;
    done.notes.extend(format.lacks().map(String::from));
    tell(&done.notes);
    tell!(
        "mgz-analyze: wrote {} loads and {} stores",
        done.loads,
        done.stores
    );
    let whole = !done.damaged && trace.damage.is_empty();
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_documented() {
        let page =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/export.md");
        let page = std::fs::read_to_string(page).unwrap();
        for to in To::value_variants() {
            let row = format!("| `{}` |", to.name());
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn formats_of_a_kind_are_named() {
        assert_eq!(
            To::list(|writer| matches!(writer, Writer::Accesses(_))),
            "lackey, din, drmemtrace, champsim or ramulator2"
        );
        assert_eq!(
            To::list(|writer| matches!(writer, Writer::Weighted(_))),
            "firefox, speedscope or collapsed"
        );
    }
}
