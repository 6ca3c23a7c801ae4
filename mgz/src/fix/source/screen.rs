//! Text of `mgz fix --source` on the screen.

use crate::fix::document::Tried;
use crate::fix::screen::{measured, predicted};
use crate::fix::source::proposals::{Change, Proposal};
use mgz_annotations_schema::tell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// Proposals without a measurement. `taken`: numbers of those in the patch.
pub fn proposed(
    name: &str,
    list: &[Proposal],
    taken: &BTreeSet<usize>,
    no_finding: &str,
) -> String {
    let mut text = match (list.is_empty(), taken.is_empty()) {
        (true, _) => format!("{name} is left as it is: {no_finding}\n"),
        (_, true) => format!("{name}: no change of the source is safe by itself\n"),
        _ => format!(
            "{name}: {} of {} remedies are in the patch\n",
            taken.len(),
            list.len()
        ),
    };
    for (number, proposal) in list.iter().enumerate() {
        let state = match (&proposal.change, taken.contains(&number)) {
            (Change::Comment(_), true) => "a comment",
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
    text
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
