//! Copies: single loads that read hundreds of bytes.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Rule, Told, misses};
use crate::findings::params;
use crate::findings::sites::SiteFacts;

/// Functions that copy or compare memory.
const NAMES: [&str; 6] = ["memcpy", "memmove", "memcmp", "strcpy", "strlen", "mempcpy"];

pub(super) const COPIES_RULE: Rule = Rule {
    kind: "copy",
    name: "copies",
    claims,
    tell,
    python: "use views (slices) and in-place operations (out=, +=) instead of copies",
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    let copies = facts.size >= params::MIN_BYTES_OF_COPY || context.is_named(facts, &NAMES);
    copies.then_some(APART)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    Told {
        mechanism: format!(
            "blocks of memory are copied or compared, {}",
            misses(context, cause)
        ),
        evidence: String::new(),
        advice: "of copies: pass a reference or move instead, or copy only what is used; of comparisons: compare something short first (a length, a hash, a prefix)".into(),
        layout: None,
    }
}
