//! Patches as files: a unified diff after lines that name its tree and files.
//!
//! `patch -p1` and `git apply` skip these lines. `mgz fix --apply` needs them to see that the files
//! are still the same.

use crate::fix::source::edit::{Edits, Texts};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::{Component, Path, PathBuf};
use twox_hash::XxHash3_64;

/// Prefix of the line with the folder that paths are relative to.
const TREE: &str = "# mgz: tree ";
/// Prefix of a line with a file's hash and path.
const FILE: &str = "# mgz: file ";

/// Hash of a file's bytes: XXH3, hex.
pub fn hash(bytes: &[u8]) -> String {
    let mut hash = XxHash3_64::with_seed(0);
    hash.write(bytes);
    format!("{:016x}", hash.finish())
}

/// The text of a patch. `notes`: lines before it.
pub fn text(edits: &Edits, texts: &Texts, tree: &Path, notes: &[String]) -> String {
    let mut text: String = notes.iter().map(|n| format!("# {n}\n")).collect();
    text += &format!("{TREE}{}\n", tree.display());
    for file in edits.files() {
        let name = file.strip_prefix(tree).unwrap_or(file).display();
        let hash = texts
            .get(file)
            .map_or_else(String::new, |t| hash(t.as_bytes()));
        text += &format!("{FILE}{hash} {name}\n");
    }
    text + &edits.diff(texts, tree)
}

/// True for the text of a patch that mgz has written.
pub fn is_own(text: &str) -> bool {
    text.lines()
        .take_while(|line| line.starts_with("# "))
        .any(|line| line.starts_with(TREE))
}

/// A patch that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchFile {
    /// Folder that paths are relative to; empty if the patch does not name it.
    pub tree: PathBuf,
    /// Hashes of the files, by path in the tree.
    pub hashes: BTreeMap<PathBuf, String>,
    /// Hunks by path in the tree.
    pub files: BTreeMap<PathBuf, Vec<Hunk>>,
}

/// A hunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// First old line, from 1; the previous line if there are no old lines.
    first: usize,
    old: Vec<String>,
    new: Vec<String>,
}

impl PatchFile {
    /// Parses a patch. Everything that is not certainly understood is an error.
    pub fn parse(text: &str) -> anyhow::Result<PatchFile> {
        let mut patch = PatchFile::default();
        let mut lines = text.split_inclusive('\n').peekable();
        while let Some(line) = lines.next() {
            let bare = line.trim_end();
            if let Some(tree) = bare.strip_prefix(TREE) {
                patch.tree = tree.into();
            } else if let Some(file) = bare.strip_prefix(FILE) {
                let (hash, name) = file.split_once(' ').context("a file without a name")?;
                patch.hashes.insert(inside(name)?, hash.to_owned());
            } else if let Some(old) = bare.strip_prefix("--- ") {
                let next = lines.next().unwrap_or_default().trim_end();
                let new = next
                    .strip_prefix("+++ ")
                    .context("a file without a +++ line")?;
                let (old, new) = (stripped(old, "a/"), stripped(new, "b/"));
                if old != new {
                    bail!("files are made or removed, or renamed: {old} and {new}");
                }
                let hunks = patch.files.entry(inside(new)?).or_default();
                while lines.peek().is_some_and(|l| l.starts_with("@@ ")) {
                    let head = lines.next().unwrap_or_default();
                    hunks.push(hunk(head, &mut lines)?);
                }
                if hunks.is_empty() {
                    bail!("a file without changes: {new}");
                }
            }
        }
        if patch.files.is_empty() {
            bail!("no changes are in it");
        }
        Ok(patch)
    }

    /// The changed text of a file. The error is the first line that differs from what the patch
    /// expects there.
    pub fn apply(hunks: &[Hunk], text: &str) -> Result<String, usize> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut changed = String::new();
        let mut at = 0;
        for hunk in hunks {
            let first = match hunk.old.is_empty() {
                true => hunk.first,
                false => hunk.first.saturating_sub(1),
            };
            let before = lines.get(at..first).ok_or(first)?;
            changed.extend(before.iter().copied());
            for (number, old) in hunk.old.iter().enumerate() {
                if lines.get(first + number) != Some(&old.as_str()) {
                    return Err(first + number + 1);
                }
            }
            changed.extend(hunk.new.iter().map(String::as_str));
            at = first + hunk.old.len();
        }
        changed.extend(lines.get(at..).unwrap_or_default().iter().copied());
        Ok(changed)
    }
}

/// The path without the prefix and without text that tools add behind it.
fn stripped<'a>(path: &'a str, prefix: &str) -> &'a str {
    let path = path.split('\t').next().unwrap_or(path);
    path.strip_prefix(prefix).unwrap_or(path)
}

