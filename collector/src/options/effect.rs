//! The effect of each option by kind of work. An option without effect is refused if it changes
//! what is recorded, and reported otherwise, so that users do not rely on a setting that is not
//! read.

use crate::objects::heap::blocks::HeapBlocks;
use crate::options::args::{Cli, OutputFormat};
use mgz_annotations_schema::tell;

/// Set of kinds of work of `mgz-record`, as far as options differ between them. Each kind is one
/// bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way(u32);

impl Way {
    /// `--mode full`.
    pub const FULL: Way = Way(1);
    /// `--mode ring`.
    pub const RING: Way = Way(1 << 1);
    /// `--mode burst`, windows by CPU time.
    pub const BURST_BY_TIME: Way = Way(1 << 2);
    /// `--mode burst`, windows by loads.
    pub const BURST_BY_LOADS: Way = Way(1 << 3);
    /// `--attach`, windows by CPU time.
    pub const ATTACH_BY_TIME: Way = Way(1 << 4);
    /// `--attach`, windows by loads.
    pub const ATTACH_BY_LOADS: Way = Way(1 << 5);
    /// `--mode watch`, samples by CPU time.
    pub const WATCH_BY_TIME: Way = Way(1 << 6);
    /// `--mode watch`, samples by loads.
    pub const WATCH_BY_LOADS: Way = Way(1 << 7);
    /// Intel PT, all of it.
    pub const PT_FULL: Way = Way(1 << 8);
    /// Intel PT, windows.
    pub const PT_RING: Way = Way(1 << 9);
    /// `--hot`.
    pub const HOT: Way = Way(1 << 10);
    /// `--recover`.
    pub const RECOVER: Way = Way(1 << 11);
    /// `--import`.
    pub const IMPORT: Way = Way(1 << 12);
    /// `--import` with `--raw` or `--packets`.
    pub const IMPORT_TEXT: Way = Way(1 << 13);
    /// `--probe`.
    pub const PROBE: Way = Way(1 << 14);
    /// `--count`.
    pub const COUNT: Way = Way(1 << 15);

    /// All of them, with their names in messages.
    pub const ALL: [(Way, &'static str); 16] = [
        (Way::FULL, "--mode full"),
        (Way::RING, "--mode ring"),
        (Way::BURST_BY_TIME, "bursts by CPU time"),
        (Way::BURST_BY_LOADS, "bursts by loads"),
        (Way::ATTACH_BY_TIME, "--attach with bursts by CPU time"),
        (Way::ATTACH_BY_LOADS, "--attach with bursts by loads"),
        (Way::WATCH_BY_TIME, "--mode watch by CPU time"),
        (Way::WATCH_BY_LOADS, "--mode watch by loads"),
        (Way::PT_FULL, "--mode full with Intel PT"),
        (Way::PT_RING, "--mode ring with Intel PT"),
        (Way::HOT, "--hot"),
        (Way::RECOVER, "--recover"),
        (Way::IMPORT, "--import"),
        (Way::IMPORT_TEXT, "--import with --raw or --packets"),
        (Way::PROBE, "--probe"),
        (Way::COUNT, "--count"),
    ];

    fn name(self) -> &'static str {
        Way::ALL
            .iter()
            .find(|w| w.0 == self)
            .map_or("this", |w| w.1)
    }

    const fn and(self, other: Way) -> Way {
        Way(self.0 | other.0)
    }

    const fn has(self, way: Way) -> bool {
        self.0 & way.0 != 0
    }
}

const SOFT: Way = Way::FULL.and(Way::RING).and(BURST);
const BURST: Way = Way::BURST_BY_TIME.and(Way::BURST_BY_LOADS);
const ATTACH: Way = Way::ATTACH_BY_TIME.and(Way::ATTACH_BY_LOADS);
const WATCH: Way = Way::WATCH_BY_TIME.and(Way::WATCH_BY_LOADS);
const PT: Way = Way::PT_FULL.and(Way::PT_RING);
/// Recorded by software, with addresses or without.
const SOFT_OR_COUNT: Way = SOFT.and(Way::COUNT);
const ALL_RUNS: Way = SOFT_OR_COUNT.and(WATCH).and(PT);
/// Makes a trace folder anew.
const MAKES_TRACE: Way = ALL_RUNS.and(ATTACH).and(Way::IMPORT);
const ALL_WAYS: Way = Way(u32::MAX);

