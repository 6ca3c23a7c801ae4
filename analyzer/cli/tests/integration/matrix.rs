//! Every command with every option and output format, on traces with next to nothing in them.
//!
//! Commands and options come from the definition of the command line, so that a new one cannot be
//! forgotten: an option whose values this file does not know fails the test. For any trace, a
//! command gives a result or one sentence.

use crate::common::{
    Life, SampleRow, Watched, manifest, sidecar, write_lives, write_trace, write_watch,
};
use clap::CommandFactory;
use mgz_analyze::Cli;
use mgz_annotations_schema::manifest::{Manifest, Thread};
use mgz_annotations_schema::sidecar::NONE;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const FORMATS: [&str; 4] = ["table", "json", "csv", "parquet"];

/// Values for an option that takes one, each with the other options that it needs. The test makes
/// the files that `{…}` stands for. Options without a value are given alone unless they are listed
/// here.
fn values(command: &str, option: &str) -> Option<&'static [&'static str]> {
    Some(match (command, option) {
        // The loop over formats covers these.
        (_, "format" | "output") => &[],
        ("predict", "rows") => &["--model {model} --size 5 --rows 0"],
        ("predict", "threads") => &["--model {model} --test {full} --threads 1"],
        (_, "rows") => &["--rows 0", "--rows 1"],
        (_, "threads") => &["--threads 1"],
        ("", "block") => &["--block 1", "--block 4096", "--block 1073741824 --zoom"],
        ("", "tau") => &["--zoom --tau 0.001", "--zoom --tau 100"],
        ("", "stop") => &["--zoom --stop 1", "--zoom --stop 1073741824"],
        ("", "from") => &["--zoom --from 0", "--zoom --from 1000000"],
        ("", "to") => &["--zoom --to 0", "--zoom --to 5 --from 6"],
        ("", "node") => &["--zoom --node 0", "--zoom --node 0.3.2"],
        ("", "estimator") => &["--estimator recapture", "--estimator memgaze"],
        ("", "report-data") => &["--report-data {out}/data.json"],
        ("", "command-line") => &["--command-line [\"app\",\"1\"]"],
        ("", "partial") => &["--partial {out}/part"],
        ("", "merge") => &[
            "--merge {part}",
            "--merge {part} {part}",
            "--merge {part} --partial {out}/part",
        ],
        ("", "caches") => &["--caches L1=32K/8", "--caches zen3"],
        ("", "weights-from") => &["--weights-from {full}"],
        ("", "measured") => &["--measured {full}"],
        ("", "thread") => &["--thread 8", "--thread nobody"],
        ("", "process") => &["--process 7", "--process nobody"],
        ("", "function") => &["--function .", "--function nothing"],
        ("", "object") => &["--object .", "--object nothing"],
        ("", "addresses") => &["--addresses 0x0-0xffffffffffff", "--addresses 0x5-0x6"],
        ("ranks" | "compare", "report-data") => &["--report-data {out}/data.json"],
        ("ranks" | "compare", "html") => &["--html {out}/report.html"],
        ("cache", "schedule") => &[
            "--level 32K:8 --mimic 2 --schedule static,1",
            "--level 32K:8 --mimic 2 --schedule dynamic",
        ],
        ("predict", "level") => &["--train {full} --train {larger} --test {full} --level 32K:8:8"],
        ("", "memory") => &["--memory 0", "--memory 1M"],
        ("reuse" | "affinity", "block") => &["--block 1", "--block 4K", "--block 1G"],
        ("reuse", "bins") => &["--bins log", "--bins linear", "--bins log-linear"],
        ("reuse", "width") => &[
            "--width 1 --bins linear",
            "--width 1 --bins log-linear",
            "--width 1048576 --bins log-linear",
        ],
        ("reuse", "relative-error") => &["--relative-error 0.01"],
        ("reuse", "absolute-error") => &["--absolute-error 0", "--absolute-error 100"],
        ("reuse", "exact-below") => &["--exact-below 10 --absolute-error 10"],
        ("reuse", "windows") => &["--windows", "--windows 1", "--windows 1000"],
        ("reuse", "rdx") => &["--rdx", "--rdx --period 1"],
        ("reuse", "period") => &["--rdx --period 1", "--rdx --period 2"],
        ("reuse", "watchpoints") => &["--rdx --period 1 --watchpoints 1"],
        ("reuse", "attribution") => &[
            "--rdx --period 1 --attribution survival",
            "--rdx --period 1 --attribution proportional",
            "--rdx --period 1 --attribution none",
        ],
        ("reuse", "seed") => &["--rdx --period 1 --seed 9"],
        ("reuse", "compare") => &[
            "--rdx --period 1 --compare",
            "--rdx --period 1 --compare --block 4K",
        ],
        ("reuse", "accesses-from") => &["--rdx --accesses-from {full}"],
        ("reuse", "cache") => &["--cache 0", "--cache 32K --cache 1M"],
        ("spectra", "granularity") => {
            &["--granularity 1", "--granularity 64", "--granularity 8,1G"]
        }
        ("spectra", "intervals") => &["--intervals 1", "--intervals 7 --functions --stores"],
        ("cache", "level") => &[
            "--level 64:1",
            "--level 32K:8 --level 1M:16",
            "--level 32K:8:128",
            "--level 32K:8:plru:stride --level 1M:16:exclusive:rrip --level 8M:16:fifo:inclusive:next-line",
            "--level 32K:8:random --level 1M:16:inclusive --stores",
        ],
        ("cache", "tlb") => &["--level 32K:8 --tlb 64:4:4K --tlb 32:4:2M:plru --tlb 1536:12"],
        ("cache", "skip") => &["--level 32K:8 --skip 1", "--level 32K:8 --skip 1000000"],
        ("cache", "warm-up") => &["--level 32K:8 --warm-up 1 --skip 1"],
        ("cache", "stack-reads") => &["--level 32K:8 --stack-reads 100"],
        ("cache", "shared-from") => &[
            "--level 32K:8 --level 1M:16 --shared-from 1",
            "--level 32K:8 --shared-from 9",
        ],
        ("cache", "mimic") => &["--level 32K:8 --mimic 1,2", "--level 32K:8 --mimic 1024"],
        ("cache", "turns") => &[
            "--level 32K:8 --turns round-robin",
            "--level 32K:8 --turns proportional",
            "--level 32K:8 --turns random",
            "--level 32K:8 --turns sequential",
        ],
        ("cache", "chunk") => &["--level 32K:8 --turns chunks --chunk 2"],
        ("cache", "cores") => &[
            "--level 32K:8 --turns cores --cores 1",
            "--level 32K:8 --mimic 4 --turns cores --cores 2 --chunk 3",
        ],
        ("cache", "sets") => &["--level 1M:16 --sets 16", "--level 64:1 --sets 16"],
        ("cache", "weights-from") => &[
            "--level 32K:8 --weights-from {full}",
            "--level 32K:8 --weights-from {trace}",
        ],
        ("ranks", "partial") => &["--partial {out}/part"],
        ("ranks", "gap") => &["--gap 3=lost"],
        ("ranks", "block") => &["--block 1", "--block 1073741824"],
        ("predict", "train") => &[
            "--train {trace} --train {trace}",
            "--train {full} --train {trace}",
            "--train {trace}",
        ],
        ("predict", "model") => &["--model {model}"],
        ("predict", "save") => &["--train {full} --train {larger} --save {out}/model"],
        ("predict", "size") => &[
            "--model {model} --size 1",
            "--model {model} --size 1e9 --size 5",
        ],
        ("predict", "test") => &[
            "--model {model} --test {trace}",
            "--model {model} --test {full}",
        ],
        ("predict", "beginning") => &[
            "--model {model} --beginning {full}",
            "--train {full} --train {larger} --size-from sampling --beginning {full}",
        ],
        ("predict", "size-from") => &[
            "--train {full} --train {larger} --size-from data",
            "--train {full} --train {larger} --size-from sampling",
            "--train {trace} --train {trace} --size-from sampling",
        ],
        ("predict", "block") => &["--train {full} --train {larger} --block 4K --size 9"],
        ("predict", "cache") => &[
            "--model {model} --size 100 --cache 1",
            "--model {model} --size 100 --cache 64K",
        ],
        ("predict", "no-annotations") => &["--model {model} --test {full} --no-annotations"],
        ("predict", "online") => &["--model {model} --online {trace}"],
        ("predict", "stores") => &["--train {trace} --train {trace} --stores"],
        ("simpoints", "window") => &["--window 1", "--window 10M"],
        ("simpoints", "max") => &["--max 1", "--max 1000 --window 1"],
        ("simpoints", "seed") => &["--seed 0"],
        ("simpoints", "write") => &["--write {out}/app"],
        ("affinity", "hot") => &["--hot 2", "--hot 512"],
        ("affinity", "reach") => &["--reach 1", "--reach 1000000"],
        _ => return None,
    })
}

