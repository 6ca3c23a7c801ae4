//! Data objects: the object at an address and a time.
//!
//! `objects.parquet` (see `docs/reference/trace.md`) has one row per *instance*: a range of
//! addresses that was an object from one time to another. Instances of the same name, kind and
//! origin (allocation site) are one object in the tables. Addresses that were freed and used again
//! belong to different instances, which are distinguished by time.
//!
//! Most pages lie inside one instance for the whole run. Their rows need no look-up while they are
//! counted. The others are *mixed* ([`Resolver::mixed`]), and their rows are resolved one by one.

use crate::data::elements::Element;
use crate::data::memory_units::Page;
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::ObjectKind;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// Pages with several owners.
pub type MixedPages = HashSet<Page, Mixed>;

/// Name of the memory of the heap that belongs to no known block.
pub const HEAP: &str = "[heap]";
/// No object is known at an address.
pub const UNKNOWN: u32 = 0;

/// Description of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its kind; `NotKnown` for the object of unknown addresses.
    pub kind: ObjectKind,
    /// Variable, allocation site or file.
    pub name: String,
    /// Type, if it is known.
    pub of_type: String,
    /// Module of a global.
    pub module: String,
    /// Call stack of the allocation, from the inside out, joined by ` < `.
    pub stack: String,
    /// Return addresses of the allocation in link-time addresses: `MODULE+0xOFFSET` from the inside
    /// out, joined by ` < `. Several call stacks of one site are joined by `; `. Empty if unknown.
    pub return_addresses: String,
    /// Layout of its elements, if it is known.
    pub element: Element,
}

impl Object {
    /// The object of unknown addresses.
    pub fn not_known() -> Object {
        Object {
            kind: ObjectKind::NotKnown,
            name: "[no known object]".into(),
            ..Object::default()
        }
    }

    /// The return addresses of each call stack.
    pub fn returns(&self) -> Vec<String> {
        let stacks = self.return_addresses.split("; ").filter(|s| !s.is_empty());
        stacks.map(str::to_owned).collect()
    }

    /// Offset within its element of an address that is `into` bytes into a block or variable of
    /// `bytes` bytes. If elements are unknown, it is the offset within the block.
    fn offset_in_element(&self, into: u64, bytes: u64) -> u64 {
        match self.element.bytes {
            0 => into,
            element => match into.checked_sub(length_bytes(bytes, element)) {
                Some(into) => into % element,
                None => u64::MAX,
            },
        }
    }
}

/// Bytes before the first element of a block: arrays with destructors begin with their length.
pub(crate) fn length_bytes(bytes: u64, element: u64) -> u64 {
    match element > 0 && bytes > element && bytes % element == 8 {
        true => 8,
        false => 0,
    }
}

/// A time span in which an object owned a range of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Instance {
    /// Process.
    pub process: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// CLOCK_MONOTONIC when it began; 0 for the run's start.
    pub begin_ns: u64,
    /// When it ended; `u64::MAX` if it did not.
    pub end_ns: u64,
    /// Index into the objects.
    pub object: u32,
    /// Number of consecutive blocks that it represents.
    pub times: u64,
    /// Number of blocks that each of these represents, itself included. It exceeds 1 if small
    /// blocks are a sample.
    pub weight: f32,
}

/// A time span of a range.
#[derive(Clone, Copy, Debug)]
struct Life {
    begin: u64,
    end: u64,
    /// Latest end of this life and of those of the range that began before it.
    until: u64,
    object: u32,
    /// True if the block is part of a sample: before and after it, the range may hold blocks that
    /// were not logged.
    sampled: bool,
}

/// Ranges of one size class (sizes that share the position of the highest bit) of one process.
#[derive(Default)]
struct Class {
    /// First address, end, and index of its first life in `lives`; sorted.
    ranges: Vec<(u64, u64, u32)>,
    lives: Vec<Life>,
    /// Greatest size.
    longest: u64,
}

impl Class {
    fn lives(&self, range: usize) -> &[Life] {
        let from = self.ranges[range].2 as usize;
        let to = self
            .ranges
            .get(range + 1)
            .map_or(self.lives.len(), |r| r.2 as usize);
        &self.lives[from..to]
    }
}

/// An object, and the addresses and times for which it is known to be the answer.
#[derive(Clone, Copy, Default)]
struct Answer {
    start: u64,
    end: u64,
    from: u64,
    to: u64,
    process: u32,
    object: u32,
    /// The range that the object is in: first address, bytes.
    range: (u64, u64),
}

/// A range: first address, bytes.
type Range = (u64, u64);

impl Answer {
    #[inline(always)]
    fn holds(&self, process: u32, address: u64, time: u64) -> bool {
        self.process == process
            && self.start <= address
            && address < self.end
            && self.from <= time
            && time < self.to
    }

