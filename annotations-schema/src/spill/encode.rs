//! Slots to the streams of a segment, see [`super`].
//!
//! While a program runs in `full`, the recorder does little else than this, so that it decides how much slower the
//! program gets. It is one pass without branches on the data, some forty-five instructions for a slot.

use super::{BLOCK, DATA_PADDING, Entry, LENGTH, MAX_SLOT_BYTES};
use crate::abi::Slot;

/// Code and stored length (in the high byte) of a payload by the number of significant bits of the difference, sign excluded.
const SIZES: [u16; 65] = {
    let mut table = [0; 65];
    let mut bits = 0;
    while bits < 65 {
        let bytes = bits / 8 + 1;
        let code = if bytes <= 6 { bytes } else { 7 };
        table[bits] = code as u16 | (LENGTH[code] as u16) << 8;
        bits += 1;
    }
    table
};

/// Encoder state: kept from segment to segment only to save allocations.
#[derive(Default)]
pub(super) struct Encoder {
    table: Vec<Entry>,
    control: Vec<u8>,
    /// Room for the data stream; only the first `used` bytes are part of it.
    data: Vec<u8>,
    used: usize,
    aux: Vec<u8>,
}

/// Writes the data stream's bytes of up to 16 slots and gives their control word.
///
/// # Safety
///
/// `table` has a power of two of entries, and `mask` is their number less one; `previous` is at most `mask`; from `*data` on there
/// is room for [`MAX_SLOT_BYTES`] bytes for each slot and [`DATA_PADDING`] more.
#[inline(always)]
unsafe fn group(slots: &[Slot], table: &mut [Entry], mask: usize, previous: &mut usize, data: &mut *mut u8, any_aux: &mut u32) -> u64 {
    let mut word = 0u64;
    let mut out = *data;
    for (i, slot) in slots.iter().enumerate() {
        *any_aux |= slot.aux;
        // SAFETY: both numbers are masked. Eight bytes are written at most twelve bytes behind the slot's begin, for which there is room.
        unsafe {
            let before = table.get_unchecked_mut(*previous);
            let missed = u64::from(before.next != slot.id);
            before.next = slot.id;
            out.cast::<[u8; 4]>().write(slot.id.to_le_bytes());
            out = out.add(4 * missed as usize);
            *previous = slot.id as usize & mask;
            let entry = table.get_unchecked_mut(*previous);
            let difference = slot.payload.wrapping_sub(entry.last);
            let magnitude = difference ^ ((difference as i64 >> 63) as u64);
            let size = if difference == entry.stride { 0 } else { SIZES[64 - magnitude.leading_zeros() as usize] };
            entry.stride = difference;
            entry.last = slot.payload;
            out.cast::<[u8; 8]>().write(difference.to_le_bytes());
            out = out.add(usize::from(size >> 8));
            word |= (u64::from(size & 7) | missed << 3) << (4 * i);
        }
    }
    *data = out;
    word
}

impl Encoder {
    /// Encodes a segment's slots; returns `bits`.
    pub(super) fn encode(&mut self, slots: &[Slot]) -> u8 {
        // A small table is quicker to clear, a large one predicts more of a large program.
        let bits = (slots.len().max(1).ilog2() as u8).saturating_sub(3).clamp(6, 13);
        self.table.clear();
        self.table.resize(1 << bits, Entry::default());
        let table = &mut self.table[..];
        let mask = table.len() - 1;
        self.control.clear();
        self.aux.clear();
        let room = slots.len() * MAX_SLOT_BYTES + DATA_PADDING;
        if self.data.len() < room {
            // Zero pages that are never written take no memory.
            self.data = vec![0; room];
        }
        let start = self.data.as_mut_ptr();
        let mut end = start;
        let mut previous = 0;
        let mut any_aux = 0;
        for block in slots.chunks(BLOCK) {
            let bitmap_at = self.control.len();
            self.control.extend_from_slice(&[0; 8]);
            let mut bitmap = 0u64;
            for (number, slots) in block.chunks(16).enumerate() {
                // SAFETY: the table has 2^bits entries, and `previous` is 0 or masked; the data has room for all slots and the padding.
                let word = unsafe { group(slots, table, mask, &mut previous, &mut end, &mut any_aux) };
                if word != 0 {
                    bitmap |= 1 << number;
                    self.control.extend_from_slice(&word.to_le_bytes());
                }
            }
            self.control[bitmap_at..bitmap_at + 8].copy_from_slice(&bitmap.to_le_bytes());
        }
        let end = end as usize - start as usize;
        self.used = end + DATA_PADDING;
        self.data[end..self.used].fill(0);
        if any_aux != 0 {
            self.encode_aux(slots);
        }
        bits
    }

    /// Control, data and aux.
    pub(super) fn streams(&self) -> [&[u8]; 3] {
        [&self.control, &self.data[..self.used], &self.aux]
    }

    fn encode_aux(&mut self, slots: &[Slot]) {
        let mut from = 0;
        for (i, slot) in slots.iter().enumerate() {
            if slot.aux != 0 {
                let mut skip = i - from;
                from = i;
                while skip >= 0x80 {
                    self.aux.push(skip as u8 | 0x80);
                    skip >>= 7;
                }
                self.aux.push(skip as u8);
                self.aux.extend_from_slice(&slot.aux.to_le_bytes());
            }
        }
    }
}
