//! Pages of 2 MiB for a large heap block: `madvise` after its allocation.

use crate::fix::candidates::changes;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means};
use crate::fix::source::insert::include;
use crate::fix::source::loops::statement_end;
use crate::fix::source::names::{is_constant, is_macro};
use crate::fix::source::params::HUGE_PAGE_BYTES;
use crate::fix::source::token::{Kind, SourceFile};
use mgz_annotations_schema::ProgramChange;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Huge pages for the block that scattered loads access.
pub fn propose_huge_pages(means: &mut Means, finding: &Finding) -> Option<Made> {
    let asks = changes(finding.value).contains(&ProgramChange::HugePages);
    if !asks || finding.object["kind"] != "heap" {
        return None;
    }
    let largest = finding.object["largest_bytes"].as_u64();
    if largest.is_some_and(|bytes| bytes < 2 * HUGE_PAGE_BYTES) {
        return None;
    }
    let target = finding.target();
    let remedy = format!("huge-pages of {target}");
    let allocated = finding.value["allocated"].as_str().unwrap_or_default();
    let edits = place(means, allocated)
        .ok_or_else(|| "the line of its allocation is not known".to_owned())
        .and_then(|(path, line)| advised(means.sources.get(&path)?, line));
    let mut made = Made::patch(remedy.clone(), remedy, edits);
    made.recipe = format!(
        "give the block of {target} pages of 2 MiB: madvise(…, MADV_HUGEPAGE) behind its allocation\n"
    );
    Some(made)
}

/// File and line of a frame such as `build at a.cpp:7 < main at a.cpp:20`, among the sources of the
/// program.
fn place(means: &Means, allocated: &str) -> Option<(PathBuf, u32)> {
    let frame = allocated.split(" < ").next()?;
    let (file, line) = frame.rsplit(' ').next()?.rsplit_once(':')?;
    let line = line.parse().ok()?;
    let mut fits = (means.info.main_files.iter()).filter(|path| path.ends_with(Path::new(file)));
    match (fits.next(), fits.next()) {
        (Some(path), None) => Some((path.clone(), line)),
        _ => None,
    }
}

/// An allocation by its tokens.
struct Allocation {
    /// The pointer.
    pointer: String,
    /// Number of bytes, as an expression.
    bytes: String,
    /// The statement.
    statement: Range<usize>,
}

/// The edits, or the reason why there are none.
fn advised(file: &SourceFile, line: u32) -> Result<Edits, String> {
    let found = allocation(file, line)?;
    let doubt = ["errno", "perror", "strerror", "__LINE__"];
    if let Some(at) = (0..file.tokens.len()).find(|&n| doubt.contains(&file.word(n))) {
        return Err(format!(
            "{} has `{}`, which a call and new lines may change",
            file.place(at),
            file.word(at)
        ));
    }
    let last = file.tokens[found.statement.end - 1].end;
    let start = file.line_end(last);
    if file.text[last..start].trim() != "" || !file.text[..start].ends_with('\n') {
        return Err("something follows the allocation in its line".into());
    }
    let first = file.tokens[found.statement.start].start;
    let indent = file.indent(first);
    let (pointer, bytes) = (&found.pointer, &found.bytes);
    // The range has whole pages; the kernel uses the whole huge pages in it. A failure has no
    // effect.
    let text = format!(
        "#ifdef MADV_HUGEPAGE\n\
         {indent}if ({pointer} && ({bytes}) > 4u << 20)\n\
         {indent}    madvise((void *)(((uintptr_t){pointer} + 4095) & ~(uintptr_t)4095), ({bytes}) - 4095, MADV_HUGEPAGE);\n\
         #endif\n"
    );
    let line = Edit {
        file: file.path.clone(),
        start,
        end: start,
        text,
    };
    let headers = [include(file, "stdint.h")?, include(file, "sys/mman.h")?];
    let edits = headers.into_iter().flatten().chain([line]);
    Edits::new(edits).ok_or_else(|| "the changes overlap".into())
}

