//! One pass through a region that is not (yet) known to be complete.

use crate::expand::lookup::{Point, Region, RegionRecord, SiteRow, Tables};
use crate::sidecar::{NO_RECORD, SiteKind};
use mgz_abi::slot::{MARK_CUT, MARK_SIGNAL_ENTER, Slot};

/// [`Pass::next_id`] when the pass has all records.
const COMPLETE: u64 = u64::MAX;

/// Extent of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The pass goes through the whole region.
    End,
    /// Up to, and without, the original instruction at this link-time address.
    Ip(u64),
    /// Up to, and without, the clone instruction at this link-time address.
    Clone(u64),
}

impl Limit {
    fn is_behind(self, point: Point) -> bool {
        match self {
            Limit::End => true,
            Limit::Ip(ip) => point.ip < ip,
            Limit::Clone(ip) => point.clone_ip < ip,
        }
    }
}

/// An open pass.
#[derive(Debug)]
pub(crate) struct Pass {
    region: u32,
    /// First existing record.
    first: u8,
    /// First missing record (some raw slots of the one before may be missing).
    next: u8,
    /// Id of record `next`, or [`COMPLETE`].
    pub(crate) next_id: u64,
    /// Number of missing raw slots of the last record.
    pub(crate) raw_left: u8,
    pub(crate) module: u16,
    bias: u64,
    /// Slots from record `first` on.
    slots: Vec<Slot>,
    /// Next row (index in the tables) to emit.
    row: u32,
    /// Next implied point.
    point: u32,
    implied_taken: u32,
}

impl Pass {
    /// A pass whose first existing record is `slot`.
    pub(crate) fn begin(
        tables: &Tables,
        slot: &Slot,
        info: RegionRecord,
        module: u16,
        bias: u64,
        mut buffer: Vec<Slot>,
    ) -> Pass {
        let region = &tables.regions[info.region as usize];
        buffer.clear();
        let mut pass = Pass {
            region: info.region,
            first: info.index,
            next: info.index,
            next_id: COMPLETE,
            raw_left: 0,
            module,
            bias,
            slots: buffer,
            row: region.rows.start,
            point: region.implied_points.start,
            implied_taken: 0,
        };
        pass.push(tables, slot);
        pass
    }

    pub(crate) fn into_buffer(self) -> Vec<Slot> {
        self.slots
    }

    /// Adds the next record's first slot.
    pub(crate) fn push(&mut self, tables: &Tables, slot: &Slot) {
        let info = self.record(tables, self.next);
        self.slots.push(*slot);
        self.raw_left = info.slots - 1;
        self.next += 1;
        self.next_id = if self.next < self.region(tables).records {
            u64::from(slot.id) + 1
        } else {
            COMPLETE
        };
    }

    pub(crate) fn wants_raw(&self) -> bool {
        self.raw_left > 0
    }

    pub(crate) fn push_raw(&mut self, slot: &Slot) {
        self.slots.push(*slot);
        self.raw_left -= 1;
    }

    /// True if a slot is a marker although a raw slot is expected. Raw bytes may look like a
    /// marker, but hardly with the address of just this gather.
    pub(crate) fn is_marker_inside(&self, tables: &Tables, slot: &Slot) -> bool {
        let at = self
            .record(tables, self.next - 1)
            .point
            .ip
            .wrapping_add(self.bias);
        matches!(slot.id, MARK_SIGNAL_ENTER | MARK_CUT) && slot.payload == at
    }