/// Options that only one of the traces supports: they are tried on all traces.
const OPTIONS_OF_ONE_TRACE: [&str; 3] = ["train", "stores", "accesses-from"];

/// Commands with formats of their own:
/// [`commands_with_formats_of_their_own_take_the_smallest_traces`].
// A remedy of `what-if` needs data that the smallest traces do not have.
const COMMANDS_APART: [&str; 5] = ["compare", "export", "import", "query", "what-if"];

/// A command line without its format. Words may contain `{…}`.
#[derive(Clone, Debug)]
struct Line {
    command: String,
    words: Vec<String>,
    /// The option that the line tests.
    option: String,
}

/// All command lines to run on a trace.
fn lines() -> Vec<Line> {
    let top = Cli::command();
    let mut out = Vec::new();
    let mut commands = vec![("".to_string(), &top)];
    commands.extend(
        top.get_subcommands()
            .map(|c| (c.get_name().to_string(), c))
            .filter(|(name, _)| !COMMANDS_APART.contains(&name.as_str())),
    );
    for (name, command) in commands {
        let mut add = |option: &str, words: &str| {
            out.push(Line {
                command: name.clone(),
                words: words.split_whitespace().map(String::from).collect(),
                option: option.into(),
            });
        };
        if name != "predict" {
            add("", "");
        }
        for argument in command.get_arguments() {
            let option = argument.get_id().as_str();
            let Some(long) = argument.get_long() else {
                assert!(argument.is_positional(), "{name} {option} has no long form");
                continue;
            };
            if argument.is_exclusive_set() || matches!(long, "help" | "version") {
                continue;
            }
            match values(&name, long) {
                Some(values) => values.iter().for_each(|words| add(long, words)),
                None => {
                    assert!(
                        !argument.get_action().takes_values(),
                        "what is to be given for --{long} of {name:?}? Say it in `values`"
                    );
                    match name.as_str() {
                        "predict" => add(
                            long,
                            &format!("--model {{model}} --test {{trace}} --{long}"),
                        ),
                        _ => add(long, &format!("--{long}")),
                    }
                }
            }
        }
    }
    out
}