    /// Limits the answer at a time when nothing is alive. It holds on one side of the middle
    /// between the last end and the next begin.
    fn nearest(
        mut self,
        (object, range): (u32, Range),
        time: u64,
        past: Option<u64>,
        future: Option<u64>,
    ) -> Answer {
        if let (Some(ended), Some(begins)) = (past, future) {
            let gap = begins - ended;
            match (time - ended).cmp(&(begins - time)) {
                Ordering::Less => self.to = self.to.min(ended + gap.div_ceil(2)),
                Ordering::Greater => self.from = self.from.max(ended + gap / 2 + 1),
                // At the exact middle, the order of the ranges decides. That answer holds at no
                // other time.
                Ordering::Equal => (self.from, self.to) = (time, time + 1),
            }
        }
        Answer {
            object,
            range,
            ..self
        }
    }
}

/// Log2 of the number of kept answers.
const ANSWERS_LOG2: u32 = 14;
/// Log2 of the bytes that share one slot for an answer: the alignment of allocators' blocks.
const BYTES_PER_ANSWER_LOG2: u32 = 4;

/// Number of recent answers that are checked first. Source: Chosen.
const LAST_ANSWERS: usize = 4;
/// Number of new answers before a table is allocated. Source: Chosen.
const MIN_ANSWERS_FOR_TABLE: u32 = 32;

/// Recent answers of [`Resolver::find_recent`]. Most rows need an answer that was given before,
/// often one of the last few. No memory is allocated before the first use.
#[derive(Default)]
pub struct Recent {
    last: [Answer; LAST_ANSWERS],
    /// Index of the next one to replace in `last`.
    next: usize,
    /// Answers that were not kept.
    new: u32,
    table: Vec<Answer>,
}

impl Recent {
    /// An answer that was given before.
    #[inline(always)]
    fn known(&mut self, process: u32, address: u64, time: u64) -> Option<Answer> {
        let holds = |answer: &&Answer| answer.holds(process, address, time);
        if let Some(answer) = self.last.iter().find(holds) {
            return Some(*answer);
        }
        let answer = *self.table.get(place(address)).filter(holds)?;
        self.add_to_last(answer);
        Some(answer)
    }

    #[inline(always)]
    fn add_to_last(&mut self, answer: Answer) {
        self.last[self.next] = answer;
        self.next = (self.next + 1) % LAST_ANSWERS;
    }

    /// Keeps the answer for an address.
    fn add(&mut self, address: u64, answer: Answer) {
        self.add_to_last(answer);
        self.new = self.new.saturating_add(1);
        if self.new < MIN_ANSWERS_FOR_TABLE {
            return;
        }
        if self.table.is_empty() {
            self.table.resize(1 << ANSWERS_LOG2, Answer::default());
        }
        self.table[place(address)] = answer;
    }
}

/// Slot of the answer for an address.
#[inline(always)]
fn place(address: u64) -> usize {
    ((address >> BYTES_PER_ANSWER_LOG2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ANSWERS_LOG2))
        as usize
}

/// The stack of a thread at a time; empty if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnStack {
    start: u64,
    end: u64,
    object: u32,
}

impl OwnStack {
    /// The stack as an object, if the address is in it.
    #[inline(always)]
    pub fn at(&self, address: u64) -> Option<u32> {
        (self.start <= address && address < self.end).then_some(self.object)
    }
}

/// True if an object of this kind and name is only memory that contains others.
pub(crate) fn contains_others(kind: &ObjectKind, name: &str) -> bool {
    match kind {
        ObjectKind::Anonymous => true,
        ObjectKind::Heap => name == HEAP,
        _ => false,
    }
}

/// True if an object's name is only its address: `0x7f0000000000 (64 KiB)`.
pub fn is_address(name: &str) -> bool {
    name.starts_with("0x")
}

/// The thread whose stack an object is.
fn thread_of(object: &Object) -> Option<u32> {
    let name = object.name.strip_prefix("[stack of thread ")?;
    name.strip_suffix(']')?.parse().ok()
}

/// Blocks of an object of which only a sample was logged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampled {
    /// Number of logged blocks.
    pub logged: u64,
    /// Their bytes.
    pub bytes: f64,
    /// Bytes of the blocks that they represent.
    pub stand_for: f64,
    /// Sum over the logged blocks of their bytes times the square of their weight.
    pub weights_squared: f64,
}

