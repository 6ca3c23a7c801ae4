//! `BYTE_STREAM_SPLIT`: the lowest bytes of all numbers, then their second ones, and so on.
//!
//! Sixteen numbers at a time: interleaving the halves of a square of bytes four times transposes
//! it. The code uses only instructions of the x86-64 baseline.

use std::arch::x86_64::{__m128i, _mm_unpackhi_epi8, _mm_unpacklo_epi8};

/// Interleaves the bytes of the registers' first half with those of the second.
#[inline(always)]
fn interleaved<const N: usize>(from: [__m128i; N]) -> [__m128i; N] {
    std::array::from_fn(|i| {
        let (a, b) = (from[i / 2], from[i / 2 + N / 2]);
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            if i % 2 == 0 {
                _mm_unpacklo_epi8(a, b)
            } else {
                _mm_unpackhi_epi8(a, b)
            }
        }
    })
}

macro_rules! split {
    ($name:ident, $type:ty, $bytes:literal) => {
        /// Splits numbers into planes of bytes by rank. The length of `out` is the size of the
        /// numbers.
        pub(crate) fn $name(values: &[$type], out: &mut [u8]) {
            let rows = values.len();
            let (squares, rest) = values.as_chunks::<16>();
            for (number, square) in squares.iter().enumerate() {
                let mut bytes: [__m128i; $bytes] = bytemuck::cast(*square);
                for _ in 0..4 {
                    bytes = interleaved(bytes);
                }
                for (rank, sixteen) in bytes.iter().enumerate() {
                    out[rank * rows + number * 16..][..16]
                        .copy_from_slice(bytemuck::bytes_of(sixteen));
                }
            }
            for (row, value) in (rows - rest.len()..).zip(rest) {
                for (rank, byte) in value.to_le_bytes().into_iter().enumerate() {
                    out[rank * rows + row] = byte;
                }
            }
        }
    };
}
split!(four, u32, 4);
split!(eight, u64, 8);

/// Splits one-byte numbers as four-byte ones: the upper three planes are zero.
pub(crate) fn narrow(values: &[u8], out: &mut [u8]) {
    let (lowest, zeros) = out.split_at_mut(values.len());
    lowest.copy_from_slice(values);
    zeros.fill(0);
}

/// Splits two-byte numbers as four-byte ones: the upper two planes are zero.
pub(crate) fn half(values: &[u16], out: &mut [u8]) {
    let (low, rest) = out.split_at_mut(values.len());
    let (high, zeros) = rest.split_at_mut(values.len());
    for ((low, high), value) in low.iter_mut().zip(high).zip(values) {
        [*low, *high] = value.to_le_bytes();
    }
    zeros.fill(0);
}
