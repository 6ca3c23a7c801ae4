//! Positions in a source for new lines.

use crate::fix::source::edit::Edit;
use crate::fix::source::token::SourceFile;

/// The edit that includes a header, after the last unconditional include. `None` if the file
/// already includes it. The error is the reason why there is no position for it.
pub fn include(file: &SourceFile, header: &str) -> Result<Option<Edit>, String> {
    let mut depth = 0usize;
    let mut last = None;
    let mut at = 0;
    while at < file.tokens.len() && file.tokens[at].in_directive {
        let line_end = (at..file.tokens.len())
            .find(|&n| n > at && (!file.tokens[n].in_directive || file.word(n) == "#"))
            .unwrap_or(file.tokens.len());
        match file.word(at + 1) {
            "if" | "ifdef" | "ifndef" => depth += 1,
            "endif" => depth = depth.saturating_sub(1),
            "include" if depth == 0 => {
                let name: String = (at + 2..line_end).map(|n| file.word(n)).collect();
                if name == format!("<{header}>") {
                    return Ok(None);
                }
                last = Some(line_end - 1);
            }
            _ => {}
        }
        at = line_end;
    }
    let last = last
        .ok_or("no #include is at the begin of the file, behind which another one could stand")?;
    let start = file.line_end(file.tokens[last].end);
    Ok(Some(Edit {
        file: file.path.clone(),
        start,
        end: start,
        text: format!("#include <{header}>\n"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn headers_stand_behind_those_that_are_always_included() {
        let place = |text: &str| {
            let file = SourceFile::new(Path::new("a.c"), text.into()).unwrap();
            include(&file, "sys/mman.h").map(|e| e.map(|e| e.start))
        };
        let text = "#define _GNU_SOURCE\n#include <a.h>\n#ifdef X\n#include <b.h>\n#endif\nint a;\n#include <c.h>\n";
        assert_eq!(place(text), Ok(Some(text.find("#ifdef").unwrap())));
        assert_eq!(place("#include <sys/mman.h>\n"), Ok(None));
        assert!(place("int a;\n").is_err());
        assert!(place("#ifndef A\n#include <a.h>\n#endif\n").is_err());
    }
}