/// Finds objects by process, address and time.
#[derive(Default)]
pub struct Resolver {
    /// Number 0 stands for no object.
    pub objects: Vec<Object>,
    /// Number of instances of each object.
    pub instances: Vec<u64>,
    /// Sum of the bytes of the instances, by object.
    pub bytes: Vec<u64>,
    /// Bytes of the smallest and of the largest instance, by object.
    pub sizes: Vec<(u64, u64)>,
    /// Samples of objects whose blocks were not all logged.
    pub samples: HashMap<u32, Sampled>,
    /// By object: true if it is only memory that contains others.
    containers: Vec<bool>,
    /// By object: true for stacks. A stack owns its memory only during its own life, never before
    /// or after.
    stacks: Vec<bool>,
    /// Stacks of threads, by process and thread.
    own_stacks: HashMap<(u32, u32), Vec<Instance>>,
    by_process: HashMap<u32, Vec<Class>>,
    /// Pages of which not every byte belongs to the same object for the whole run, by process.
    mixed: HashMap<u32, MixedPages>,
}

impl Resolver {
    /// True if an object is only memory that contains others, as the heap is.
    pub fn is_container(&self, object: u32) -> bool {
        self.containers.get(object as usize) == Some(&true)
    }

    /// Bytes of the largest block of an object: a variable, a file, or blocks of the heap. `None`
    /// if only a part of its blocks is known and their sizes differ, and for memory that only
    /// contains other objects.
    pub fn largest(&self, object: u32) -> Option<u64> {
        let (at, of) = (object as usize, self.objects.get(object as usize)?);
        let whole = matches!(
            of.kind,
            ObjectKind::Global | ObjectKind::Heap | ObjectKind::File
        ) && !self.containers[at];
        let (smallest, largest) = *self.sizes.get(at)?;
        let known = !self.samples.contains_key(&object) || smallest == largest;
        (whole && known && largest > 0).then_some(largest)
    }

    /// Bytes of the largest known instance of an object; 0 if none is known.
    pub fn largest_instance(&self, object: u32) -> u64 {
        self.sizes.get(object as usize).map_or(0, |sizes| sizes.1)
    }

    /// True if some objects are known from their allocation.
    pub fn knows_allocations(&self) -> bool {
        self.objects.iter().any(|o| !o.stack.is_empty())
    }

    /// Builds the resolver from instances. `objects[0]` must be the unknown one. Instances of no
    /// bytes are left out.
    pub fn new(objects: Vec<Object>, instances: &[Instance]) -> Resolver {
        let container = |o: &Object| contains_others(&o.kind, &o.name);
        let containers = objects.iter().map(container).collect();
        let stacks = objects
            .iter()
            .map(|o| o.kind == ObjectKind::Stack)
            .collect();
        let mut resolver = Resolver {
            instances: vec![0; objects.len()],
            bytes: vec![0; objects.len()],
            sizes: vec![(u64::MAX, 0); objects.len()],
            containers,
            stacks,
            objects,
            ..Resolver::default()
        };
        let mut order: Vec<&Instance> = instances
            .iter()
            .filter(|i| i.bytes > 0 && (i.object as usize) < resolver.objects.len())
            .collect();
        order.sort_by_key(|i| (i.process, class(i.bytes), i.start, i.bytes, i.begin_ns));
        let mut classes: Vec<Class> = Vec::new();
        for (n, instance) in order.iter().enumerate() {
            let object = instance.object as usize;
            let (times, weight) = (instance.times, f64::from(instance.weight));
            let sampled = weight > 1.0;
            let (smallest, largest) = &mut resolver.sizes[object];
            *smallest = instance.bytes.min(*smallest);
            *largest = instance.bytes.max(*largest);
            if sampled {
                let stand_for = instance.bytes as f64 * weight;
                resolver.instances[object] += (times as f64 * weight).round() as u64;
                resolver.bytes[object] = resolver.bytes[object].saturating_add(stand_for as u64);
                let seen = resolver.samples.entry(instance.object).or_default();
                seen.logged += times;
                seen.bytes += instance.bytes as f64;
                seen.stand_for += stand_for;
                seen.weights_squared += stand_for * weight;
            } else {
                resolver.instances[object] += times;
                resolver.bytes[object] = resolver.bytes[object].saturating_add(instance.bytes);
            }
            let number = class(instance.bytes);
            if classes.len() <= number {
                classes.resize_with(number + 1, Class::default);
            }
            let class = &mut classes[number];
            let end = instance.start.saturating_add(instance.bytes);
            let mut until = instance.end_ns;
            if class
                .ranges
                .last()
                .is_none_or(|r| (r.0, r.1) != (instance.start, end))
            {
                class
                    .ranges
                    .push((instance.start, end, class.lives.len() as u32));
            } else {
                until = until.max(class.lives.last().map_or(0, |l| l.until));
            }
            class.longest = class.longest.max(instance.bytes);
            class.lives.push(Life {
                begin: instance.begin_ns,
                end: instance.end_ns,
                until,
                object: instance.object,
                sampled,
            });
            if order
                .get(n + 1)
                .is_none_or(|next| next.process != instance.process)
            {
                let all = std::mem::take(&mut classes);
                resolver.by_process.insert(instance.process, all);
            }
        }
        for instance in instances {
            let object = resolver.objects.get(instance.object as usize);
            if let Some(thread) = object
                .filter(|o| o.kind == ObjectKind::Stack)
                .and_then(thread_of)
            {
                let own = resolver.own_stacks.entry((instance.process, thread));
                own.or_default().push(*instance);
            }
        }
        resolver.find_mixed(instances);
        resolver
    }

