//! Lines that several threads use and at least one writes: true sharing if they use the same bytes,
//! false sharing if they do not.
//!
//! It needs stores (`mgz-instrument --stores`). Threads are compared by the lines in their windows.
//! The order of accesses by different threads is unknown, so only lines that many windows have seen
//! count.

use crate::data::group::Group;
use crate::data::memory_units::{CacheLine, LINE_BYTES};
use crate::findings::context::Context;
use crate::findings::{Finding, Observation, objects, params};
use crate::util::fast_hash::Mixed;
use crate::util::human::counted;
use mgz_annotations_schema::ProgramChange;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A thread's use of a line. Bits of the masks stand for bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    read: u64,
    written: u64,
    rows: u64,
    /// Code of a store, or of a load if there is no store.
    group: Group,
    object: u32,
}

/// Each thread's use of a line.
pub(super) type Line = BTreeMap<u32, Use>;

/// Number of loads and stores of some lines.
fn rows<'l>(lines: impl Iterator<Item = &'l Line>) -> u64 {
    lines.flat_map(BTreeMap::values).map(|u| u.rows).sum()
}

/// By process and line: each thread's use.
pub(super) fn uses(context: &Context) -> HashMap<(u32, CacheLine), Line, Mixed> {
    let mut lines: HashMap<(u32, CacheLine), Line, Mixed> = HashMap::default();
    for window in context.windows {
        let loads = (window.rows.iter()).map(|r| (r.address, r.size, r.group, r.object, false));
        let stores = (window.stores.iter()).map(|r| (r.address, r.size, r.group, r.object, true));
        for (address, size, group, object, is_store) in loads.chain(stores) {
            let line = lines
                .entry((window.process, CacheLine::of(address)))
                .or_default();
            let used = line.entry(window.thread).or_default();
            let from = CacheLine::offset(address);
            let bits =
                u64::MAX >> (LINE_BYTES - u64::from(size).clamp(1, LINE_BYTES - from)) << from;
            used.rows += 1;
            used.object = object;
            if is_store {
                (used.written, used.group) = (used.written | bits, group);
            } else {
                used.read |= bits;
                if used.written == 0 {
                    used.group = group;
                }
            }
        }
    }
    lines
}

/// Finds sharing, if stores were recorded.
pub(super) fn find_sharing(context: &Context) -> Vec<Finding> {
    let threads: HashSet<u32> = context.windows.iter().map(|w| w.thread).collect();
    if threads.len() < 2 || context.windows.iter().all(|w| w.stores.is_empty()) {
        return Vec::new();
    }
    let lines = uses(context);
    let all = rows(lines.values());
    let mut sums: BTreeMap<(bool, u32), (u64, u64, Group)> = BTreeMap::new();
    for line in lines.values() {
        let writers = line.values().filter(|u| u.written != 0).count();
        if line.len() < 2 || writers == 0 {
            continue;
        }
        if !is_shared(line) {
            continue;
        }
        let rows: u64 = line.values().map(|u| u.rows).sum();
        let same = overlap(line);
        let Some(main) = line
            .values()
            .filter(|u| u.written != 0)
            .max_by_key(|u| (u.rows, u.group))
        else {
            continue;
        };
        let sum = sums.entry((same, main.object)).or_default();
        *sum = (sum.0 + rows, sum.1 + 1, main.group);
    }
    sums.into_iter()
        .filter(|(_, sum)| sum.0 as f64 >= params::MIN_SHARE_OF_SHARED_LINES * all as f64)
        .map(|((same, object), (rows, count, group))| {
            let share = rows as f64 * 100.0 / all as f64;
            let line = context.users.line(group.piece());
            let named = context.objects.and_then(|o| o.objects.get(object as usize));
            let cost = rows as f64 * params::CYCLES_OF_LINE_TRANSFER;
            let score = cost * 100.0 / (cost + (all - rows) as f64 + 1.0);
            Finding {
                kind: if same { "true_sharing" } else { "false_sharing" },
                title: if same {
                    "data that threads share and write".into()
                } else {
                    "false sharing between threads".into()
                },
                score,
                score_hi: score,
                loads: share,
                function: line.function,
                module: line.module,
                file: line.file,
                line: line.line,
                object: named.map(|o| o.name.clone()).filter(|_| object != 0).unwrap_or_default(),
                object_bytes: context.objects.map_or(0, |o| o.largest_instance(object)),
                allocation_sites: objects::sites_of(context, &[(object, rows as f64)]),
                remedy: match named.filter(|_| !same && object != 0) {
                    Some(object) => format!("align of {}", object.name),
                    None => String::new(),
                },
                program_changes: match same {
                    true => Vec::new(),
                    false => vec![ProgramChange::PadBlocks],
                },
                finding: Observation {
                mechanism: format!(
                    "{share:.0} % of the loads and stores are to {} of 64 bytes that several threads use and at least one writes, {}",
                    counted(count, "line", "lines"),
                    if same { "the same bytes of them" } else { "each thread its own bytes of them" }
                ),
                    evidence: String::new(),
                },
                advice: if same {
                    "let each thread collect into a variable of its own, and join the parts at the end".into()
                } else {
                    "give each thread's data lines of its own: align and pad it to 64 bytes (128 where adjacent lines are prefetched), or use local variables".into()
                },
                // The cost depends on the cores on which the threads run, and on their timing.
                is_upper_bound: true,
                ..Finding::default()
            }
        })
        .collect()
}