    fn region<'t>(&self, tables: &'t Tables) -> &'t Region {
        &tables.regions[self.region as usize]
    }

    fn record(&self, tables: &Tables, index: u8) -> RegionRecord {
        tables.records[self.region(tables).first_record as usize + usize::from(index)]
    }

    /// First incomplete record.
    fn missing(&self) -> u8 {
        self.next - u8::from(self.raw_left > 0)
    }

    /// Extent of the pass that the existing records prove.
    pub(crate) fn limit(&self, tables: &Tables) -> Limit {
        let missing = self.missing();
        if missing < self.region(tables).records {
            Limit::Ip(self.record(tables, missing).point.ip)
        } else {
            Limit::End
        }
    }

    /// Extent of the pass at the signal of this marker. `None` if the pass was over, or if the
    /// marker belongs to other code.
    pub(crate) fn interrupted_at(&self, tables: &Tables, marker: &Slot) -> Option<Limit> {
        let region = self.region(tables);
        let low = self.record(tables, self.first).point;
        let rows = &tables.rows[region.rows.start as usize..region.rows.end as usize];
        let implied = &tables.implied
            [region.implied_points.start as usize..region.implied_points.end as usize];
        let last_row = rows.last().map(|row| Point {
            ip: row.ip,
            clone_ip: row.clone_ip,
        });
        let high = [
            Some(self.record(tables, region.records - 1).point),
            last_row,
            implied.last().copied(),
        ];
        let high = high
            .into_iter()
            .flatten()
            .max_by_key(|point| (point.ip, point.clone_ip))?;
        let ip = marker.payload.wrapping_sub(self.bias);
        if ip < low.ip || ip > high.ip {
            return None;
        }
        let clone = marker.aux >> 7;
        if clone == 0 {
            return Some(Limit::Ip(ip));
        }
        // The marker has 25 bits of the clone address; the ranges above ensure that it is near.
        let ahead = |of: u64| i64::from((clone.wrapping_sub(of as u32) << 7) as i32 >> 7);
        (ahead(low.clone_ip) > 0 && ahead(high.clone_ip) <= 0)
            .then(|| Limit::Clone(low.clone_ip.wrapping_add_signed(ahead(low.clone_ip))))
    }

    /// Implied loads before `limit` that were not taken yet.
    pub(crate) fn take_implied(&mut self, tables: &Tables, limit: Limit) -> u64 {
        let region = self.region(tables);
        if limit == Limit::End && self.first == 0 {
            self.point = region.implied_points.end;
            let taken = std::mem::replace(&mut self.implied_taken, region.implied);
            return u64::from(region.implied.saturating_sub(taken));
        }
        let from = self.record(tables, self.first).point.ip;
        let mut count = 0;
        if self.first == 0 && self.implied_taken == 0 && self.point == region.implied_points.start {
            // If the first record exists, the implied loads of earlier blocks were executed.
            count = region
                .implied
                .saturating_sub(region.implied_points.len() as u32);
        }
        while self.point < region.implied_points.end {
            let point = tables.implied[self.point as usize];
            if !limit.is_behind(point) {
                break;
            }
            count += u32::from(self.first == 0 || point.ip >= from);
            self.point += 1;
        }
        self.implied_taken += count;
        u64::from(count)
    }

    /// Rows that were not emitted yet.
    pub(crate) fn rows_left(&self, tables: &Tables) -> u64 {
        u64::from(self.region(tables).rows.end - self.row)
    }

    /// Calls `emit(row, address, size if not the site's)` for each row before `limit` that was not
    /// emitted yet. Returns the number of rows without their records.
    pub(crate) fn rows(
        &mut self,
        tables: &Tables,
        limit: Limit,
        mut emit: impl FnMut(u32, u64, Option<u32>),
    ) -> u64 {
        let end = self.region(tables).rows.end;
        let start = self.record(tables, self.first);
        let mut torn = 0;
        while self.row < end {
            let row = &tables.rows[self.row as usize];
            if !limit.is_behind(Point {
                ip: row.ip,
                clone_ip: row.clone_ip,
            }) {
                break;
            }
            let before_start = self.first > 0
                && row.a == NO_RECORD
                && row.b == NO_RECORD
                && row.ip < start.point.ip;
            if before_start
                || self
                    .expand(tables, row, start.offset, |address, size| {
                        emit(self.row, address, size)
                    })
                    .is_none()
            {
                torn += 1;
            }
            self.row += 1;
        }
        torn
    }

    /// Slots of a record from its first on; `None` if it is missing.
    fn slots_of(&self, tables: &Tables, record: u8, offset: u8) -> Option<&[Slot]> {
        if record < self.first || record >= self.missing() {
            return None;
        }
        let info = self.record(tables, record);
        let at = usize::from(info.offset.checked_sub(offset)?);
        self.slots.get(at..at + usize::from(info.slots))
    }

    /// The rows of one site. `offset`: number of the region's slots before the existing ones.
    fn expand(
        &self,
        tables: &Tables,
        row: &SiteRow,
        offset: u8,
        mut emit: impl FnMut(u64, Option<u32>),
    ) -> Option<()> {
        let payload = |record: u8| match record {
            NO_RECORD => Some(0),
            _ => self
                .slots_of(tables, record, offset)
                .map(|slots| slots[0].payload),
        };
        let (a, b) = (payload(row.a)?, payload(row.b)?);
        match row.kind {
            SiteKind::Plain => emit(row.plain(a, b, self.bias), None),
            SiteKind::String | SiteKind::StringUntil => {
                let mut count = if row.b == NO_RECORD {
                    1
                } else {
                    row.truncate(b)
                };
                if row.kind == SiteKind::StringUntil {
                    let after = payload(row.b.checked_add(1)?)?;
                    count = row.truncate(b.wrapping_sub(after));
                }
                if count > 0 {
                    let bytes = u64::from(row.size).saturating_mul(count);
                    emit(
                        row.plain(a, 0, self.bias),
                        Some(u32::try_from(bytes).unwrap_or(u32::MAX)),
                    );
                }
            }
            SiteKind::BitString => {
                let bits = u32::from(u16::try_from(row.size).unwrap_or(8)).clamp(1, 8) * 8;
                let offset = (b << (64 - bits)) as i64 >> (64 - bits);
                let word = offset
                    .div_euclid(i64::from(bits))
                    .wrapping_mul(i64::from(bits / 8));
                emit(row.plain(a.wrapping_add_signed(word), 0, self.bias), None);
            }
            SiteKind::Xlat => emit(row.plain(a.wrapping_add(b & 0xff), 0, self.bias), None),
            SiteKind::Gather => {
                let mut bytes = [0u8; RAW_BYTES];
                let (head, raw) = self.raw_bytes(tables, row, offset, &mut bytes)?;
                gather(tables, row, head, raw, emit)?;
            }
        }
        Some(())
    }

    /// Payload of a gather's head, and the raw bytes behind it: payloads of the records that
    /// follow, or raw slots of the same record.
    fn raw_bytes<'b>(
        &self,
        tables: &Tables,
        row: &SiteRow,
        offset: u8,
        bytes: &'b mut [u8; RAW_BYTES],
    ) -> Option<(u64, &'b [u8])> {
        let shape = tables.gathers.get(row.gather as usize)?;
        let (head, raw) = self.slots_of(tables, row.a, offset)?.split_first()?;
        if !raw.is_empty() {
            for (slot, place) in raw.iter().zip(bytes.chunks_exact_mut(16)) {
                place[..8].copy_from_slice(&slot.payload.to_le_bytes());
                place[8..12].copy_from_slice(&slot.id.to_le_bytes());
                place[12..].copy_from_slice(&slot.aux.to_le_bytes());
            }
            return Some((head.payload, &bytes[..raw.len() * 16]));
        }
        let mask_bytes = if shape.mask_bytes == 0 {
            8
        } else {
            shape.mask_bytes * shape.lanes
        };
        let words = shape.index_bytes.checked_add(mask_bytes)?.div_ceil(8) as usize;
        let places = bytes.get_mut(..words * 8)?;
        for (n, place) in (1u8..).zip(places.chunks_exact_mut(8)) {
            let slot = self
                .slots_of(tables, row.a.checked_add(n)?, offset)?
                .first()?;
            place.copy_from_slice(&slot.payload.to_le_bytes());
        }
        Some((head.payload, places))
    }
}