    /// The stack of a thread. A thread's loads from its own stack are attributed to it at any time.
    /// Times of rows are estimates, and may be after the end of a thread, when its stack may belong
    /// to another thread.
    pub fn own_stack(&self, process: u32, thread: u32, time: u64) -> OwnStack {
        let lives = self.own_stacks.get(&(process, thread));
        let away = |i: &&Instance| {
            let before = i.begin_ns.saturating_sub(time);
            before.max(time.saturating_sub(i.end_ns))
        };
        let life = lives.and_then(|lives| lives.iter().min_by_key(away));
        life.map_or_else(OwnStack::default, |i| OwnStack {
            start: i.start,
            end: i.start.saturating_add(i.bytes),
            object: i.object,
        })
    }

    /// Finds mixed pages. A page is whole if one instance covers it all, and no instance of another
    /// object ever touched it.
    fn find_mixed(&mut self, instances: &[Instance]) {
        let mut by_start: Vec<&Instance> = instances.iter().filter(|i| i.bytes > 0).collect();
        by_start.sort_by_key(|i| (i.process, i.start, i.bytes));
        // Pages that an instance covers only in part are mixed. Pages that two objects have touched
        // are mixed as well.
        let mut covered: (u32, u64, u32) = (u32::MAX, 0, UNKNOWN);
        let mut inserted = (u32::MAX, Page::default());
        let mut mixed = MixedPages::default();
        for (n, i) in by_start.iter().enumerate() {
            let last_byte = i.start.saturating_add(i.bytes - 1);
            let (first, last) = (Page::of(i.start), Page::of(last_byte));
            // Most blocks begin in the page of the previous one.
            let mut insert = |page| {
                if (i.process, page) != inserted {
                    mixed.insert(page);
                    inserted = (i.process, page);
                }
            };
            if Page::offset(i.start) != 0 {
                insert(first);
            }
            if Page::offset(i.start.saturating_add(i.bytes)) != 0 {
                insert(last);
            }
            if self.stacks.get(i.object as usize) == Some(&true)
                && (i.begin_ns, i.end_ns) != (0, u64::MAX)
            {
                // Before and after its life, the stack's memory has another owner.
                mixed.extend(Page::all(i.start, last_byte));
            }
            if covered.0 == i.process && first.number() < covered.1 && covered.2 != i.object {
                let shared = first.number()..=last.number().min(covered.1 - 1);
                mixed.extend(shared.map(Page::from_number));
            }
            let end = last.number() + 1;
            if covered.0 != i.process || end > covered.1 {
                covered = (i.process, end, i.object);
            }
            if by_start
                .get(n + 1)
                .is_none_or(|next| next.process != i.process)
            {
                self.mixed.insert(i.process, std::mem::take(&mut mixed));
            }
        }
    }

    /// True if no instance is known.
    pub fn is_empty(&self) -> bool {
        self.by_process.is_empty()
    }

    /// True if rows on the page of `address` have to be resolved one by one.
    #[inline]
    pub fn mixed(&self, process: u32, address: u64) -> bool {
        self.mixed
            .get(&process)
            .is_some_and(|pages| pages.contains(&Page::of(address)))
    }

    /// The pages of a process whose rows have to be resolved one by one.
    pub fn mixed_pages(&self, process: u32) -> Option<&MixedPages> {
        self.mixed.get(&process)
    }

    /// The object at an address and a time. If there are several (a stack in a mapping), it is the
    /// smallest. At a time outside of all lives of a range, it is the object nearest in time: the
    /// clocks of rows and of objects agree only to the length of a window. The same applies if only
    /// containing memory is alive, such as the allocator's mapping. A stack belongs to its thread
    /// only during the thread's life, because the same clock measures both.
    pub fn find(&self, process: u32, address: u64, time: u64) -> u32 {
        self.answer(process, address, time).object
    }

    /// As [`Resolver::find`], but checks recent answers first. `recent` must have been used only
    /// with this resolver.
    #[inline]
    pub fn find_recent(&self, recent: &mut Recent, process: u32, address: u64, time: u64) -> u32 {
        match recent.known(process, address, time) {
            Some(answer) => answer.object,
            None => self.find_anew(recent, process, address, time).object,
        }
    }