/// A row of the smallest program: one thread, one sample.
fn row(seq: u64, address: u64) -> SampleRow {
    SampleRow {
        process: 7,
        thread: 8,
        seq,
        time_ns: 1000 + seq * 10,
        site: (seq % 4) as u32,
        address,
        size: 8,
        class: 1 + (seq % 2) as u8,
        ip: 0x1000 + seq % 4 * 4,
        ..SampleRow::default()
    }
}

/// The row, with an unknown site.
fn unknown(row: SampleRow) -> SampleRow {
    SampleRow {
        module: 0xffff,
        ip: 0,
        site: NONE,
        class: 9,
        ..row
    }
}

fn letters(text: &str) -> Vec<SampleRow> {
    (0..)
        .zip(text.bytes())
        .map(|(i, b)| row(i, 0x10000 + u64::from(b - b'a') * 4096))
        .collect()
}

/// A trace to write: its name, the manifest's mode, rows by part, changes to the manifest, objects.
struct Made {
    name: String,
    mode: &'static str,
    parts: Vec<Vec<SampleRow>>,
    change: fn(&mut Manifest),
    lives: Vec<Life>,
    watched: Vec<Watched>,
}

fn made(name: &str, mode: &'static str, rows: Vec<SampleRow>) -> Made {
    Made {
        name: name.into(),
        mode,
        parts: vec![rows],
        change: |_| {},
        lives: Vec::new(),
        watched: Vec::new(),
    }
}

