//! Longer rows for an array whose columns are in few sets of a cache.

use crate::fix::source::debug_info::Grid;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means};
use crate::fix::source::loops::{declarations, subscripts};
use crate::fix::source::params::LINE_BYTES;
use crate::fix::source::sources::{self, Sources};

/// Rows that are longer by a line.
pub fn made(means: &mut Means, finding: &Finding) -> Option<Made> {
    if finding.kind() != "conflicts" {
        return None;
    }
    let name = finding.object["object"].as_str().unwrap_or_default();
    let grid = means.info.grids.iter().find(|g| g.name == name)?;
    let row = grid.dimensions.last()? * grid.element;
    let what_if = format!("pad of {} by {row}", finding.target());
    let edits = match &means.info.unknown_code {
        Some(function) => Err(format!(
            "{function} has no debug information, so its uses of the array are unknown; compile everything with -g"
        )),
        None => padded(grid, means.sources),
    };
    let mut made = Made::patch(format!("longer rows of {name}"), what_if, edits);
    made.recipe = format!(
        "let each row of {name} be a line longer: {} bytes instead of {row}\n",
        row + LINE_BYTES
    );
    Some(made)
}

/// The edits, or the reason why there are none: each use must name a single element.
fn padded(grid: &Grid, sources: &mut Sources) -> Result<Edits, String> {
    if !LINE_BYTES.is_multiple_of(grid.element.max(1)) {
        return Err("a line holds no whole number of elements".into());
    }
    let more = LINE_BYTES / grid.element.max(1);
    let depth = grid.dimensions.len();
    let mut edits = Vec::new();
    for path in &grid.files {
        if sources::is_of_system(path) || path.as_os_str().is_empty() {
            continue;
        }
        let file = sources.get(path)?;
        let declared = declarations(file, &grid.name);
        for at in (0..file.tokens.len()).filter(|&n| file.word(n) == grid.name) {
            let parts = subscripts(file, at);
            let is_declaration = declared.iter().any(|d| d.0 == at);
            let is_member = at > 0 && matches!(file.word(at - 1), "." | "->");
            if is_member {
                continue;
            }
            let is_address = at > 0 && file.word(at - 1) == "&";
            if parts.len() != depth || is_address {
                return Err(format!(
                    "{} uses {} other than by single elements",
                    file.place(at),
                    grid.name
                ));
            }
            let last = &parts[depth - 1];
            if !is_declaration {
                continue;
            }
            if file.word(last.end + 1) != ";" || last.is_empty() || file.tokens[at].in_directive {
                return Err(format!(
                    "{} declares {} with other variables, with values, or as a parameter",
                    file.place(at),
                    grid.name
                ));
            }
            let end = file.tokens[last.end - 1].end;
            edits.push(Edit {
                file: file.path.clone(),
                start: end,
                end,
                text: format!(" + {more}"),
            });
        }
    }
    match edits.is_empty() {
        true => Err(format!("the declaration of {} is not found", grid.name)),
        false => Edits::new(edits).ok_or_else(|| "the changes overlap".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded_text(text: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.c");
        std::fs::write(&path, text).unwrap();
        let grid = Grid {
            name: "grid".into(),
            dimensions: vec![8, 512],
            element: 8,
            file: path.clone(),
            line: 1,
            files: [path.clone()].into(),
        };
        // Temporary folders may lie where the system has its headers.
        let edits = padded(&grid, &mut Sources::new(None))?;
        Ok(edits.apply(&path, text))
    }

    #[test]
    fn rows_get_a_line_more() {
        let text = "static double grid[8][N];\ndouble f(int i) { return grid[i][0] + p->grid; }\n";
        let found = padded_text(text).unwrap();
        assert!(
            found.starts_with("static double grid[8][N + 8];\n"),
            "{found}"
        );
    }

    #[test]
    fn uses_of_whole_rows_are_refused() {
        for (text, why) in [
            (
                "double grid[8][512];\nint f(void) { return g(grid); }",
                "single elements",
            ),
            (
                "double grid[8][512];\nint f(void) { return g(grid[1]); }",
                "single elements",
            ),
            (
                "double grid[8][512];\nint f(void) { return g(&grid[1][0]); }",
                "single elements",
            ),
            (
                "double grid[8][512];\nint f(void) { return sizeof(grid); }",
                "single elements",
            ),
            ("double grid[8][512] = { { 1 } };", "with values"),
            ("void f(double grid[8][512]) { }", "parameter"),
        ] {
            let said = padded_text(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
