//! Joins split bytes to numbers, sixteen numbers at a time: two ranks of bytes to pairs, these to
//! fours, and these to eights. Each instruction produces sixteen bytes, and every x86-64 processor
//! supports it. Compiled scalar code takes several times as long.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Numbers that are joined at a time.
#[cfg(target_arch = "x86_64")]
const NUMBERS_PER_STEP: usize = 16;

#[cfg(target_arch = "x86_64")]
type Vector = __m128i;

/// Joins two ranks. The result has the numbers in their order.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn pairs([a, b]: [Vector; 2]) -> [Vector; 2] {
    [_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn fours([a, b, c, d]: [Vector; 4]) -> [Vector; 4] {
    let ([a, b], [c, d]) = (pairs([a, b]), pairs([c, d]));
    [
        _mm_unpacklo_epi16(a, c),
        _mm_unpackhi_epi16(a, c),
        _mm_unpacklo_epi16(b, d),
        _mm_unpackhi_epi16(b, d),
    ]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn eights([a, b, c, d, e, f, g, h]: [Vector; 8]) -> [Vector; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (fours([a, b, c, d]), fours([e, f, g, h]));
    let [w, x] = [_mm_unpacklo_epi32(a, e), _mm_unpackhi_epi32(a, e)];
    let [y, z] = [_mm_unpacklo_epi32(b, f), _mm_unpackhi_epi32(b, f)];
    let [s, t] = [_mm_unpacklo_epi32(c, g), _mm_unpackhi_epi32(c, g)];
    [
        w,
        x,
        y,
        z,
        s,
        t,
        _mm_unpacklo_epi32(d, h),
        _mm_unpackhi_epi32(d, h),
    ]
}

/// Appends numbers from their bytes by rank, the lowest first. Only the given number of them is
/// appended.
macro_rules! append {
    ($name:ident, $ranks:literal, $together:ident, $($rank:literal)*) => {
        #[cfg(target_arch = "x86_64")]
        pub(crate) fn $name(ranks: &[&[u8]; $ranks], to: &mut Vec<$name>) -> usize {
            let steps = ranks.iter().map(|r| r.len()).min().unwrap_or(0) / NUMBERS_PER_STEP;
            to.reserve(steps * NUMBERS_PER_STEP);
            let room: *mut Vector = to.spare_capacity_mut().as_mut_ptr().cast();
            for step in 0..steps {
                let from = step * NUMBERS_PER_STEP;
                // SAFETY: the range has as many bytes as a vector, and reading needs no alignment.
                let bytes = [$(unsafe { _mm_loadu_si128(ranks[$rank][from..from + NUMBERS_PER_STEP].as_ptr().cast()) }),*];
                // SAFETY: every x86-64 has SSE2.
                for (at, vector) in unsafe { $together(bytes) }.into_iter().enumerate() {
                    // SAFETY: there is room for `NUMBERS_PER_STEP` numbers in each step, which are
                    // as many vectors as there are ranks, and writing needs no alignment.
                    unsafe { _mm_storeu_si128(room.add(step * $ranks + at), vector) };
                }
            }
            // SAFETY: the capacity was reserved, and all of these numbers have been written.
            unsafe { to.set_len(to.len() + steps * NUMBERS_PER_STEP) };
            steps * NUMBERS_PER_STEP
        }

        #[cfg(not(target_arch = "x86_64"))]
        pub(crate) fn $name(_ranks: &[&[u8]; $ranks], _to: &mut Vec<$name>) -> usize {
            0
        }
    };
}
append!(u16, 2, pairs, 0 1);
append!(u32, 4, fours, 0 1 2 3);
append!(u64, 8, eights, 0 1 2 3 4 5 6 7);
