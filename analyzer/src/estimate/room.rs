//! How many blocks there can be where some were seen: of addresses in their lines, of lines in their pages, of pages in larger pieces.

use super::footprint::Block;

/// A line has 2 to the power of this many blocks.
const SHIFT: u32 = 6;

/// The lines of blocks, as blocks: both are sorted by number.
pub(super) fn lines(blocks: &[Block]) -> Vec<Block> {
    let mut lines: Vec<Block> = Vec::new();
    for block in blocks {
        let number = block.number >> SHIFT;
        match lines.last_mut().filter(|l| l.number == number) {
            Some(line) => join(line, block),
            None => lines.push(Block { number, ..*block }),
        }
    }
    lines
}

/// Adds the samples of a block to those of its line. Only two of the samples of a block are known: of a line that more have seen, the number may be too large.
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

/// Blocks that a line has room for, if all are as far apart as these are.
pub(super) fn places(blocks: &[Block]) -> f64 {
    let step = blocks.windows(2).fold(0, |step, pair| if step == 1 { 1 } else { gcd(pair[1].number - pair[0].number, step) });
    (1u64 << SHIFT).div_ceil(step.max(1)) as f64
}

/// Greatest common divisor.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::EVEN;

    fn block(number: u64, samples: u32, first: [u32; 2]) -> Block {
        Block { number, samples, first, irregular: number == 130, stands: EVEN }
    }

    #[test]
    fn lines_have_the_samples_of_their_blocks() {
        let blocks = [block(0, 1, [4, 0]), block(8, 1, [4, 0]), block(64, 1, [4, 0]), block(80, 2, [2, 4]), block(128, 2, [1, 2]), block(130, 1, [7, 0]), block(192, 9, [0, 3])];
        let line = |number: u64, samples: u32, first: [u32; 2]| Block { irregular: number == 2, ..block(number, samples, first) };
        assert_eq!(lines(&blocks), [line(0, 1, [4, 0]), line(1, 2, [2, 4]), line(2, 3, [1, 2]), line(3, 9, [0, 3])]);
    }

    #[test]
    fn a_line_has_room_for_what_is_as_far_apart_as_its_blocks() {
        let at = |numbers: &[u64]| places(&numbers.iter().map(|&n| block(n, 1, [0, 0])).collect::<Vec<_>>());
        assert_eq!(at(&[4, 12, 28]), 8.0);
        assert_eq!(at(&[4, 12, 13]), 64.0);
        assert_eq!(at(&[0, 24, 72]), 3.0);
        assert_eq!(at(&[0, 4096]), 1.0);
        // Of one block, nothing is known.
        assert_eq!(at(&[7]), 64.0);
    }
}
