//! Slots to the streams of a segment, see [`super`].
//!
//! While a program runs in `full`, the recorder does little else than this, so that it decides how much slower the
//! program gets. There are no branches on the data. What else counts: stores of less than four bytes, or across words, between other
//! stores cost several cycles each on the machines that were measured. So differences and their lengths are found for some slots
//! first, in aligned words, and then packed; [`avx2`] does the latter for sixteen slots at once, some fourteen instructions for a slot in all.

use super::{BLOCK, DATA_PADDING, Entry, GROUP, IDS_LENGTH, LENGTH, MAX_SLOT_BYTES, Predictor};
use crate::abi::Slot;

#[cfg(target_arch = "x86_64")]
mod avx2;

/// Bytes behind the ends of the streams that may be written, too.
const SLACK: usize = 16;

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
    predictor: Predictor,
    /// Room for the streams; `used` says how much of it they take.
    control: Vec<u8>,
    ids: Vec<u8>,
    data: Vec<u8>,
    used: [usize; 3],
    aux: Vec<u8>,
    #[cfg(target_arch = "x86_64")]
    scratch: Box<avx2::Scratch>,
}

/// What goes on from slot to slot.
struct Ends {
    /// Where the streams go on. There is room for what the rest of the slots can take and [`SLACK`] bytes more.
    control: *mut u8,
    ids: *mut u8,
    data: *mut u8,
    /// Number of the previous slot's entry, at most the predictor's mask.
    previous: usize,
    /// Id of the previous slot.
    id: u32,
    /// All `aux` so far.
    any_aux: u32,
}

impl Ends {
    /// Writes an id that was not predicted.
    ///
    /// # Safety
    ///
    /// There is room for one more in the ids.
    #[inline]
    unsafe fn put_id(&mut self, id: u32, previous: u32) {
        let step = (id.wrapping_sub(previous) as i32).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        // SAFETY: six bytes are what an id can take.
        unsafe {
            self.ids.cast::<[u8; 2]>().write(step.to_le_bytes());
            self.ids = self.ids.add(2);
            if step == i16::MIN || step == i16::MAX {
                self.ids.cast::<[u8; 4]>().write(id.to_le_bytes());
                self.ids = self.ids.add(4);
            }
        }
    }

    /// Writes the control word of sixteen slots; tells whether it is needed.
    ///
    /// # Safety
    ///
    /// There is room for one more in the control stream.
    #[inline(always)]
    unsafe fn put_word(&mut self, word: u64) -> bool {
        // SAFETY: eight bytes, as asked for. What is not needed is written over.
        unsafe {
            self.control.cast::<[u8; 8]>().write(word.to_le_bytes());
            self.control = self.control.add(8 * usize::from(word != 0));
        }
        word != 0
    }
}

/// Encodes up to 16 slots; tells whether they need a control word.
///
/// # Safety
///
/// `ends` has room for the slots, and its entry is one of the predictor's.
unsafe fn group(slots: &[Slot], predictor: &mut Predictor, ends: &mut Ends) -> bool {
    let mask = predictor.mask();
    let mut word = 0u64;
    for (i, slot) in slots.iter().enumerate() {
        ends.any_aux |= slot.aux;
        // SAFETY: both numbers of entries are masked. Eight bytes are written where a slot's are, for which there is room.
        unsafe {
            let next = predictor.next.get_unchecked_mut(ends.previous);
            let missed = *next != slot.id;
            *next = slot.id;
            if missed {
                ends.put_id(slot.id, ends.id);
            }
            ends.id = slot.id;
            ends.previous = slot.id as usize & mask;
            let entry = predictor.entries.get_unchecked_mut(ends.previous);
            let difference = slot.payload.wrapping_sub(entry.last);
            let magnitude = difference ^ ((difference as i64 >> 63) as u64);
            let size = if difference == entry.stride { 0 } else { SIZES[64 - magnitude.leading_zeros() as usize] };
            *entry = Entry { last: slot.payload, stride: difference };
            ends.data.cast::<[u8; 8]>().write(difference.to_le_bytes());
            ends.data = ends.data.add(usize::from(size >> 8));
            word |= (u64::from(size & 7) | u64::from(missed) << 3) << (4 * i);
        }
    }
    // SAFETY: room for a word a group.
    unsafe { ends.put_word(word) }
}

impl Encoder {
    /// Encodes a segment's slots; returns `bits`.
    pub(super) fn encode(&mut self, slots: &[Slot]) -> u8 {
        #[cfg(target_arch = "x86_64")]
        let quick = avx2::is_there();
        #[cfg(not(target_arch = "x86_64"))]
        let quick = false;
        self.encode_with(slots, quick)
    }

    /// The same with and without wide registers.
    pub(super) fn encode_with(&mut self, slots: &[Slot], quick: bool) -> u8 {
        // A small table is quicker to clear, a large one predicts more of a large program.
        let bits = (slots.len().max(1).ilog2() as u8).saturating_sub(2).clamp(6, 13);
        self.predictor.clear(bits);
        self.aux.clear();
        for (stream, bytes) in [
            (&mut self.control, slots.len().div_ceil(BLOCK) * (8 + BLOCK / GROUP * 8)),
            (&mut self.ids, slots.len() * IDS_LENGTH),
            (&mut self.data, slots.len() * MAX_SLOT_BYTES + DATA_PADDING),
        ] {
            if stream.len() < bytes + SLACK {
                // Zero pages that are never written take no memory.
                *stream = vec![0; bytes + SLACK];
            }
        }
        let starts = [self.control.as_mut_ptr(), self.ids.as_mut_ptr(), self.data.as_mut_ptr()];
        let mut ends = Ends { control: starts[0], ids: starts[1], data: starts[2], previous: 0, id: 0, any_aux: 0 };
        for block in slots.chunks(BLOCK) {
            let bitmap_at = ends.control;
            // SAFETY: the control stream has room for a bitmap and 64 words a block.
            ends.control = unsafe { ends.control.add(8) };
            let mut bitmap = 0u64;
            let mut done = 0;
            #[cfg(target_arch = "x86_64")]
            if quick {
                let (pieces, _) = block.as_chunks::<{ avx2::PIECE }>();
                for piece in pieces {
                    // SAFETY: asked for by the caller, who knows; room for all slots was made above.
                    let words = unsafe { avx2::piece(piece, &mut self.predictor, &mut self.scratch, &mut ends) };
                    bitmap |= u64::from(words) << (done / GROUP);
                    done += piece.len();
                }
            }
            for (number, slots) in block[done..].chunks(GROUP).enumerate() {
                // SAFETY: room for all slots was made above; the entry is 0 or masked.
                let needed = unsafe { group(slots, &mut self.predictor, &mut ends) };
                bitmap |= u64::from(needed) << (done / GROUP + number);
            }
            // SAFETY: the eight bytes that were left out above.
            unsafe { bitmap_at.cast::<[u8; 8]>().write(bitmap.to_le_bytes()) };
        }
        // SAFETY: the padding has its place in the room of the data stream.
        unsafe { ends.data.cast::<[u8; DATA_PADDING]>().write([0; DATA_PADDING]) };
        self.used = [ends.control as usize - starts[0] as usize, ends.ids as usize - starts[1] as usize, ends.data as usize - starts[2] as usize + DATA_PADDING];
        if ends.any_aux != 0 {
            self.encode_aux(slots);
        }
        bits
    }

    /// Control, ids, data and aux.
    pub(super) fn streams(&self) -> [&[u8]; 4] {
        let [control, ids, data] = self.used;
        [&self.control[..control], &self.ids[..ids], &self.data[..data], &self.aux]
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
