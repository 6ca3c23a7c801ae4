//! Lookup tables for expansion: per record, per region, per row.

use crate::ProbeFlavour;
use crate::expand::deferred_rows::FEW_RECORDS;
use crate::sidecar;
use crate::sidecar::{Gather, NONE, Sidecar, SidecarError, SiteFlags, SiteKind};
use mgz_abi::slot::{MAX_REGION_SLOTS, PAIR_BITS, Slot};
use std::ops::Range;

/// Lookup tables over the sidecars of a trace. They are made once and shared by all expanders.
#[derive(Debug, Default)]
pub struct Tables {
    pub(crate) records: Vec<RegionRecord>,
    pub(crate) regions: Vec<Region>,
    pub(crate) rows: Vec<SiteRow>,
    /// Formulas of the addresses of whole passes over short regions, with the same numbers as
    /// `rows`. [`FEW_RECORDS`] unused ones follow the last.
    pub(crate) plain: Vec<Plain>,
    /// Heads, with the same numbers as `records`.
    pub(crate) heads: Vec<Head>,
    /// Implied Constant loads by region, in program order.
    pub(crate) implied: Vec<Point>,
    pub(crate) gathers: Vec<Gather>,
    /// True if some record takes several slots.
    pub(crate) has_raw: bool,
    /// True if some site is a store.
    has_stores: bool,
    modules: Vec<Ids>,
}

/// Record ids of one sidecar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Index of its first record in [`Tables::records`].
    pub(crate) records: u32,
}

/// Address of an instruction, original and clone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) ip: u64,
    pub(crate) clone_ip: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionRecord {
    /// Index in [`Tables::regions`].
    pub(crate) region: u32,
    /// Number inside the region.
    pub(crate) index: u8,
    /// Slots that it takes after the conversion in which each record gets its own.
    pub(crate) slots: u8,
    /// Number of slots of the region's records before it.
    pub(crate) offset: u8,
    pub(crate) point: Point,
}

#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) first_record: u32,
    pub(crate) records: u8,
    /// All records take one slot and all rows are plain.
    pub(crate) short: bool,
    pub(crate) rows: Range<u32>,
    pub(crate) implied: u32,
    pub(crate) implied_points: Range<u32>,
}

/// Data of a record as the first of a whole pass, which is expanded without branches that depend on
/// the program's behavior.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    /// First row.
    pub(crate) row: u32,
    /// Number of implied loads.
    pub(crate) implied: u16,
    /// Number of rows: at most [`FEW_RECORDS`].
    pub(crate) rows: u8,
    /// Number of records: at most [`FEW_RECORDS`]; 0 if the record is not the first of such a
    /// region.
    pub(crate) records: u8,
}

/// Formula of a plain site's address in a whole pass over at most [`FEW_RECORDS`] records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain {
    disp: u64,
    bias_mask: u64,
    address_mask: u64,
    /// Numbers of records, and the factors of their payloads: 0 if there is no record.
    a: u8,
    b: u8,
    times_a: u8,
    times_b: u8,
}

impl Plain {
    /// The address in a pass. `pass`: the slots from the pass's first on.
    #[inline(always)]
    pub(crate) fn address(&self, pass: &[Slot; FEW_RECORDS + 1], bias: u64) -> u64 {
        let term = |record: u8, times: u8| {
            pass[usize::from(record) % FEW_RECORDS]
                .payload
                .wrapping_mul(u64::from(times))
        };
        let address = term(self.a, self.times_a)
            .wrapping_add(term(self.b, self.times_b))
            .wrapping_add(self.disp);
        address.wrapping_add(bias & self.bias_mask) & self.address_mask
    }
}

/// A site with rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteRow {
    pub(crate) disp: u64,
    /// All ones if the bias is to be added.
    bias_mask: u64,
    /// Kept bits of the sum: all, 32 if the instruction truncates to 32, 48 if the payloads have
    /// only 48.
    address_mask: u64,
    pub(crate) ip: u64,
    pub(crate) clone_ip: u64,
    pub(crate) site: u32,
    pub(crate) size: u32,
    /// Index in [`Tables::gathers`], or [`NONE`].
    pub(crate) gather: u32,
    /// Number of implied loads of a whole pass, if this is its first row.
    pub(crate) implied: u16,
    pub(crate) class: u8,
    pub(crate) store: bool,
    pub(crate) kind: SiteKind,
    pub(crate) a: u8,
    pub(crate) b: u8,
    pub(crate) scale: u8,
    pub(crate) index64: bool,
}