/// Traces of 0 to 3 rows, of one thread and of several, with and without objects, gaps and other
/// optional data.
fn traces() -> Vec<Made> {
    let mut all = vec![
        Made {
            parts: vec![],
            ..made("no parts", "full", vec![])
        },
        made("no rows", "full", vec![]),
        made("one row", "full", letters("a")),
        made("two places", "full", letters("ab")),
        made("one place twice", "full", letters("aa")),
        made("three places", "full", letters("abc")),
        made("there and back", "full", letters("aba")),
        made(
            "unknown code",
            "full",
            letters("aba").into_iter().map(unknown).collect(),
        ),
        made(
            "one row of unknown code",
            "full",
            letters("a").into_iter().map(unknown).collect(),
        ),
        made(
            "only stores",
            "full",
            letters("aba")
                .into_iter()
                .map(|r| SampleRow { store: true, ..r })
                .collect(),
        ),
        made(
            "no sizes",
            "full",
            letters("aba")
                .into_iter()
                .map(|r| SampleRow { size: 0, ..r })
                .collect(),
        ),
        made(
            "large accesses",
            "full",
            letters("aba")
                .into_iter()
                .map(|r| SampleRow { size: 300_001, ..r })
                .collect(),
        ),
        made(
            "no time passes",
            "full",
            letters("abab")
                .into_iter()
                .map(|r| SampleRow { time_ns: 0, ..r })
                .collect(),
        ),
        made(
            "the ends of the address space",
            "full",
            vec![row(0, 0), row(1, u64::MAX), row(2, 0)],
        ),
        made(
            "a thousand threads",
            "full",
            (0..1000)
                .map(|t| SampleRow {
                    thread: 100 + t,
                    sample: t,
                    ..row(0, 0x10000 + u64::from(t) * 64)
                })
                .collect(),
        ),
        made(
            "a thousand threads that share",
            "full",
            (0..3000)
                .map(|i| SampleRow {
                    thread: 100 + i / 3,
                    sample: i / 3,
                    seq: u64::from(i % 3),
                    ..row(0, 0x10000)
                })
                .collect(),
        ),
        made(
            "two processes",
            "full",
            (0..2)
                .map(|p| SampleRow {
                    process: 7 + p,
                    sample: p,
                    ..row(0, 0x10000)
                })
                .collect(),
        ),
        Made {
            lives: vec![
                (0x10000, 4096, 0, u64::MAX, 1, "heap", "f f.c:1"),
                (0x10800, 16, 0, 1005, 2, "heap", "g f.c:2"),
            ],
            ..made("objects", "full", letters("aba"))
        },
        Made {
            lives: vec![(0x900_0000, 0, 0, 0, 1, "stack", "[stack]")],
            ..made("objects elsewhere", "full", letters("a"))
        },
        Made {
            change: |m| m.state = "interrupted".into(),
            ..made("interrupted", "full", letters("a"))
        },
        Made {
            change: |m| {
                m.totals.loads_executed = Some(0);
                m.totals.rows = 2;
            },
            ..made("counts that do not fit", "full", letters("aba"))
        },
        Made {
            watched: vec![],
            ..made("watched, no samples", "watch", vec![])
        },
        Made {
            watched: vec![(1, false)],
            ..made("watched, no reuse", "watch", vec![])
        },
        Made {
            watched: vec![(1, true), (2, false), (3, true)],
            ..made("watched", "watch", vec![])
        },
    ];
    for mode in ["ring", "burst"] {
        let change = |m: &mut Manifest| {
            (m.period, m.window) = (1000, 100);
            m.totals.records_executed = 3000;
            m.totals.records_kept = m.totals.rows;
        };
        for text in ["", "a", "ab", "aba"] {
            let apart = letters(text).into_iter().map(|r| SampleRow {
                sample: r.seq as u32,
                ..r
            });
            let name = format!("{mode} {text:?} in samples of one");
            all.push(Made {
                change,
                ..made(&name, mode, apart.collect())
            });
        }
        let name = format!("{mode}, unknown code, in one sample");
        all.push(Made {
            change,
            ..made(
                &name,
                mode,
                letters("aba").into_iter().map(unknown).collect(),
            )
        });
    }
    all
}