/// Response to an option that has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// Refused, since something else than requested would be recorded.
    Refused,
    /// Reported, since only the output differs.
    Told,
}

/// An option: its name in the parser, the kinds of work on which it has an effect, the response
/// elsewhere, and the remedy there.
struct Rule {
    id: &'static str,
    effect: Way,
    elsewhere: Idle,
    instead: &'static str,
}

const fn rule(id: &'static str, effect: Way, elsewhere: Idle, instead: &'static str) -> Rule {
    Rule {
        id,
        effect,
        elsewhere,
        instead,
    }
}

/// Remedy for a recording that cannot tell phases apart.
const PHASES: &str = "phases are for recording by software: add --backend soft, with a file of `mgz-instrument --for burst`";

/// All options. Options that select the kind of work have an effect everywhere.
const RULES: [Rule; 48] = [
    rule(
        "output",
        MAKES_TRACE,
        Idle::Told,
        "it names the folder of a new trace",
    ),
    rule(
        "mode",
        ALL_RUNS.and(ATTACH),
        Idle::Refused,
        "it is for runs of a program",
    ),
    rule(
        "backend",
        SOFT_OR_COUNT.and(PT).and(ATTACH),
        Idle::Refused,
        "it is for runs of instrumented programs",
    ),
    rule(
        "start_after",
        SOFT_OR_COUNT.and(ATTACH),
        Idle::Refused,
        PHASES,
    ),
    rule(
        "stop_after",
        SOFT_OR_COUNT.and(ATTACH),
        Idle::Refused,
        PHASES,
    ),
    rule("from_function", SOFT_OR_COUNT, Idle::Refused, PHASES),
    rule(
        "ignore_markers",
        SOFT_OR_COUNT.and(ATTACH),
        Idle::Told,
        "markers are for recording by software",
    ),
    rule(
        "exit_after",
        SOFT_OR_COUNT,
        Idle::Refused,
        "the program ends by itself there",
    ),
    rule(
        "analyze",
        ALL_RUNS.and(ATTACH),
        Idle::Refused,
        "no trace is made there that could be analysed",
    ),
    rule(
        "predict",
        Way::FULL,
        Idle::Refused,
        "every load of the run's beginning is needed: add --mode full",
    ),
    rule(
        "analysis",
        ALL_RUNS.and(ATTACH),
        Idle::Refused,
        "there is none",
    ),
    rule(
        "period",
        Way::RING
            .and(Way::BURST_BY_LOADS)
            .and(Way::ATTACH_BY_LOADS)
            .and(Way::WATCH_BY_LOADS)
            .and(Way::PT_RING),
        Idle::Refused,
        "windows or samples are not counted in records or loads there; --rate is for CPU time",
    ),
    rule(
        "window",
        Way::RING.and(BURST).and(ATTACH).and(Way::PT_RING),
        Idle::Refused,
        "there are no windows; --mode ring and --mode burst have some",
    ),
    rule(
        "rate",
        Way::BURST_BY_TIME
            .and(Way::ATTACH_BY_TIME)
            .and(Way::WATCH_BY_TIME),
        Idle::Refused,
        "there is no rate there; give --period where records or loads are counted, --pt clock=HZ with Intel PT, or --mode burst",
    ),
    rule(
        "overhead",
        Way::BURST_BY_TIME.and(Way::ATTACH_BY_TIME),
        Idle::Refused,
        "windows do not come as a budget allows there; give --period where records or loads are counted, or --mode burst",
    ),
    rule(
        "trigger",
        BURST.and(ATTACH),
        Idle::Refused,
        "it is for bursts (--mode burst), whose windows it begins",
    ),
    rule(
        "loads_event",
        Way::BURST_BY_LOADS.and(Way::ATTACH_BY_LOADS),
        Idle::Refused,
        "it is for bursts (--mode burst), whose windows it begins",
    ),
    rule(
        "signal",
        BURST.and(ATTACH).and(WATCH),
        Idle::Told,
        "no signal is sent there",
    ),
    rule(
        "watchpoints",
        WATCH,
        Idle::Refused,
        "it is for --mode watch",
    ),
    rule("near", WATCH, Idle::Refused, "it is for --mode watch"),
    rule(
        "duration",
        SOFT_OR_COUNT.and(ATTACH).and(WATCH),
        Idle::Refused,
        "the recording ends with the program there; end the program with `timeout`",
    ),
    rule("attach", ALL_WAYS, Idle::Told, ""),
    rule(
        "progress",
        SOFT_OR_COUNT.and(ATTACH),
        Idle::Told,
        "nothing is counted while the program runs there",
    ),
    rule(
        "functions",
        PT,
        Idle::Refused,
        "it is for recording with Intel PT; choose functions with `mgz-instrument --functions`",
    ),
    rule("pt", PT, Idle::Refused, "it is for recording with Intel PT"),
    rule(
        "force",
        MAKES_TRACE,
        Idle::Told,
        "nothing is replaced there",
    ),
    rule(
        "heap",
        SOFT,
        Idle::Refused,
        "heap blocks are logged where a program is recorded by software from its start",
    ),
    rule(
        "heap_hook",
        SOFT,
        Idle::Refused,
        "heap blocks are logged where a program is recorded by software from its start",
    ),
    rule(
        "no_stacks",
        Way::RING
            .and(BURST)
            .and(ATTACH)
            .and(Way::PT_RING)
            .and(Way::IMPORT),
        Idle::Told,
        "no call stacks are read there",
    ),
    rule(
        "no_reuse_pairs",
        BURST.and(ATTACH),
        Idle::Told,
        "no reuse pairs are watched there",
    ),
    rule(
        "keep_spill",
        SOFT.and(ATTACH).and(PT).and(Way::IMPORT),
        Idle::Told,
        "there is no spill to be kept",
    ),
    rule(
        "compress",
        SOFT.and(ATTACH).and(PT).and(Way::IMPORT).and(Way::RECOVER),
        Idle::Told,
        "no columns are written there that it could compress",
    ),
    rule(
        "max_size",
        SOFT_OR_COUNT
            .and(ATTACH)
            .and(PT)
            .and(Way::IMPORT)
            .and(Way::RECOVER),
        Idle::Refused,
        "the size is not bounded there",
    ),
    rule(
        "no_aslr",
        ALL_RUNS,
        Idle::Refused,
        "it is for programs that are recorded from their start",
    ),
    rule(
        "argv0",
        ALL_RUNS,
        Idle::Refused,
        "no program is started there",
    ),
    rule("for_run", ALL_WAYS, Idle::Told, ""),
    rule("ranks", ALL_RUNS, Idle::Refused, "no rank is started there"),
    rule("format", ALL_WAYS, Idle::Told, ""),
    rule("hot", ALL_WAYS, Idle::Told, ""),
    rule("count", ALL_WAYS, Idle::Told, ""),
    rule(
        "calibrate",
        BURST.and(PT),
        Idle::Refused,
        "a trace that has windows by time or loads takes weights of another run; the others count by themselves",
    ),
    rule("recover", ALL_WAYS, Idle::Told, ""),
    rule("import", ALL_WAYS, Idle::Told, ""),
    rule(
        "annotations",
        Way::IMPORT,
        Idle::Told,
        "it names sidecars for --import",
    ),
    rule("raw", Way::IMPORT_TEXT, Idle::Told, "it is for --import"),
    rule(
        "packets",
        Way::IMPORT_TEXT,
        Idle::Told,
        "it is for --import",
    ),
    rule("probe", ALL_WAYS, Idle::Told, ""),
    rule(
        "program",
        ALL_RUNS.and(Way::HOT),
        Idle::Refused,
        "no program is run",
    ),
];

