//! Text of `mgz fix --source` on the screen.

use crate::fix::document::Tried;
use crate::fix::screen::{measured, predicted};
use crate::fix::source::proposals::{Change, Proposal};
use mgz_annotations_schema::tell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// Proposals without a measurement. `taken`: numbers of those in the patch. Comments are hints: they
/// are counted and listed apart from changes of the code.
pub fn proposed(
    name: &str,
    list: &[Proposal],
    taken: &BTreeSet<usize>,
    no_finding: &str,
) -> String {
    let (hints, remedies): (Vec<_>, Vec<_>) = (list.iter().enumerate())
        .map(|(number, proposal)| (proposal, taken.contains(&number)))
        .partition(|(proposal, _)| matches!(proposal.change, Change::Comment(_)));
    let changes = remedies.iter().filter(|(_, taken)| *taken).count();
    let mut text = match (list.is_empty(), changes) {
        (true, _) => format!("{name} is left as it is: {no_finding}\n"),
        (_, 0) => format!("{name}: no change of the source is safe by itself\n"),
        (_, changes) => format!(
            "{name}: {changes} of {} in the patch\n",
            counted(remedies.len(), "remedy is", "remedies are")
        ),
    };
    for (proposal, taken) in remedies {
        let state = match (&proposal.change, taken) {
            (_, true) => "in the patch",
            (Change::Words, _) => "in words",
            _ => "left out, because another remedy changes the same place",
        };
        let _ = writeln!(
            text,
            "  {}: {}; {state}",
            proposal.remedy,
            predicted(proposal.predicted)
        );
        text += &indented(&proposal.words);
    }
    if !hints.is_empty() {
        text += &format!(
            "{} (no code is changed):\n",
            counted(hints.len(), "hint as a comment", "hints as comments")
        );
    }
    for (proposal, taken) in hints {
        let state = match taken {
            true => "",
            false => "; left out, because another remedy changes the same place",
        };
        let _ = writeln!(text, "  {}{state}", proposal.remedy);
        text += &indented(&proposal.words);
    }
    text
}

/// A number of things.
fn counted(number: usize, one: &str, several: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {several}"),
    }
}

/// Lines indented by four blanks.
pub fn indented(words: &str) -> String {
    words.lines().map(|line| format!("    {line}\n")).collect()
}

/// A path as a shell word.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,=@%".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// The ways to use a patch.
pub fn how_to_apply(patch: &Path) -> String {
    format!(
        "\n{} is written, and no source is changed; mgz fix --apply {} changes them. mgz fix --verify 'BUILD COMMAND' measures the patches first\n",
        patch.display(),
        quoted(patch)
    )
}

/// Prints that a proposal is being tried.
pub fn tell_proposal(proposal: &Proposal) {
    tell!(
        "mgz: trying {}, {}",
        proposal.remedy,
        predicted(proposal.predicted)
    );
}

/// Tried patches, each with its recipe if it is not kept.
pub fn tried(list: &[Tried]) -> String {
    let mut text = String::new();
    for one in list {
        let _ = writeln!(text, "  {}: {}", one.remedy, predicted(one.predicted));
        let _ = writeln!(text, "    {}", measured(one));
        if one.measured.is_none() {
            text += &indented(&one.words);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::document::Cause;
    use crate::fix::source::edit::{Edit, Edits};

    #[test]
    fn comments_are_no_remedies() {
        let edits = || {
            let edit = Edit {
                file: "/s/a.c".into(),
                start: 0,
                end: 0,
                text: "x".into(),
            };
            Edits::new([edit]).unwrap()
        };
        let of = |remedy: &str, change: Change| Proposal {
            finding: Cause::default(),
            remedy: remedy.into(),
            what_if: String::new(),
            predicted: None,
            change,
            words: String::new(),
        };
        let list = [
            of("comment at a.c:3", Change::Comment(edits())),
            of("prefetch of a.c:9", Change::Patch(edits())),
            of("gather at a.c:12", Change::Words),
        ];
        let text = proposed("app", &list, &BTreeSet::from([0, 1]), "");
        assert!(
            text.starts_with("app: 1 of 2 remedies are in the patch\n"),
            "{text}"
        );
        let (_, hints) = text.split_once("\n1 hint as a comment").unwrap();
        assert!(
            hints.contains("comment at a.c:3\n") && !hints.contains("prefetch"),
            "{text}"
        );
        let text = proposed("app", &list[..1], &BTreeSet::from([0]), "");
        assert!(
            text.starts_with("app: no change of the source is safe"),
            "{text}"
        );
    }
}
