//! Members of a structure in the order of their loads: those that are often loaded come first, next
//! to each other.

use crate::fix::source::debug_info::Structure;
use crate::fix::source::declaration::{Declaration, layout};
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::params;
use crate::fix::source::token::SourceFile;
use std::fmt::Write;

/// Share of an object's loads that read a part of its elements, from the analysis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heat {
    /// Bytes from the element's begin.
    pub offset: u64,
    /// Percent.
    pub share: f64,
}

/// A new order.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberOrder {
    /// Member declarations by their number in the old order.
    pub units: Vec<usize>,
    /// Share of the loads by member, percent.
    pub shares: Vec<f64>,
    /// New offsets by member.
    pub offsets: Vec<u64>,
    /// Bytes of the structure afterwards.
    pub bytes: u64,
    /// Members that are often loaded.
    pub hot: Vec<usize>,
    /// Mean number of lines with the hot members of an element, before and after.
    pub lines: [f64; 2],
}

/// Share of the loads by member.
pub fn shares(structure: &Structure, heat: &[Heat]) -> Vec<f64> {
    let share = |m: &crate::fix::source::debug_info::Member| {
        let of_member = |h: &&Heat| h.offset >= m.offset && h.offset - m.offset < m.bytes;
        heat.iter()
            .filter(of_member)
            .map(|h| h.share)
            .fold(0.0, |sum, share| sum + share)
    };
    structure.members.iter().map(share).collect()
}

impl MemberOrder {
    /// The best order of member declarations, each given by the numbers of its members. The error
    /// is the reason why the old order is kept.
    pub fn new(
        structure: &Structure,
        units: &[Vec<usize>],
        heat: &[Heat],
    ) -> Result<MemberOrder, String> {
        let shares = shares(structure, heat);
        let hottest = shares.iter().copied().fold(0.0, f64::max);
        if hottest <= 0.0 {
            return Err("the loads of its members are not known".into());
        }
        let is_hot = |member: &usize| shares[*member] >= params::MIN_SHARE_OF_HOTTEST * hottest;
        let members = 0..structure.members.len();
        let hot: Vec<usize> = members.filter(is_hot).collect();
        let align = |unit: usize| {
            let of_unit = units[unit].iter();
            of_unit
                .map(|&m| structure.members[m].align)
                .max()
                .unwrap_or(1)
        };
        // Code may access the structure as its first member, if that is a structure too.
        let is_base = structure.members.first().is_some_and(|m| m.is_structure);
        let mut order: Vec<usize> = (0..units.len()).collect();
        order.sort_by_key(|&unit| {
            let is_first = is_base && unit == 0;
            let is_cold = !units[unit].iter().any(is_hot);
            (!is_first, is_cold, std::cmp::Reverse(align(unit)), unit)
        });
        let flat: Vec<usize> = order.iter().flat_map(|&u| units[u].clone()).collect();
        let (offsets, bytes) =
            layout(structure, &flat).ok_or("the alignment of a member is not known")?;
        let old: Vec<u64> = structure.members.iter().map(|m| m.offset).collect();
        let lines = [
            mean_lines(structure, &hot, (&old, structure.bytes)),
            mean_lines(structure, &hot, (&offsets, bytes)),
        ];
        if bytes > structure.bytes {
            return Err("members by their loads would make it larger".into());
        }
        if lines[1] > (1.0 - params::MIN_SAVED_LINES) * lines[0] {
            return Err(format!(
                "its order is good: the {} that are often loaded are in {:.2} lines of an element, and in the best order in {:.2}",
                if hot.len() == 1 { "bytes" } else { "members" },
                lines[0],
                lines[1].min(lines[0])
            ));
        }
        Ok(MemberOrder {
            units: order,
            shares,
            offsets,
            bytes,
            hot,
            lines,
        })
    }

    /// The declaration in the new order.
    pub fn edits(&self, file: &SourceFile, declaration: &Declaration) -> Option<Edits> {
        let (first, last) = (declaration.units.first()?, declaration.units.last()?);
        let range = first.text.start..last.text.end;
        let indent = file.indent(file.tokens[first.tokens.start].start);
        let mut text = String::new();
        for &unit in &self.units {
            let part = &file.text[declaration.units[unit].text.clone()];
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            // Member declarations in one line are put on separate lines.
            let is_apart = part.contains('\n') || !text.ends_with('\n');
            let part = if is_apart { part } else { part.trim_start() };
            if text.ends_with('\n') && !part.starts_with([' ', '\t', '\n', '\r']) {
                text += indent;
            }
            text += part;
        }
        let ends_line = file.text[range.clone()].ends_with('\n');
        if ends_line && !text.ends_with('\n') {
            text.push('\n');
        } else if !ends_line {
            text.truncate(text.trim_end().len());
        }
        Edits::new([Edit {
            file: file.path.clone(),
            start: range.start,
            end: range.end,
            text,
        }])
    }

