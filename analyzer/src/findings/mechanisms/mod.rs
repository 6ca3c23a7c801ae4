//! Mechanisms: why loads are slow. One file each; the first rule that claims a load instruction has it.

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

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::sites::SiteFacts;
use crate::util::human::bytes;

/// That a load instruction is slow by a mechanism, if it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// How much of a miss is felt.
    pub overlap: Overlap,
    /// Loads of one function and loop are told apart by this.
    pub apart: i64,
}

impl Claim {
    fn new(overlap: Overlap) -> Claim {
        Claim { overlap, apart: 0 }
    }
}

/// What is said of a cause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// What was found, with numbers.
    pub finding: String,
    /// What to try.
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

/// How the causes of a mechanism use nodes that pointers lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// They do not, or it does not matter.
    Unrelated,
    /// They go from node to node.
    Followed,
    /// They may load from a node that another cause has followed a pointer to, and then belong to that cause.
    Joined,
}

/// A mechanism, with all that differs from other mechanisms.
pub struct Rule {
    /// Its name in JSON.
    pub kind: &'static str,
    /// Its name in text.
    pub name: &'static str,
    /// Its name in text if the language of the source, known by the file, calls it otherwise.
    pub name_in: fn(file: &str) -> Option<&'static str>,
    /// Whether a load instruction is of it.
    pub claims: fn(&Context, &SiteFacts) -> Option<Claim>,
    /// What is said of a cause.
    pub tell: fn(&Context, &Cause) -> Told,
    /// Whether its loads hit, so that no finding is made of it.
    pub hits: bool,
    /// The smallest cache that the working set must exceed: 0 is the L1.
    pub beyond_level: usize,
    /// Its causes and nodes of lists and trees.
    pub nodes: Nodes,
    /// Whether walks with this step in bytes need room for their whole extent, and not only for the lines that were seen.
    pub needs_extent: fn(step: Option<i64>) -> bool,
    /// Whether its walks go through the same memory again, so that the way around bounds the working set.
    pub comes_back: bool,
}

impl Rule {
    /// A mechanism without peculiarities; rules state how they differ.
    pub(crate) const PLAIN: Rule = Rule {
        kind: "",
        name: "",
        name_in: |_| None,
        claims: |_, _| None,
        tell: |_, _| Told {
            finding: String::new(),
            advice: String::new(),
            layout: None,
        },
        hits: false,
        beyond_level: 1,
        nodes: Nodes::Unrelated,
        needs_extent: |_| false,
        comes_back: false,
    };

    /// Whether this is the other mechanism.
    pub fn is(&self, other: &Rule) -> bool {
        self.kind == other.kind
    }
}

/// The name of a cause's mechanism, in the words of the source's language.
pub fn title(cause: &Cause) -> &'static str {
    (cause.rule.name_in)(&cause.line.file).unwrap_or(cause.rule.name)
}

/// All, in the order in which they are asked.
pub const RULES: [&Rule; 16] = [
    &copies::RULE,
    &chase::HASH_CHAIN,
    &chase::TREE,
    &chase::LIST,
    &search::RULE,
    &hash::RULE,
    &scattered::RULE,
    &gather::RULE,
    &column::BLOCKED,
    &column::RULE,
    &pages::RULE,
    &strided::RULE,
    &capacity::RULE,
    &streaming::RULE,
    &irregular::RULE,
    &irregular::RESIDENT,
];

/// `over 64.0M (x 2 what L3 holds)`.
fn over(context: &Context, cause: &Cause) -> String {
    let mut set = bytes(cause.set.bytes);
    if is_spread(cause) {
        let extent = bytes(cause.set.extent);
        set = format!("{set} that lie spread over {extent}");
    }
    let about = match cause.set.at_least {
        true => "at least",
        false => "about",
    };
    match context.caches.missed(cause.set.bytes) {
        Some(level) => {
            let times = cause.set.bytes as f64 / level.bytes as f64;
            if times >= 1.95 {
                format!("over {about} {set}, {times:.0} times the {}", level.name)
            } else {
                format!(
                    "over {about} {set}, more than the {} ({})",
                    level.name,
                    bytes(level.bytes)
                )
            }
        }
        None => format!("over {about} {set}"),
    }
}

/// `62 % of its loads are the first in their line`.
fn cold(cause: &Cause) -> String {
    let share = 100.0 * cause.cold();
    format!("{share:.0} % of the loads come to a new line")
}

/// Whether a cause has hardly more than a line in each page that it comes to.
fn is_spread(cause: &Cause) -> bool {
    cause.set.lines >= 64
        && cause.set.pages * 4 > cause.set.lines * 3
        && cause.set.extent / 8 > cause.set.bytes
}

/// What helps where pages are lost; empty if it is little memory.
fn huge_pages(cause: &Cause) -> &'static str {
    if is_spread(cause) && cause.set.extent > 4 * crate::findings::caches::TLB_REACH {
        return "; keep what is loaded here together, in an array of its own: each load comes to a page of its own, whose address the TLB has lost as well; 2 MiB pages (madvise MADV_HUGEPAGE) help there";
    }
    if cause.set.extent > 4 * crate::findings::caches::TLB_REACH {
        "; 2 MiB pages (madvise MADV_HUGEPAGE) save the TLB misses that come on top"
    } else {
        ""
    }
}
