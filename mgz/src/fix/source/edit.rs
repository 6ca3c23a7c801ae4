//! Changes of files: replaced ranges of bytes, and the unified diff of them.

use crate::fix::source::params::CONTEXT_LINES;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Text after a last line without a newline.
const NO_NEWLINE: &str = "\n\\ No newline at end of file\n";

/// A replaced range of one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edit {
    /// Path of the file, absolute.
    pub file: PathBuf,
    /// Offset of the first replaced byte.
    pub start: usize,
    /// Offset behind the replaced bytes; `start` for an insertion.
    pub end: usize,
    /// New text.
    pub text: String,
}

/// Edits that belong together. They do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    list: BTreeSet<Edit>,
}

/// Texts of files, by path.
pub type Texts = BTreeMap<PathBuf, String>;

impl Edits {
    /// Edits in any order. `None` if two overlap.
    pub fn new(edits: impl IntoIterator<Item = Edit>) -> Option<Edits> {
        let list: BTreeSet<Edit> = edits.into_iter().collect();
        let all: Vec<&Edit> = list.iter().collect();
        let is_apart = all.windows(2).all(|pair| {
            let [a, b] = pair else { return true };
            // Insertions at the same offset are made in order.
            a.file != b.file || a.end <= b.start
        });
        is_apart.then_some(Edits { list })
    }

    /// Both together. `None` if they change the same bytes differently.
    pub fn joined(&self, other: &Edits) -> Option<Edits> {
        Edits::new(self.list.iter().chain(&other.list).cloned())
    }

    /// True if nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The files that are changed.
    pub fn files(&self) -> BTreeSet<&Path> {
        self.list.iter().map(|e| e.file.as_path()).collect()
    }

    /// The changed text of a file.
    pub fn apply(&self, file: &Path, text: &str) -> String {
        self.apply_in(file, text, 0..text.len())
    }

    /// The changed text of a range of a file. No edit may cross the range's ends.
    fn apply_in(&self, file: &Path, text: &str, range: Range<usize>) -> String {
        let mut changed = String::new();
        let mut at = range.start;
        let of_range = |e: &&Edit| e.file == file && e.start >= range.start && e.end <= range.end;
        for edit in self.list.iter().filter(of_range) {
            changed += &text[at..edit.start];
            changed += &edit.text;
            at = edit.end;
        }
        changed + &text[at..range.end]
    }

    /// The unified diff. Paths are relative to `root`.
    pub fn diff(&self, texts: &Texts, root: &Path) -> String {
        let mut diff = String::new();
        for file in self.files() {
            let Some(text) = texts.get(file) else {
                continue;
            };
            let name = file.strip_prefix(root).unwrap_or(file).display();
            let _ = write!(diff, "--- a/{name}\n+++ b/{name}\n");
            diff += &self.hunks(file, text);
        }
        diff
    }

    fn hunks(&self, file: &Path, text: &str) -> String {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut starts = vec![0];
        starts.extend(lines.iter().scan(0, |sum, line| {
            *sum += line.len();
            Some(*sum)
        }));
        let regions = self.regions(file, &starts);
        let mut out = Hunks::default();
        for region in regions {
            let new = self.apply_in(file, text, starts[region.start]..starts[region.end]);
            let new: Vec<&str> = new.split_inclusive('\n').collect();
            for (line, step) in steps(&lines[region.clone()], &new) {
                out.add(&lines, region.start + line, step);
            }
        }
        out.finish(&lines)
    }

    /// Ranges of lines that edits change. No two are adjacent.
    fn regions(&self, file: &Path, starts: &[usize]) -> Vec<Range<usize>> {
        let last = starts.len() - 1;
        let line_of = |byte: usize| starts.partition_point(|&s| s <= byte) - 1;
        let mut regions: Vec<Range<usize>> = Vec::new();
        for edit in self.list.iter().filter(|e| e.file == file) {
            let start = line_of(edit.start).min(last);
            let is_whole = starts[start] == edit.start && edit.text.ends_with('\n');
            let end = match line_of(edit.end) {
                end if starts[end] == edit.end && (end > start || is_whole) => end,
                end => (end + 1).min(last),
            };
            match regions.last_mut().filter(|r| start <= r.end) {
                Some(region) => region.end = region.end.max(end),
                None => regions.push(start..end),
            }
        }
        regions
    }
}

/// A step from old to new lines.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Remove,
    Add(String),
}

