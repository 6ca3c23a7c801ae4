//! Which memory was which thread's stack, and when.
//!
//! One fact makes this hard: the kernel joins mappings that lie side by side. So a mapping that
//! holds a stack may hold other stacks as well, or memory that an allocator has mapped beside it.
//! Two facts decide the range instead ([`range`]): the requested size, and the stack pointer at the
//! thread's start. Stacks are reused: each thread has its stack from its own start to its end, or
//! until another thread starts there.
//!
//! A stack whose ends are not known gets no name: an unknown mapping is better than a wrong one.

use crate::objects::ranges::ObjectRange;
use crate::objects::types::Layout;
use crate::objects::{Instance, Object};
use mgz_abi::shared_memory::PAGE_SIZE;
use mgz_annotations_schema::ObjectKind;
use std::collections::HashSet;
use std::ops::Range;

/// Facts about its stack that a thread reports when it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSeen {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// An address in it.
    pub at: u64,
    /// The thread's `%fs` base.
    pub thread_area: u64,
    /// Lowest address, if the program gave the memory; else 0.
    pub low: u64,
    /// Requested bytes; 0 if unknown.
    pub bytes: u64,
    /// When the thread began.
    pub begin_ns: u64,
}

/// The kernel's name for the stack of a process's first thread.
const FIRST_STACK_NAME: &str = "[stack]";
/// The C library keeps nothing farther than this above a thread's frames, unless the stack is known
/// to be larger.
const MAX_ABOVE: u64 = 8 << 20;
/// If only a stack's first frame is known, a mapping that ends within this distance of it is taken
/// to be the stack.
const CLOSE: u64 = 64 << 10;

/// The end of the page that holds an address.
fn page_end(address: u64) -> u64 {
    (address | (PAGE_SIZE as u64 - 1)).saturating_add(1)
}

/// The addresses of a stack. `mappings` are those of the process, which are looked at only where
/// the size is not known.
pub fn range(seen: &StackSeen, mappings: impl FnOnce() -> Vec<ObjectRange>) -> Option<Range<u64>> {
    let StackSeen {
        at,
        thread_area,
        low,
        bytes,
        ..
    } = *seen;
    if low != 0 {
        let range = low..low.saturating_add(bytes);
        return range.contains(&at).then_some(range);
    }
    // The thread's own data lies above its frames, in the last page of the stack's memory.
    let above = thread_area > at && thread_area - at < bytes.max(MAX_ABOVE);
    if bytes != 0 {
        let end = page_end(if above { thread_area } else { at });
        return Some(end.saturating_sub(bytes)..end);
    }
    let mappings = mappings();
    let mapping = mappings.iter().find(|m| (m.start..m.end).contains(&at))?;
    let end = if above && thread_area < mapping.end {
        page_end(thread_area)
    } else if mapping.end - at <= CLOSE {
        mapping.end
    } else {
        return None;
    };
    // Memory without rights guards the lower end.
    (mapping.kind == ObjectKind::Anonymous && mapping.guarded).then_some(mapping.start..end)
}

/// A thread's stack.
#[derive(Clone, Debug)]
struct Life {
    seen: StackSeen,
    range: Option<Range<u64>>,
    /// `u64::MAX` as long as the thread is there.
    end_ns: u64,
}

/// The first thread of a process, and its `%fs` base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstThread {
    /// Process.
    pub pid: u32,
    /// The `%fs` base.
    pub area: u64,
    /// When it began; 0 where it was the first program of the process.
    pub begin_ns: u64,
    /// `u64::MAX` as long as it is there.
    pub end_ns: u64,
}

/// The stacks of all threads.
#[derive(Debug, Default)]
pub struct Stacks {
    lives: Vec<Life>,
    /// Indices of those whose threads are there.
    there: Vec<usize>,
}

