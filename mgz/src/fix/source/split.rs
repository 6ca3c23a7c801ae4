//! Splits of arrays of structures in two: one with often loaded members, and one with the others.
//!
//! That is safe if one variable holds all structures of the type, and each use of it names a member
//! of an element: `all[i].mass` becomes `all_cold[i].mass`.

use crate::fix::source::debug_info::Structure;
use crate::fix::source::declaration::Declaration;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means, declared, structure_name};
use crate::fix::source::loops::declarations;
use crate::fix::source::params;
use crate::fix::source::reorder::{members_of_units, shares};
use crate::fix::source::token::SourceFile;
use crate::fix::source::{sources, uses};
use std::collections::BTreeSet;

/// Proposes two arrays, of hot and of cold members.
pub fn propose_split(means: &mut Means, finding: &Finding) -> Option<Made> {
    if !matches!(
        finding.kind(),
        "strided" | "gather" | "capacity" | "column" | "pages"
    ) {
        return None;
    }
    let structure = means.info.structure(finding.of_type()).ok()?;
    let shares = shares(structure, &finding.heat());
    let hottest = shares.iter().copied().fold(0.0, f64::max);
    let is_hot = |m: usize| shares[m] >= params::MIN_SHARE_OF_HOTTEST * hottest;
    let hot: BTreeSet<usize> = (0..shares.len()).filter(|&m| is_hot(m)).collect();
    if hottest <= 0.0 || hot.len() == shares.len() {
        return None;
    }
    let bytes = |is_hot: bool| -> u64 {
        let of = |m: &usize| hot.contains(m) == is_hot;
        let members = (0..shares.len()).filter(of);
        members.map(|m| structure.members[m].bytes).sum()
    };
    let remedy = format!("split of {}", structure_name(structure));
    let edits = declared(means, finding.of_type()).and_then(|(structure, declaration)| {
        if let Some(why) = uses::obstacle(structure, means) {
            return Err(why);
        }
        let file = means.sources.get(&structure.file)?.clone();
        let others = structure.files.iter().filter(|f| **f != structure.file);
        for other in others.filter(|f| !sources::is_of_system(f) && !f.as_os_str().is_empty()) {
            let other = means.sources.get(other)?;
            if let Some(at) = (0..other.tokens.len()).find(|&n| is_name(structure, other.word(n))) {
                return Err(format!(
                    "{} uses the structure in another file",
                    other.place(at)
                ));
            }
        }
        let split = Split {
            file: &file,
            structure,
            declaration: &declaration,
            hot: &hot,
        };
        split.edits()
    });
    let mut made = Made::patch(remedy, format!("hot-cold of {}", finding.target()), edits);
    let names: Vec<&str> = (hot.iter())
        .map(|&m| structure.members[m].name.as_str())
        .collect();
    made.recipe = format!(
        "keep {} of struct {} in an array of {} bytes an element, and the other {} bytes in a second array\n",
        names.join(", "),
        structure.name,
        bytes(true),
        bytes(false)
    );
    Some(made)
}

fn is_name(structure: &Structure, word: &str) -> bool {
    word == structure.name || structure.aliases.contains(word)
}

/// A split of a structure and of the variable that holds all of them.
struct Split<'a> {
    file: &'a SourceFile,
    structure: &'a Structure,
    declaration: &'a Declaration,
    hot: &'a BTreeSet<usize>,
}

