//! Comments for remedies that change more than a layout: other containers.

use crate::fix::candidates::place_text;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means};

/// Adds a comment before the declaration of a container of nodes.
pub fn propose_hint(means: &mut Means, finding: &Finding) -> Option<Made> {
    let advice = match finding.kind() {
        "hash_chain" => {
            "lookups follow chains of nodes; a table with open addressing (a flat hash map) keeps entries side by side, and reserve(n) before the insertions avoids rehashing"
        }
        "tree" => {
            "searches follow pointers from node to node; a sorted array, or a tree with wide nodes, keeps neighbours in one line"
        }
        "list" => {
            "each element is a node of its own; an array, or nodes from one block in the order of use, keeps them side by side"
        }
        _ => return None,
    };
    if finding.cause.line == 0 {
        return None;
    }
    let remedy = format!("comment at {}", place_text(&finding.cause));
    let edits = means.sources.get(&finding.file()).and_then(|file| {
        let line = finding.cause.line;
        let token = file.tokens.iter().find(|t| t.line >= line);
        let token = token.filter(|t| t.line == line && !t.in_directive);
        let token = token.ok_or("the line is no code")?;
        let start = file.line_start(token.start);
        let edit = Edit {
            file: file.path.clone(),
            start,
            end: start,
            text: format!("{}/* mgz: {advice}. */\n", file.indent(token.start)),
        };
        Edits::new([edit]).ok_or_else(|| "no change".into())
    });
    let mut made = Made::patch(remedy, String::new(), edits);
    made.is_comment = true;
    made.recipe = format!("{advice}\n");
    Some(made)
}