    /// The order as text, with sizes and shares.
    pub fn recipe(&self, structure: &Structure) -> String {
        let mut text = format!(
            "struct {}: {} bytes, {} before; the members that are often loaded are in {:.2} lines of an element, {:.2} before\n",
            structure.name, self.bytes, structure.bytes, self.lines[1], self.lines[0]
        );
        let mut members: Vec<usize> = (0..structure.members.len()).collect();
        members.sort_by_key(|&m| self.offsets[m]);
        for member in members {
            let _ = writeln!(
                text,
                "  {:4}  {}, {} bytes, {:.0} % of the loads",
                self.offsets[member],
                structure.members[member].name,
                structure.members[member].bytes,
                self.shares[member]
            );
        }
        text
    }
}

/// Mean number of cache lines with some members of an element, over all positions of arrays and
/// elements.
fn mean_lines(structure: &Structure, hot: &[usize], (offsets, bytes): (&[u64], u64)) -> f64 {
    let bytes = bytes.max(1);
    let phases = params::LINE_BYTES / params::HEAP_ALIGNMENT;
    let elements = params::LINE_BYTES;
    let mut sum = 0usize;
    for phase in 0..phases {
        for element in 0..elements {
            let begin = phase * params::HEAP_ALIGNMENT + element * bytes;
            let mut lines: Vec<u64> = Vec::new();
            for &member in hot {
                let first = begin + offsets[member];
                let last = first + structure.members[member].bytes.max(1) - 1;
                lines.extend(first / params::LINE_BYTES..=last / params::LINE_BYTES);
            }
            lines.sort_unstable();
            lines.dedup();
            sum += lines.len();
        }
    }
    sum as f64 / (phases * elements) as f64
}