/// The allocation in a line.
fn allocation(file: &SourceFile, line: u32) -> Result<Allocation, String> {
    let is_call = |&at: &usize| {
        file.line(at) == line
            && matches!(file.word(at), "malloc" | "calloc" | "aligned_alloc")
            && file.word(at + 1) == "("
            && !file.tokens[at].in_directive
    };
    let mut calls = (0..file.tokens.len()).filter(is_call);
    let (Some(call), None) = (calls.next(), calls.next()) else {
        return Err(format!(
            "line {line} has no single call of malloc, calloc or aligned_alloc"
        ));
    };
    let close = file.closing(call + 1).ok_or("parentheses do not close")?;
    let start = (0..call)
        .rev()
        .find(|&n| matches!(file.word(n), ";" | "{" | "}" | ")") && !is_cast_end(file, n, call))
        .map_or(0, |n| n + 1);
    // A statement of a block, not of an `if`, and not a declaration outside of functions.
    if start == 0 || depth(file, start) == 0 || !matches!(file.word(start - 1), ";" | "{" | "}") {
        return Err("the allocation is no statement of a block".into());
    }
    let end = statement_end(file, start).filter(|&end| end == close + 2);
    let end = end.ok_or("the allocation is a part of a larger expression")?;
    let equals = (start..call).find(|&n| file.word(n) == "=");
    let equals = equals.ok_or("the allocation is not assigned")?;
    let pointer = match file.is_word(equals - 1) {
        true => file.word(equals - 1).to_owned(),
        false => return Err("the pointer is no plain variable".into()),
    };
    if equals >= 2 && matches!(file.word(equals - 2), "." | "->" | "::")
        || file.word(start) == "static"
    {
        return Err("the pointer is no plain variable".into());
    }
    let inside = call + 2..close;
    let is_plain = |n: usize| {
        matches!(file.tokens[n].kind, Kind::Word | Kind::Number)
            && (file.word(n + 1) != "(" || file.word(n) == "sizeof")
            || matches!(file.word(n), "+" | "-" | "*" | "<<" | "(" | ")" | "," | "/")
    };
    if !inside.clone().all(is_plain) {
        return Err("the size is computed with effects, or by a call".into());
    }
    // The size expression is evaluated again after the allocation.
    let is_element = |n: usize| {
        let before = if file.word(n - 2) == "(" {
            n - 3
        } else {
            n - 2
        };
        file.word(n - 1) == "*" && file.word(before) == "sizeof"
    };
    if inside
        .clone()
        .any(|n| file.word(n) == pointer && !is_element(n))
    {
        return Err("the size is computed from the pointer".into());
    }
    let is_made = |n: usize| is_macro(file, file.word(n)) && !is_constant(file, file.word(n));
    if inside.clone().any(is_made) {
        return Err("the size is computed by a macro".into());
    }
    let text = |range: Range<usize>| -> String {
        let last = file.tokens[range.end - 1].end;
        file.text[file.tokens[range.start].start..last].to_owned()
    };
    let comma = inside.clone().find(|&n| file.word(n) == ",");
    let bytes = match (file.word(call), comma) {
        ("malloc", None) if !inside.is_empty() => text(inside),
        ("calloc", Some(at)) => {
            format!(
                "(size_t)({}) * ({})",
                text(inside.start..at),
                text(at + 1..inside.end)
            )
        }
        ("aligned_alloc", Some(at)) => text(at + 1..inside.end),
        _ => return Err("the size is not known".into()),
    };
    if bytes.contains('\n') {
        return Err("the size takes several lines".into());
    }
    Ok(Allocation {
        pointer,
        bytes,
        statement: start..end,
    })
}

/// Number of braces around a token.
fn depth(file: &SourceFile, at: usize) -> i32 {
    let code = (0..at).filter(|&n| !file.tokens[n].in_directive);
    code.fold(0, |depth, n| match file.word(n) {
        "{" => depth + 1,
        "}" => depth - 1,
        _ => depth,
    })
}

/// True if a parenthesis ends a cast of the result of a call.
fn is_cast_end(file: &SourceFile, at: usize, call: usize) -> bool {
    file.word(at) == ")" && at + 1 == call && file.word(at - 1) == "*"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::edit::Texts;

    fn diff(statement: &str) -> Result<String, String> {
        let text =
            format!("#include <stdlib.h>\nint main(void) {{\n    {statement}\n    return 0;\n}}\n");
        let path = Path::new("/s/a.c");
        let file = SourceFile::new(path, text.clone()).unwrap();
        let edits = advised(&file, 3)?;
        let texts = Texts::from([(path.to_path_buf(), text)]);
        Ok(edits.diff(&texts, Path::new("/s")))
    }

    #[test]
    fn allocations_get_huge_pages() {
        let found = diff("double *a = (double *)malloc(n * sizeof *a);").unwrap();
        assert_eq!(
            found,
            "\
--- a/a.c
+++ b/a.c
@@ -1,5 +1,11 @@
 #include <stdlib.h>
+#include <stdint.h>
+#include <sys/mman.h>
 int main(void) {
     double *a = (double *)malloc(n * sizeof *a);
+#ifdef MADV_HUGEPAGE
+    if (a && (n * sizeof *a) > 4u << 20)
+        madvise((void *)(((uintptr_t)a + 4095) & ~(uintptr_t)4095), (n * sizeof *a) - 4095, MADV_HUGEPAGE);
+#endif
     return 0;
 }
"
        );
        let found = diff("a = calloc(n, 8);").unwrap();
        assert!(found.contains("((size_t)(n) * (8)) > 4u << 20"), "{found}");
    }

    #[test]
    fn other_allocations_are_refused() {
        for (statement, why) in [
            ("if (n) a = malloc(n);", "no statement of a block"),
            ("p->a = malloc(n);", "no plain variable"),
            ("a = malloc(n++);", "with effects"),
            ("a = malloc(*a * sizeof *a);", "from the pointer"),
            ("a = malloc(n); errno = 0;", "errno"),
            (
                "} long *a = malloc(1 << 22); void g(void) {",
                "no statement",
            ),
            ("a = malloc(size(n));", "with effects"),
            ("a = b = f(malloc(n));", "larger expression"),
            ("a = new double[n];", "no single call"),
            ("free(malloc(n));", "larger expression"),
            ("a = malloc(n); b = malloc(n);", "no single call"),
        ] {
            let said = diff(statement).unwrap_err();
            assert!(said.contains(why), "{statement}: {said}");
        }
    }
}