    /// The object, and the block or variable that the address is in: first address and bytes.
    /// Unknown objects have no bytes.
    pub fn find_block(
        &self,
        recent: &mut Recent,
        process: u32,
        address: u64,
        time: u64,
    ) -> (u32, (u64, u64)) {
        let answer = recent
            .known(process, address, time)
            .unwrap_or_else(|| self.find_anew(recent, process, address, time));
        match answer.object {
            UNKNOWN => (UNKNOWN, (0, 0)),
            object => (object, answer.range),
        }
    }

    /// The object, and the offset of the address within its element (within the whole if elements
    /// are unknown); `u64::MAX` if the offset is unknown.
    pub fn find_element(
        &self,
        recent: &mut Recent,
        process: u32,
        address: u64,
        time: u64,
    ) -> (u32, u64) {
        let answer = recent
            .known(process, address, time)
            .unwrap_or_else(|| self.find_anew(recent, process, address, time));
        let object = self.objects.get(answer.object as usize);
        let into = match object.filter(|_| answer.object != UNKNOWN) {
            Some(object) => {
                object.offset_in_element(address.wrapping_sub(answer.range.0), answer.range.1)
            }
            None => u64::MAX,
        };
        (answer.object, into)
    }

    #[inline(never)]
    fn find_anew(&self, recent: &mut Recent, process: u32, address: u64, time: u64) -> Answer {
        let answer = self.answer(process, address, time);
        recent.add(address, answer);
        answer
    }

    /// The object, with the range of addresses and times for which the answer is the same: the same
    /// ranges hold the address, and no life begins or ends.
    fn answer(&self, process: u32, address: u64, time: u64) -> Answer {
        let mut answer = Answer {
            process,
            start: 0,
            end: u64::MAX,
            from: 0,
            to: u64::MAX,
            object: UNKNOWN,
            range: (0, 0),
        };
        let Some(classes) = self.by_process.get(&process) else {
            return answer;
        };
        let mut nearest: Option<(u64, (u32, Range))> = None;
        // Latest end before `time`, and earliest begin after it, among objects near in time.
        let (mut past, mut future): (Option<u64>, Option<u64>) = (None, None);
        for class in classes {
            // The smallest range of the class with a live object.
            let mut alive: Option<(Range, u32)> = None;
            let mut at = class.ranges.partition_point(|r| r.0 <= address);
            if let Some(after) = class.ranges.get(at) {
                answer.end = answer.end.min(after.0);
            }
            while at > 0 {
                at -= 1;
                let (start, end, _) = class.ranges[at];
                if address - start >= class.longest {
                    // Neither this range nor an earlier one reaches the address.
                    answer.start = answer.start.max(start.saturating_add(class.longest));
                    break;
                }
                if address >= end {
                    answer.start = answer.start.max(end);
                    continue;
                }
                (answer.start, answer.end) = (answer.start.max(start), answer.end.min(end));
                let lives = class.lives(at);
                let next = lives.partition_point(|l| l.begin <= time);
                if let Some(life) = lives.get(next) {
                    answer.to = answer.to.min(life.begin);
                }
                if let Some(life) = next.checked_sub(1).map(|l| lives[l]) {
                    answer.from = answer.from.max(life.begin);
                }
                // The last one that began is alive, or an earlier one (if lives overlap), or none.
                let mut here = None;
                for life in lives[..next].iter().rev() {
                    if life.until <= time {
                        answer.from = answer.from.max(life.until);
                        break;
                    }
                    if life.end <= time {
                        answer.from = answer.from.max(life.end);
                        continue;
                    }
                    answer.to = answer.to.min(life.end);
                    here = Some(life.object);
                    break;
                }
                if let Some(object) = here {
                    if alive.is_none_or(|a| end - start < a.0.1) {
                        alive = Some(((start, end - start), object));
                    }
                    continue;
                }
                let near = |life: &Life| !self.stacks[life.object as usize] && !life.sampled;
                if let Some(life) = next.checked_sub(1).map(|l| lives[l]).filter(near) {
                    past = past.max(Some(life.end));
                    if nearest.is_none_or(|n| time.saturating_sub(life.end) < n.0) {
                        let range = (start, end - start);
                        nearest = Some((time.saturating_sub(life.end), (life.object, range)));
                    }
                }
                if let Some(life) = lives.get(next).copied().filter(near) {
                    future = Some(future.map_or(life.begin, |f| f.min(life.begin)));
                    if nearest.is_none_or(|n| life.begin - time < n.0) {
                        let range = (start, end - start);
                        nearest = Some((life.begin - time, (life.object, range)));
                    }
                }
            }
            if let Some((range, object)) = alive {
                // A block of this class or a smaller one that is not alive, but near in time.
                let block = nearest.filter(|_| self.containers[object as usize]);
                return match block {
                    Some((_, near)) => answer.nearest(near, time, past, future),
                    None => Answer {
                        object,
                        range,
                        ..answer
                    },
                };
            }
        }
        match nearest {
            Some((_, near)) => answer.nearest(near, time, past, future),
            None => answer,
        }
    }