impl Stacks {
    /// A thread has begun, or tells more of its stack than before.
    pub fn begin(&mut self, seen: StackSeen, range: Option<Range<u64>>) {
        let same = |l: &Life| (l.seen.pid, l.seen.tid) == (seen.pid, seen.tid);
        if let Some(place) = self.there.iter().position(|&i| same(&self.lives[i])) {
            let life = &mut self.lives[self.there[place]];
            let known = life.range.clone();
            let on_it = |at: u64| known.as_ref().is_none_or(|r| r.contains(&at));
            if on_it(seen.at) {
                life.range = range.or(known);
                if seen.thread_area != 0 {
                    life.seen.thread_area = seen.thread_area;
                }
                return;
            }
            // Another program in the same thread, or another thread of the same number.
            life.end_ns = seen.begin_ns;
            self.there.swap_remove(place);
        }
        self.there.push(self.lives.len());
        self.lives.push(Life {
            seen,
            range,
            end_ns: u64::MAX,
        });
    }

    /// At a moment these threads are there; others have ended.
    pub fn look(&mut self, now: u64, living: &HashSet<(u32, u32)>) {
        self.there.retain(|&i| {
            let life = &mut self.lives[i];
            let lives = living.contains(&(life.seen.pid, life.seen.tid));
            if !lives {
                life.end_ns = now;
            }
            lives
        });
    }

    /// The first threads of all processes whose `%fs` base is known, in the order of their begins.
    pub fn first_threads(&self) -> Vec<FirstThread> {
        let first = |l: &&Life| l.seen.tid == l.seen.pid && l.seen.thread_area != 0;
        let mut out: Vec<FirstThread> = Vec::new();
        for life in self.lives.iter().filter(first) {
            let known = out.iter().any(|f| f.pid == life.seen.pid);
            out.push(FirstThread {
                pid: life.seen.pid,
                area: life.seen.thread_area,
                begin_ns: if known { life.seen.begin_ns } else { 0 },
                end_ns: life.end_ns,
            });
        }
        out
    }

