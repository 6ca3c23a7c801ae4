//! Why a trace has no samples although something instrumented has run, and the command that would
//! make some.

use crate::options::args::{Cli, Mode};
use crate::program::note::is_for_windows_only;
use crate::util::text::count;
use mgz_annotations_schema::manifest::{Manifest, Phases};
use mgz_annotations_schema::shell;
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::{TraceMode, TriggerEvent};
use std::path::Path;

/// Number of windows that a suggested rate aims at. Source: Chosen.
const WANTED_WINDOWS: f64 = 50.0;
/// Programs that use less CPU time are recorded in full. Source: Chosen.
const MIN_CPU_SECONDS: f64 = 0.005;
/// The largest `--rate`. Source: Chosen.
const MAX_RATE: f64 = 50_000.0;
/// Assumed loads per second of a thread.
const LOADS_PER_SECOND: f64 = 1e9;

/// A sentence for the user, or `None` if there are samples. `trace` is the folder, which has the
/// sidecars.
pub fn why(manifest: &Manifest, trace: &Path, cli: &Cli) -> Option<String> {
    let t = &manifest.totals;
    if manifest.mode == TraceMode::Count
        || t.samples > 0
        || t.records_kept > 0
        || manifest.modules.is_empty()
    {
        return None;
    }
    let again = |options: &[String]| command(cli, options);
    let what = what_is_instrumented(manifest, trace);
    if let Some(nothing) = what.nothing() {
        return Some(format!(
            "no samples: {nothing}; choose what is instrumented by `mgz-instrument --functions`, or take libraries in with `mgz-instrument --libs`"
        ));
    }
    if let Some(sentence) = manifest.phases.as_ref().and_then(outside_phases) {
        return Some(sentence);
    }
    if manifest.mode != TraceMode::Burst {
        return Some(format!(
            "no samples: the program executed no load of the {} functions that are instrumented{}; `{}` shows where its time goes",
            count(what.instrumented as f64),
            elsewhere(manifest),
            hot(cli)
        ));
    }
    let of = |name: &str| t.triggers.get(name).copied().unwrap_or(0);
    let (came, outside, empty, without) = (
        of("came"),
        of("outside"),
        of("empty"),
        of("threads_without"),
    );
    Some(match came {
        // Threads without a trigger are reported separately.
        0 if without > 0 => return None,
        0 => format!(
            "no samples: the program ended before the first window began ({:.3} s of CPU time, {}); `{}` makes some",
            manifest.cpu_seconds,
            pace(manifest),
            again(&denser(manifest))
        ),
        came if outside == came => format!(
            "no samples: none of {} triggers met instrumented code{}; `{}` shows where the time goes, and `{}` makes more windows",
            count(came as f64),
            elsewhere(manifest),
            hot(cli),
            again(&denser(manifest))
        ),
        came if empty > 0 => format!(
            "no samples: {} of {} windows ended before their first record: the code that ran had no loads to record; `{}` makes more windows",
            count(empty as f64),
            count(came as f64),
            again(&denser(manifest))
        ),
        came => format!(
            "no samples: {} triggers came, but no window has a record; `{}` makes more windows",
            count(came as f64),
            again(&denser(manifest))
        ),
    })
}

/// Sentence for a run with no recorded phase; `None` if there was a phase.
fn outside_phases(phases: &Phases) -> Option<String> {
    (phases.count == 0).then(|| {
        let why = if phases.markers > 0 {
            "the program has markers and did not reach mgz_start() in time; --ignore-markers records all of it"
        } else {
            "recording had not begun when the program ended; give a smaller --start-after, or another --from-function"
        };
        format!("no samples: {why}")
    })
}

/// Part of a sentence: the interval between windows.
fn pace(manifest: &Manifest) -> String {
    if manifest.triggers_by_loads() {
        format!("a window every {} loads", count(manifest.period as f64))
    } else if manifest.overhead > 0.0 {
        format!("windows for {}% of the CPU time", manifest.overhead)
    } else {
        format!("{} windows a second", count(manifest.rate))
    }
}