    /// Instances that overlap a range, as (object, bytes in common), each object once, most bytes
    /// first.
    pub fn overlapping(&self, process: u32, start: u64, end: u64) -> Vec<(u32, u64)> {
        let mut found: HashMap<u32, u64> = HashMap::new();
        for class in self.by_process.get(&process).into_iter().flatten() {
            let from = class
                .ranges
                .partition_point(|r| r.0 < start.saturating_sub(class.longest));
            for (at, &(first, last, _)) in class
                .ranges
                .iter()
                .enumerate()
                .skip(from)
                .take_while(|(_, r)| r.0 < end)
            {
                if last > start {
                    for life in class.lives(at) {
                        *found.entry(life.object).or_default() += last.min(end) - first.max(start);
                    }
                }
            }
        }
        let mut list: Vec<(u32, u64)> = found.into_iter().collect();
        list.sort_by_key(|&(object, bytes)| (std::cmp::Reverse(bytes), object));
        list
    }
}

fn class(bytes: u64) -> usize {
    63 - bytes.max(1).leading_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(name: &str) -> Object {
        Object {
            kind: ObjectKind::Heap,
            name: name.into(),
            ..Object::default()
        }
    }

    fn instance(start: u64, bytes: u64, begin_ns: u64, end_ns: u64, object: u32) -> Instance {
        Instance {
            process: 1,
            start,
            bytes,
            begin_ns,
            end_ns,
            object,
            times: 1,
            weight: 1.0,
        }
    }

    #[test]
    fn an_address_that_was_freed_and_used_again_is_told_apart_by_time() {
        let resolver = Resolver::new(
            vec![object(""), object("first"), object("second")],
            &[
                instance(0x1000, 0x2000, 10, 20, 1),
                instance(0x1800, 0x100, 30, u64::MAX, 2),
            ],
        );
        assert_eq!(resolver.find(1, 0x1850, 15), 1);
        assert_eq!(resolver.find(1, 0x1850, 31), 2);
        assert_eq!(
            resolver.find(1, 0x2850, 31),
            1,
            "the last one that lived there"
        );
        assert_eq!(
            resolver.find(1, 0x1850, 22),
            1,
            "nearer to its end than to the other's beginning"
        );
        assert_eq!(resolver.find(1, 0x1850, 29), 2);
        assert_eq!(resolver.find(1, 0x0fff, 15), UNKNOWN);
        assert_eq!(resolver.find(1, 0x3000, 15), UNKNOWN);
        assert_eq!(resolver.find(2, 0x1850, 15), UNKNOWN);
        assert!(resolver.mixed(1, 0x1000) && !resolver.mixed(1, 0x2000));
        assert_eq!(resolver.overlapping(1, 0x17ff, 0x1801), [(1, 2), (2, 1)]);
    }

    #[test]
    fn beside_the_lives_of_a_sample_an_address_is_the_heaps() {
        let heap = Object {
            kind: ObjectKind::Heap,
            name: HEAP.into(),
            ..Object::default()
        };
        let sampled = Instance {
            weight: 100.0,
            times: 2,
            ..instance(0x2000, 32, 50, 60, 2)
        };
        let resolver = Resolver::new(
            vec![object(""), heap, object("block")],
            &[instance(0x1000, 0x10000, 0, u64::MAX, 1), sampled],
        );
        assert_eq!(
            [49, 50, 59, 60].map(|time| resolver.find(1, 0x2010, time)),
            [1, 2, 2, 1]
        );
        assert_eq!((resolver.instances[2], resolver.bytes[2]), (200, 3200));
        assert_eq!(
            resolver.samples[&2],
            Sampled {
                logged: 2,
                bytes: 32.0,
                stand_for: 3200.0,
                weights_squared: 320_000.0,
            }
        );
    }

    #[test]
    fn the_memory_of_the_allocator_is_not_what_a_block_was_a_moment_ago() {
        let heap = Object {
            kind: ObjectKind::Heap,
            name: HEAP.into(),
            ..Object::default()
        };
        let resolver = Resolver::new(
            vec![object(""), heap, object("block")],
            &[
                instance(0x1000, 0x10000, 0, u64::MAX, 1),
                instance(0x2000, 0x100, 50, 60, 2),
            ],
        );
        assert_eq!(
            [40, 55, 70].map(|time| resolver.find(1, 0x2010, time)),
            [2, 2, 2]
        );
        assert_eq!(resolver.find(1, 0x3000, 55), 1);
    }

    #[test]
    fn of_ranges_of_about_one_size_the_smallest_counts() {
        let objects = vec![
            object(""),
            object("smaller"),
            object("larger"),
            object("other"),
        ];
        let all = [
            instance(0x1000, 0x1000, 0, u64::MAX, 1),
            instance(0x1000, 0x1800, 0, u64::MAX, 2),
            instance(0x0800, 0x1c00, 0, u64::MAX, 3),
        ];
        let resolver = Resolver::new(objects, &all);
        let found = [0x900, 0x1900, 0x2100, 0x2500].map(|a| resolver.find(1, a, 5));
        assert_eq!(found, [3, 1, 2, 2]);
    }

    #[test]
    fn a_stack_is_its_threads_only_while_that_lives() {
        let kind = |kind: &str, name: &str| Object {
            kind: kind.into(),
            name: name.into(),
            ..Object::default()
        };
        let objects = vec![
            kind("unknown", ""),
            kind("anonymous", "0x1000 (64 KiB)"),
            kind("stack", "[stack of thread 7]"),
            kind("stack", "[stack of thread 9]"),
            kind("stack", "[stack]"),
        ];
        let mapping = instance(0x1000, 0x10000, 0, u64::MAX, 1);
        let lives = [
            instance(0x2000, 0x2000, 10, 20, 2),
            // An object of another size in a part of the same memory.
            instance(0x3000, 0x1000, 30, 40, 3),
            instance(0x90000, 0x1000, 0, u64::MAX, 4),
        ];
        let mut all = lives.to_vec();
        all.push(mapping);
        let resolver = Resolver::new(objects.clone(), &all);
        let at = |resolver: &Resolver, address| {
            [5, 15, 25, 35, 45].map(|time| resolver.find(1, address, time))
        };
        assert_eq!(at(&resolver, 0x3800), [1, 2, 1, 3, 1]);
        assert_eq!(at(&resolver, 0x2800), [1, 2, 1, 1, 1]);
        assert!(resolver.mixed(1, 0x2800) && resolver.mixed(1, 0x3800));
        assert_eq!(at(&resolver, 0x90010), [4; 5]);
        // A thread's load from its own stack is attributed to it even if times disagree.
        let own = |thread, time, address| resolver.own_stack(1, thread, time).at(address);
        assert_eq!((own(7, 35, 0x3800), own(9, 15, 0x3800)), (Some(2), Some(3)));
        assert_eq!((own(9, 35, 0x2800), own(8, 35, 0x3800)), (None, None));
        assert_eq!(resolver.own_stack(2, 7, 15), OwnStack::default());
        assert!(!resolver.mixed(1, 0x90010));
        // Without other objects, the memory has no owner, not the nearest thread's stack.
        let resolver = Resolver::new(objects, &lives);
        assert_eq!(at(&resolver, 0x3800), [0, 2, 0, 3, 0]);
        assert!(resolver.mixed(1, 0x3800));
    }

    #[test]
    fn a_short_life_inside_a_long_one_of_the_same_range_does_not_hide_it() {
        let resolver = Resolver::new(
            vec![object(""), object("long"), object("short")],
            &[
                instance(0x1000, 64, 0, 100, 1),
                instance(0x1000, 64, 10, 20, 2),
            ],
        );
        assert_eq!(
            [5, 15, 50].map(|time| resolver.find(1, 0x1010, time)),
            [1, 2, 1]
        );
    }

    #[test]
    fn what_holds_in_the_middle_of_a_gap_holds_nowhere_else() {
        let resolver = Resolver::new(
            vec![Object::default(), object("a"), object("b")],
            &[
                instance(0x1000, 24, 0, 10, 1),
                instance(0x1000, 16, 14, 20, 2),
            ],
        );
        let mut recent = Recent::default();
        assert_eq!(
            [12, 13, 11, 12, 13].map(|time| resolver.find_recent(&mut recent, 1, 0x1008, time)),
            [1, 2, 1, 1, 2]
        );
    }

    /// Definition of `find` over all instances. Ranges that contain the address are checked for a
    /// life at the time, smaller classes first. Within the first class that has one, the smallest
    /// range is the answer. Without one, the life nearest in time is, except that of a stack.
    fn by_definition(
        resolver: &Resolver,
        instances: &[Instance],
        process: u32,
        address: u64,
        time: u64,
    ) -> u32 {
        let mut holding: Vec<&Instance> = instances
            .iter()
            .filter(|i| i.process == process && i.start <= address && address - i.start < i.bytes)
            .collect();
        holding.sort_by_key(|i| {
            (
                class(i.bytes),
                std::cmp::Reverse((i.start, i.bytes)),
                i.begin_ns,
            )
        });
        let mut near: Vec<(u64, u32)> = Vec::new();
        for same in holding.chunk_by(|a, b| class(a.bytes) == class(b.bytes)) {
            let mut alive: Vec<&Instance> = Vec::new();
            for lives in same.chunk_by(|a, b| (a.start, a.bytes) == (b.start, b.bytes)) {
                let now = |i: &&&Instance| i.begin_ns <= time && time < i.end_ns;
                if let Some(here) = lives.iter().rfind(now) {
                    alive.push(here);
                    continue;
                }
                let passes =
                    |i: &&Instance| resolver.objects[i.object as usize].kind != ObjectKind::Stack;
                let before = lives.iter().rfind(|i| i.begin_ns <= time).copied();
                let after = lives.iter().find(|i| i.begin_ns > time).copied();
                near.extend(before.filter(passes).map(|i| (time - i.end_ns, i.object)));
                near.extend(after.filter(passes).map(|i| (i.begin_ns - time, i.object)));
            }
            if let Some(smallest) = alive.iter().min_by_key(|i| i.bytes) {
                let container = resolver.containers[smallest.object as usize];
                return near
                    .into_iter()
                    .min_by_key(|n| n.0)
                    .filter(|_| container)
                    .map_or(smallest.object, |n| n.1);
            }
        }
        near.into_iter()
            .min_by_key(|n| n.0)
            .map_or(UNKNOWN, |n| n.1)
    }

    proptest! {
        /// Recent answers equal the definition for any overlap of ranges and lives.
        #[test]
        fn what_was_answered_before_is_what_the_definition_says(
            list in prop::collection::vec((1u32..3, 0u64..24, 1u64..40, 0u64..40, 1u64..30, 1u32..6, any::<bool>()), 1..24),
            probes in prop::collection::vec((1u32..3, 0u64..64, 0u64..80), 400),
        ) {
            let instances: Vec<Instance> = list
                .iter()
                .map(|&(process, start, bytes, begin, length, object, ends)| {
                    // Few sizes, so that ranges have several lives.
                    let (start, bytes) = (start & !3, (bytes + 7) & !7);
                    Instance { process, ..instance(start, bytes, begin, if ends { begin + length } else { u64::MAX }, object) }
                })
                .collect();
            let mut objects: Vec<Object> = (0..6).map(|i| object(&i.to_string())).collect();
            objects[3].kind = ObjectKind::Stack;
            objects[4].kind = ObjectKind::Anonymous;
            objects[5].name = HEAP.into();
            let resolver = Resolver::new(objects, &instances);
            let mut recent = Recent::default();
            for (process, address, time) in probes {
                let right = by_definition(&resolver, &instances, process, address, time);
                prop_assert_eq!(resolver.find(process, address, time), right);
                prop_assert_eq!(resolver.find_recent(&mut recent, process, address, time), right);
            }
        }

        /// Every page that is not mixed has one object at all its addresses and times. `find`
        /// agrees with a search through all instances.
        #[test]
        fn agrees_with_a_search_through_all(
            list in prop::collection::vec((0u64..12, 0u64..3, 1u64..5, 0u64..3, 0u64..50, 1u64..50, 1u32..5), 1..20),
            probes in prop::collection::vec((0u64..20 << 12, 0u64..110), 50),
        ) {
            let instances: Vec<Instance> = list
                .iter()
                .map(|&(page, shift, pages, cut, begin, length, object)| {
                    instance((page << 12) + shift * 64, (pages << 12) - cut * 32, begin, begin + length, object)
                })
                .collect();
            let objects = (0..5).map(|i| object(&i.to_string())).collect();
            let resolver = Resolver::new(objects, &instances);
            for (address, time) in probes {
                let holds = |i: &&Instance| i.start <= address && address < i.start + i.bytes;
                let alive: Vec<u32> = instances.iter().filter(holds).filter(|i| i.begin_ns <= time && time < i.end_ns).map(|i| i.object).collect();
                let found = resolver.find(1, address, time);
                if alive.is_empty() {
                    prop_assert!(found == UNKNOWN || instances.iter().filter(holds).any(|i| i.object == found));
                } else if alive.len() == 1 {
                    prop_assert!(alive.contains(&found) , "{} not in {:?}", found, alive);
                }
                if !resolver.mixed(1, address) {
                    let ever: std::collections::HashSet<u32> = instances.iter()
                        .filter(|i| i.start >> 12 <= address >> 12 && (i.start + i.bytes - 1) >> 12 >= address >> 12).map(|i| i.object).collect();
                    prop_assert!(ever.len() <= 1);
                }
            }
        }
    }
}