fn write(folder: &Path, made: &Made) {
    let sidecar = sidecar(8);
    let mut manifest = manifest(made.mode, &sidecar);
    let rows: Vec<&SampleRow> = made.parts.iter().flatten().collect();
    manifest.totals.rows = rows.iter().filter(|r| !r.store).count() as u64;
    if made.mode == "full" {
        manifest.totals.loads_executed = Some(manifest.totals.rows);
    }
    let mut of_threads: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for row in &rows {
        *of_threads.entry((row.process, row.thread)).or_default() += 1;
    }
    let threads = of_threads.into_iter();
    manifest.threads = threads
        .map(|((process, thread), rows)| Thread {
            process,
            thread,
            rows,
            ..Thread::default()
        })
        .collect();
    manifest.cpu_seconds = f64::from(u8::from(made.mode == "watch"));
    (made.change)(&mut manifest);
    write_trace(folder, &manifest, &sidecar, &made.parts, 1000);
    if !made.lives.is_empty() {
        write_lives(folder, &made.lives);
    }
    if made.mode == "watch" {
        write_watch(folder, &made.watched);
    }
}

/// A walk that is long enough to train a model.
fn walk(blocks: u64) -> Vec<SampleRow> {
    (0..blocks * 8)
        .map(|i| row(i, 0x10000 + i % blocks * 64))
        .collect()
}

fn analyze(words: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .args(words)
        .output()
        .unwrap()
}

/// Errors in a command's output or status.
fn wrong(output: &Output, format: &str, folder: &Path) -> Option<String> {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if err.contains("panicked") || err.contains("overflow") {
        return Some("it panicked".into());
    }
    let (said, warnings): (Vec<&str>, Vec<&str>) = err.lines().partition(|l| {
        !l.starts_with("mgz-analyze: warning: ") && !l.starts_with("mgz-analyze: note: ")
    });
    if let Some(w) = warnings.iter().find(|w| odd(w)) {
        return Some(format!("an odd warning: {w}"));
    }
    match output.status.code() {
        Some(0) if !said.is_empty() => Some("it said something else than warnings".into()),
        Some(0) => wrong_result(&out, format, folder),
        // Refused: one sentence, and nothing on standard output.
        Some(1)
            if said.len() == 1
                && said[0].starts_with("mgz-analyze: ")
                && said[0].len() > 40
                && !odd(said[0]) =>
        {
            (!out.is_empty()).then(|| "an error with a result".into())
        }
        Some(1) => Some("not one sentence".into()),
        Some(2) => err
            .contains("Usage:")
            .then_some(())
            .is_none()
            .then(|| "wrong usage without a word on usage".into()),
        code => Some(format!("it ended with {code:?}, {:?}", output.status)),
    }
}

/// A text with a number that is not finite, or a zero with a sign.
fn odd(text: &str) -> bool {
    odd_word(text).is_some()
}

/// A word that should be a number and is not finite or is a signed zero, with the text before it.
fn odd_word(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || ",;()[]{}\"".contains(c));
    let words = words.map(|w| w.trim_end_matches(['%', '.', ':']));
    let mut before = "";
    for word in words.filter(|w| !w.is_empty()) {
        if matches!(word, "NaN" | "inf" | "-inf")
            || word.starts_with("-0") && word.parse::<f64>().is_ok_and(|n| n == 0.0)
        {
            return Some(format!("{before}: {word}"));
        }
        before = word;
    }
    None
}