impl SiteRow {
    /// Formula of its address in a whole pass over this many records of one slot.
    fn in_short_pass(&self, records: u32) -> Plain {
        let there = |record: u8| u32::from(record) < records;
        let SiteRow {
            disp,
            bias_mask,
            address_mask,
            a,
            b,
            scale,
            ..
        } = *self;
        Plain {
            disp,
            bias_mask,
            address_mask,
            a,
            b,
            times_a: u8::from(there(a)),
            times_b: if there(b) { scale } else { 0 },
        }
    }

    /// `a + b*scale + disp (+ bias)`, truncated if the instruction does so.
    #[inline]
    pub(crate) fn plain(&self, a: u64, b: u64, bias: u64) -> u64 {
        let address = a
            .wrapping_add(b.wrapping_mul(u64::from(self.scale)))
            .wrapping_add(self.disp);
        self.truncate(address.wrapping_add(bias & self.bias_mask))
    }

    /// Truncation by an address-size prefix; it applies to count registers as well.
    pub(crate) fn truncate(&self, value: u64) -> u64 {
        value & self.address_mask
    }
}

/// True if a record of a region shares its slot with the next or the previous one.
fn shares_slot(records: &[sidecar::Record], number: u8) -> bool {
    let second = |n: usize| records.get(n).is_some_and(|r| r.slots == 0);
    let number = usize::from(number);
    number < records.len() && (second(number) || second(number + 1))
}

impl Tables {
    /// Lays out the tables. The sidecars are numbered in the order given.
    pub fn new<'s>(
        sidecars: impl IntoIterator<Item = &'s Sidecar>,
    ) -> Result<Tables, SidecarError> {
        let mut tables = Tables::default();
        for sidecar in sidecars {
            tables.add(sidecar)?;
        }
        Ok(tables)
    }

    /// True if rows may be stores.
    pub fn has_stores(&self) -> bool {
        self.has_stores
    }

    pub(crate) fn ids(&self, sidecar: usize) -> Option<Ids> {
        self.modules.get(sidecar).copied()
    }

    fn add(&mut self, sidecar: &Sidecar) -> Result<(), SidecarError> {
        let layout = Layout {
            sidecar,
            records: self.records.len() as u32,
            regions: self.regions.len() as u32,
            gathers: self.gathers.len() as u32,
        };
        self.modules.push(Ids {
            first: sidecar.header.id_first,
            count: sidecar.records.len() as u32,
            records: layout.records,
        });
        if u64::from(sidecar.header.id_first) + sidecar.records.len() as u64
            > u64::from(mgz_abi::slot::MARK_FIRST)
        {
            return Err(damaged("its record ids reach into those of markers".into()));
        }
        self.gathers.extend_from_slice(&sidecar.gathers);
        self.plain.truncate(self.rows.len());
        for (number, region) in sidecar.regions.iter().enumerate() {
            layout.check_slots(number, region)?;
            layout.add_region(self, number as u32, region)?;
        }
        for (number, record) in sidecar.records.iter().enumerate() {
            layout.add_record(self, number as u32, record);
        }
        self.plain
            .resize(self.rows.len() + FEW_RECORDS, Plain::default());
        Ok(())
    }
}

fn damaged(what: String) -> SidecarError {
    SidecarError::Damaged(what)
}

/// A sidecar that is being added to the tables, and the tables' lengths before it.
struct Layout<'s> {
    sidecar: &'s Sidecar,
    records: u32,
    regions: u32,
    gathers: u32,
}