/// The numbers of the members of each member declaration.
pub fn members_of_units(declaration: &Declaration) -> Vec<Vec<usize>> {
    let mut next = 0;
    let unit = |unit: &crate::fix::source::declaration::Unit| {
        let first = next;
        next += unit.names.len();
        (first..next).collect()
    };
    declaration.units.iter().map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::debug_info::Member;
    use crate::fix::source::edit::Texts;
    use std::path::Path;

    /// A structure with members of these sizes and alignments, in the layout of compilers.
    fn structure(members: &[(&str, u64, u64)]) -> Structure {
        let member = |&(name, bytes, align): &(&str, u64, u64)| Member {
            name: name.into(),
            bytes,
            align,
            ..Member::default()
        };
        let mut structure = Structure {
            name: "body".into(),
            line: 2,
            members: members.iter().map(member).collect(),
            ..Structure::default()
        };
        let order: Vec<usize> = (0..members.len()).collect();
        let (offsets, bytes) = layout(&structure, &order).unwrap();
        for (member, offset) in structure.members.iter_mut().zip(offsets) {
            member.offset = offset;
        }
        structure.bytes = bytes;
        structure
    }

    /// The diff of a declaration, or the reason why there is none. `hot`: members that are loaded.
    fn diff(name: &str, text: &str, structure: &Structure, hot: &[&str]) -> Result<String, String> {
        let path = Path::new("/s").join(name);
        let file = SourceFile::new(&path, text.into()).unwrap();
        let declaration = Declaration::find(&file, structure)?;
        let offset = |name: &&&str| {
            let of_name = structure.members.iter().find(|m| m.name == **name);
            of_name.unwrap().offset
        };
        let heat: Vec<Heat> = (hot.iter())
            .map(|name| Heat {
                offset: offset(&name),
                share: 100.0 / hot.len() as f64,
            })
            .collect();
        let order = MemberOrder::new(structure, &members_of_units(&declaration), &heat)?;
        let edits = order.edits(&file, &declaration).unwrap();
        let texts = Texts::from([(path, text.to_owned())]);
        Ok(edits.diff(&texts, Path::new("/s")))
    }

    const C: &str = "\
// A body.
struct body {
    int id; /* its number */
    double x, y; // place
    char name[100];
    /* what it weighs;
       in kilograms */
    double mass;
    void (*draw)(struct body *, int);
};
";

    #[test]
    fn hot_members_of_c_come_first_with_their_comments() {
        let body = structure(&[
            ("id", 4, 4),
            ("x", 8, 8),
            ("y", 8, 8),
            ("name", 100, 1),
            ("mass", 8, 8),
            ("draw", 8, 8),
        ]);
        let found = diff("a.c", C, &body, &["x", "y", "mass"]).unwrap();
        assert_eq!(
            found,
            "\
--- a/a.c
+++ b/a.c
@@ -1,10 +1,10 @@
 // A body.
 struct body {
-    int id; /* its number */
     double x, y; // place
-    char name[100];
     /* what it weighs;
        in kilograms */
     double mass;
     void (*draw)(struct body *, int);
+    int id; /* its number */
+    char name[100];
 };
"
        );
    }

    #[test]
    fn members_of_one_line_get_lines_of_their_own() {
        let text = "\nstruct body { int id; char name[120]; int key; };\n";
        let body = structure(&[("id", 4, 4), ("name", 120, 1), ("key", 4, 4)]);
        let found = diff("a.cpp", text, &body, &["id", "key"]).unwrap();
        assert!(
            found.contains("+struct body { int id;\n+int key;\n+char name[120]; };\n"),
            "{found}"
        );
    }

    #[test]
    fn members_of_cpp_have_templates_and_initial_values() {
        let text = "#include <vector>
struct body {
    std::pair<int, int> id = 0;
    std::vector<std::pair<int, int>> all;
    char text[80];
    long key = 7;
};
";
        let body = structure(&[("id", 8, 4), ("all", 24, 8), ("text", 80, 1), ("key", 8, 8)]);
        let found = diff("a.cpp", text, &body, &["id", "key"]).unwrap();
        assert!(
            found
                .contains(" struct body {\n+    long key = 7;\n     std::pair<int, int> id = 0;\n"),
            "{found}"
        );
    }

    #[test]
    fn an_order_without_a_gain_stays() {
        let text = "\nstruct body {\n int a;\n int b;\n};\n";
        let body = structure(&[("a", 4, 4), ("b", 4, 4)]);
        let why = diff("a.c", text, &body, &["b"]).unwrap_err();
        assert!(why.contains("its order is good"), "{why}");
    }

    #[test]
    fn declarations_that_are_not_plain_are_refused() {
        let body = structure(&[("a", 4, 4), ("b", 4, 4)]);
        for (inside, why) in [
            ("int a : 3; int b : 5;", "bit field"),
            ("int a; union { int b; float c; };", "declared inside"),
            ("int a; struct { int b; } s;", "declared inside"),
            ("int a;\n#if X\n int b;\n#endif\n", "preprocessor lines"),
            ("int a; FIELD(b);", "a macro makes it"),
            ("int a; MORE_FIELDS", "no semicolon"),
            ("int a; REST;", "are others than in the debug information"),
            ("int a; int b[];", "without a length"),
            ("int a; int b __attribute__((packed));", "__attribute__"),
            ("int a; alignas(64) int b;", "alignas"),
            ("int a; [[maybe_unused]] int b;", "attributes"),
            ("int a; static int b;", "static"),
            ("int a; int b = f();", "initial value"),
            ("public: int a; int b;", "access specifier"),
            (
                "int a; int sum() { return a; } int b;",
                "is no plain member",
            ),
            ("int a; int sum(); int b;", "is a function"),
        ] {
            let text = format!("\nstruct body {{ {inside} }};\n");
            let said = diff("a.cpp", &text, &body, &["a", "b"]).unwrap_err();
            assert!(said.contains(why), "{inside}: {said}");
        }
        for (text, why) in [
            ("\nstruct body : base { int a; int b; };", "base class"),
            ("\nBODY { int a; int b; };", "base class"),
            (
                "\ntemplate <int N> struct body { int a; int b; };",
                "template",
            ),
            (
                "\nstruct body { int a; int b; } __attribute__((packed));",
                "follow its closing brace",
            ),
            (
                "\nstruct body { int a; int b; } all = { 1, 2 };",
                "initial values",
            ),
        ] {
            let said = diff("a.cpp", text, &body, &["a", "b"]).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn layouts_that_are_not_ordinary_are_refused() {
        let text = "\nstruct body { char a; int b; };\n";
        let mut packed = structure(&[("a", 1, 1), ("b", 4, 4)]);
        packed.members[1].offset = 1;
        packed.bytes = 5;
        let why = diff("a.c", text, &packed, &["b"]).unwrap_err();
        assert!(why.contains("packed"), "{why}");
        let mut unknown = structure(&[("a", 1, 1), ("b", 4, 4)]);
        unknown.members[1].align = 0;
        assert!(diff("a.c", text, &unknown, &["b"]).is_err());
        let mut doubtful = structure(&[("a", 1, 1), ("b", 4, 4)]);
        doubtful.doubt = "it is part of a union";
        assert_eq!(
            diff("a.c", text, &doubtful, &["b"]).unwrap_err(),
            doubtful.doubt
        );
    }

    #[test]
    fn a_first_member_that_is_a_structure_stays_first() {
        let text = "\nstruct body {\n struct base b;\n char t[100];\n int key;\n};\n";
        let mut body = structure(&[("b", 8, 4), ("t", 100, 1), ("key", 4, 4)]);
        body.members[0].is_structure = true;
        let found = diff("a.c", text, &body, &["key", "b"]).unwrap();
        assert!(
            found.contains("  struct base b;\n- char t[100];\n  int key;\n+ char t[100];\n"),
            "{found}"
        );
    }
}
