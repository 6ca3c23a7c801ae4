//! The encoder with registers of 32 bytes.
//!
//! A piece of slots is processed in three passes: predictions are written to aligned words, slot by
//! slot; ids and control words are made from sixteen slots at once; differences are packed in
//! pairs.

use crate::spill::encode::{Ends, SLOTS_PER_PIECE};
use crate::spill::{Entry, GROUP, LENGTH, Predictor};
use mgz_abi::slot::Slot;
use std::arch::x86_64::*;

/// True if this processor supports it.
pub fn is_there() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

/// Intermediate results for a piece's slots.
#[repr(C, align(64))]
pub struct Scratch {
    /// Difference to the last payload, and the predicted difference. In each group of four slots,
    /// the second and the third are exchanged; `vpunpck` reverses that.
    found: [[u64; 2]; SLOTS_PER_PIECE],
    /// The differences in order.
    differences: [u64; SLOTS_PER_PIECE],
    /// The predicted id, exclusive-or the id.
    missed: [u32; SLOTS_PER_PIECE],
    /// Codes of payloads, two slots to a byte.
    codes: [u64; SLOTS_PER_PIECE / GROUP],
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            found: [[0; 2]; SLOTS_PER_PIECE],
            differences: [0; SLOTS_PER_PIECE],
            missed: [0; SLOTS_PER_PIECE],
            codes: [0; SLOTS_PER_PIECE / GROUP],
        }
    }
}

/// Bytes in a register of sixteen.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Bytes([u8; 16]);

/// Index for `pshufb` that makes a byte zero.
const ZERO_INDEX: u8 = 0x80;

/// Shuffles that make the stored bytes of two differences adjacent, by the byte of their codes,
/// with the number of bytes.
static TWO: [(Bytes, usize); 0x78] = {
    let mut table = [(Bytes([ZERO_INDEX; 16]), 0); 0x78];
    let mut codes = 0;
    while codes < 0x78 {
        let lengths = [LENGTH[codes & 7], LENGTH[codes >> 4]];
        let mut of = 0;
        while of < 2 {
            let mut byte = 0;
            while byte < lengths[of] {
                let (Bytes(bytes), used) = &mut table[codes];
                bytes[*used] = 8 * of as u8 + byte;
                *used += 1;
                byte += 1;
            }
            of += 1;
        }
        codes += 1;
    }
    table
};

/// Shuffles that make the selected ones of eight 16-bit words adjacent, by their bitmap.
static CHOSEN: [Bytes; 256] = {
    let mut table = [Bytes([ZERO_INDEX; 16]); 256];
    let mut bitmap = 0;
    while bitmap < 256 {
        let (mut word, mut used) = (0, 0);
        while word < 8 {
            if bitmap >> word & 1 == 1 {
                table[bitmap].0[used] = 2 * word as u8;
                table[bitmap].0[used + 1] = 2 * word as u8 + 1;
                used += 2;
            }
            word += 1;
        }
        bitmap += 1;
    }
    table
};

/// Encodes a piece. Returns a bitmap of its non-zero control words.
///
/// # Safety
///
/// [`is_there`] must be true, `ends` must have room for the slots, and its entry must be one of the
/// predictor's.
#[target_feature(enable = "avx2,popcnt")]
pub unsafe fn piece(
    slots: &[Slot; SLOTS_PER_PIECE],
    predictor: &mut Predictor,
    scratch: &mut Scratch,
    ends: &mut Ends,
) -> u8 {
    // The slot before the first, in the last element.
    let mut before = _mm256_set1_epi32(ends.id as i32);
    // SAFETY: the entry is one of the predictor's.
    unsafe { predict(slots, predictor, scratch, ends) };
    let mut aux = _mm256_setzero_si256();
    let mut needed = 0;
    for (number, group) in slots.as_chunks::<GROUP>().0.iter().enumerate() {
        // SAFETY: the number of groups is that of a piece; there is room for all slots.
        unsafe {
            let missed = ids(group, number, scratch, &mut before, &mut aux, ends);
            let word = codes(number, scratch, missed);
            needed |= u8::from(ends.put_word(word)) << number;
        }
    }
    // SAFETY: as above.
    unsafe { pack(scratch, ends) };
    let aux = _mm_or_si128(
        _mm256_castsi256_si128(aux),
        _mm256_extracti128_si256::<1>(aux),
    );
    // The upper four of each eight bytes are aux.
    ends.any_aux |= (_mm_extract_epi32::<1>(aux) | _mm_extract_epi32::<3>(aux)) as u32;
    needed
}