/// Options that sample the same run often enough.
fn denser(manifest: &Manifest) -> Vec<String> {
    let option = |name: &str, value: String| vec![name.to_owned(), value];
    let seconds = manifest.cpu_seconds;
    let mut files = manifest.modules.iter();
    let is_for_windows_only = files.any(|m| is_for_windows_only(Path::new(&m.path)));
    if seconds < MIN_CPU_SECONDS && !is_for_windows_only {
        return option("--mode", "full".into());
    }
    if manifest.triggers_by_loads() {
        let period = seconds * LOADS_PER_SECOND / WANTED_WINDOWS;
        let period = period.min(manifest.period as f64 / 10.0).max(1000.0);
        return option("--period", format!("{period:.0}"));
    }
    let rate = (WANTED_WINDOWS / seconds)
        .max(manifest.rate * 10.0)
        .min(MAX_RATE);
    let mut options = option("--rate", format!("{:.0}", rate.ceil()));
    if matches!(
        manifest.trigger_event(),
        TriggerEvent::CpuTimeAtTicks | TriggerEvent::CpuTimeByTimers
    ) {
        options.splice(0..0, option("--trigger", "cpu-time".into()));
    }
    options
}

/// The files that took the time instead, if they are known.
fn elsewhere(manifest: &Manifest) -> String {
    let coverage = &manifest.coverage;
    let mut files: Vec<(f64, &str)> = coverage
        .files
        .iter()
        .filter(|f| !f.instrumented)
        .filter_map(|f| Some((coverage.share_of(f)?, f.path.as_str())))
        .chain(coverage.generated_share().map(|s| (s, "code of no file")))
        .filter(|f| f.0 >= 0.01)
        .collect();
    files.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named: Vec<String> = files
        .iter()
        .take(3)
        .map(|(share, path)| format!("{path} {:.0}%", 100.0 * share))
        .collect();
    if named.is_empty() {
        String::new()
    } else {
        format!(" (the time went to {})", named.join(", "))
    }
}

/// Totals of the sidecars over all modules.
#[derive(Debug, Default)]
struct Instrumented {
    known: bool,
    found: u64,
    instrumented: u64,
    loads: u64,
    reasons: Vec<String>,
}

impl Instrumented {
    fn nothing(&self) -> Option<String> {
        if !self.known {
            return None;
        }
        if self.instrumented == 0 {
            let reasons = if self.reasons.is_empty() {
                String::new()
            } else {
                format!(" ({})", self.reasons.join(", "))
            };
            return Some(format!(
                "none of the {} functions of the instrumented files is instrumented{reasons}",
                count(self.found as f64)
            ));
        }
        (self.loads == 0).then(|| "the functions that are instrumented have no loads".to_owned())
    }
}

fn what_is_instrumented(manifest: &Manifest, trace: &Path) -> Instrumented {
    let mut all = Instrumented::default();
    for module in &manifest.modules {
        let Ok((_, header)) = Sidecar::read_header(&trace.join(&module.sidecar)) else {
            continue;
        };
        let report = &header.report;
        let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_u64);
        let (Some(found), Some(instrumented), Some(loads)) = (
            number("/functions/found"),
            number("/functions/instrumented"),
            number("/loads/total"),
        ) else {
            continue;
        };
        all.known = true;
        all.found += found;
        all.instrumented += instrumented;
        all.loads += loads;
        if let Some(reasons) = report
            .pointer("/functions/left/reasons")
            .and_then(|r| r.as_object())
        {
            for (reason, n) in reasons {
                all.reasons.push(format!("{n} {reason}"));
            }
        }
    }
    all.reasons.truncate(3);
    all
}

/// The program and its arguments.
fn program(cli: &Cli) -> String {
    let words: Vec<String> = cli
        .program
        .iter()
        .map(|w| shell::quoted(&w.to_string_lossy()))
        .collect();
    words.join(" ")
}