/// Remark that sharing cannot be seen because stores were not recorded.
pub(super) fn unseen(context: &Context) -> &'static str {
    let threads: HashSet<u32> = context.windows.iter().map(|w| w.thread).collect();
    match threads.len() > 1 && !context.knows_stores() {
        true => {
            "; without stores it is unknown whether threads take lines from each other: `mgz run --stores` (mgz-instrument --stores) records them"
        }
        false => "",
    }
}

/// Suggests recording stores if threads load different bytes of the same lines. Stores to these
/// lines would be costly.
pub(super) fn suspected(context: &Context) -> Option<String> {
    if unseen(context).is_empty() {
        return None;
    }
    let lines = uses(context);
    let all = rows(lines.values());
    let apart = lines.values().filter(|line| own_bytes(line, false));
    let (mut rows, mut main) = (0, None::<Use>);
    for used in apart.flat_map(BTreeMap::values) {
        rows += used.rows;
        if main.is_none_or(|m| (used.rows, used.group) > (m.rows, m.group)) {
            main = Some(*used);
        }
    }
    let main = main.filter(|_| rows as f64 >= params::MIN_SHARE_OF_SUSPECTED_LINES * all as f64)?;
    let line = context.users.line(main.group.piece());
    let named = context
        .objects
        .and_then(|o| o.objects.get(main.object as usize));
    let object = named
        .filter(|_| main.object != 0)
        .map(|o| format!(", {}", o.name));
    let file = line.file.rsplit('/').next().unwrap_or(&line.file);
    Some(format!(
        "stores: {:.0} % of the loads are from lines of 64 bytes in which each thread loads its own bytes ({file}:{}{}); if they write there too, they take these lines from each other (false sharing), which `mgz run --stores` shows",
        rows as f64 * 100.0 / all as f64,
        line.line,
        object.unwrap_or_default()
    ))
}

/// True if several threads use a line, each its own bytes of it. If stores are known, one of them
/// writes.
pub(super) fn own_bytes(line: &Line, stores_are_known: bool) -> bool {
    let is_written = line.values().any(|used| used.written != 0);
    let is_apart = match stores_are_known {
        true => is_written && !overlap(line),
        false => {
            let (mut sum, mut both) = (0u64, 0);
            for used in line.values() {
                both |= sum & used.read;
                sum |= used.read;
            }
            both == 0
        }
    };
    line.len() > 1 && is_apart && is_shared(line)
}

/// True if a tenth of the rows or more come from other threads than the busiest one. Rare use costs
/// almost nothing.
fn is_shared(line: &Line) -> bool {
    let rows: u64 = line.values().map(|u| u.rows).sum();
    let busiest = line.values().map(|u| u.rows).max().unwrap_or(0);
    (rows - busiest) * params::ROWS_PER_ROW_OF_OTHER_THREADS >= rows
}

/// True if a thread writes bytes that another thread uses.
fn overlap(line: &Line) -> bool {
    line.iter().any(|(thread, a)| {
        line.iter()
            .any(|(other, b)| other != thread && a.written & (b.read | b.written) != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_false_sharing() {
        let of = |written, read| Use {
            written,
            read,
            ..Use::default()
        };
        assert!(!overlap(&BTreeMap::from([
            (1, of(0xff, 0xff)),
            (2, of(0xff00, 0xff00))
        ])));
        let used = |written, read| Use {
            rows: 100,
            ..of(written, read)
        };
        let apart = BTreeMap::from([(1, used(0xff, 0xff)), (2, used(0, 0xff00))]);
        assert!(own_bytes(&apart, true) && own_bytes(&apart, false));
        let unwritten = BTreeMap::from([(1, used(0, 0xff)), (2, used(0, 0xff00))]);
        assert!(!own_bytes(&unwritten, true) && own_bytes(&unwritten, false));
        let same = BTreeMap::from([(1, used(0xff, 0xff)), (2, used(0, 0xff))]);
        assert!(!own_bytes(&same, true) && !own_bytes(&same, false));
        assert!(overlap(&BTreeMap::from([
            (1, of(0xff, 0)),
            (2, of(0, 0xf0))
        ])));
    }
}
