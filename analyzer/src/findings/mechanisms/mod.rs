//! Mechanisms: reasons why loads are slow. Each has a file with its rule. The first rule that
//! claims a load instruction wins.

mod capacity;
mod chase;
mod column;
mod copies;
mod gather;
mod hash;
mod irregular;
mod pages;
mod scattered;
mod search;
pub(crate) mod streaming;
mod strided;

pub(super) use column::set_apart;

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::ProgramChange;

/// Claims with different values become different findings, even in one function and loop. Most
/// rules have one value.
const APART: i64 = 0;

/// Text of a finding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The observation, without predicted misses.
    pub mechanism: String,
    /// Predicted misses that support it.
    pub evidence: String,
    /// Remedies to try.
    pub advice: String,
    /// The layout that the advice asks for, if it asks for one.
    pub layout: Option<Layout>,
}

/// A layout of an object's memory that advice asks for. An object can have only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each field in an array of its own (structure of arrays).
    SplitElements,
    /// One structure for each index (array of structures).
    InterleavedArrays,
}

/// Relation of a mechanism to the nodes of lists and trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// None.
    Unrelated,
    /// Its loads go from node to node.
    Followed,
    /// Its loads belong to a cause that follows pointers, if they read the visited nodes.
    Joined,
}

/// The remedy whose gain is predicted with the advice, by its name for `mgz what-if`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// No remedy, or one whose gain cannot be predicted from addresses.
    Unknown,
    /// A change of the object's layout.
    OfObject(&'static str),
    /// A change of the code.
    OfCode(&'static str),
}

/// A mechanism and everything that distinguishes it from the others.
pub struct Rule {
    /// Name in JSON.
    pub kind: &'static str,
    /// Title in text.
    pub name: &'static str,
    /// Another title for sources of some languages, by the name of the file.
    pub name_in: fn(file: &str) -> Option<&'static str>,
    /// Claims a load instruction if the mechanism applies to it. See [`APART`] for the value.
    pub claims: fn(&Context, &SiteFacts) -> Option<i64>,
    /// Describes a cause.
    pub tell: fn(&Context, &Cause) -> Told,
    /// Advice for lines of Python, instead of that of `tell`: a user of Python chooses no layouts,
    /// allocators or prefetches. Empty: the advice of `tell`.
    pub python: &'static str,
    /// True if there is nothing to advise. Such a cause is no finding.
    pub is_good: bool,
    /// True if each load waits for the previous one.
    pub is_chained: bool,
    /// Relation to the nodes of lists and trees.
    pub nodes: Nodes,
    /// The remedy whose gain is predicted.
    pub remedy: Remedy,
    /// Changes of the finished program that `mgz fix` tries.
    pub changes: &'static [ProgramChange],
}

impl Rule {
    /// Default values of the fields. A rule states its own kind, name, `claims` and `tell`.
    pub(crate) const PLAIN: Rule = Rule {
        kind: "",
        name: "",
        name_in: |_| None,
        claims: |_, _| None,
        tell: |_, _| Told::default(),
        python: "",
        is_good: false,
        is_chained: false,
        nodes: Nodes::Unrelated,
        remedy: Remedy::Unknown,
        changes: &[],
    };

    /// True if both are the same mechanism.
    pub fn is(&self, other: &Rule) -> bool {
        self.kind == other.kind
    }
}

/// Advice for objects of Python that loads reach by their addresses.
const PYTHON_OBJECTS: &str = "keep numbers in a NumPy array (or array.array) and work on the whole array instead of object by object; where objects are needed, give their class __slots__, or keep one array per attribute instead of a list of objects";

/// True for source files of Python, and for code without a file, such as `<stdin>` and
/// `<ipython-input-3>`.
pub(super) fn is_python(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with('<') && file.ends_with('>')
}

/// The text of a cause. Causes in lines of Python have the advice for Python.
pub(super) fn told(context: &Context, cause: &Cause) -> Told {
    in_language(
        &cause.line.file,
        cause.rule,
        (cause.rule.tell)(context, cause),
    )
}

fn in_language(file: &str, rule: &Rule, told: Told) -> Told {
    match is_python(file) && !rule.python.is_empty() {
        true => Told {
            advice: rule.python.into(),
            layout: None,
            ..told
        },
        false => told,
    }
}

/// Title of a cause's mechanism, in the terms of the source's language.
pub fn title(cause: &Cause) -> &'static str {
    (cause.rule.name_in)(&cause.line.file).unwrap_or(cause.rule.name)
}

/// All rules. The first that claims an instruction wins.
pub const RULES: &[&Rule] = &[
    &copies::COPIES_RULE,
    &chase::HASH_CHAIN,
    &chase::TREE,
    &chase::LIST,
    &search::SEARCH_RULE,
    &hash::HASH_RULE,
    &scattered::SCATTERED_RULE,
    &gather::GATHER_RULE,
    &column::BLOCKED,
    &column::COLUMN_RULE,
    &pages::PAGES_RULE,
    &strided::STRIDED_RULE,
    &capacity::CAPACITY_RULE,
    &streaming::STREAMING_RULE,
    &irregular::IRREGULAR_RULE,
];

/// For example `12 % (9–15) of the loads miss the L2 of 2 MiB`.
fn misses(context: &Context, cause: &Cause) -> String {
    cause.price.in_words(&context.prices)
}

/// Advice against TLB misses. Empty if windows have seen little memory.
fn huge_pages(context: &Context, cause: &Cause) -> &'static str {
    match context.seen(&cause.sites).extent
        > params::MIN_EXTENT_OVER_TLB_REACH * params::TLB_REACH_BYTES
    {
        true => {
            "; 2 MiB pages (madvise MADV_HUGEPAGE), if the memory does not have them yet, also avoid TLB misses"
        }
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        std::fs::read_to_string(root.join(path)).unwrap()
    }

    #[test]
    fn python_has_advice_of_its_own() {
        let told = || Told {
            advice: "store the objects themselves in the array, madvise".into(),
            layout: Some(Layout::SplitElements),
            ..Told::default()
        };
        for rule in RULES.iter().filter(|rule| !rule.is_good) {
            let python = in_language("/home/me/heat.py", rule, told());
            assert!(python.layout.is_none(), "{}", rule.kind);
            assert!(
                !rule.python.is_empty() && python.advice == rule.python,
                "{}",
                rule.kind
            );
            assert_eq!(in_language("/src/heat.cpp", rule, told()), told());
        }
        assert!(is_python("<stdin>") && is_python("<ipython-input-3>"));
        assert!(!is_python("a.pyx") && !is_python(""));
    }

    #[test]
    fn every_mechanism_is_documented_and_has_a_planted_problem() {
        let page = read("docs/reference/findings.md");
        let cases = read("benches/commands/findings");
        let planted: Vec<&str> = (cases.lines())
            .filter(|line| line.trim_start().starts_with("planted("))
            .filter_map(|line| line.split('"').nth(5))
            .flat_map(|kinds| kinds.split('|'))
            .collect();
        for (at, rule) in RULES.iter().enumerate() {
            let kind = rule.kind;
            assert!(RULES[..at].iter().all(|other| !rule.is(other)), "{kind}");
            if rule.is_good {
                continue;
            }
            assert!(page.contains(&format!("| `{kind}` |")), "{kind}");
            let takes_the_rest = rule.is(&irregular::IRREGULAR_RULE);
            assert!(takes_the_rest || planted.contains(&kind), "{kind}");
        }
    }
}
