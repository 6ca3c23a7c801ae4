//! The object of a cause, named so that it can be recognised.

use crate::data::object_map::Object;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::sources::is_system;
use std::collections::{HashMap, HashSet};

/// An object of some rows is named from this share of them on.
const MOST: f64 = 0.3;
/// What is smaller than this part of what a cause goes through is not what it goes through.
const SMALL: u64 = 16;
/// Fewer first touches tell nothing.
const FEW: u64 = 32;

/// A name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// The object.
    pub name: String,
    /// Its allocation, from the user's frame on.
    pub allocated: String,
}

/// The object of most of what a cause has to fetch: of its first touches, or of its rows where these are few.
pub(super) fn named(context: &Context, cause: &Cause) -> Named {
    let Some(objects) = context.objects else {
        return Named::default();
    };
    let fetched = fetched(context, cause);
    let (parts, all) = match fetched.iter().map(|o| o.1).sum() {
        few if few < FEW => (&cause.objects, cause.rows),
        firsts => (&fetched, firsts),
    };
    let known =
        (parts.iter()).filter(|(number, rows)| *number != 0 && *rows as f64 >= MOST * all as f64);
    let is_large = |o: u32| extent(context, cause, o).saturating_mul(SMALL) >= cause.set.bytes;
    let known = known.filter(|(number, _)| is_large(*number));
    let known = known.filter_map(|(number, _)| objects.objects.get(*number as usize));
    // Some causes have several objects, as an array and what its elements lead to: the one with a name of its own says most.
    let rank = |o: &&Object| u8::from(o.kind == "anonymous" || o.name.starts_with('['));
    known.min_by_key(rank).map(name).unwrap_or_default()
}

/// Objects and first touches of their lines by a cause, most first. Tables that are read all the time have few.
fn fetched(context: &Context, cause: &Cause) -> Vec<(u32, u64)> {
    let sites: HashSet<u32, Mixed> = cause.sites.iter().copied().collect();
    let mut firsts: HashMap<u32, u64, Mixed> = HashMap::default();
    let rows = context.windows.iter().flat_map(|w| &w.rows);
    for row in rows.filter(|r| r.first && sites.contains(&r.site)) {
        *firsts.entry(row.object).or_default() += 1;
    }
    let mut all: Vec<(u32, u64)> = firsts.into_iter().collect();
    all.sort_unstable_by_key(|&(object, n)| (std::cmp::Reverse(n), object));
    all
}

/// Bytes of an object that a cause's rows reach over.
fn extent(context: &Context, cause: &Cause, object: u32) -> u64 {
    let sites: HashSet<u32, Mixed> = cause.sites.iter().copied().collect();
    let rows = context.windows.iter().flat_map(|w| &w.rows);
    let of = rows.filter(|r| r.object == object && sites.contains(&r.site));
    let ends = of.fold((u64::MAX, 0), |(low, high), r| {
        (low.min(r.address), high.max(r.address))
    });
    ends.1.saturating_sub(ends.0)
}

/// An object's name.
fn name(object: &Object) -> Named {
    let frames: Vec<&str> = object
        .stack
        .split(" < ")
        .filter(|f| !f.is_empty())
        .collect();
    // The recorder, which knows the folders of sources, has named the block by the user's frame.
    let named = frames.iter().position(|f| object.name.starts_with(f));
    let user = named
        .or_else(|| frames.iter().position(|f| is_user(f)))
        .unwrap_or(0);
    let typed = match object.of_type.as_str() {
        "" => String::new(),
        of_type => format!(" ({of_type})"),
    };
    Named {
        name: format!("{}{typed}", object.name),
        allocated: frames
            .get(user..)
            .unwrap_or_default()
            .iter()
            .take(3)
            .copied()
            .collect::<Vec<_>>()
            .join(" < "),
    }
}

/// Whether a frame is no allocator's and no container's.
fn is_user(frame: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "operator new",
        "malloc",
        "calloc",
        "realloc",
        "posix_memalign",
        "aligned_alloc",
        "std::",
        "__gnu_cxx::",
        "alloc::",
        "core::",
        "hashbrown::",
        "_mm_malloc",
    ];
    !is_system(frame)
        && !OTHERS
            .iter()
            .any(|o| frame.trim_start_matches("void* ").starts_with(o))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_knows_the_users_frame() {
        let object = Object {
            kind: "heap".into(),
            name: "load main.rs:7:21".into(),
            stack: "alloc alloc.rs:95 < with_capacity<u64> map.rs:502 < load main.rs:7 < main main.rs:28".into(),
            ..Object::default()
        };
        assert_eq!(name(&object).allocated, "load main.rs:7 < main main.rs:28");
    }

    #[test]
    fn allocations_begin_at_the_users_frame() {
        let object = Object {
            kind: "heap".into(),
            name: "build at a.cpp:7".into(),
            of_type: "node".into(),
            stack: "operator new(unsigned long) < std::vector<int>::resize < build at a.cpp:7 < main at a.cpp:20".into(),
            ..Object::default()
        };
        let named = name(&object);
        assert_eq!(named.name, "build at a.cpp:7 (node)");
        assert_eq!(named.allocated, "build at a.cpp:7 < main at a.cpp:20");
    }
}
