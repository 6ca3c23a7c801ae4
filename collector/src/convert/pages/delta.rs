//! `DELTA_BINARY_PACKED`: each number as its difference from the one before, less the smallest
//! difference of its block, in as many bits as the largest value of its part of the block needs.
//!
//! Most columns stored so are constant in a page, or count. Such an *even* page is one block whose
//! parts take no bits at all, so it costs a look at each number and a few bytes.

use mgz_abi::leb128::{self, zigzag};

/// Differences of a block, and of each of its parts.
const BLOCK: usize = 256;
const DIFFERENCES_PER_PART: usize = 64;

/// A number of a column stored as differences.
pub(crate) trait Number: Copy + PartialEq {
    /// As the signed number of the file's type that has the same bits.
    fn stored(self) -> i64;
    /// From `before` to `self`, as the file's type wraps.
    fn difference(self, before: Self) -> i64;
}

impl Number for u64 {
    #[inline(always)]
    fn stored(self) -> i64 {
        self.cast_signed()
    }

    #[inline(always)]
    fn difference(self, before: u64) -> i64 {
        self.wrapping_sub(before).cast_signed()
    }
}

impl Number for u32 {
    #[inline(always)]
    fn stored(self) -> i64 {
        i64::from(self.cast_signed())
    }

    #[inline(always)]
    fn difference(self, before: u32) -> i64 {
        i64::from(self.wrapping_sub(before).cast_signed())
    }
}

impl Number for u16 {
    #[inline(always)]
    fn stored(self) -> i64 {
        i64::from(self)
    }

    #[inline(always)]
    fn difference(self, before: u16) -> i64 {
        i64::from(self) - i64::from(before)
    }
}

/// Appends a page of `count` numbers from `first` on, each `step` more than that before.
pub(crate) fn pack_even<T: Number>(first: T, step: i64, count: usize, to: &mut Vec<u8>) {
    let steps = count.saturating_sub(1);
    header(
        steps.next_multiple_of(128).max(128),
        1,
        count,
        first.stored(),
        to,
    );
    if steps > 0 {
        varint(zigzag(step), to);
        to.push(0);
    }
}

/// Appends a page of these numbers.
pub(crate) fn pack<T: Number>(values: &[T], to: &mut Vec<u8>) {
    let Some(&first) = values.first() else {
        return header(128, 1, 0, 0, to);
    };
    if let Some(step) = even(values) {
        return pack_even(first, step, values.len(), to);
    }
    let (first, steps) = (first.stored(), values.len() - 1);
    header(BLOCK, BLOCK / DIFFERENCES_PER_PART, values.len(), first, to);
    // Each block sees the number before it.
    for block in (0..steps)
        .step_by(BLOCK)
        .map(|at| &values[at..(at + BLOCK + 1).min(values.len())])
    {
        pack_block(block, to);
    }
}

/// Writes the header of a page.
fn header(block: usize, parts: usize, count: usize, first: i64, to: &mut Vec<u8>) {
    for number in [block, parts, count] {
        varint(number as u64, to);
    }
    varint(zigzag(first), to);
}

/// The step that numbers advance by, if it is the same all the way; of fewer than two numbers it is
/// 0.
fn even<T: Number>(values: &[T]) -> Option<i64> {
    let [first, second, ..] = *values else {
        return Some(0);
    };
    let step = second.difference(first);
    // In stretches, so that the comparisons of a stretch need no branches.
    let same = values
        .chunks(BLOCK)
        .zip(values[1..].chunks(BLOCK))
        .all(|(before, after)| {
            let differ = before
                .iter()
                .zip(after)
                .fold(0, |differ, (&a, &b)| differ | (b.difference(a) ^ step));
            differ == 0
        });
    same.then_some(step)
}

/// Packs the differences between neighbours, which are `BLOCK` at most and one at least.
fn pack_block<T: Number>(values: &[T], to: &mut Vec<u8>) {
    let count = values.len() - 1;
    let mut differences = [0i64; BLOCK];
    for (difference, pair) in differences.iter_mut().zip(values.windows(2)) {
        *difference = pair[1].difference(pair[0]);
    }
    let least = differences[..count].iter().copied().min().unwrap_or(0);
    // Excess of each difference over the least: below 2^64, or 2^32 for the 32-bit type. Behind the
    // last there are zeros, which take no bits.
    let mut over = [0u64; BLOCK];
    for (over, difference) in over.iter_mut().zip(&differences[..count]) {
        *over = difference.wrapping_sub(least).cast_unsigned();
    }
    let parts = over.as_chunks::<DIFFERENCES_PER_PART>().0;
    let widths = parts
        .iter()
        .map(|part| u64::BITS - part.iter().fold(0, |all, &v| all | v).leading_zeros());
    varint(zigzag(least), to);
    to.extend(widths.clone().map(|width| width as u8));
    for (part, width) in parts.iter().zip(widths) {
        pack_part(part, width, to);
    }
}

/// Numbers of `width` bits each, the lowest bits first.
fn pack_part(part: &[u64; DIFFERENCES_PER_PART], width: u32, to: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let mut words = [0u64; DIFFERENCES_PER_PART];
    let (mut held, mut bits, mut word) = (0, 0, 0);
    for &value in part {
        held |= value << bits;
        bits += width;
        if bits >= u64::BITS {
            words[word] = held;
            word += 1;
            bits -= u64::BITS;
            // The bits of the number that did not fit. The shift takes two steps, since it may be
            // by 64 bits.
            held = value >> 1 >> (width - bits - 1);
        }
    }
    to.extend(
        words[..width as usize]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
}

fn varint(value: u64, to: &mut Vec<u8>) {
    leb128::encode(value, |byte| to.push(byte));
}