/// A path that leads to a file inside of a folder.
fn inside(path: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(path);
    let is_inside = path.components().all(|c| matches!(c, Component::Normal(_)));
    if !is_inside || path.as_os_str().is_empty() {
        bail!("{}: does not lie in the tree", path.display());
    }
    Ok(path)
}

/// The number of lines behind a sign: `-12,3`.
fn range(text: &str, sign: char) -> Option<(usize, usize)> {
    let text = text.strip_prefix(sign)?;
    match text.split_once(',') {
        Some((first, count)) => Some((first.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    }
}

fn hunk<'a>(
    head: &str,
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
) -> anyhow::Result<Hunk> {
    let mut words = head.split_ascii_whitespace().skip(1);
    let mut next = |sign| words.next().and_then(|w| range(w, sign));
    let (Some((first, old)), Some((_, new))) = (next('-'), next('+')) else {
        bail!("a hunk without its lines: {}", head.trim_end());
    };
    let mut hunk = Hunk {
        first,
        ..Hunk::default()
    };
    while hunk.old.len() < old || hunk.new.len() < new {
        let line = lines.next().context("a hunk that ends too early")?;
        let (sign, rest) = line
            .split_at_checked(1)
            .context("an empty line in a hunk")?;
        let mut rest = rest.to_owned();
        if lines.peek().is_some_and(|l| l.starts_with('\\')) {
            lines.next();
            rest.pop();
        }
        match sign {
            " " => {
                hunk.old.push(rest.clone());
                hunk.new.push(rest);
            }
            "-" => hunk.old.push(rest),
            "+" => hunk.new.push(rest),
            _ => bail!("a line in a hunk that is none: {}", line.trim_end()),
        }
    }
    if hunk.old.len() > old || hunk.new.len() > new {
        bail!("a hunk with another number of lines than it says");
    }
    Ok(hunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::edit::Edit;

    fn edits(text: &str, changes: &[(&str, &str)]) -> Edits {
        let edit = |&(old, new): &(&str, &str)| {
            let start = text.find(old).unwrap();
            Edit {
                file: "/s/d/a.c".into(),
                start,
                end: start + old.len(),
                text: new.into(),
            }
        };
        Edits::new(changes.iter().map(edit)).unwrap()
    }

    fn written(text: &str, changes: &[(&str, &str)]) -> (String, String) {
        let edits = edits(text, changes);
        let texts = Texts::from([("/s/d/a.c".into(), text.to_owned())]);
        let patch = super::text(&edits, &texts, Path::new("/s"), &["a note".into()]);
        (patch, edits.apply(Path::new("/s/d/a.c"), text))
    }

    #[test]
    fn patches_are_read_back_and_applied() {
        let text: String = (1..=30).map(|n| format!("line {n};\n")).collect();
        let cases: [&[(&str, &str)]; 4] = [
            &[("line 1;\n", "")],
            &[("line 9;\n", "x\ny\n"), ("30;\n", "z")],
            &[("line 2;", "a"), ("line 29;", "b")],
            &[("line 15;\n", "line 15;\nnew\n")],
        ];
        for changes in cases {
            let (patch, changed) = written(&text, changes);
            let read = PatchFile::parse(&patch).unwrap();
            assert_eq!(read.tree, Path::new("/s"));
            let name = Path::new("d/a.c");
            assert_eq!(read.hashes[name], hash(text.as_bytes()));
            assert_eq!(PatchFile::apply(&read.files[name], &text), Ok(changed));
        }
    }

    #[test]
    fn other_lines_than_expected_are_refused() {
        let text = "a\nb\nc\n";
        let (patch, _) = written(text, &[("b\n", "x\n")]);
        let hunks = &PatchFile::parse(&patch).unwrap().files[Path::new("d/a.c")];
        assert_eq!(PatchFile::apply(hunks, "a\nb\nC\n"), Err(3));
        assert_eq!(PatchFile::apply(hunks, "a\n"), Err(2));
        assert_eq!(PatchFile::apply(hunks, ""), Err(1));
    }

    #[test]
    fn damaged_patches_are_refused() {
        let (patch, _) = written("a\nb\nc\n", &[("b\n", "x\n")]);
        let error = |text: &str| PatchFile::parse(text).unwrap_err().to_string();
        assert!(error("").contains("no changes"));
        assert!(error(&patch.replace("a/d/a.c", "a/d/b.c")).contains("renamed"));
        assert!(error(&patch.replace("d/a.c", "../a.c")).contains("tree"));
        assert!(error(&patch.replace("d/a.c", "/a.c")).contains("tree"));
        assert!(error(&patch.replace("@@ -1,3", "@@ -1,9")).contains("too early"));
        assert!(error(&patch.replace("-b", "*b")).contains("is none"));
    }
}
