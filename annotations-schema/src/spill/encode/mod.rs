//! Slots to the streams of a segment, see [`super`].
//!
//! While a program runs in `full`, this is most of the recorder's work, so it determines the
//! slowdown of the program. There are no branches on the data. A second cost matters too: stores of
//! less than four bytes, or across words, between other stores take several cycles each on the
//! measured machines. So differences and their lengths are computed for some slots first, in
//! aligned words, and then packed. [`avx2`] packs sixteen slots at once, with some fourteen
//! instructions per slot in all. Slots arrive from a ring, a few at a time, so they stay in the
//! first-level cache.

#[cfg(target_arch = "x86_64")]
mod avx2;

use crate::spill::{
    BLOCK, DATA_PADDING, Entry, GROUP, IDS_LENGTH, LENGTH, MAX_SLOT_BYTES, Predictor,
};
use mgz_abi::leb128;
use mgz_abi::slot::Slot;

/// Number of bytes behind the ends of the streams that may be overwritten.
const OVERWRITTEN_BYTES: usize = 16;

/// Code and stored length (in the high byte) of a payload by the number of significant bits of the
/// difference, sign excluded.
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
pub(crate) struct Encoder {
    predictor: Predictor,
    /// Log2 of the predictor's number of entries.
    bits: u8,
    /// Buffers for the streams of control, ids and data; `used` are their lengths.
    room: [Vec<u8>; 3],
    used: [usize; 3],
    aux: Vec<u8>,
    /// Number of encoded slots.
    done: usize,
    /// State after the first `done` slots: the last one's entry and id.
    last: (usize, u32),
    /// The bitmap of the current block, and its position in the control stream.
    bitmap: u64,
    bitmap_at: usize,
    /// Number of the last slot with `aux`, from which distances are counted.
    aux_from: usize,
    /// Waiting slots, fewer than a piece.
    waiting: Vec<Slot>,
    #[cfg(target_arch = "x86_64")]
    scratch: Box<avx2::Scratch>,
}

/// State that continues from slot to slot.
struct Ends {
    /// Ends of the streams. There is room for the remaining slots and [`OVERWRITTEN_BYTES`] bytes
    /// more.
    control: *mut u8,
    ids: *mut u8,
    data: *mut u8,
    /// Number of the previous slot's entry, at most the predictor's mask.
    previous: usize,
    /// Id of the previous slot.
    id: u32,
    /// Bitwise or of all `aux` so far.
    any_aux: u32,
}

impl Ends {
    /// Writes an id that was not predicted.
    ///
    /// # Safety
    ///
    /// The id stream must have room for one more.
    #[inline]
    unsafe fn put_id(&mut self, id: u32, previous: u32) {
        let step =
            (id.wrapping_sub(previous) as i32).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        // SAFETY: an id takes at most six bytes.
        unsafe {
            self.ids.cast::<[u8; 2]>().write(step.to_le_bytes());
            self.ids = self.ids.add(2);
            if step == i16::MIN || step == i16::MAX {
                self.ids.cast::<[u8; 4]>().write(id.to_le_bytes());
                self.ids = self.ids.add(4);
            }
        }
    }

    /// Writes the control word of sixteen slots. Returns true if it is not zero.
    ///
    /// # Safety
    ///
    /// The control stream must have room for one more.
    #[inline(always)]
    unsafe fn put_word(&mut self, word: u64) -> bool {
        // SAFETY: there is room for eight bytes. An unneeded word is overwritten.
        unsafe {
            self.control.cast::<[u8; 8]>().write(word.to_le_bytes());
            self.control = self.control.add(8 * usize::from(word != 0));
        }
        word != 0
    }
}

/// Encodes up to 16 slots; returns true if they need a control word.
///
/// # Safety
///
/// `ends` must have room for the slots, and its entry must be one of the predictor's.
unsafe fn group(slots: &[Slot], predictor: &mut Predictor, ends: &mut Ends) -> bool {
    let mask = predictor.mask();
    let mut word = 0u64;
    for (i, slot) in slots.iter().enumerate() {
        ends.any_aux |= slot.aux;
        // SAFETY: both numbers of entries are masked. Eight bytes are written for each slot, for
        // which there is room.
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
            let size = if difference == entry.stride {
                0
            } else {
                SIZES[64 - magnitude.leading_zeros() as usize]
            };
            *entry = Entry {
                last: slot.payload,
                stride: difference,
            };
            ends.data.cast::<[u8; 8]>().write(difference.to_le_bytes());
            ends.data = ends.data.add(usize::from(size >> 8));
            word |= (u64::from(size & 7) | u64::from(missed) << 3) << (4 * i);
        }
    }
    // SAFETY: there is room for a word per group.
    unsafe { ends.put_word(word) }
}

/// Slots that are encoded together. A block consists of whole pieces.
const SLOTS_PER_PIECE: usize = 128;

impl Encoder {
    /// Begins a segment of about `expected` slots.
    pub(crate) fn begin(&mut self, expected: usize) {
        // A small table is faster to clear; a large one predicts a large program better.
        self.bits = (expected.max(1).ilog2() as u8)
            .saturating_sub(2)
            .clamp(6, 13);
        self.predictor.clear(self.bits);
        self.aux.clear();
        self.waiting.clear();
        (self.used, self.done, self.last, self.aux_from) = ([0; 3], 0, (0, 0), 0);
    }

