//! The sidecar's columns of all clones' rows.
//!
//! Rows are many times larger than their columns. Those of a large program would be a quarter of
//! the memory that rewriting takes. So they are taken function by function, and encoded while
//! others are analysed, as soon as all rows before them are known: numbers and addresses follow
//! from the earlier clones, except for the first clone's address. Columns hold differences of
//! addresses, so that address matters only for the first rows.

use crate::emit::SidecarRows;
use crate::report::SiteCounts;
use mgz_abi::module_note::FLAVOUR_SOFT;
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::sidecar::{
    Function, Gather, Location, Loop, NONE, PtWrite, Record, Region, Site,
};
use mgz_annotations_schema::{Content, Encoded, EncodedTables, Runs};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers of rows before a clone's own, and the clone's address relative to the first clone.
#[derive(Clone, Copy, Default)]
struct Before {
    function: u32,
    regions: u32,
    sites: u32,
    loops: u32,
    records: u32,
    at: u64,
}

/// The last rows of each table, with the file's numbers, and addresses relative to the first clone.
#[derive(Clone, Copy, Default)]
struct Last {
    site: Option<Site>,
    region: Option<Region>,
    record: Option<Record>,
    ptwrite: Option<PtWrite>,
    gather: Option<Gather>,
    looped: Option<Loop>,
}

impl Before {
    fn site(&self, s: &mut Site) {
        s.function = self.function;
        s.region += self.regions;
        s.clone_ip += self.at;
        s.in_loop = if s.in_loop == 0 {
            0
        } else {
            self.loops + s.in_loop
        };
    }

    fn region(&self, r: &mut Region) {
        r.function = self.function;
        r.first_record += self.records;
        r.first_site += self.sites;
    }

    fn record(&self, r: &mut Record) {
        r.region += self.regions;
        r.clone_ip += self.at;
    }

    fn ptwrite(&self, p: &mut PtWrite) {
        p.ip += self.at;
        p.record += self.records;
    }

    fn gather(&self, g: &mut Gather) {
        g.site += self.sites;
    }

    fn looped(&self, l: &mut Loop) {
        l.function = self.function;
        l.parent = if l.parent == NONE {
            NONE
        } else {
            self.loops + l.parent
        };
    }
}

/// Rows of some clones, and the numbers before each.
#[derive(Default)]
struct Batch {
    rows: Vec<SidecarRows>,
    before: Vec<Before>,
    /// Number of these rows.
    len: usize,
    /// The last rows before the first one of these.
    last: Last,
}

impl Batch {
    /// Columns of the batch, if the first clone is at `start`. The address matters only if there
    /// are no earlier rows, since columns hold differences.
    fn encode(&self, start: u64) -> std::io::Result<EncodedTables> {
        fn runs<'a, R: Default>(
            batch: &'a Batch,
            of: impl Fn(&'a SidecarRows) -> &'a [R],
            place: impl Fn(&Before, &mut R) + Sync + 'a,
            last: Option<R>,
        ) -> Runs<'a, R> {
            let place = move |clone: usize, rows: &mut [R]| {
                rows.iter_mut()
                    .for_each(|row| place(&batch.before[clone], row))
            };
            Runs::new(batch.rows.iter().map(of).collect(), place).behind(last.unwrap_or_default())
        }
        let placed = move |before: &Before| Before {
            at: start + before.at,
            ..*before
        };
        let last = self.last;
        let content = Content {
            sites: runs(
                self,
                |r| &r.sites,
                move |b, s| placed(b).site(s),
                last.site.map(|s| Site {
                    clone_ip: start + s.clone_ip,
                    ..s
                }),
            ),
            regions: runs(self, |r| &r.regions, Before::region, last.region),
            records: runs(
                self,
                |r| &r.records,
                move |b, r| placed(b).record(r),
                last.record.map(|r| Record {
                    clone_ip: start + r.clone_ip,
                    ..r
                }),
            ),
            ptwrites: runs(
                self,
                |r| &r.ptwrites,
                move |b, p| placed(b).ptwrite(p),
                last.ptwrite.map(|p| PtWrite {
                    ip: start + p.ip,
                    ..p
                }),
            ),
            gathers: runs(self, |r| &r.gathers, Before::gather, last.gather),
            loops: runs(self, |r| &r.loops, Before::looped, last.looped),
            ..Content::default()
        };
        content.encode()
    }
}

/// The sidecar's content for one clone.
pub struct OfClone {
    /// Number of the function.
    pub function: u32,
    /// The clone's rows.
    pub rows: SidecarRows,
    /// [`crate::emit::Emitted::align`].
    pub align: u64,
    /// Bytes of the clone.
    pub len: u64,
}