impl<'s> Layout<'s> {
    fn records_of(&self, region: &sidecar::Region) -> &'s [sidecar::Record] {
        let first = region.first_record as usize;
        &self.sidecar.records[first..first + region.record_count as usize]
    }

    /// Refuses a region with more slots than a pass may have.
    fn check_slots(&self, number: usize, region: &sidecar::Region) -> Result<(), SidecarError> {
        let has_no_ring = self.sidecar.header.flavour == ProbeFlavour::Pt;
        // Checked for the slots in the ring (not in the PT flavour), and after the conversion in
        // which each record gets its own slot: at most two share one.
        let count = |least: u32| {
            self.records_of(region)
                .iter()
                .map(|r| u64::from(r.slots.max(least)))
                .sum::<u64>()
        };
        let (slots, apart) = (count(0), count(1));
        let fits = slots <= MAX_REGION_SLOTS as u64 && apart <= 2 * slots
            || has_no_ring && apart <= 2 * MAX_REGION_SLOTS as u64;
        if !fits {
            return Err(damaged(format!(
                "region {number} has {slots} slots, {apart} once no records share any: the most are {MAX_REGION_SLOTS}, for two records each"
            )));
        }
        Ok(())
    }

    /// Adds a region with its rows and implied loads.
    fn add_region(
        &self,
        tables: &mut Tables,
        number: u32,
        region: &sidecar::Region,
    ) -> Result<(), SidecarError> {
        let first_row = tables.rows.len() as u32;
        let first_implied = tables.implied.len() as u32;
        let mut short = self.records_of(region).iter().all(|r| r.slots <= 1);
        for site in region.first_site..region.first_site + region.site_count {
            let s = &self.sidecar.sites[site as usize];
            if s.region != number || s.flags & SiteFlags::UNRECORDED != 0 {
                continue;
            }
            if s.flags & SiteFlags::IMPLIED != 0 {
                tables.implied.push(Point {
                    ip: s.ip,
                    clone_ip: s.clone_ip,
                });
                continue;
            }
            let mut row = self.row(site, region)?;
            if tables.rows.len() as u32 == first_row {
                row.implied = region.implied_const.min(u32::from(u16::MAX)) as u16;
            }
            short &= row.kind == SiteKind::Plain;
            tables.has_stores |= row.store;
            tables.plain.push(row.in_short_pass(region.record_count));
            tables.rows.push(row);
        }
        tables.regions.push(Region {
            first_record: self.records + region.first_record,
            records: region.record_count as u8,
            short,
            rows: first_row..tables.rows.len() as u32,
            implied: region.implied_const,
            implied_points: first_implied..tables.implied.len() as u32,
        });
        Ok(())
    }

    /// The row of a site, without the data of a region's first row.
    fn row(&self, site: u32, region: &sidecar::Region) -> Result<SiteRow, SidecarError> {
        let s = &self.sidecar.sites[site as usize];
        let records = self.records_of(region);
        let kind = SiteKind::from_u8(s.kind).unwrap_or(SiteKind::Plain);
        let gather = match self.sidecar.gathers.binary_search_by_key(&site, |g| g.site) {
            Ok(found) if kind == SiteKind::Gather => self.gathers + found as u32,
            _ if kind == SiteKind::Gather => {
                return Err(damaged(format!(
                    "the gather at site {site} is not described"
                )));
            }
            _ => NONE,
        };
        let shares = |record: &u8| shares_slot(records, *record);
        Ok(SiteRow {
            disp: s.disp as u64,
            bias_mask: if s.flags & SiteFlags::STATIC != 0 {
                u64::MAX
            } else {
                0
            },
            address_mask: match s.flags & SiteFlags::ADDR32 {
                0 if [s.a, s.b].iter().any(shares) => (1 << PAIR_BITS) - 1,
                0 => u64::MAX,
                _ => u64::from(u32::MAX),
            },
            ip: s.ip,
            clone_ip: s.clone_ip,
            site,
            size: s.size,
            gather,
            implied: 0,
            class: s.class,
            store: s.flags & SiteFlags::STORE != 0,
            kind,
            a: s.a,
            b: s.b,
            scale: s.scale,
            index64: s.flags & SiteFlags::INDEX64 != 0,
        })
    }

    /// Adds a record, whose region has been added, with its head.
    fn add_record(&self, tables: &mut Tables, number: u32, record: &sidecar::Record) {
        let index = number - self.sidecar.regions[record.region as usize].first_record;
        let offset = match tables.records.last() {
            Some(before) if index > 0 => before.offset + before.slots,
            _ => 0,
        };
        tables.has_raw |= record.slots > 1;
        let region = self.regions + record.region;
        let head = match index {
            0 => head(&tables.regions[region as usize]),
            _ => None,
        };
        tables.heads.push(head.unwrap_or_default());
        tables.records.push(RegionRecord {
            region,
            index: index as u8,
            slots: record.slots.max(1) as u8,
            offset,
            point: Point {
                ip: record.ip,
                clone_ip: record.clone_ip,
            },
        });
    }
}

/// The head of a region's first record; `None` if the region is not short enough.
fn head(region: &Region) -> Option<Head> {
    let (rows, records) = (region.rows.len(), region.records as usize);
    if !region.short || !(1..=FEW_RECORDS).contains(&rows) || !(1..=FEW_RECORDS).contains(&records)
    {
        return None;
    }
    Some(Head {
        row: region.rows.start,
        implied: u16::try_from(region.implied).ok()?,
        rows: rows as u8,
        records: records as u8,
    })
}
