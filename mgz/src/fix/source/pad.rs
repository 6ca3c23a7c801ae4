//! Separate lines for structures that different threads write.
//!
//! Static data gets `alignas`. Heap blocks are aligned only to 16 bytes, so a structure that may be
//! on the heap is padded until the members of two elements never share a line.

use crate::fix::source::debug_info::Structure;
use crate::fix::source::declaration::Declaration;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means, declared, structure_name};
use crate::fix::source::params::{HEAP_ALIGNMENT, LINE_BYTES};
use crate::fix::source::sources::Sources;
use crate::fix::source::token::SourceFile;
use crate::fix::source::uses;

/// Proposes padding against false sharing.
pub fn propose_padding(means: &mut Means, finding: &Finding) -> Option<Made> {
    if finding.kind() != "false_sharing" {
        return None;
    }
    let structure = means.info.structure(finding.of_type()).ok()?;
    let edits = declared(means, finding.of_type()).and_then(|(structure, declaration)| {
        if let Some(why) = uses::obstacle(structure, means) {
            return Err(why);
        }
        let is_static =
            finding.object["kind"] == "global" && !may_be_allocated(structure, means.sources);
        let file = means.sources.get(&structure.file)?;
        match is_static {
            true => Ok(aligned(file, &declaration)),
            false => padded(file, structure, &declaration),
        }
    });
    let edits = edits.and_then(|edit| Edits::new([edit]).ok_or_else(|| "no change".into()));
    let name = structure_name(structure);
    let mut made = Made::patch(format!("lines of its own for {name}"), String::new(), edits);
    made.recipe = format!(
        "let each element of {} begin a cache line: {} bytes instead of {}\n",
        structure.name,
        structure.bytes.next_multiple_of(LINE_BYTES),
        structure.bytes
    );
    Some(made)
}

/// True if a file that uses the structure allocates memory.
fn may_be_allocated(structure: &Structure, sources: &mut Sources) -> bool {
    structure.files.iter().any(|path| {
        let Ok(file) = sources.get(path) else {
            return false;
        };
        (0..file.tokens.len()).any(|at| {
            matches!(
                file.word(at),
                "malloc"
                    | "calloc"
                    | "realloc"
                    | "aligned_alloc"
                    | "new"
                    | "vector"
                    | "make_unique"
                    | "make_shared"
            )
        })
    })
}

/// Alignment to lines.
fn aligned(file: &SourceFile, declaration: &Declaration) -> Edit {
    let first = declaration.units[0].tokens.start;
    let at = file.tokens[first].start;
    let text = format!("_Alignas({LINE_BYTES}) ");
    Edit {
        file: file.path.clone(),
        start: at,
        end: at,
        text,
    }
}

/// Adds a last member of unused bytes.
fn padded(
    file: &SourceFile,
    structure: &Structure,
    declaration: &Declaration,
) -> Result<Edit, String> {
    let last = declaration.units.last().ok_or("it has no members")?;
    let name = "mgz_padding";
    if (0..file.tokens.len()).any(|at| file.word(at) == name) {
        return Err(format!("{name} is in the file already"));
    }
    let whole = (structure.bytes + LINE_BYTES - HEAP_ALIGNMENT).next_multiple_of(LINE_BYTES);
    let bytes = whole - structure.bytes;
    let indent = file.indent(file.tokens[last.tokens.start].start);
    let at = last.text.end;
    let text = match file.text[..at].ends_with('\n') {
        true => format!("{indent}char {name}[{bytes}];\n"),
        false => format!(" char {name}[{bytes}];"),
    };
    Ok(Edit {
        file: file.path.clone(),
        start: at,
        end: at,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::debug_info::Member;
    use std::path::Path;

    fn changed(name: &str, make: fn(&SourceFile, &Structure, &Declaration) -> Edit) -> String {
        let text = "struct count {\n    long n;\n    int hits;\n};\n";
        let member = |name: &str, offset, bytes| Member {
            name: name.into(),
            offset,
            bytes,
            align: bytes,
            ..Member::default()
        };
        let structure = Structure {
            name: "count".into(),
            bytes: 16,
            line: 1,
            members: vec![member("n", 0, 8), member("hits", 8, 4)],
            ..Structure::default()
        };
        let path = Path::new(name);
        let file = SourceFile::new(path, text.into()).unwrap();
        let declaration = Declaration::find(&file, &structure).unwrap();
        let edits = Edits::new([make(&file, &structure, &declaration)]).unwrap();
        edits.apply(path, text)
    }

    #[test]
    fn structures_get_lines_of_their_own() {
        let pad = |f: &SourceFile, s: &Structure, d: &Declaration| padded(f, s, d).unwrap();
        assert_eq!(
            changed("a.c", pad),
            "struct count {\n    long n;\n    int hits;\n    char mgz_padding[48];\n};\n"
        );
        let align = |f: &SourceFile, _: &Structure, d: &Declaration| aligned(f, d);
        assert_eq!(
            changed("a.c", align),
            "struct count {\n    _Alignas(64) long n;\n    int hits;\n};\n"
        );
    }
}
