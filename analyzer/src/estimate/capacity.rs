//! Capacity of used memory: the number of blocks that fit into the units where some were seen.
//! Addresses are counted in lines, lines in pages, pages in larger units.

use crate::estimate::params;
use crate::estimate::recapture::Block;

/// The lines of blocks, in the same form as blocks. Both are sorted by number. `None` if no two
/// blocks share a line.
pub(crate) fn lines(blocks: &[Block]) -> Option<Vec<Block>> {
    let shared = blocks
        .windows(2)
        .filter(|pair| {
            pair[0].number >> params::BLOCKS_PER_LINE_LOG2
                == pair[1].number >> params::BLOCKS_PER_LINE_LOG2
        })
        .count();
    if shared == 0 {
        return None;
    }
    let mut lines: Vec<Block> = Vec::with_capacity(blocks.len() - shared);
    let line_of = |block: &Block| Block {
        number: block.number >> params::BLOCKS_PER_LINE_LOG2,
        ..*block
    };
    let (first, others) = blocks.split_first()?;
    let mut line = line_of(first);
    for block in others {
        if block.number >> params::BLOCKS_PER_LINE_LOG2 == line.number {
            join(&mut line, block);
        } else {
            lines.push(std::mem::replace(&mut line, line_of(block)));
        }
    }
    lines.push(line);
    Some(lines)
}

/// Adds the samples of a block to those of its line. Only two samples of each block are known, so
/// the number may be too large for a line that more than two samples have seen.
fn join(line: &mut Block, block: &Block) {
    for &sample in block.first.iter().take(block.samples as usize) {
        let [first, second] = line.first;
        if line.samples == 1 && sample != first {
            line.first = [first.min(sample), first.max(sample)];
            line.samples = 2;
        } else if line.samples > 1 && sample != first && sample != second {
            line.samples += 1;
        }
    }
    line.samples = line.samples.max(block.samples);
    line.irregular |= block.irregular;
}

/// Number of blocks that fit in a line at the spacing of these blocks.
pub(crate) fn places(blocks: &[Block]) -> f64 {
    let step = blocks
        .windows(2)
        .fold(0, |step, pair| gcd(pair[1].number - pair[0].number, step));
    (1u64 << params::BLOCKS_PER_LINE_LOG2).div_ceil(step.max(1)) as f64
}

/// Greatest common divisor. Steps are mostly powers of two, which need no division.
#[inline(always)]
fn gcd(a: u64, b: u64) -> u64 {
    if b.is_power_of_two() {
        1 << (a | b).trailing_zeros()
    } else {
        any_gcd(a, b)
    }
}

fn any_gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { any_gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::sample_shares::EVEN_SHARE;

    fn block(number: u64, samples: u32, first: [u32; 2]) -> Block {
        Block {
            number,
            samples,
            first,
            irregular: number == 130,
            stands: EVEN_SHARE,
        }
    }

    #[test]
    fn lines_have_the_samples_of_their_blocks() {
        let blocks = [
            block(0, 1, [4, 0]),
            block(8, 1, [4, 0]),
            block(64, 1, [4, 0]),
            block(80, 2, [2, 4]),
            block(128, 2, [1, 2]),
            block(130, 1, [7, 0]),
            block(192, 9, [0, 3]),
        ];
        let line = |number: u64, samples: u32, first: [u32; 2]| Block {
            irregular: number == 2,
            ..block(number, samples, first)
        };
        assert_eq!(
            lines(&blocks).unwrap(),
            [
                line(0, 1, [4, 0]),
                line(1, 2, [2, 4]),
                line(2, 3, [1, 2]),
                line(3, 9, [0, 3])
            ]
        );
        assert_eq!(lines(&[blocks[0], blocks[2], blocks[4]]), None);
    }

    #[test]
    fn a_line_has_room_for_what_is_as_far_apart_as_its_blocks() {
        let at = |numbers: &[u64]| {
            places(
                &numbers
                    .iter()
                    .map(|&n| block(n, 1, [0, 0]))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(at(&[4, 12, 28]), 8.0);
        assert_eq!(at(&[4, 12, 13]), 64.0);
        assert_eq!(at(&[0, 24, 72]), 3.0);
        assert_eq!(at(&[0, 24, 40, 46]), 32.0);
        assert_eq!(at(&[0, 4096]), 1.0);
        // A single block gives no information.
        assert_eq!(at(&[7]), 64.0);
    }
}
