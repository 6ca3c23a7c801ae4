//! Counts of the command: histograms for all accesses, and by code, object and thread.

use mgz_analyzer::commands::owners::Owners;
use mgz_analyzer::commands::stream::View;
use mgz_analyzer::data::group::Group;
use mgz_models::histogram::{Fine, PART_BITS, TRACE_BITS};
use mgz_models::reuse::ReuseSink;

/// Counts of a thread, function or line.
#[derive(Clone)]
pub(crate) struct ReuseTally {
    pub distances: Fine,
    /// Sum of the intervals.
    pub intervals: f64,
    pub firsts: u64,
}

impl ReuseTally {
    pub fn new(bits: u32) -> ReuseTally {
        ReuseTally {
            distances: Fine::new(bits),
            intervals: 0.0,
            firsts: 0,
        }
    }

    pub fn merge(&mut self, other: &ReuseTally) {
        self.distances.merge(&other.distances);
        self.intervals += other.intervals;
        self.firsts += other.firsts;
    }
}

/// All counts.
pub(crate) struct ReuseHistograms {
    pub distances: Fine,
    pub intervals: Fine,
    pub firsts: u64,
    /// By tag, see [`Tags`].
    pub groups: Vec<Option<Box<ReuseTally>>>,
    pub tags: Tags,
    /// Process, thread, accesses, and counts of each thread.
    pub threads: Vec<(u32, u32, u64, ReuseTally)>,
}

impl ReuseHistograms {
    /// Empty counts.
    pub fn new() -> ReuseHistograms {
        ReuseHistograms {
            distances: Fine::new(TRACE_BITS),
            intervals: Fine::new(TRACE_BITS),
            firsts: 0,
            groups: Vec::new(),
            tags: Tags::default(),
            threads: Vec::new(),
        }
    }

    #[inline(always)]
    fn group(&mut self, tag: u32) -> &mut ReuseTally {
        if tag as usize >= self.groups.len() {
            self.groups.resize(tag as usize + 1, None);
        }
        self.groups[tag as usize].get_or_insert_with(|| Box::new(ReuseTally::new(PART_BITS)))
    }
}

/// Tags of accesses: indices of the pairs of group and object that occur.
#[derive(Default)]
pub(crate) struct Tags {
    /// Group and object by tag.
    pub pairs: Vec<(Group, u32)>,
    /// By group: objects and their tags, most recently used first.
    by_group: Vec<Vec<(u32, u32)>>,
    objects: Vec<u32>,
    /// The tags of the last call of [`Tags::make`].
    pub out: Vec<u32>,
}

impl Tags {
    #[inline(always)]
    fn tag(&mut self, group: Group, object: u32) -> u32 {
        match self
            .by_group
            .get(group.index())
            .and_then(|list| list.first())
        {
            Some(&(known, tag)) if known == object => tag,
            _ => self.find(group, object),
        }
    }

    #[cold]
    fn find(&mut self, group: Group, object: u32) -> u32 {
        if group.index() >= self.by_group.len() {
            self.by_group.resize(group.index() + 1, Vec::new());
        }
        let list = &mut self.by_group[group.index()];
        let at = list.iter().position(|o| o.0 == object).unwrap_or_else(|| {
            list.push((object, self.pairs.len() as u32));
            self.pairs.push((group, object));
            list.len() - 1
        });
        list.swap(0, at);
        list[0].1
    }

    /// Computes the tags of consecutive accesses in `out`.
    pub fn make(
        &mut self,
        owners: &mut Owners,
        thread: (u32, u32),
        accesses: View<'_>,
        times: (u64, u64),
    ) {
        let mut objects = std::mem::take(&mut self.objects);
        let mut out = std::mem::take(&mut self.out);
        objects.clear();
        out.clear();
        owners.fill(thread, accesses.address, times, &mut objects);
        out.extend(
            accesses
                .group
                .iter()
                .zip(&objects)
                .map(|(&group, &object)| self.tag(group, object)),
        );
        (self.objects, self.out) = (objects, out);
    }
}

impl Tags {
    /// Tags of existing pairs: they get the first numbers, in this order.
    pub fn of(pairs: Vec<(Group, u32)>) -> Tags {
        let mut tags = Tags::default();
        for (tag, &(group, object)) in pairs.iter().enumerate() {
            if group.index() >= tags.by_group.len() {
                tags.by_group.resize(group.index() + 1, Vec::new());
            }
            tags.by_group[group.index()].push((object, tag as u32));
        }
        Tags { pairs, ..tags }
    }
}

impl ReuseSink for ReuseHistograms {
    #[inline(always)]
    fn first(&mut self, _row: u64, _block: u64, tag: u32) {
        self.firsts += 1;
        self.group(tag).firsts += 1;
        if let Some(thread) = self.threads.last_mut() {
            thread.3.firsts += 1;
        }
    }

    #[inline(always)]
    fn reuse(&mut self, _row: u64, _block: u64, tag: u32, distance: u64, interval: u64) {
        self.distances.add(distance);
        self.intervals.add(interval);
        let group = self.group(tag);
        group.distances.add(distance);
        group.intervals += interval as f64;
        if let Some(thread) = self.threads.last_mut() {
            thread.3.distances.add(distance);
            thread.3.intervals += interval as f64;
        }
    }

    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}
