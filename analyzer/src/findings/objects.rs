//! The object of a finding, with a name that users recognise.

use crate::data::object_map::{Object, Resolver};
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::params;
use mgz_annotations_schema::ObjectKind;
use mgz_annotations_schema::sources::is_system;
use serde::Serialize;

/// Name and allocation of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Name of the object.
    pub name: String,
    /// Call path of its allocation, from the user's frame on.
    pub allocated: String,
    /// Bytes of its largest instance; 0 if unknown.
    pub bytes: u64,
}

/// Code that allocates heap blocks of a finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AllocationSite {
    /// Name of the object.
    pub object: String,
    /// Share of the finding's loads that access its blocks, in percent. If few blocks were logged,
    /// the loads of the others are divided among the sites.
    #[serde(rename = "A_pct")]
    pub share: f64,
    /// Bytes of its largest block that is known.
    pub largest_bytes: u64,
    /// Return addresses, one text per call stack: `MODULE+0xOFFSET` from the inside out, joined by
    /// ` < `.
    pub return_addresses: Vec<String>,
}

/// Allocation sites of the heap blocks that a finding's loads access.
pub(super) fn allocation_sites(context: &Context, cause: &Cause) -> Vec<AllocationSite> {
    let parts = context.objects.map(|o| divided(o, &cause.objects));
    sites_of(context, &parts.unwrap_or_default())
}

/// Allocation sites among objects with their rows.
pub(super) fn sites_of(context: &Context, parts: &[(u32, f64)]) -> Vec<AllocationSite> {
    let Some(objects) = context.objects else {
        return Vec::new();
    };
    let all: f64 = parts.iter().map(|p| p.1).sum();
    let site = |&(number, rows): &(u32, f64)| {
        let object = objects.objects.get(number as usize)?;
        let return_addresses = object.returns();
        let is_known = !return_addresses.is_empty() && rows >= params::MIN_SHARE_OF_SITE * all;
        is_known.then(|| AllocationSite {
            object: object.name.clone(),
            share: rows * 100.0 / all,
            largest_bytes: objects.largest_instance(number),
            return_addresses,
        })
    };
    let mut sites: Vec<AllocationSite> = parts.iter().filter_map(site).collect();
    sites.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.object.cmp(&b.object)));
    sites.truncate(params::MAX_SITES_OF_FINDING);
    sites
}

/// Names the object whose misses cost the most time in a finding. If misses by object are unknown,
/// names the object with the most rows.
pub(super) fn named(context: &Context, cause: &Cause) -> Named {
    let Some(objects) = context.objects else {
        return Named::default();
    };
    let missed = missed(context, cause);
    let parts = divided(
        objects,
        if missed.is_empty() {
            &cause.objects
        } else {
            &missed
        },
    );
    let all: f64 = parts.iter().map(|p| p.1).sum();
    let known: Vec<(&Object, f64, u32)> = (parts.iter())
        .filter(|(number, _)| *number != 0)
        .filter_map(|&(number, rows)| Some((objects.objects.get(number as usize)?, rows, number)))
        .collect();
    // A finding may have several objects, such as an array and the elements that it points to. An
    // object with its own name is the most informative.
    let is_memory = |o: &Object| o.kind == ObjectKind::Anonymous || o.name.starts_with('[');
    let mut most = known
        .iter()
        .filter(|k| k.1 >= params::MIN_SHARE_OF_NAMED_OBJECT * all);
    let first = most.clone().find(|k| !is_memory(k.0)).or(most.next());
    if let Some((_, _, number)) = first {
        return named_of(context, *number);
    }
    // There may be many similar objects, such as arrays that a loop reads in parallel.
    let alike: Vec<&(&Object, f64, u32)> = known.iter().filter(|k| !is_memory(k.0)).collect();
    let together: f64 = alike
        .iter()
        .take(params::MAX_OBJECTS_NAMED_TOGETHER)
        .map(|k| k.1)
        .sum();
    match alike.first() {
        Some((object, _, _)) if together >= params::MIN_SHARE_OF_OBJECTS_TOGETHER * all => {
            let mut named = name(object);
            let others = alike.len().min(params::MAX_OBJECTS_NAMED_TOGETHER) - 1;
            named.name = format!("{} and {others} other objects", named.name);
            named
        }
        _ => Named::default(),
    }
}