/// Predicts each slot and updates the predictor by its true value.
///
/// # Safety
///
/// The entry in `ends` must be one of the predictor's.
#[inline(always)]
unsafe fn predict(
    slots: &[Slot; SLOTS_PER_PIECE],
    predictor: &mut Predictor,
    scratch: &mut Scratch,
    ends: &mut Ends,
) {
    let mask = predictor.mask();
    let mut previous = ends.previous;
    for (i, slot) in slots.iter().enumerate() {
        let place = i & !3 | [0, 2, 1, 3][i & 3];
        // SAFETY: both numbers of entries are masked.
        let (next, entry) = unsafe {
            let next = predictor.next.get_unchecked_mut(previous);
            previous = slot.id as usize & mask;
            (next, predictor.entries.get_unchecked_mut(previous))
        };
        scratch.missed[i] = *next ^ slot.id;
        *next = slot.id;
        let difference = slot.payload.wrapping_sub(entry.last);
        scratch.found[place] = [difference, entry.stride];
        *entry = Entry {
            last: slot.payload,
            stride: difference,
        };
    }
    ends.previous = previous;
    ends.id = slots[SLOTS_PER_PIECE - 1].id;
}

/// Writes the unpredicted ids of a group. Returns all ones for each of their slots, and collects
/// `aux`.
///
/// # Safety
///
/// `number` must be that of a group in a piece, and `ends` must have room for the group's ids.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn ids(
    group: &[Slot; GROUP],
    number: usize,
    scratch: &Scratch,
    before: &mut __m256i,
    aux: &mut __m256i,
    ends: &mut Ends,
) -> __m128i {
    let zero = _mm256_setzero_si256();
    let first = *before;
    let (mut steps, mut hit) = ([zero; 2], [zero; 2]);
    for half in 0..2 {
        // SAFETY: the slots and words lie inside the group of sixteen.
        let (pairs, missed) = unsafe {
            let two = group.as_ptr().add(8 * half).cast::<__m256i>();
            let missed = scratch
                .missed
                .as_ptr()
                .add(GROUP * number + 8 * half)
                .cast::<__m256i>();
            (
                [0, 1, 2, 3].map(|i| _mm256_loadu_si256(two.add(i))),
                _mm256_load_si256(missed),
            )
        };
        hit[half] = _mm256_cmpeq_epi32(missed, zero);
        // Upper half of each slot: id and aux.
        let even = _mm256_unpackhi_epi64(pairs[0], pairs[1]);
        let odd = _mm256_unpackhi_epi64(pairs[2], pairs[3]);
        *aux = _mm256_or_si256(*aux, _mm256_or_si256(even, odd));
        let ids = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(
            _mm256_castsi256_ps(even),
            _mm256_castsi256_ps(odd),
        ));
        let ids = _mm256_permutevar8x32_epi32(ids, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        // Each slot's predecessor: the last of the previous ones, then all of these except the
        // last.
        let predecessors =
            _mm256_alignr_epi8::<12>(ids, _mm256_permute2x128_si256::<0x21>(*before, ids));
        *before = ids;
        steps[half] = _mm256_sub_epi32(ids, predecessors);
    }
    // `vpacks` saturates, and works in halves.
    let steps = _mm256_permute4x64_epi64::<0xd8>(_mm256_packs_epi32(steps[0], steps[1]));
    let hit = _mm256_permute4x64_epi64::<0xd8>(_mm256_packs_epi32(hit[0], hit[1]));
    let wide = _mm256_or_si256(
        _mm256_cmpeq_epi16(steps, _mm256_set1_epi16(i16::MAX)),
        _mm256_cmpeq_epi16(steps, _mm256_set1_epi16(i16::MIN)),
    );
    let all_near = _mm256_testc_si256(hit, wide) != 0;
    let hit = _mm_packs_epi16(
        _mm256_castsi256_si128(hit),
        _mm256_extracti128_si256::<1>(hit),
    );
    let bitmap = !_mm_movemask_epi8(hit) as u16;
    if all_near {
        for (half, steps) in [
            _mm256_castsi256_si128(steps),
            _mm256_extracti128_si256::<1>(steps),
        ]
        .into_iter()
        .enumerate()
        {
            let chosen = (bitmap >> (8 * half)) as u8;
            // SAFETY: up to sixteen bytes are written, behind which there is slack; only those of
            // the ids are used.
            unsafe {
                let from = _mm_load_si128(CHOSEN.as_ptr().add(chosen.into()).cast());
                _mm_storeu_si128(ends.ids.cast(), _mm_shuffle_epi8(steps, from));
                ends.ids = ends.ids.add(2 * chosen.count_ones() as usize);
            }
        }
    } else {
        let mut previous = _mm256_extract_epi32::<7>(first) as u32;
        for (i, slot) in group.iter().enumerate() {
            if bitmap >> i & 1 == 1 {
                // SAFETY: there is room for the group's ids.
                unsafe { ends.put_id(slot.id, previous) };
            }
            previous = slot.id;
        }
    }
    _mm_xor_si128(hit, _mm_set1_epi8(-1))
}