impl Split<'_> {
    fn edit(&self, start: usize, end: usize, text: String) -> Edit {
        Edit {
            file: self.file.path.clone(),
            start,
            end,
            text,
        }
    }

    fn edits(&self) -> Result<Edits, String> {
        let file = self.file;
        let declaration = self.declaration;
        let is_typedef = declaration.keyword > 0 && file.word(declaration.keyword - 1) == "typedef";
        let is_plain = file.word(declaration.close + 1) == ";" && !is_typedef;
        if !is_plain {
            return Err("the declaration has a type definition or variables behind it".into());
        }
        let (name, at) = self.variable()?;
        if declarations(file, &name).len() != 1 {
            return Err(format!("several variables have the name {name}"));
        }
        if (0..file.tokens.len())
            .any(|n| file.word(n) == format!("{name}_cold") || file.word(n) == self.cold_type())
        {
            return Err(format!(
                "{name}_cold or {} is in the file already",
                self.cold_type()
            ));
        }
        let mut edits = self.members()?;
        edits.push(self.second_variable(&name, at)?);
        let mut covered = BTreeSet::from([at]);
        edits.extend(self.allocation(&name, &mut covered)?);
        for n in (0..file.tokens.len()).filter(|&n| file.word(n) == name) {
            if !covered.contains(&n) {
                edits.extend(self.access(&name, n)?);
            }
        }
        Edits::new(edits).ok_or_else(|| "the changes overlap".into())
    }

    fn cold_type(&self) -> String {
        format!("{}_cold", self.structure.name)
    }

    /// The only variable of the type, with its token.
    fn variable(&self) -> Result<(String, usize), String> {
        let file = self.file;
        let inside = self.declaration.keyword..self.declaration.close;
        let mut found = None;
        for at in (0..file.tokens.len()).filter(|&n| is_name(self.structure, file.word(n))) {
            if inside.contains(&at) {
                continue;
            }
            let place = || file.place(at);
            let is_sizeof = (at.saturating_sub(3)..at).any(|n| file.word(n) == "sizeof");
            if is_sizeof {
                return Err(format!(
                    "{} takes the size of the type; take that of an element",
                    place()
                ));
            }
            let name = match file.word(at + 1) {
                "*" => at + 2,
                _ => at + 1,
            };
            let is_array = name == at + 1 && file.word(at + 2) == "[";
            let ends = |n: usize| matches!(file.word(n), ";" | "=");
            let behind = match is_array {
                true => file.closing(at + 2).map(|c| c + 1),
                false => Some(name + 1),
            };
            let is_variable = file.is_word(name)
                && (is_array || name == at + 2)
                && behind.is_some_and(|n| ends(n) && (file.word(n) == ";" || !is_array));
            if !is_variable || found.is_some() {
                return Err(format!(
                    "{} uses the type for more than one array or pointer",
                    place()
                ));
            }
            found = Some((file.word(name).to_owned(), name));
        }
        found.ok_or_else(|| "no variable has the type".into())
    }

    /// The declarations of both structures.
    fn members(&self) -> Result<Vec<Edit>, String> {
        let file = self.file;
        let units = &self.declaration.units;
        let indent = file.indent(file.tokens[self.declaration.keyword].start);
        let mut edits = Vec::new();
        let mut cold = String::new();
        for (unit, members) in units.iter().zip(members_of_units(self.declaration)) {
            if members.iter().any(|m| self.hot.contains(m)) {
                continue;
            }
            let text = &file.text[unit.text.clone()];
            if !text.ends_with('\n') {
                return Err("members share a line".into());
            }
            cold += text;
            edits.push(self.edit(unit.text.start, unit.text.end, String::new()));
        }
        if edits.is_empty() || edits.len() == units.len() {
            return Err("hot and cold members are declared together".into());
        }
        let behind = file.line_end(file.tokens[self.declaration.close + 1].end);
        let text = format!(
            "\n{indent}struct {} {{\n{cold}{indent}}};\n",
            self.cold_type()
        );
        edits.push(self.edit(behind, behind, text));
        Ok(edits)
    }

    /// True if a member is in the second array; `None` if there is no such member.
    fn is_cold(&self, member: &str) -> Option<bool> {
        let units = self
            .declaration
            .units
            .iter()
            .zip(members_of_units(self.declaration));
        let mut of_name = units.filter(|(u, _)| u.names.iter().any(|n| n == member));
        let (_, members) = of_name.next()?;
        Some(!members.iter().any(|m| self.hot.contains(m)))
    }

    /// The declaration of the second array or pointer, behind that of the first.
    fn second_variable(&self, name: &str, at: usize) -> Result<Edit, String> {
        let file = self.file;
        let start = (0..at)
            .rev()
            .find(|&n| matches!(file.word(n), ";" | "{" | "}" | ")") || file.tokens[n].in_directive)
            .map_or(0, |n| n + 1);
        let is_own = start == 0 || file.word(start - 1) != ")";
        let end = (at..file.tokens.len()).find(|&n| file.word(n) == ";");
        let (Some(end), true) = (end, is_own) else {
            return Err("its variable is no statement by itself".into());
        };
        let close = file.tokens[end].end;
        let next = file.line_end(close);
        if file.text[close..next].trim() != "" {
            return Err("something follows the declaration of the variable in its line".into());
        }
        let first = file.tokens[start].start;
        let text = self.renamed(name, start, end + 1);
        let indent = file.indent(first);
        Ok(self.edit(next, next, format!("{indent}{text}\n")))
    }

    /// Text of some tokens with the names of the second array and type.
    fn renamed(&self, name: &str, start: usize, end: usize) -> String {
        let file = self.file;
        let mut text = String::new();
        let mut at = file.tokens[start].start;
        for n in start..end {
            let token = file.tokens[n];
            text += &file.text[at..token.start];
            text += &match file.word(n) {
                word if word == name => format!("{name}_cold"),
                word if is_name(self.structure, word) => match file.word(n - 1) {
                    "struct" => self.cold_type(),
                    _ => format!("struct {}", self.cold_type()),
                },
                word => word.to_owned(),
            };
            at = token.end;
        }
        text
    }

    /// Adds a second statement for the other array after each one that allocates or frees the
    /// array.
    fn allocation(&self, name: &str, covered: &mut BTreeSet<usize>) -> Result<Vec<Edit>, String> {
        let file = self.file;
        let mut edits = Vec::new();
        for n in (0..file.tokens.len()).filter(|&n| file.word(n) == name) {
            let is_free = file.word(n.saturating_sub(2)) == "free"
                && file.word(n - 1) == "("
                && file.word(n + 1) == ")"
                && file.word(n + 2) == ";";
            let is_set = file.word(n + 1) == "=" && file.word(n + 2) != "{";
            if !is_free && !is_set {
                continue;
            }
            let first = if is_free { n - 2 } else { n };
            let end = (n..file.tokens.len()).find(|&m| file.word(m) == ";");
            let end = end.ok_or("a statement has no end")?;
            let is_declared = covered.contains(&n);
            if is_set && !is_allocation(file, name, n + 2, end) {
                return Err(format!(
                    "{} sets {name} to something else than a new block",
                    file.place(n)
                ));
            }
            covered.extend((first..end).filter(|&m| file.word(m) == name));
            // The second variable is declared with its own allocation.
            if is_declared {
                continue;
            }
            if !matches!(file.word(first - 1), ";" | "{" | "}") {
                return Err(format!("{} is no statement of a block", file.place(n)));
            }
            let close = file.tokens[end].end;
            let text = self.renamed(name, first, end + 1);
            edits.push(self.edit(close, close, format!(" {text}")));
        }
        Ok(edits)
    }

    /// An access to a member. It must name an element and a member.
    fn access(&self, name: &str, at: usize) -> Result<Option<Edit>, String> {
        let file = self.file;
        let refused = || {
            Err(format!(
                "{} uses {name} other than by members of its elements",
                file.place(at)
            ))
        };
        if file.word(at - 1) == "*" && file.word(at.saturating_sub(2)) == "sizeof" {
            return Ok(None);
        }
        let is_element =
            file.word(at + 1) == "[" && !matches!(file.word(at - 1), "." | "->" | "::");
        let Some(close) = file.closing(at + 1).filter(|_| is_element) else {
            return refused();
        };
        if file.word(close + 1) != "." {
            return refused();
        }
        // Side effects in the index are kept, since it is evaluated once as before.
        match self.is_cold(file.word(close + 2)) {
            Some(true) => {
                let end = file.tokens[at].end;
                Ok(Some(self.edit(end, end, "_cold".into())))
            }
            Some(false) => Ok(None),
            None => refused(),
        }
    }
}