/// Name of an object by its number. Empty if unknown.
pub(super) fn named_of(context: &Context, number: u32) -> Named {
    let known = context.objects.filter(|_| number != 0);
    let object = known.and_then(|objects| objects.objects.get(number as usize));
    let bytes = known.map_or(0, |objects| objects.largest_instance(number));
    object.map_or_else(Named::default, |object| Named {
        bytes,
        ..name(object)
    })
}

/// Divides the part of unlogged heap blocks among the allocation sites whose logged blocks are a
/// sample. Sorted by size, largest first.
fn divided(objects: &Resolver, parts: &[(u32, u64)]) -> Vec<(u32, f64)> {
    // A logged block represents a number of blocks that were not logged.
    let others = |object: u32, rows: u64| {
        let seen = objects.samples.get(&object)?;
        Some(rows as f64 * (seen.stand_for / seen.bytes.max(1.0) - 1.0).max(0.0))
    };
    let mut all: Vec<(u32, f64)> = parts.iter().map(|&(o, rows)| (o, rows as f64)).collect();
    let logged: u64 = (parts.iter())
        .filter(|p| objects.samples.contains_key(&p.0))
        .map(|p| p.1)
        .sum();
    let wanted: f64 = parts.iter().filter_map(|p| others(p.0, p.1)).sum();
    let heap: f64 = (parts.iter())
        .filter(|p| objects.is_container(p.0))
        .map(|p| p.1 as f64)
        .sum();
    if logged < params::MIN_LOGGED_TOUCHES || wanted <= 0.0 {
        return all;
    }
    let part = (heap / wanted).min(1.0);
    for (entry, &(object, rows)) in all.iter_mut().zip(parts) {
        if objects.is_container(object) {
            entry.1 *= 1.0 - (wanted / heap.max(1.0)).min(1.0);
        } else if let Some(more) = others(object, rows) {
            entry.1 += more * part;
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

/// By accessed object: its part of the finding's rows, in proportion to the waits for its misses.
/// Most first.
fn missed(context: &Context, cause: &Cause) -> Vec<(u32, u64)> {
    let mut waits = context.prices.of_objects(&cause.groups);
    waits.retain(|object, _| cause.objects.iter().any(|o| o.0 == *object));
    let sum: f64 = waits.values().sum();
    if sum <= 0.0 {
        return Vec::new();
    }
    let part = |wait: f64| (wait / sum * cause.rows as f64).round() as u64;
    let mut all: Vec<(u32, u64)> = waits.into_iter().map(|(o, wait)| (o, part(wait))).collect();
    all.sort_unstable_by_key(|&(object, n)| (std::cmp::Reverse(n), object));
    all
}

/// Name of an object.
fn name(object: &Object) -> Named {
    let frames: Vec<&str> = object
        .stack
        .split(" < ")
        .filter(|f| !f.is_empty())
        .collect();
    // The recorder knows the folders of sources, and named the block by the user's frame.
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
        bytes: 0,
    }
}

/// True unless the frame belongs to an allocator or a container.
fn is_user(frame: &str) -> bool {
    const OTHER_ALLOCATORS: [&str; 12] = [
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
        && !OTHER_ALLOCATORS
            .iter()
            .any(|o| frame.trim_start_matches("void* ").starts_with(o))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 90 of 100 loads access blocks that were not logged. Each logged block represents ten.
    #[test]
    fn the_heap_is_divided_by_what_logged_blocks_stand_for() {
        use crate::data::object_map::Sampled;
        let object = |kind: &str, name: &str| Object {
            kind: kind.into(),
            name: name.into(),
            ..Object::default()
        };
        let list = vec![
            object("unknown", ""),
            object("heap", "[heap]"),
            object("heap", "build a.c:7"),
        ];
        let mut objects = Resolver::new(list, &[]);
        let seen = Sampled {
            logged: 50,
            bytes: 1600.0,
            stand_for: 16000.0,
            weights_squared: 0.0,
        };
        objects.samples.insert(2, seen);
        let parts = divided(&objects, &[(1, 90), (2, 10)]);
        assert_eq!(parts, [(2, 100.0), (1, 0.0)]);
        let few = divided(&objects, &[(1, 90), (2, 3)]);
        assert_eq!(few, [(1, 90.0), (2, 3.0)]);
    }

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