fn wrong_result(out: &str, format: &str, folder: &Path) -> Option<String> {
    match format {
        "json" => {
            let value: serde_json::Value = match serde_json::from_str(out) {
                Ok(value) => value,
                Err(error) => return Some(format!("not JSON: {error}")),
            };
            if let Some(word) = odd_word(out) {
                return Some(format!("a number that is none: {word}"));
            }
            value
                .as_object()
                .is_none_or(|o| o.len() < 3)
                .then(|| "an empty document".into())
        }
        "csv" | "parquet" => {
            let files: Vec<PathBuf> = out.lines().map(PathBuf::from).collect();
            if files.is_empty() {
                return Some("no files".into());
            }
            files.iter().find_map(|file| {
                let bytes = std::fs::read(file).unwrap_or_default();
                let name = file.strip_prefix(folder).unwrap_or(file).display();
                if format == "csv" {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let columns = text
                        .lines()
                        .next()
                        .unwrap_or("")
                        .split(',')
                        .filter(|c| !c.is_empty())
                        .count();
                    (columns == 0 || odd(&text)).then(|| format!("{name}: {text:.300}"))
                } else {
                    (!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1")))
                        .then(|| format!("{name} is no Parquet file"))
                }
            })
        }
        _ => {
            if odd(out) {
                return Some("a number that is none".into());
            }
            if out.trim().is_empty() {
                return Some("nothing on standard output".into());
            }
            // Empty lines separate tables: title, columns, rows. Columns begin with a space.
            out.split("\n\n").find_map(|part| {
                let lines: Vec<&str> = part.trim_matches('\n').lines().collect();
                // (If nothing was found, a sentence is below the first heading.)
                let is_sentence = lines.len() == 2 && lines[1].ends_with('.');
                let headings_only = lines.len() == 2 && lines[1].starts_with(' ') && !is_sentence
                    || lines.len() == 1 && lines[0].starts_with(' ');
                headings_only.then(|| format!("headings without rows: {part}"))
            })
        }
    }
}

#[test]
fn every_command_and_option_gives_a_result_or_a_sentence_on_the_smallest_traces() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (name, blocks) in [("full", 500), ("larger", 900)] {
        write(Path::new(&at(name)), &made(name, "full", walk(blocks)));
    }
    let model = analyze(
        &[
            "predict",
            "--train",
            &at("full"),
            "--train",
            &at("larger"),
            "--save",
            &at("model"),
        ]
        .map(String::from),
    );
    assert!(
        model.status.success(),
        "{}",
        String::from_utf8_lossy(&model.stderr)
    );
    let (lines, traces) = (lines(), traces());
    let all = std::env::var("MGZ_TESTS").is_ok_and(|v| v == "full");
    let mut jobs: Vec<(usize, usize, &str)> = Vec::new();
    for (t, trace) in traces.iter().enumerate() {
        let place = at(&format!("trace {t}"));
        write(Path::new(&place), trace);
        let made = analyze(&[place.clone(), "--partial".into(), format!("{place}/part")]);
        assert!(made.status.code().is_some(), "{}", trace.name);
        for (l, line) in lines.iter().enumerate() {
            // Each format of each option, and of each trace. Options are tried on every second
            // trace, unless all are requested.
            if line.option.is_empty() {
                jobs.extend(FORMATS.map(|format| (t, l, format)));
            } else if all
                || (t + l / 2) % 2 == 0
                || OPTIONS_OF_ONE_TRACE.contains(&line.option.as_str())
            {
                jobs.push((t, l, FORMATS[(t + l) % FORMATS.len()]));
            }
        }
    }
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // By option: whether any run accepted it.
    let taken: Mutex<BTreeMap<(String, String), bool>> = Mutex::default();
    let work = |worker: usize| {
        let out = at(&format!("out {worker}"));
        while let Some(&(t, l, format)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (trace, line) = (at(&format!("trace {t}")), &lines[l]);
            let _ = std::fs::remove_dir_all(&out);
            std::fs::create_dir_all(&out).unwrap();
            let filled = |word: &String| {
                [
                    ("{trace}", &trace),
                    ("{part}", &format!("{trace}/part")),
                    ("{model}", &at("model")),
                    ("{full}", &at("full")),
                    ("{larger}", &at("larger")),
                    ("{out}", &out),
                ]
                .into_iter()
                .fold(word.clone(), |word, (from, to)| word.replace(from, to))
            };
            let mut words: Vec<String> = Vec::new();
            if !line.command.is_empty() {
                words.push(line.command.clone());
            }
            if line.command != "predict" && line.option != "merge" {
                words.push(trace.clone());
            }
            words.extend(line.words.iter().map(filled));
            words.extend(["--format".into(), format.into()]);
            if matches!(format, "csv" | "parquet") {
                words.extend(["-o".into(), format!("{out}/tables")]);
            }
            let output = analyze(&words);
            let writes = line.option == "partial" && output.status.success()
                || line.words.iter().any(|w| w == "--partial") && output.status.success();
            // An unreadable part is reported as a gap, and the rest is shown.
            let names_gaps = line.option == "keep-going"
                && output.status.code() == Some(1)
                && String::from_utf8_lossy(&output.stderr).starts_with("mgz-analyze: warning: ");
            let wrong = if names_gaps {
                None
            } else if writes {
                (!Path::new(&out).join("part").exists()).then(|| "no partial result".to_string())
            } else {
                wrong(&output, format, Path::new(&out))
            };
            if let Some(wrong) = wrong {
                failures.lock().unwrap().push(format!(
                    "{}: mgz-analyze {}: {wrong}\n{}{}",
                    traces[t].name,
                    words.join(" "),
                    String::from_utf8_lossy(&output.stderr),
                    String::from_utf8_lossy(&output.stdout)
                ));
            }
            *taken
                .lock()
                .unwrap()
                .entry((line.command.clone(), line.option.clone()))
                .or_default() |= output.status.success();
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(move || work(worker));
        }
    });
    let failures = failures.into_inner().unwrap();
    let shown: Vec<String> = failures
        .iter()
        .take(20)
        .map(|f| format!("{f:.1500}"))
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} runs:\n{}",
        failures.len(),
        jobs.len(),
        shown.join("\n")
    );
    // Commands for OpenMP regions are tested with programs that have these, and a recorder that
    // sends rows in tests/diskless.rs; only `mgz` makes pages.
    let mut taken = taken.into_inner().unwrap();
    for (command, option) in [
        ("cache", "mimic"),
        ("cache", "online"),
        ("reuse", "online"),
        ("predict", "online"),
        ("cache", "schedule"),
        ("ranks", "html"),
        ("compare", "html"),
    ] {
        taken.remove(&(command.into(), option.into()));
    }
    let never: Vec<_> = taken.into_iter().filter(|t| !t.1).map(|t| t.0).collect();
    assert!(
        never.is_empty(),
        "what is given for these options is never taken: {never:?}"
    );
}

