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

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::util::human::bytes;

/// A rule's claim that a load instruction is slow for its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The processor's ability to hide the misses.
    pub overlap: Overlap,
    /// Claims with different values become different findings, even in one function and loop.
    pub apart: i64,
}

impl Claim {
    fn new(overlap: Overlap) -> Claim {
        Claim { overlap, apart: 0 }
    }
}

/// Text of a finding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Observation, with numbers.
    pub finding: String,
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
    /// Its loads belong to a cause that follows pointers, if they read the nodes that it visits.
    Joined,
}

/// A mechanism and everything that distinguishes it from the others.
pub struct Rule {
    /// Name in JSON.
    pub kind: &'static str,
    /// Title in text.
    pub name: &'static str,
    /// Another title for sources of some languages, by the name of the file.
    pub name_in: fn(file: &str) -> Option<&'static str>,
    /// Claims a load instruction if the mechanism applies to it.
    pub claims: fn(&Context, &SiteFacts) -> Option<Claim>,
    /// Describes a cause.
    pub tell: fn(&Context, &Cause) -> Told,
    /// True if its loads hit the cache. Such a cause is no finding.
    pub hits: bool,
    /// Level of the smallest cache that the working set must exceed. Level 0 is the L1.
    pub beyond_level: usize,
    /// Relation to the nodes of lists and trees.
    pub nodes: Nodes,
    /// True if walks with this step (bytes) occupy a cache by their whole extent, and not only by
    /// the lines that were seen.
    pub needs_extent: fn(step: Option<i64>) -> bool,
    /// True if its walks return to the same memory. The length of the way back bounds the working set.
    pub comes_back: bool,
}

impl Rule {
    /// Default values of the fields. A rule states its own kind, name, `claims` and `tell`.
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

    /// True if both are the same mechanism.
    pub fn is(&self, other: &Rule) -> bool {
        self.kind == other.kind
    }
}

/// Title of a cause's mechanism, in the terms of the source's language.
pub fn title(cause: &Cause) -> &'static str {
    (cause.rule.name_in)(&cause.line.file).unwrap_or(cause.rule.name)
}

/// All rules. The first that claims an instruction wins.
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

/// For example `over about 64.0M, 2 times the L3`.
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
            if times >= params::MIN_SET_OVER_CACHE_TO_TELL {
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

/// For example `62 % of the loads come to a new line`.
fn cold(cause: &Cause) -> String {
    let share = 100.0 * cause.cold();
    format!("{share:.0} % of the loads come to a new line")
}

/// True if the lines of a cause lie on pages of their own, for the most part.
fn is_spread(cause: &Cause) -> bool {
    cause.set.lines >= params::MIN_LINES_OF_SPREAD
        && cause.set.pages * 100 > cause.set.lines * params::MIN_PAGES_OF_SPREAD_PCT
        && cause.set.extent / params::MIN_EXTENT_OVER_BYTES_OF_SPREAD > cause.set.bytes
}

/// Advice against TLB misses. Empty if the memory is small.
fn huge_pages(cause: &Cause) -> &'static str {
    let exceeds_tlb =
        cause.set.extent > params::MIN_EXTENT_OVER_TLB_REACH * params::TLB_REACH_BYTES;
    if exceeds_tlb && is_spread(cause) {
        return "; keep what is loaded here together, in an array of its own: each load comes to a page of its own, whose address the TLB has lost as well; 2 MiB pages (madvise MADV_HUGEPAGE) help there, unless it has them";
    }
    if exceeds_tlb {
        "; 2 MiB pages (madvise MADV_HUGEPAGE), unless it has them, save the TLB misses that come on top"
    } else {
        ""
    }
}