/// The option as it is given.
fn flag(id: &str) -> String {
    match id {
        "output" => "-o".into(),
        "program" => "PROGRAM".into(),
        id => format!("--{}", id.replace('_', "-")),
    }
}

/// Checks the options of the command line. An error is a sentence for the user, as are the
/// warnings.
pub fn check_command_line(cli: &Cli, way: Way) -> Result<Vec<String>, String> {
    let mut told = Vec::new();
    for rule in RULES.iter().filter(|r| cli.given.contains(r.id)) {
        let goes_without = rule.id == "heap" && cli.heap == Some(HeapBlocks::Budget);
        if rule.effect.has(way) || goes_without {
            continue;
        }
        let sentence = format!(
            "{} has no effect in {}: {}",
            flag(rule.id),
            way.name(),
            rule.instead
        );
        // Scripts ask for a rate on machines of all kinds.
        let known = rule.id == "rate" && way == Way::WATCH_BY_LOADS;
        match rule.elsewhere {
            Idle::Refused if !known => return Err(sentence),
            _ => told.push(sentence),
        }
    }
    if cli.keep_spill && cli.given.contains("compress") {
        told.push("--compress has no effect with --keep-spill: no columns are written".into());
    }
    Ok(told)
}

/// [`check_command_line`]; the warnings go to standard error (in JSON nothing but the result does).
pub fn check_and_tell(cli: &Cli, way: Way) -> Result<(), String> {
    let told = check_command_line(cli, way)?;
    if cli.format == OutputFormat::Text {
        for sentence in told {
            tell!("mgz-record: {sentence}");
        }
    }
    Ok(())
}