/// True for `malloc(n * sizeof *name)` and `calloc(n, sizeof *name)`, perhaps with a cast.
fn is_allocation(file: &SourceFile, name: &str, start: usize, end: usize) -> bool {
    let call = match file.word(start) {
        "(" => match file.closing(start) {
            Some(close) => close + 1,
            None => return false,
        },
        _ => start,
    };
    let is_call = matches!(file.word(call), "malloc" | "calloc")
        && file.closing(call + 1).is_some_and(|close| close + 1 == end);
    let has_size = (call..end).any(|n| {
        file.word(n) == "sizeof" && file.word(n + 1) == "*" && file.word(n + 2) == name
            || file.word(n) == "sizeof"
                && file.word(n + 1) == "("
                && file.word(n + 2) == "*"
                && file.word(n + 3) == name
    });
    // A size that is not a multiple of the element's would be too small or too large.
    let has_effect = (call..end).any(|n| matches!(file.word(n), "++" | "--" | "="));
    let calls = (call + 1..end)
        .any(|n| file.is_word(n) && file.word(n + 1) == "(" && file.word(n) != "sizeof");
    is_call && has_size && !has_effect && !calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::debug_info::Member;
    use crate::fix::source::declaration::layout;
    use crate::fix::source::edit::Texts;
    use std::path::Path;

    fn diff(rest: &str) -> Result<String, String> {
        let text = format!(
            "struct body {{\n    double mass;\n    char name[56];\n    double x;\n}};\n{rest}"
        );
        let member = |&(name, bytes, align): &(&str, u64, u64)| Member {
            name: name.into(),
            bytes,
            align,
            ..Member::default()
        };
        let mut structure = Structure {
            name: "body".into(),
            line: 1,
            members: [("mass", 8, 8), ("name", 56, 1), ("x", 8, 8)]
                .iter()
                .map(member)
                .collect(),
            ..Structure::default()
        };
        let (offsets, bytes) = layout(&structure, &[0, 1, 2]).unwrap();
        structure.bytes = bytes;
        for (member, offset) in structure.members.iter_mut().zip(offsets) {
            member.offset = offset;
        }
        let path = Path::new("/s/a.c");
        let file = SourceFile::new(path, text.clone()).unwrap();
        let declaration = Declaration::find(&file, &structure)?;
        let hot = BTreeSet::from([0, 2]);
        let split = Split {
            file: &file,
            structure: &structure,
            declaration: &declaration,
            hot: &hot,
        };
        let texts = Texts::from([(path.to_path_buf(), text)]);
        Ok(split.edits()?.diff(&texts, Path::new("/s")))
    }

    #[test]
    fn a_static_array_is_split() {
        let found = diff(
            "static struct body all[1000];\nchar f(int i) {\n    return all[i].name[2] + all[i + 1].mass;\n}\n",
        );
        assert_eq!(
            found.unwrap(),
            "\
--- a/a.c
+++ b/a.c
@@ -1,9 +1,13 @@
 struct body {
     double mass;
-    char name[56];
     double x;
 };
+
+struct body_cold {
+    char name[56];
+};
 static struct body all[1000];
+static struct body_cold all_cold[1000];
 char f(int i) {
-    return all[i].name[2] + all[i + 1].mass;
+    return all_cold[i].name[2] + all[i + 1].mass;
 }
"
        );
    }

    #[test]
    fn a_heap_block_is_split_with_its_allocation() {
        let found = diff(
            "int f(int n) {\n    struct body *all = malloc(n * sizeof *all);\n    all[n - 1].name[0] = 1;\n    all[0].x = 2;\n    free(all);\n}\n",
        )
        .unwrap();
        for line in [
            "+    struct body_cold *all_cold = malloc(n * sizeof *all_cold);\n",
            "+    all_cold[n - 1].name[0] = 1;\n",
            "+    free(all); free(all_cold);\n",
        ] {
            assert!(found.contains(line), "{found}");
        }
        assert!(found.contains("     all[0].x = 2;\n"), "{found}");
    }

    #[test]
    fn other_uses_are_refused() {
        for (rest, why) in [
            ("struct body all[9], more[9];", "more than one"),
            ("struct body *p; struct body *q;", "more than one"),
            ("int f(struct body *p) { return p->x; }", "more than one"),
            (
                "struct body all[9];\nint f(void) { return g(all); }",
                "other than by members",
            ),
            (
                "struct body all[9];\nint f(void) { return all->x; }",
                "other than by members",
            ),
            (
                "struct body all[9];\nint f(void) { all[1] = all[2]; }",
                "other than by members",
            ),
            (
                "struct body *p;\nint f(int n) {\n p = malloc(n);\n }",
                "something else",
            ),
            (
                "struct body *p;\nint f(int n) {\n p = q;\n }",
                "something else",
            ),
            (
                "struct body *p;\nint n = sizeof(struct body);",
                "size of the type",
            ),
            ("struct body *p; int p_cold;", "already"),
            ("int x;", "no variable"),
            (
                "struct body p[9];\nint f(int p) { return p; }",
                "several variables",
            ),
        ] {
            let said = diff(rest).unwrap_err();
            assert!(said.contains(why), "{rest}: {said}");
        }
    }
}