    /// Rows for the stacks. A later thread's stack ends an earlier one on the same memory, whose
    /// end may have been noticed late. `mapped`: the mappings seen in the processes. The first
    /// thread's stack has the kernel's name if a look has found it; a process that ended before any
    /// look reported its stack itself.
    pub fn instances(mut self, mapped: &[Instance]) -> Vec<Instance> {
        let looked: HashSet<u32> = mapped.iter().map(|i| i.process).collect();
        let named: Vec<&Instance> = mapped
            .iter()
            .filter(|i| i.object.name == FIRST_STACK_NAME)
            .collect();
        let is_named = |l: &Life, r: &Range<u64>| {
            let overlaps = |i: &&&Instance| r.start < i.start + i.bytes && i.start < r.end;
            named
                .iter()
                .filter(|i| i.process == l.seen.pid)
                .any(|i| overlaps(&i))
        };
        self.lives
            .retain(|l| l.range.as_ref().is_some_and(|r| !is_named(l, r)));
        self.lives.sort_by_key(|l| (l.seen.pid, l.seen.begin_ns));
        let mut out: Vec<Instance> = Vec::new();
        // By process and lowest address: stacks that no later thread has replaced yet.
        let mut open: std::collections::BTreeMap<(u32, u64), usize> = Default::default();
        for life in self.lives {
            let (Some(range), pid) = (life.range, life.seen.pid) else {
                continue;
            };
            // Open stacks do not overlap each other, so those that overlap this one are adjacent.
            let overlapping: Vec<(u32, u64)> = open
                .range((pid, 0)..(pid, range.end))
                .rev()
                .take_while(|&(_, &i)| out[i].start + out[i].bytes > range.start)
                .map(|(&key, _)| key)
                .collect();
            for key in overlapping {
                if let Some(i) = open.remove(&key) {
                    out[i].end_ns = out[i].end_ns.min(life.seen.begin_ns);
                }
            }
            let first = life.seen.tid == pid && !looked.contains(&pid);
            let name = match first {
                true => FIRST_STACK_NAME.to_owned(),
                false => format!("[stack of thread {}]", life.seen.tid),
            };
            open.insert((pid, range.start), out.len());
            out.push(Instance {
                process: pid,
                start: range.start,
                bytes: range.end - range.start,
                // The first thread's stack exists before anything runs.
                begin_ns: match first && !out.iter().any(|i| i.process == pid) {
                    true => 0,
                    false => life.seen.begin_ns,
                },
                end_ns: life.end_ns,
                object: Object {
                    kind: ObjectKind::Stack,
                    name,
                    of_type: String::new(),
                    module: String::new(),
                    layout: Layout::default(),
                },
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, guarded: bool) -> ObjectRange {
        ObjectRange {
            start,
            end,
            kind: ObjectKind::Anonymous,
            name: String::new(),
            guarded,
        }
    }

    fn seen(at: u64, thread_area: u64, low: u64, bytes: u64) -> StackSeen {
        StackSeen {
            pid: 1,
            tid: 7,
            at,
            thread_area,
            low,
            bytes,
            begin_ns: 0,
        }
    }

    fn nothing() -> Vec<ObjectRange> {
        panic!("nobody has to look")
    }

    #[test]
    fn stacks_in_one_mapping_have_their_own_ends() {
        // Two stacks of 8 MiB and one of 64 KiB side by side, as the C library lays them out: the
        // thread's area is in the last page.
        const MIB: u64 = 1 << 20;
        let first = seen(
            0x10_0000 + 8 * MIB - 0x1200,
            0x10_0000 + 8 * MIB - 0x900,
            0,
            8 * MIB,
        );
        let second = seen(
            0x10_0000 + 16 * MIB - 0x5000,
            0x10_0000 + 16 * MIB - 0x900,
            0,
            8 * MIB,
        );
        let third = seen(
            0x10_0000 + 16 * MIB + 0xf000,
            0x10_0000 + 16 * MIB + 0xf700,
            0,
            0x10000,
        );
        assert_eq!(range(&first, nothing), Some(0x10_0000..0x10_0000 + 8 * MIB));
        assert_eq!(
            range(&second, nothing),
            Some(0x10_0000 + 8 * MIB..0x10_0000 + 16 * MIB)
        );
        assert_eq!(
            range(&third, nothing),
            Some(0x10_0000 + 16 * MIB..0x10_0000 + 16 * MIB + 0x10000)
        );
        // Without an area above: the stack ends with the page that the thread begins in.
        assert_eq!(
            range(&seen(0x8_3456, 0, 0, 0x4000), nothing),
            Some(0x8_0000..0x8_4000)
        );
    }

    #[test]
    fn memory_that_the_program_gave_is_the_stack() {
        assert_eq!(
            range(&seen(0x5200, 0x5800, 0x5010, 0x1000), nothing),
            Some(0x5010..0x6010)
        );
        // The recorder does not believe a thread that runs outside of the stack it names.
        assert_eq!(range(&seen(0x9200, 0x5800, 0x5010, 0x1000), nothing), None);
    }

    #[test]
    fn of_a_stack_of_unknown_size_a_guarded_mapping_tells_the_ends() {
        let at =
            |mappings: &[ObjectRange], at, area| range(&seen(at, area, 0, 0), || mappings.to_vec());
        let guarded = mapping(0x10_0000, 0x20_0000, true);
        assert_eq!(
            at(std::slice::from_ref(&guarded), 0x1f_f000, 0),
            Some(0x10_0000..0x20_0000)
        );
        // Other memory is joined to the upper end.
        assert_eq!(
            at(std::slice::from_ref(&guarded), 0x18_f000, 0x18_f700),
            Some(0x10_0000..0x19_0000)
        );
        assert_eq!(at(std::slice::from_ref(&guarded), 0x18_0000, 0), None);
        // Other memory is joined to the lower end, so the end is unknown.
        assert_eq!(
            at(&[mapping(0x10_0000, 0x20_0000, false)], 0x1f_f000, 0),
            None
        );
        assert_eq!(at(std::slice::from_ref(&guarded), 0x30_0000, 0), None);
        // The first thread's stack has its name already.
        let main = ObjectRange {
            kind: ObjectKind::Stack,
            ..guarded
        };
        assert_eq!(at(&[main], 0x1f_f000, 0), None);
    }

    #[test]
    fn a_stack_belongs_to_one_thread_after_the_other() {
        let mut stacks = Stacks::default();
        let begin = |stacks: &mut Stacks, tid, ns, start: u64, end: u64| {
            let seen = StackSeen {
                tid,
                begin_ns: ns,
                ..seen(end - 1, 0, 0, end - start)
            };
            stacks.begin(seen, Some(start..end));
        };
        begin(&mut stacks, 7, 10, 0x1000, 0x9000);
        begin(&mut stacks, 8, 11, 0x9000, 0xa000);
        stacks.look(50, &HashSet::from([(1, 7)]));
        // Overlapping a part of the memory is enough, even if the end of 7 is noticed only later.
        begin(&mut stacks, 9, 60, 0x8000, 0x9000);
        begin(&mut stacks, 10, 70, 0x9000, 0xa000);
        stacks.look(100, &HashSet::from([(1, 9), (1, 10)]));
        let mut list: Vec<_> = stacks
            .instances(&[])
            .into_iter()
            .map(|i| (i.object.name, i.start, i.bytes, i.begin_ns, i.end_ns))
            .collect();
        list.sort();
        assert_eq!(
            list,
            [
                (
                    "[stack of thread 10]".to_string(),
                    0x9000,
                    0x1000,
                    70,
                    u64::MAX
                ),
                ("[stack of thread 7]".to_string(), 0x1000, 0x8000, 10, 60),
                ("[stack of thread 8]".to_string(), 0x9000, 0x1000, 11, 50),
                (
                    "[stack of thread 9]".to_string(),
                    0x8000,
                    0x1000,
                    60,
                    u64::MAX
                ),
            ]
        );
    }

    #[test]
    fn a_thread_that_tells_more_later_has_one_stack() {
        let mut stacks = Stacks::default();
        stacks.begin(seen(0x1f00, 0, 0, 0), None);
        stacks.begin(seen(0x1e00, 0, 0, 0x1000), Some(0x1000..0x2000));
        // The number is used again before the thread's end is noticed.
        let again = StackSeen {
            begin_ns: 90,
            ..seen(0x5e00, 0, 0, 0x1000)
        };
        stacks.begin(again, Some(0x5000..0x6000));
        let list: Vec<_> = stacks
            .instances(&[])
            .iter()
            .map(|i| (i.start, i.end_ns))
            .collect();
        assert_eq!(list, [(0x1000, 90), (0x5000, u64::MAX)]);
    }

    #[test]
    fn the_first_stack_of_who_was_never_looked_at_is_the_one_that_it_told_of() {
        let tell = || {
            let mut stacks = Stacks::default();
            let first = StackSeen {
                tid: 1,
                ..seen(0x8ff0, 0, 0x1000, 0x8000)
            };
            stacks.begin(first, Some(0x1000..0x9000));
            stacks
        };
        let told = tell().instances(&[]);
        let [stack] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(
            (
                stack.object.name.as_str(),
                stack.start,
                stack.bytes,
                stack.begin_ns
            ),
            ("[stack]", 0x1000, 0x8000, 0)
        );
        // The kernel's own entry takes precedence.
        let mapped = Instance {
            start: 0x7000,
            bytes: 0x2000,
            ..stack.clone()
        };
        assert!(tell().instances(&[mapped]).is_empty());
    }
}