/// Other tests check the output of these commands. Here they only must not fail.
#[test]
fn commands_with_formats_of_their_own_take_the_smallest_traces() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let top = Cli::command();
    let export = top.get_subcommands().find(|c| c.get_name() == "export");
    let to = export
        .and_then(|c| c.get_arguments().find(|a| a.get_long() == Some("to")))
        .unwrap();
    let formats: Vec<String> = (to.get_possible_values().iter())
        .map(|value| value.get_name().to_string())
        .collect();
    assert!(formats.len() > 10, "{formats:?}");
    let mut jobs: Vec<(String, Vec<String>)> = Vec::new();
    for (t, trace) in traces().iter().enumerate() {
        let place = at(&format!("trace {t}"));
        write(Path::new(&place), trace);
        let mut add = |words: &[&str]| {
            jobs.push((
                trace.name.clone(),
                words.iter().map(|w| w.to_string()).collect(),
            ));
        };
        for (f, format) in formats.iter().enumerate().filter(|(f, _)| (f + t) % 2 == 0) {
            let out = at(&format!("out {t} {f}"));
            add(&["export", &place, "--to", format, "-o", &out]);
        }
        add(&[
            "compare",
            "--format",
            ["text", "markdown", "json", "junit"][t % 4],
            &place,
            "--",
            &place,
        ]);
        add(&["query", &place, "SELECT count(*), min(address) FROM rows"]);
        add(&[
            "query",
            &place,
            "SELECT * FROM functions",
            "--format",
            "json",
        ]);
    }
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some((name, words)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = analyze(words);
                    let err = String::from_utf8_lossy(&output.stderr);
                    let bad = !matches!(output.status.code(), Some(0 | 1))
                        || output.status.code() == Some(1) && err.trim().is_empty()
                        || err.contains("panicked")
                        || err.contains("overflow");
                    if bad {
                        let words = words.join(" ");
                        failures
                            .lock()
                            .unwrap()
                            .push(format!("{name}: {words}\n{err:.800}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {} runs:\n{}",
        failures.len(),
        jobs.len(),
        failures
            .iter()
            .take(20)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
}