/// Warning about our options that stand behind the program and are passed to it. `--` before the
/// program shows that this is intended, so there is no warning then.
pub fn behind_program(cli: &Cli) -> Option<String> {
    if cli.separated {
        return None;
    }
    let ours = own_flags();
    let found = cli.program.iter().skip(1).map_while(|a| {
        let text = a.to_str()?;
        // Words behind `--` belong to another command.
        (text != "--").then_some(text)
    });
    let looks = |text: &&str| {
        let name = text.split('=').next().unwrap_or(text);
        ours.iter().any(|f| f == name)
    };
    let first: Vec<&str> = found.filter(looks).collect();
    if first.is_empty() {
        return None;
    }
    let program = cli.program[0].to_string_lossy();
    Some(format!(
        "{} behind {program} {} to {program}; options of mgz-record stand before the program (write `--` before the program if this is intended)",
        first.join(", "),
        if first.len() == 1 { "goes" } else { "go" }
    ))
}

/// Our options, without those that most programs have as well.
fn own_flags() -> Vec<String> {
    const COMMON_OPTIONS: [&str; 2] = ["help", "version"];
    let command = <Cli as clap::CommandFactory>::command();
    let mut flags = Vec::new();
    for argument in command.get_arguments() {
        if COMMON_OPTIONS.contains(&argument.get_id().as_str()) {
            continue;
        }
        flags.extend(argument.get_long().map(|l| format!("--{l}")));
        flags.extend(argument.get_short().map(|s| format!("-{s}")));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn given(arguments: &[&str]) -> Cli {
        let all = [&["mgz-record"], arguments].concat();
        Cli::read(all.iter().map(Into::into)).unwrap()
    }

    /// Each option with a valid value.
    fn example(id: &str) -> Vec<String> {
        let value = match id {
            "output" => "t",
            "mode" => "full",
            "backend" => "soft",
            "period" | "window" | "near" => "100",
            "rate" => "50",
            "overhead" => "2",
            "trigger" => "loads",
            "loads_event" => "4:1",
            "signal" => "61",
            "watchpoints" => "2",
            "duration" => "3",
            "start_after" | "stop_after" => "3s",
            "from_function" => "f",
            "functions" => "f",
            "pt" => "cyc",
            "heap_hook" => "alloc=f",
            "compress" => "none",
            "max_size" => "1G",
            "format" => "text",
            "ranks" => "0",
            "ignore_markers" | "progress" | "force" | "heap" | "no_stacks" | "no_reuse_pairs"
            | "keep_spill" | "no_aslr" | "exit_after" | "analyze" => "",
            "analysis" => "a.txt",
            "predict" => "m.model",
            _ => return Vec::new(),
        };
        let flag = flag(id);
        match value {
            "" => vec![flag],
            value if id == "analysis" => vec!["--analyze".into(), flag, value.into()],
            value if id == "heap_hook" => vec!["--heap".into(), flag, value.into()],
            value => vec![flag, value.into()],
        }
    }

    #[test]
    fn every_option_is_in_the_table_once() {
        let mut known: Vec<&str> = RULES.iter().map(|r| r.id).collect();
        let command = Cli::command();
        let mut all: Vec<&str> = command
            .get_arguments()
            .map(|a| a.get_id().as_str())
            .filter(|id| !matches!(*id, "completions" | "man" | "help" | "version"))
            .collect();
        known.sort_unstable();
        all.sort_unstable();
        assert_eq!(known, all);
    }

    #[test]
    fn every_option_in_every_way_does_something_or_is_told_of() {
        let mut idle = 0;
        for rule in &RULES {
            let words = example(rule.id);
            if words.is_empty() {
                continue;
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let cli = given(&[&words[..], &["--", "./app"]].concat());
            assert!(cli.given.contains(rule.id), "{}", rule.id);
            for (way, name) in Way::ALL {
                let verdict = check_command_line(&cli, way);
                // All of these have a program; another row covers its meaning.
                let about: Vec<String> = match verdict {
                    Err(sentence) => vec![sentence],
                    Ok(told) => told,
                };
                let own = about
                    .iter()
                    .find(|s| s.starts_with(&format!("{} has", flag(rule.id))));
                if rule.effect.has(way) {
                    assert_eq!(own, None, "{} in {name}", rule.id);
                    continue;
                }
                idle += 1;
                let first = about
                    .first()
                    .unwrap_or_else(|| panic!("{} in {name}: silence", rule.id));
                assert!(first.contains(" has no effect in "), "{first}");
                assert!(first.contains(name), "{first}");
                assert!(!rule.instead.is_empty(), "{} has no remedy", rule.id);
            }
        }
        assert!(idle > 150, "{idle}");
    }

    #[test]
    fn combinations_that_were_silent_are_refused() {
        let refused = |words: &[&str], way| {
            let cli = given(&[words, &["--", "./app"]].concat());
            check_command_line(&cli, way).unwrap_err()
        };
        assert!(
            refused(&["--window", "10"], Way::FULL)
                .starts_with("--window has no effect in --mode full")
        );
        assert!(
            refused(&["--rate", "10"], Way::RING).contains("--rate has no effect in --mode ring")
        );
        assert!(
            refused(&["--period", "10"], Way::BURST_BY_TIME).contains("--rate is for CPU time")
        );
        assert!(refused(&["--rate", "10"], Way::PT_RING).contains("--pt clock=HZ"));
        let counted = refused(&["--window", "9"], Way::COUNT);
        assert!(
            counted.contains("--window has no effect in --count"),
            "{counted}"
        );
        assert!(refused(&["--duration", "1"], Way::PT_FULL).contains("timeout"));
        assert!(refused(&["--near", "1"], Way::BURST_BY_LOADS).contains("--mode watch"));
        // Defaults were not given.
        assert_eq!(
            check_command_line(&given(&["--", "./app"]), Way::FULL),
            Ok(Vec::new())
        );
        let both = given(&["--keep-spill", "--compress", "zstd", "--", "./app"]);
        assert_eq!(check_command_line(&both, Way::FULL).unwrap().len(), 1);
    }

    #[test]
    fn options_behind_the_program_are_told_of_unless_they_are_meant() {
        let told = |words: &[&str]| behind_program(&given(words));
        let sentence = told(&["./app", "-o", "x"]).unwrap();
        assert!(
            sentence.starts_with("-o behind ./app goes to ./app"),
            "{sentence}"
        );
        assert!(
            told(&["--force", "./app", "--mode=ring", "--window", "5"])
                .unwrap()
                .starts_with("--mode=ring, --window behind")
        );
        for silent in [
            &["--", "./app", "-o", "x"][..],
            &["./app", "input", "-x", "--help"],
            &["./app", "--", "-o", "x"],
            &["./app"],
        ] {
            assert_eq!(told(silent), None, "{silent:?}");
        }
    }
}