/// The control word of a group. Sorts the differences, and stores the codes.
///
/// # Safety
///
/// `number` must be that of a group in a piece.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn codes(number: usize, scratch: &mut Scratch, missed: __m128i) -> u64 {
    let zero = _mm256_setzero_si256();
    let weights = _mm256_set1_epi64x(i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, 128]));
    let (mut bytes, mut hit) = ([zero; 4], [zero; 4]);
    for four in 0..4 {
        // SAFETY: four slots of the group's sixteen.
        let (found, ordered) = unsafe {
            let found = scratch
                .found
                .as_ptr()
                .add(GROUP * number + 4 * four)
                .cast::<__m256i>();
            let ordered = scratch
                .differences
                .as_mut_ptr()
                .add(GROUP * number + 4 * four)
                .cast::<__m256i>();
            (
                [_mm256_load_si256(found), _mm256_load_si256(found.add(1))],
                ordered,
            )
        };
        let difference = _mm256_unpacklo_epi64(found[0], found[1]);
        let stride = _mm256_unpackhi_epi64(found[0], found[1]);
        // SAFETY: four words, as above.
        unsafe { _mm256_store_si256(ordered, difference) };
        hit[four] = _mm256_cmpeq_epi64(difference, stride);
        // The magnitude with a bit for the sign, and a bitmap of its non-zero bytes.
        let magnitude = _mm256_xor_si256(
            _mm256_add_epi64(difference, difference),
            _mm256_cmpgt_epi64(zero, difference),
        );
        bytes[four] = _mm256_sad_epu8(
            _mm256_andnot_si256(_mm256_cmpeq_epi8(magnitude, zero), weights),
            zero,
        );
    }
    let narrow = |four: [__m256i; 4]| {
        [
            _mm256_packs_epi32(four[0], four[1]),
            _mm256_packs_epi32(four[2], four[3]),
        ]
    };
    let (bytes, hit) = (narrow(bytes), narrow(hit));
    let bitmaps = _mm256_packus_epi16(bytes[0], bytes[1]);
    // The code depends on the highest non-zero byte.
    let twice = |table: [i8; 16]| {
        _mm256_broadcastsi128_si256(_mm_setr_epi8(
            table[0], table[1], table[2], table[3], table[4], table[5], table[6], table[7],
            table[8], table[9], table[10], table[11], table[12], table[13], table[14], table[15],
        ))
    };
    let low = twice([1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4]);
    let high = twice([0, 5, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    let nibble = _mm256_set1_epi8(15);
    let low = _mm256_shuffle_epi8(low, _mm256_and_si256(bitmaps, nibble));
    let high = _mm256_shuffle_epi8(
        high,
        _mm256_and_si256(_mm256_srli_epi16::<4>(bitmaps), nibble),
    );
    let codes = _mm256_andnot_si256(
        _mm256_packs_epi16(hit[0], hit[1]),
        _mm256_max_epu8(low, high),
    );
    // At this point two of four bytes are zero, and each half of the register has two slots of each
    // four.
    const N: i8 = ZERO_INDEX as i8;
    let order = _mm256_setr_epi8(
        0, 2, N, N, 4, 6, N, N, 8, 10, N, N, 12, 14, N, N, N, N, 0, 2, N, N, 4, 6, N, N, 8, 10, N,
        N, 12, 14,
    );
    let codes = _mm256_shuffle_epi8(codes, order);
    let codes = _mm_or_si128(
        _mm256_castsi256_si128(codes),
        _mm256_extracti128_si256::<1>(codes),
    );
    let fours = _mm_or_si128(codes, _mm_and_si128(missed, _mm_set1_epi8(8)));
    // First + 16 × second.
    let words = _mm_maddubs_epi16(fours, _mm_set1_epi16(0x1001));
    let word = _mm_cvtsi128_si64(_mm_packus_epi16(words, words)) as u64;
    scratch.codes[number] = word & 0x7777_7777_7777_7777;
    word
}

/// Writes the stored bytes of a piece's differences.
///
/// # Safety
///
/// `ends` must have room for them.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn pack(scratch: &Scratch, ends: &mut Ends) {
    let mut data = ends.data;
    for i in 0..SLOTS_PER_PIECE / 2 {
        // SAFETY: there is one byte of codes per pair of slots, and a code is at most seven.
        // Sixteen bytes are written, for which there is slack.
        unsafe {
            let codes = *scratch.codes.as_ptr().cast::<u8>().add(i);
            let two = _mm_load_si128(scratch.differences.as_ptr().add(2 * i).cast());
            let (from, length) = TWO.get_unchecked(usize::from(codes));
            _mm_storeu_si128(
                data.cast(),
                _mm_shuffle_epi8(two, _mm_load_si128((&raw const *from).cast())),
            );
            data = data.add(*length);
        }
    }
    ends.data = data;
}