/// The command line of this run with other options of sampling.
fn command(cli: &Cli, options: &[String]) -> String {
    let mut words = vec!["mgz-record".to_owned()];
    let full = options.iter().any(|o| o == "full");
    if cli.mode == Some(Mode::Burst) && !full {
        words.push("--mode burst".into());
    }
    if cli.window != 1_000 && !full {
        words.push(format!("--window {}", cli.window));
    }
    words.extend(options.iter().cloned());
    if let Some(options) = &cli.analyze {
        words.push(match options.as_str() {
            "" => "--analyze".into(),
            options => format!("--analyze={}", shell::quoted(options)),
        });
    } else {
        words.push("--force".into());
    }
    let output = cli.shown_output();
    if cli.analyze.is_none() && output != Path::new("trace") {
        words.push(format!("-o {}", shell::quoted(&output.to_string_lossy())));
    }
    let entered_from = cli.entered_from.as_ref().map(|from| from.0);
    match entered_from.or(cli.attach) {
        Some(pid) => words.push(format!("--attach {pid}")),
        None => words.push(format!("-- {}", program(cli))),
    }
    words.join(" ")
}

fn hot(cli: &Cli) -> String {
    match cli.attach {
        Some(pid) => format!("perf top -p {pid}"),
        None => format!("mgz-record --hot -- {}", program(cli)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::manifest::Module;

    fn said(mode: &str, cpu_seconds: f64, triggers: &[(&str, u64)], words: &[&str]) -> String {
        let line = [&["mgz-record"], words, &["--", "./app", "two words"]].concat();
        let cli = Cli::read(line.iter().map(Into::into)).unwrap();
        let mut m = Manifest {
            mode: mode.into(),
            rate: 100.0,
            trigger: "cpu time".into(),
            cpu_seconds,
            modules: vec![Module::default()],
            ..Manifest::default()
        };
        m.totals.triggers = triggers
            .iter()
            .map(|(k, n)| ((*k).to_owned(), *n))
            .collect();
        why(&m, Path::new("/no/such/trace"), &cli).unwrap()
    }

    #[test]
    fn short_programs_are_told_the_command_that_samples_them() {
        let text = said("burst", 0.5, &[], &["-o", "t"]);
        assert!(
            text.contains(
                "ended before the first window began (0.500 s of CPU time, 100 windows a second)"
            ),
            "{text}"
        );
        assert!(
            text.contains("`mgz-record --rate 1000 --force -o t -- ./app 'two words'`"),
            "{text}"
        );
        let text = said("burst", 0.001, &[], &["--mode", "burst"]);
        assert!(
            text.contains("`mgz-record --mode full --force -- ./app 'two words'`"),
            "{text}"
        );
    }

    #[test]
    fn what_became_of_triggers_is_the_reason() {
        let text = said("burst", 1.0, &[("came", 100), ("outside", 100)], &[]);
        assert!(
            text.starts_with("no samples: none of 100 triggers met instrumented code"),
            "{text}"
        );
        let text = said(
            "burst",
            1.0,
            &[("came", 9), ("windows", 9), ("empty", 9)],
            &[],
        );
        assert!(
            text.contains("9 of 9 windows ended before their first record"),
            "{text}"
        );
        let text = said("full", 1.0, &[], &[]);
        assert!(
            text.contains("executed no load") && text.contains("--hot -- ./app"),
            "{text}"
        );
    }

    #[test]
    fn traces_with_samples_need_no_reason() {
        let cli = Cli::read(["mgz-record", "--", "./app"].iter().map(Into::into)).unwrap();
        let mut m = Manifest {
            modules: vec![Module::default()],
            ..Manifest::default()
        };
        m.totals.samples = 1;
        assert_eq!(why(&m, Path::new("."), &cli), None);
    }

    #[test]
    fn declined_files_say_so() {
        let all = Instrumented {
            known: true,
            found: 12,
            reasons: vec!["12 not selected".into()],
            ..Instrumented::default()
        };
        assert_eq!(
            all.nothing().unwrap(),
            "none of the 12 functions of the instrumented files is instrumented (12 not selected)"
        );
    }
}
