//! Checks of a sidecar after reading: all indices lie inside their tables, so that readers may
//! follow them, and chains are finite.

use crate::sidecar::{NO_RECORD, NONE, Sidecar, SidecarError, SiteKind};

impl Sidecar {
    /// Checks that all indices lie inside their tables, so that readers may follow them.
    pub(crate) fn check(&self) -> Result<(), SidecarError> {
        let bad = |what: &str, i: usize| {
            Err(SidecarError::Damaged(format!(
                "{what} {i} points outside its table"
            )))
        };
        let within = |index: u32, len: usize| (index as usize) < len;
        let within_or_none = |index: u32, len: usize| index == NONE || (index as usize) < len;
        let range =
            |first: u32, count: u32, len: usize| u64::from(first) + u64::from(count) <= len as u64;
        for (i, s) in self.sites.iter().enumerate() {
            let fits = within(s.function, self.functions.len())
                && within_or_none(s.region, self.regions.len())
                && within_or_none(s.location, self.locations.len())
                && s.in_loop as usize <= self.loops.len()
                && s.class <= 2
                && SiteKind::from_u8(s.kind).is_some()
                && (i as i64)
                    .checked_add(s.origin_site)
                    .is_some_and(|from| (0..self.sites.len() as i64).contains(&from));
            if !fits {
                return bad("site", i);
            }
            if s.region != NONE {
                let records = self.regions[s.region as usize].record_count;
                let inside = |r: u8, extra: u32| r == NO_RECORD || u32::from(r) + extra < records;
                let until = u32::from(s.kind == SiteKind::StringUntil as u8);
                if !inside(s.a, 0) || !inside(s.b, until) {
                    return bad("record of site", i);
                }
            }
        }
        for (i, r) in self.regions.iter().enumerate() {
            if !within(r.function, self.functions.len())
                || !range(r.first_record, r.record_count, self.records.len())
                || !range(r.first_site, r.site_count, self.sites.len())
            {
                return bad("region", i);
            }
        }
        for (i, r) in self.records.iter().enumerate() {
            let Some(region) = self.regions.get(r.region as usize) else {
                return bad("record", i);
            };
            let inside = (i as u64).wrapping_sub(u64::from(region.first_record))
                < u64::from(region.record_count);
            let alone = i as u32 == region.first_record;
            if !inside
                || r.slots == 0 && alone
                || r.slots as usize > mgz_abi::slot::MAX_REGION_SLOTS
            {
                return bad("record", i);
            }
        }
        self.check_regions()?;
        for (i, p) in self.ptwrites.iter().enumerate() {
            let fits = self
                .records
                .get(p.record as usize)
                .is_some_and(|r| p.part < crate::sidecar::ptwrites(r.slots));
            if !fits {
                return bad("ptwrite", i);
            }
        }
        for (i, g) in self.gathers.iter().enumerate() {
            if !within(g.site, self.sites.len())
                || g.lanes > 64
                || g.mask_bytes > 8
                || g.index_bytes > 512
            {
                return bad("gather", i);
            }
        }
        for (i, l) in self.loops.iter().enumerate() {
            // The chain must end: a loop is enclosed by a later one only.
            let encloses =
                l.parent == NONE || (l.parent as usize > i && within(l.parent, self.loops.len()));
            if !within(l.function, self.functions.len())
                || !within_or_none(l.location, self.locations.len())
                || !encloses
            {
                return bad("loop", i);
            }
        }
        for (i, l) in self.locations.iter().enumerate() {
            // The chain must end: a location is inlined into an earlier one only.
            if l.inlined_into != NONE && l.inlined_into as usize >= i {
                return bad("location", i);
            }
        }
        Ok(())
    }

    /// Checks that regions share no records or sites: then numbers inside a region are small, and
    /// work over all regions is bounded by the tables. The ranges were already checked to lie in
    /// their tables.
    fn check_regions(&self) -> Result<(), SidecarError> {
        let mut records = vec![0u32; self.regions.len()];
        for r in &self.records {
            // Each record is in the range of the region that it names. If the counts agree, no
            // range contains another region's records.
            records[r.region as usize] += 1;
        }
        let mut sites = vec![0u32; self.regions.len()];
        for (i, s) in self
            .sites
            .iter()
            .enumerate()
            .filter(|(_, s)| s.region != NONE)
        {
            let region = &self.regions[s.region as usize];
            if (i as u64).wrapping_sub(u64::from(region.first_site)) >= u64::from(region.site_count)
            {
                return Err(SidecarError::Damaged(format!(
                    "site {i} is not among those of its region"
                )));
            }
            sites[s.region as usize] += 1;
        }
        for (i, r) in self.regions.iter().enumerate() {
            if (r.record_count, r.site_count) != (records[i], sites[i]) {
                return Err(SidecarError::Damaged(format!(
                    "region {i} names records or sites of another one"
                )));
            }
        }
        Ok(())
    }
}
