//! `--count`: the number of times that each record was written, instead of the records.
//!
//! The first record of a region is written once in each of its executions, so these numbers are all
//! that is needed to know how often each load was executed. Workers count into tables of their own,
//! which are added up at the end.

use mgz_abi::slot::{ID_LIMIT, ID_PAIR, MARK_FIRST, RingSlot};
use mgz_annotations_schema::lock::locked;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A power of two. Source: Chosen.
const IDS_PER_PAGE: usize = 1 << 12;

/// The page of a slot's first record; `None` for a marker.
#[inline(always)]
fn page_of(slot: &RingSlot) -> Option<usize> {
    let first = slot.id & !ID_PAIR;
    (slot.id < MARK_FIRST && first < ID_LIMIT).then_some(first as usize / IDS_PER_PAGE)
}

/// Counts by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountTable {
    pages: Vec<Option<Box<[u64; IDS_PER_PAGE]>>>,
}

impl CountTable {
    /// Counts the first records of slots. Consecutive ids mostly lie in one page.
    pub(crate) fn add(&mut self, slots: &[RingSlot]) {
        let mut left = slots;
        while let Some((slot, rest)) = left.split_first() {
            let Some(page) = page_of(slot) else {
                left = rest;
                continue;
            };
            let numbers = self.page(page);
            let same = left
                .iter()
                .take_while(|slot| page_of(slot) == Some(page))
                .map(|slot| numbers[slot.id as usize % IDS_PER_PAGE] += 1)
                .count();
            left = &left[same..];
        }
    }

    /// Adds `times` executions of a record.
    pub(crate) fn add_times(&mut self, id: u32, times: u64) {
        let number = &mut self.page(id as usize / IDS_PER_PAGE)[id as usize % IDS_PER_PAGE];
        *number = number.saturating_add(times);
    }

    /// A page, allocated on first use.
    fn page(&mut self, page: usize) -> &mut [u64; IDS_PER_PAGE] {
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([0; IDS_PER_PAGE]))
    }

    fn merge(&mut self, other: &CountTable) {
        for (number, page) in other.pages.iter().enumerate() {
            let Some(page) = page else { continue };
            let mine = self.page(number);
            mine.iter_mut().zip(page.iter()).for_each(|(a, b)| *a += b);
        }
    }

    /// Counted ids, ascending, with their counts.
    fn list(&self) -> Vec<(u32, u64)> {
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter_map(|(number, page)| Some((number, page.as_ref()?)));
        pages
            .flat_map(|(number, page)| {
                let of =
                    move |(place, &n): (usize, &u64)| ((number * IDS_PER_PAGE + place) as u32, n);
                page.iter().enumerate().map(of).filter(|(_, n)| *n > 0)
            })
            .collect()
    }
}

/// By process: ids and the number of times that their records were written.
pub type CountsByProcess = BTreeMap<u32, Vec<(u32, u64)>>;

/// The tables of all workers.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    tables: Mutex<Vec<(u32, CountTable)>>,
}

impl Counter {
    /// Calls `fill` with a table of this process that no other worker uses at the same time.
    pub(crate) fn with(&self, process: u32, fill: impl FnOnce(&mut CountTable)) {
        let found = {
            let mut tables = locked(&self.tables);
            let at = tables.iter().position(|t| t.0 == process);
            at.map(|at| tables.swap_remove(at).1)
        };
        let mut table = found.unwrap_or_default();
        fill(&mut table);
        locked(&self.tables).push((process, table));
    }

    /// The sum of all tables.
    pub(crate) fn finish(self) -> CountsByProcess {
        let tables = self
            .tables
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut sums: BTreeMap<u32, CountTable> = BTreeMap::new();
        for (process, table) in tables {
            sums.entry(process).or_default().merge(&table);
        }
        sums.into_iter().map(|(p, t)| (p, t.list())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_records_are_counted_by_process_and_markers_are_not() {
        let slot = |id: u32| RingSlot {
            id,
            ..RingSlot::default()
        };
        let counter = Counter::default();
        let slots = [7, 7, 7 | ID_PAIR, 70_000, MARK_FIRST + 1, u32::MAX, 7].map(slot);
        counter.with(1, |t| t.add(&slots));
        // Two workers at once.
        counter.with(1, |first| {
            counter.with(1, |second| second.add(&slots));
            first.add(&slots);
        });
        counter.with(2, |t| t.add(&slots[..1]));
        assert_eq!(
            counter.finish(),
            BTreeMap::from([(1, vec![(7, 12), (70_000, 3)]), (2, vec![(7, 1)])])
        );
    }
}
