//! Advice to record each build several times.

use crate::compare::change::{Change, Verdict};
use crate::compare::entries::{EntryKind, Metric, RunEntries};
use crate::compare::judge::{Comparison, MIN_RUNS_FOR_RANKS};
use crate::util::elided::elided;
use mgz_annotations_schema::shell;

/// Functions with a smaller share of the time are no reason for the advice, percent. Source: Chosen.
const MIN_WEIGHT_PCT: f64 = 5.0;
/// Narrower intervals are no reason for the advice: half their width, percent. Source: Chosen.
const MIN_HALF_WIDTH_PCT: f64 = 10.0;

/// A sentence with the most important function whose time is open because there are few runs, and
/// with the commands that narrow its interval.
pub(super) fn advice(
    base: &[RunEntries],
    new: &[RunEntries],
    comparison: &Comparison,
) -> Option<String> {
    if base.len().min(new.len()) >= MIN_RUNS_FOR_RANKS {
        return None;
    }
    let is_open = |c: &&Change| {
        c.kind == EntryKind::Function
            && matches!(c.metric, Metric::Seconds | Metric::Time)
            && c.verdict == Verdict::Unclear
            && c.weight >= MIN_WEIGHT_PCT
    };
    let open = comparison.changes.iter().filter(is_open);
    let most = open.max_by(|a, b| a.weight.total_cmp(&b.weight))?;
    let half = (most.change_hi? - most.change_lo?) / 2.0;
    (half >= MIN_HALF_WIDTH_PCT).then(|| {
        format!(
            "So few runs leave the time of `{}` open by ±{half:.0} %. {}",
            elided(&most.name),
            commands(base, new)
        )
    })
}

/// The commands that record more runs and compare all.
fn commands(base: &[RunEntries], new: &[RunEntries]) -> String {
    let folders = [base, new].map(|runs| runs.first().and_then(folder));
    let commands = [base, new].map(|runs| runs.first().map_or(&[][..], |run| &run.command));
    let ([Some(old), Some(new)], [before, after]) = (folders, commands) else {
        return "Record each build four times and compare all: mgz compare OLD1 OLD2 … -- NEW1 NEW2 …"
            .into();
    };
    let record = |folder: &str, words: &[String]| {
        let line = shell::line(words.iter().map(String::as_str));
        format!("mgz run -o {folder}.$i.mgz -- {line}")
    };
    let compare = format!("mgz compare {old}.mgz {old}.?.mgz -- {new}.mgz {new}.?.mgz");
    match before == after {
        // The base has to be built again.
        true => format!(
            "Record each build four times and compare all: for i in 2 3 4; do {}; done, likewise {old}.$i.mgz with the old build; then {compare}",
            record(&new, after)
        ),
        false => format!(
            "Record each build four times and compare all: for i in 2 3 4; do {}; {}; done; {compare}",
            record(&old, before),
            record(&new, after)
        ),
    }
}

/// The folder of `mgz run` that a run lies in, without its ending, as a word of a shell.
fn folder(run: &RunEntries) -> Option<String> {
    let folder = run.path.rsplit_once('/')?.0;
    (!run.command.is_empty()).then(|| shell::quoted(folder.strip_suffix(".mgz").unwrap_or(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_user() {
        let run = |folder: &str, program: &str| RunEntries {
            path: format!("{folder}/trace"),
            command: vec![program.into(), "in put".into()],
            ..RunEntries::default()
        };
        let (old, new) = ([run("old.mgz", "./a")], [run("new.mgz", "./b")]);
        let said = commands(&old, &new);
        assert!(
            said.ends_with("for i in 2 3 4; do mgz run -o old.$i.mgz -- ./a 'in put'; mgz run -o new.$i.mgz -- ./b 'in put'; done; mgz compare old.mgz old.?.mgz -- new.mgz new.?.mgz"),
            "{said}"
        );
        let said = commands(&old, &[run("new.mgz", "./a")]);
        assert!(
            said.contains("likewise old.$i.mgz with the old build"),
            "{said}"
        );
        let bare = [RunEntries::default()];
        assert!(commands(&bare, &new).ends_with("mgz compare OLD1 OLD2 … -- NEW1 NEW2 …"));
    }
}