    /// Encodes further slots.
    pub(crate) fn push(&mut self, slots: &[Slot]) {
        #[cfg(target_arch = "x86_64")]
        let quick = avx2::is_there();
        #[cfg(not(target_arch = "x86_64"))]
        let quick = false;
        self.push_with(slots, quick);
    }

    /// As [`Encoder::push`], with or without wide registers.
    pub(crate) fn push_with(&mut self, mut slots: &[Slot], quick: bool) {
        if !self.waiting.is_empty() {
            let (some, rest) =
                slots.split_at(slots.len().min(SLOTS_PER_PIECE - self.waiting.len()));
            self.waiting.extend_from_slice(some);
            slots = rest;
            if self.waiting.len() < SLOTS_PER_PIECE {
                return;
            }
            let piece = std::mem::take(&mut self.waiting);
            self.encode(&piece, quick);
            self.waiting = piece;
            self.waiting.clear();
        }
        let (pieces, rest) = slots.as_chunks::<SLOTS_PER_PIECE>();
        pieces.iter().for_each(|piece| self.encode(piece, quick));
        self.waiting.extend_from_slice(rest);
    }

    /// Ends the segment; returns its number of slots.
    pub(crate) fn finish(&mut self) -> usize {
        let rest = std::mem::take(&mut self.waiting);
        if !rest.is_empty() {
            self.encode(&rest, false);
        }
        self.waiting = rest;
        self.waiting.clear();
        let [_, _, data] = &mut self.room;
        grow(data, self.used[2] + DATA_PADDING);
        data[self.used[2]..][..DATA_PADDING].fill(0);
        self.used[2] += DATA_PADDING;
        self.done
    }

    /// Encodes a piece, or the fewer slots at the end.
    fn encode(&mut self, slots: &[Slot], quick: bool) {
        let most = [
            8 + SLOTS_PER_PIECE / GROUP * 8,
            SLOTS_PER_PIECE * IDS_LENGTH,
            SLOTS_PER_PIECE * MAX_SLOT_BYTES,
        ];
        for ((stream, used), most) in self.room.iter_mut().zip(self.used).zip(most) {
            grow(stream, used + most + OVERWRITTEN_BYTES);
        }
        if self.done.is_multiple_of(BLOCK) {
            (self.bitmap, self.bitmap_at) = (0, self.used[0]);
            self.used[0] += size_of::<u64>();
        }
        let [control, ids, data] = &mut self.room;
        let starts = [control, ids, data].map(|stream| stream.as_mut_ptr());
        // SAFETY: the used length of a stream is inside its buffer.
        let [control, ids, data] = std::array::from_fn(|i| unsafe { starts[i].add(self.used[i]) });
        let mut ends = Ends {
            control,
            ids,
            data,
            previous: self.last.0,
            id: self.last.1,
            any_aux: 0,
        };
        let word = self.done % BLOCK / GROUP;
        match <&[Slot; SLOTS_PER_PIECE]>::try_from(slots) {
            #[cfg(target_arch = "x86_64")]
            Ok(piece) if quick => {
                // SAFETY: the caller has checked the processor; there is room for all slots, and
                // the entry is 0 or masked.
                let words = unsafe {
                    avx2::piece(piece, &mut self.predictor, &mut self.scratch, &mut ends)
                };
                self.bitmap |= u64::from(words) << word;
            }
            _ => {
                for (number, slots) in slots.chunks(GROUP).enumerate() {
                    // SAFETY: as above.
                    let needed = unsafe { group(slots, &mut self.predictor, &mut ends) };
                    self.bitmap |= u64::from(needed) << (word + number);
                }
            }
        }
        self.used = std::array::from_fn(|i| {
            [ends.control, ends.ids, ends.data][i] as usize - starts[i] as usize
        });
        self.last = (ends.previous, ends.id);
        self.room[0][self.bitmap_at..][..size_of::<u64>()]
            .copy_from_slice(&self.bitmap.to_le_bytes());
        if ends.any_aux != 0 {
            self.encode_aux(slots);
        }
        self.done += slots.len();
    }

    /// Log2 of the number of predictor entries.
    pub(crate) fn bits(&self) -> u8 {
        self.bits
    }

    /// The streams: control, ids, data and aux.
    pub(crate) fn streams(&self) -> [&[u8]; 4] {
        let [control, ids, data] = [0, 1, 2].map(|i| &self.room[i][..self.used[i]]);
        [control, ids, data, &self.aux]
    }

    fn encode_aux(&mut self, slots: &[Slot]) {
        for (i, slot) in slots.iter().enumerate() {
            if slot.aux != 0 {
                let number = self.done + i;
                let skip = (number - self.aux_from) as u64;
                self.aux_from = number;
                leb128::encode(skip, |byte| self.aux.push(byte));
                self.aux.extend_from_slice(&slot.aux.to_le_bytes());
            }
        }
    }
}

/// Makes a stream's buffer at least `bytes` long. This is rare, since it keeps its length.
#[inline]
fn grow(stream: &mut Vec<u8>, bytes: usize) {
    if stream.len() < bytes {
        stream.resize(bytes.next_power_of_two().max(4096), 0);
    }
}

// The control words of a piece are in one block, and all pieces of a segment except the last are
// complete.
const _: () =
    assert!(BLOCK.is_multiple_of(SLOTS_PER_PIECE) && SLOTS_PER_PIECE.is_multiple_of(GROUP));
