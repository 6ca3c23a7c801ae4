//! Pointer chases: each load's address is the value of the previous load. Examples are lists,
//! trees, and chains of hash tables.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::gather::in_step;
use crate::findings::mechanisms::{
    APART, Nodes, PYTHON_OBJECTS, Remedy, Rule, Told, huge_pages, misses,
};
use crate::findings::sites::SiteFacts;
use crate::findings::visits;
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::sidecar::Origin;

/// Default values of the rules of this file.
const CHASE: Rule = Rule {
    nodes: Nodes::Followed,
    python: PYTHON_OBJECTS,
    is_chained: true,
    remedy: Remedy::OfObject("pool"),
    changes: &[ProgramChange::HugePages, ProgramChange::Pool],
    ..Rule::PLAIN
};

pub(super) const LIST: Rule = Rule {
    kind: "list",
    name: "pointer chase along a list",
    claims: |context, facts| claim(context, facts, Shape::List),
    tell: tell_list,
    changes: &[
        ProgramChange::HugePages,
        ProgramChange::Pool,
        ProgramChange::PrefetchList,
    ],
    ..CHASE
};

pub(super) const TREE: Rule = Rule {
    kind: "tree",
    name: "pointer chase down a tree",
    claims: |context, facts| claim(context, facts, Shape::Tree),
    tell: tell_tree,
    remedy: Remedy::OfObject("wider-nodes"),
    ..CHASE
};

pub(super) const HASH_CHAIN: Rule = Rule {
    kind: "hash_chain",
    name: "hash table with chains",
    claims: |context, facts| claim(context, facts, Shape::HashChain),
    tell: tell_chain,
    ..CHASE
};

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    List,
    Tree,
    HashChain,
}

/// Names in the code of well-known containers with chains.
const CHAIN_NAMES: [&str; 4] = ["_Hashtable", "unordered_map", "unordered_set", "_Hash_node"];
/// Names in the code of these containers that iterates over all nodes.
const NODE_ITERATOR_NAMES: [&str; 5] = [
    "_Node_iterator",
    "_Node_const_iterator",
    "_Node_iterator_base",
    "_M_incr",
    "_M_deallocate_nodes",
];
/// Functions of these containers that visit all nodes. Without debug information, the
/// functions above that are inlined into them have no names.
const METHODS_OF_ALL_NODES: [&str; 5] = [
    "~_Hashtable",
    "~unordered_map",
    "~unordered_set",
    "clear",
    "_M_deallocate_nodes",
];
const TREE_NAMES: [&str; 4] = ["_Rb_tree", "std::map", "std::set", "btree"];

fn claim(context: &Context, facts: &SiteFacts, wanted: Shape) -> Option<i64> {
    (shape(context, facts)? == wanted).then_some(APART)
}

/// The shape of a chase: by names of containers, then by steps, then by the origin of the address.
/// `None` if there is no chase.
fn shape(context: &Context, facts: &SiteFacts) -> Option<Shape> {
    if facts.regular_step().is_some_and(|step| step == 0)
        || context.walks(facts.site) && facts.is_in_place()
    {
        return None;
    }
    if context.is_named(facts, &NODE_ITERATOR_NAMES) {
        return Some(Shape::List);
    }
    if context.is_named(facts, &CHAIN_NAMES) {
        return Some(match context.is_function(facts, &METHODS_OF_ALL_NODES) {
            true => Shape::List,
            false => Shape::HashChain,
        });
    }
    if context.is_named(facts, &TREE_NAMES) {
        return Some(Shape::Tree);
    }
    if facts.doubles() {
        return Some(Shape::Tree);
    }
    let (origin, from) = context.origin(facts.site);
    let (link, head) = match (origin, from) {
        (Origin::Chain | Origin::Tree, head) => (facts.site, head),
        // A field of the node, or data at an index from the node.
        (Origin::Pointer | Origin::Index, Some(from)) => match context.root_load(from) {
            (link, Origin::Chain | Origin::Tree, head)
                if origin == Origin::Pointer || is_field(context, facts, link) =>
            {
                (link, head)
            }
            // The head of a chain, and fields of the first node.
            (_, Origin::Hash, _) if origin == Origin::Pointer => {
                return next_is_chain(context, from);
            }
            _ if visits::come_from_stack(context, facts, from) => return Some(Shape::Tree),
            _ => return None,
        },
        // The table entry where a chain begins.
        (Origin::Hash, _) => return next_is_chain(context, facts.site),
        _ => return None,
    };
    // A list that is reached by an index loaded from memory is not a hash chain. It may be a
    // graph's adjacency list.
    let begins_in_table = head.is_some_and(|head| {
        let (of_head, _) = context.origin(head);
        matches!(of_head, Origin::Hash | Origin::Call)
    });
    if begins_in_table || visits::begin_in_table(context, link) {
        return Some(Shape::HashChain);
    }
    let is_tree = match context.origin(link).0 {
        Origin::Tree => !visits::follow_one_link(context, link),
        _ => visits::descend(context, link),
    };
    Some(if is_tree { Shape::Tree } else { Shape::List })
}

/// True if the load reads another array at the index that the chase follows: each field of the
/// nodes has its own array.
fn is_field(context: &Context, facts: &SiteFacts, link: u32) -> bool {
    let pairs = [(facts.site, link), (link, facts.site)];
    // The field is read before or after the link.
    context.is_frequent(facts) && pairs.iter().any(|p| in_step(context, p.0, p.1))
}

/// `Shape` of a hash chain if a chain begins at the value of a site's load.
fn next_is_chain(context: &Context, site: u32) -> Option<Shape> {
    let begins = |s: &u32| {
        let (origin, head) = context.origin(*s);
        matches!(origin, Origin::Chain | Origin::Tree) && head == Some(site)
    };
    context.sites.keys().any(begins).then_some(Shape::HashChain)
}

fn tell_list(context: &Context, cause: &Cause) -> Told {
    Told {
        mechanism: "each load waits for the one before, which has its address".into(),
        evidence: misses(context, cause),
        advice: format!(
            "keep the elements in an array (a vector, or indices into one), or several per node; at least allocate nodes in the order in which they are walked{}",
            huge_pages(context, cause)
        ),
        layout: None,
    }
}

/// Names in the code of trees with wide nodes.
const WIDE_TREE_NAMES: [&str; 3] = ["btree", "btree_map", "btree_set"];

fn tell_tree(context: &Context, cause: &Cause) -> Told {
    let main = cause.sites.first().and_then(|s| context.sites.get(s));
    let is_wide = main.is_some_and(|facts| context.is_named(facts, &WIDE_TREE_NAMES));
    let instead = match is_wide {
        true => {
            "use a sorted array with binary search where the set seldom changes, or a hash table where the order is not needed; look up several keys at a time, or sorted ones, which share the way down"
        }
        false => {
            "use wide nodes (a B-tree with the keys of a cache line or more in each), a sorted array where the set seldom changes, or nodes from one pool"
        }
    };
    Told {
        mechanism: "each step down waits for the load of the node before".into(),
        evidence: misses(context, cause),
        advice: format!("{instead}{}", huge_pages(context, cause)),
        layout: None,
    }
}

fn tell_chain(context: &Context, cause: &Cause) -> Told {
    Told {
        mechanism: "a look-up goes from the bucket to nodes elsewhere, each load waiting for the one before".into(),
        evidence: misses(context, cause),
        advice: format!(
            "use a table with open addressing (keys in the table itself), or put the first key into the bucket; look up several keys at a time, so that their misses overlap{}",
            huge_pages(context, cause)
        ),
        layout: None,
    }
}