/// The steps from old to new lines by the longest common subsequence, each with the number of its
/// old line.
fn steps(old: &[&str], new: &[&str]) -> Vec<(usize, Step)> {
    let (rows, columns) = (old.len() + 1, new.len() + 1);
    let mut common = vec![0u32; rows * columns];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * columns + j] = match old[i] == new[j] {
                true => common[(i + 1) * columns + j + 1] + 1,
                false => common[(i + 1) * columns + j].max(common[i * columns + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut found = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if i < old.len()
            && (j == new.len() || common[(i + 1) * columns + j] >= common[i * columns + j + 1])
        {
            found.push((i, Step::Remove));
            i += 1;
        } else {
            found.push((i, Step::Add(new[j].to_owned())));
            j += 1;
        }
    }
    found
}

/// Builds the text of hunks from steps.
#[derive(Default)]
struct Hunks {
    text: String,
    /// Number of added minus removed lines in finished hunks.
    shift: isize,
    open: Option<Hunk>,
}

/// A hunk: its first old line, the next old line, and its body.
struct Hunk {
    first: usize,
    next: usize,
    added: usize,
    removed: usize,
    body: String,
}

impl Hunks {
    fn add(&mut self, lines: &[&str], line: usize, step: Step) {
        let is_far = |h: &Hunk| line > h.next + 2 * CONTEXT_LINES;
        if self.open.as_ref().is_some_and(is_far) {
            self.close(lines);
        }
        let hunk = self.open.get_or_insert_with(|| {
            let first = line.saturating_sub(CONTEXT_LINES);
            Hunk {
                first,
                next: first,
                added: 0,
                removed: 0,
                body: String::new(),
            }
        });
        while hunk.next < line {
            put(&mut hunk.body, ' ', lines[hunk.next]);
            hunk.next += 1;
        }
        match step {
            Step::Remove => {
                put(&mut hunk.body, '-', lines[line]);
                hunk.next = line + 1;
                hunk.removed += 1;
            }
            Step::Add(text) => {
                put(&mut hunk.body, '+', &text);
                hunk.added += 1;
            }
        }
    }

    fn close(&mut self, lines: &[&str]) {
        let Some(mut hunk) = self.open.take() else {
            return;
        };
        let end = (hunk.next + CONTEXT_LINES).min(lines.len());
        while hunk.next < end {
            put(&mut hunk.body, ' ', lines[hunk.next]);
            hunk.next += 1;
        }
        let old = hunk.next - hunk.first;
        let new = old + hunk.added - hunk.removed;
        let first_new = hunk.first.saturating_add_signed(self.shift);
        // A range without lines is named by the line before it.
        let begin = |first: usize, count: usize| first + usize::from(count > 0);
        let _ = write!(
            self.text,
            "@@ -{},{old} +{},{new} @@\n{}",
            begin(hunk.first, old),
            begin(first_new, new),
            hunk.body
        );
        self.shift += hunk.added as isize - hunk.removed as isize;
    }

    fn finish(mut self, lines: &[&str]) -> String {
        self.close(lines);
        self.text
    }
}

fn put(body: &mut String, sign: char, line: &str) {
    body.push(sign);
    body.push_str(line);
    if !line.ends_with('\n') {
        *body += NO_NEWLINE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str, old: &str, new: &str) -> Edit {
        let start = text.find(old).unwrap();
        Edit {
            file: "/s/a.c".into(),
            start,
            end: start + old.len(),
            text: new.into(),
        }
    }

    fn diff(text: &str, edits: &[Edit]) -> String {
        let texts = Texts::from([(PathBuf::from("/s/a.c"), text.to_owned())]);
        let edits = Edits::new(edits.iter().cloned()).unwrap();
        edits.diff(&texts, Path::new("/s"))
    }

    #[test]
    fn far_changes_have_hunks_of_their_own() {
        let text: String = (1..=20).map(|n| format!("line {n};\n")).collect();
        let found = diff(
            &text,
            &[
                edit(&text, "line 2;\n", "two\nlines\n"),
                edit(&text, "18", "x"),
            ],
        );
        assert_eq!(
            found,
            "--- a/a.c\n+++ b/a.c\n@@ -1,5 +1,6 @@\n line 1;\n-line 2;\n+two\n+lines\n line 3;\n line 4;\n line 5;\n@@ -15,6 +16,6 @@\n line 15;\n line 16;\n line 17;\n-line 18;\n+line x;\n line 19;\n line 20;\n"
        );
    }

    #[test]
    fn insertions_and_missing_ends_of_lines() {
        let text = "a\nb";
        let insertion = Edit {
            file: "/s/a.c".into(),
            start: 2,
            end: 2,
            text: "new\n".into(),
        };
        assert_eq!(
            diff(text, std::slice::from_ref(&insertion)),
            "--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,3 @@\n a\n+new\n b\n\\ No newline at end of file\n"
        );
        assert_eq!(
            diff(text, &[insertion, edit(text, "b", "c\n")]),
            "--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,3 @@\n a\n-b\n\\ No newline at end of file\n+new\n+c\n"
        );
    }

    #[test]
    fn overlapping_edits_are_refused_and_equal_ones_are_one() {
        let text = "abcdef";
        let one = Edits::new([edit(text, "abc", "x")]).unwrap();
        assert_eq!(one.joined(&one).unwrap(), one);
        let other = Edits::new([edit(text, "cd", "y")]).unwrap();
        assert_eq!(one.joined(&other), None);
        let behind = Edits::new([edit(text, "def", "z")]).unwrap();
        let both = one.joined(&behind).unwrap();
        assert_eq!(both.apply(Path::new("/s/a.c"), text), "xz");
    }
}