/// Makes the columns of clones' rows while further rows are still to come.
pub struct Columns {
    flavour: u32,
    /// True if rows will still change, so that they are kept.
    keeps: bool,
    /// Number of the first group for which columns are no longer made early, since other threads
    /// would wait for them at the end.
    late: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Groups that came before earlier ones, by number.
    early: HashMap<usize, Vec<OfClone>>,
    /// Number of the next group.
    group: usize,
    /// The numbers before the next clone.
    next: Before,
    last: Last,
    filling: Batch,
    /// Batches that are not encoded yet; the columns of the others follow. Both by number.
    held: Vec<(usize, Batch)>,
    encoded: Vec<(usize, std::io::Result<EncodedTables>)>,
    batches: usize,
    counts: SiteCounts,
}

impl State {
    /// Appends a clone's rows.
    fn push(&mut self, own: OfClone) {
        let rows = own.rows;
        // The layout aligns clones in this way.
        self.next.at = (self.next.at + 1).next_multiple_of(own.align);
        let before = Before {
            function: own.function,
            ..self.next
        };
        self.next.at += own.len;
        self.next.regions += rows.regions.len() as u32;
        self.next.sites += rows.sites.len() as u32;
        self.next.loops += rows.loops.len() as u32;
        self.next.records += rows.records.len() as u32;
        fn last<R: Copy>(last: &mut Option<R>, rows: &[R], place: impl Fn(&mut R)) {
            if let Some(&row) = rows.last() {
                place(last.insert(row));
            }
        }
        last(&mut self.last.site, &rows.sites, |row| before.site(row));
        last(&mut self.last.region, &rows.regions, |row| {
            before.region(row)
        });
        last(&mut self.last.record, &rows.records, |row| {
            before.record(row)
        });
        last(&mut self.last.ptwrite, &rows.ptwrites, |row| {
            before.ptwrite(row)
        });
        last(&mut self.last.gather, &rows.gathers, |row| {
            before.gather(row)
        });
        last(&mut self.last.looped, &rows.loops, |row| before.looped(row));
        self.filling.len += rows.sites.len()
            + rows.regions.len()
            + rows.records.len()
            + rows.ptwrites.len()
            + rows.loops.len();
        self.filling.rows.push(rows);
        self.filling.before.push(before);
    }

    /// The batch under construction, and its number.
    fn take(&mut self) -> (usize, Batch) {
        self.batches += 1;
        let next = Batch {
            last: self.last,
            ..Batch::default()
        };
        (self.batches - 1, std::mem::replace(&mut self.filling, next))
    }
}

impl Columns {
    /// Source: Chosen.
    const ROWS_PER_BATCH: usize = 1 << 16;