/// Maximum number of raw bytes of a gather.
const RAW_BYTES: usize = 16 * mgz_abi::slot::MAX_REGION_SLOTS;

/// The rows of a gather's active lanes.
fn gather(
    tables: &Tables,
    row: &SiteRow,
    head: u64,
    bytes: &[u8],
    mut emit: impl FnMut(u64, Option<u32>),
) -> Option<()> {
    let shape = tables.gathers.get(row.gather as usize)?;
    let mask = bytes.get(shape.index_bytes as usize..)?;
    for lane in 0..shape.lanes as usize {
        let active = match shape.mask_bytes as usize {
            0 => mask.get(lane / 8)? >> (lane % 8) & 1 == 1,
            width => mask.get(lane * width + width - 1)? >> 7 == 1,
        };
        if !active {
            continue;
        }
        let index = if row.index64 {
            i64::from_le_bytes(bytes.get(lane * 8..lane * 8 + 8)?.try_into().ok()?)
        } else {
            i64::from(i32::from_le_bytes(
                bytes.get(lane * 4..lane * 4 + 4)?.try_into().ok()?,
            ))
        };
        emit(
            row.truncate(head.wrapping_add((index as u64).wrapping_mul(u64::from(row.scale)))),
            None,
        );
    }
    Some(())
}