    /// `locates`: source positions will still be added. `groups`: total number of groups.
    pub fn new(flavour: u32, locates: bool, groups: usize) -> Columns {
        Columns {
            flavour,
            keeps: locates,
            late: groups - groups / 32,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Takes the clones of a group of functions. Groups are numbered from 0 on, and come in any
    /// order. The thread that completes a batch makes its columns.
    pub fn put(&self, group: usize, clones: Vec<OfClone>) {
        let mut full = Vec::new();
        let mut guard = self.state();
        let state = &mut *guard;
        state.early.insert(group, clones);
        while let Some(clones) = state.early.remove(&state.group) {
            state.group += 1;
            for own in clones {
                state.push(own);
                if state.filling.len >= Columns::ROWS_PER_BATCH && !self.keeps {
                    full.push(state.take());
                }
            }
        }
        let (now, later): (Vec<_>, Vec<_>) = full
            .into_iter()
            .partition(|(_, batch)| group < self.late && self.is_placed(batch));
        state.held.extend(later);
        drop(guard);
        for (number, batch) in now {
            let (counts, piece) = (SiteCounts::of(&batch.rows), batch.encode(0));
            let mut state = self.state();
            state.counts.add(&counts);
            state.encoded.push((number, piece));
        }
    }

    /// True if the columns of a batch are known before the layout: each table with addresses in the
    /// clone has earlier rows.
    fn is_placed(&self, batch: &Batch) -> bool {
        let Last {
            site,
            record,
            ptwrite,
            ..
        } = &batch.last;
        site.is_some() && record.is_some() && (ptwrite.is_some() || self.flavour == FLAVOUR_SOFT)
    }

    /// Number of records of all clones so far.
    pub fn records(&self) -> u32 {
        self.state().next.records
    }

    /// All rows, to add source positions. (They form a single batch, since other batches need their
    /// predecessor's last rows.)
    pub fn rows(&mut self) -> Vec<&mut SidecarRows> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.filling.rows.iter_mut().collect()
    }

    /// The columns of all tables, and the counts of sites. `start`: base of the first clone's
    /// address.
    pub fn finish(
        self,
        start: u64,
        functions: &[Function],
        locations: &[Location],
        strings: &[String],
    ) -> std::io::Result<(Encoded, SiteCounts)> {
        let mut state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let last = state.take();
        state.held.push(last);
        let State {
            held,
            mut encoded,
            mut counts,
            ..
        } = state;
        let all = Content {
            functions: functions.into(),
            locations: locations.into(),
            strings,
            ..Content::default()
        };
        let (all, held) = rayon::join(
            || all.encode(),
            || {
                held.into_par_iter()
                    .map(|(number, batch)| {
                        (number, SiteCounts::of(&batch.rows), batch.encode(start))
                    })
                    .collect::<Vec<_>>()
            },
        );
        for (number, own, piece) in held {
            counts.add(&own);
            encoded.push((number, piece));
        }
        encoded.sort_unstable_by_key(|(number, _)| *number);
        let pieces: Vec<EncodedTables> = std::iter::once(all)
            .chain(encoded.into_iter().map(|(_, piece)| piece))
            .collect::<std::io::Result<_>>()?;
        Ok((Encoded::of(&pieces)?, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_abi::module_note::FLAVOUR_PT;
    use mgz_annotations_schema::sidecar::Header;
    use mgz_annotations_schema::{Sidecar, SidecarParts};

    /// Rows of the clone with this number; some have none.
    fn rows(number: u32) -> SidecarRows {
        let count = if number < 3 { 0 } else { number % 7 * 100 };
        let site = |n: u32| Site {
            region: n / 2,
            clone_ip: u64::from(5 * n),
            ip: u64::from(3 * n),
            in_loop: n % 2,
            location: NONE,
            ..Site::default()
        };
        let record = |n: u32| Record {
            region: n,
            clone_ip: u64::from(5 * n + 1),
            slots: 1,
            ..Record::default()
        };
        SidecarRows {
            sites: (0..count).map(site).collect(),
            regions: (0..count / 2)
                .map(|n| Region {
                    first_record: n,
                    record_count: 1,
                    first_site: 2 * n,
                    site_count: 2,
                    ..Region::default()
                })
                .collect(),
            records: (0..count / 2).map(record).collect(),
            ptwrites: (0..count / 2)
                .map(|n| PtWrite {
                    ip: u64::from(5 * n + 2),
                    record: n,
                    part: 0,
                })
                .collect(),
            gathers: (0..count / 50)
                .map(|n| Gather {
                    site: n,
                    ..Gather::default()
                })
                .collect(),
            loops: (0..count.min(1))
                .map(|_| Loop {
                    parent: NONE,
                    location: NONE,
                    ..Loop::default()
                })
                .collect(),
        }
    }

    #[test]
    fn columns_are_the_same_in_any_order_of_groups() {
        const CLONES: u32 = 400;
        let own = |number: u32| OfClone {
            function: number + 1,
            rows: rows(number),
            align: if number.is_multiple_of(5) { 16 } else { 1 },
            len: 2500,
        };
        let functions = vec![
            Function {
                name: NONE,
                left: NONE,
                ..Function::default()
            };
            CLONES as usize + 1
        ];
        let read = |keeps: bool, order: &dyn Fn(u32) -> u32| {
            let mut columns = Columns::new(FLAVOUR_PT, keeps, (CLONES / 10) as usize);
            (0..CLONES / 10).map(order).for_each(|group| {
                columns.put(
                    group as usize,
                    (10 * group..10 * group + 10).map(own).collect(),
                )
            });
            let state = columns.state();
            let held =
                state.filling.len + state.held.iter().map(|(_, batch)| batch.len).sum::<usize>();
            drop(state);
            let located = [Location {
                inlined_into: NONE,
                ..Location::default()
            }];
            columns
                .rows()
                .into_iter()
                .filter(|_| keeps)
                .flat_map(|rows| &mut rows.sites)
                .for_each(|site| site.location = 0);
            let (columns, _) = columns
                .finish(0x40_0000, &functions, &located, &[])
                .unwrap();
            (
                held,
                Sidecar::from_bytes(
                    &SidecarParts {
                        id: [0; 16],
                        header: &Header::default(),
                        map: &[],
                        columns: &columns,
                    }
                    .to_bytes()
                    .unwrap(),
                )
                .unwrap(),
            )
        };
        let (held, mut kept) = read(true, &|n| n);
        kept.sites
            .iter_mut()
            .for_each(|site| assert_eq!(std::mem::replace(&mut site.location, NONE), 0));
        let (few, in_order) = read(false, &|n| n);
        let (_, mixed) = read(false, &|n| n ^ 7);
        assert!(
            few > 0 && held > 2 * few && held > 3 * Columns::ROWS_PER_BATCH,
            "{few} of {held}"
        );
        for other in [&in_order, &mixed] {
            assert!(
                other.sites == kept.sites
                    && other.regions == kept.regions
                    && other.records == kept.records
            );
            assert!(
                other.ptwrites == kept.ptwrites
                    && other.gathers == kept.gathers
                    && other.loops == kept.loops
            );
        }
        // Clones are placed as in the layout.
        let (mut at, mut site) = (0x40_0000u64, 0);
        for number in 0..CLONES {
            at = (at + 1).next_multiple_of(own(number).align);
            for (n, _) in rows(number).sites.iter().enumerate() {
                let found = &kept.sites[site];
                assert_eq!(
                    (found.function, found.clone_ip),
                    (number + 1, at + 5 * n as u64)
                );
                site += 1;
            }
            at += 2500;
        }
        assert_eq!(site, kept.sites.len());
    }
}
