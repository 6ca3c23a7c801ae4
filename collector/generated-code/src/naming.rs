//! Finds the function at an address and time.

use crate::address_paint::AddressPaint;
use crate::{GeneratedBlock, GeneratedName};

/// A sample gets its function's name even if the record is later by up to this time, nanoseconds:
/// some compilers write the record when the code is already running. Source: Chosen.
const MAX_RECORD_DELAY_NS: u64 = 100_000_000;

/// The blocks of all sources of a process, the best source last.
#[derive(Clone, Debug, Default)]
pub struct ProcessCode {
    sources: Vec<Vec<GeneratedBlock>>,
    /// For each source, the last block at each address.
    last: Vec<AddressPaint>,
}

impl ProcessCode {
    /// Adds a source that is better than all before it. If its blocks overlap in time, the last one
    /// counts.
    pub fn add_source(&mut self, mut blocks: Vec<GeneratedBlock>) {
        blocks.sort_by_key(|b| b.begin_ns);
        if blocks.is_empty() {
            return;
        }
        let mut last = AddressPaint::default();
        for (number, block) in (0..).zip(&blocks) {
            last.paint(block.start, block.end, number);
        }
        self.sources.push(blocks);
        self.last.push(last);
    }

    /// True if no source has a block.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The names of samples, each a time (CLOCK_MONOTONIC) and an address.
    pub fn names_of(&self, samples: &[(u64, u64)]) -> Vec<Option<&GeneratedName>> {
        let mut order: Vec<usize> = (0..samples.len()).collect();
        order.sort_by_key(|&at| samples[at].0);
        let mut names = vec![None; samples.len()];
        for blocks in self.sources.iter().rev() {
            for delay in [0, MAX_RECORD_DELAY_NS] {
                name_in(blocks, samples, &order, delay, &mut names);
            }
        }
        names
    }

    /// The name at an address for an unknown time: that of the last code there.
    pub fn last_name_of(&self, address: u64) -> Option<&GeneratedName> {
        let sources = self.sources.iter().zip(&self.last).rev();
        let mut found = sources.filter_map(|(blocks, last)| blocks.get(last.at(address)? as usize));
        found.next().map(|block| &block.name)
    }
}

/// Names those samples that have none yet. `order`: the samples by time. `delay` is added to their
/// times.
fn name_in<'a>(
    blocks: &'a [GeneratedBlock],
    samples: &[(u64, u64)],
    order: &[usize],
    delay: u64,
    names: &mut [Option<&'a GeneratedName>],
) {
    // Ends in the order of time.
    let mut ends: Vec<usize> = (0..blocks.len())
        .filter(|&at| blocks[at].end_ns != u64::MAX)
        .collect();
    ends.sort_by_key(|&at| blocks[at].end_ns);
    let (mut ends, mut begins) = (ends.into_iter().peekable(), (0..blocks.len()).peekable());
    let mut paint = AddressPaint::default();
    for &at in order {
        let (time, address) = (samples[at].0.saturating_add(delay), samples[at].1);
        loop {
            let begin = begins
                .peek()
                .map(|&b| blocks[b].begin_ns)
                .filter(|t| *t <= time);
            let end = ends
                .peek()
                .map(|&b| blocks[b].end_ns)
                .filter(|t| *t <= time);
            match (begin, end) {
                (Some(begin), end) if end.is_none_or(|end| begin <= end) => {
                    let Some(number) = begins.next() else { break };
                    let block = &blocks[number];
                    paint.paint(block.start, block.end, number as u32);
                }
                (_, Some(_)) => {
                    let Some(number) = ends.next() else { break };
                    let block = &blocks[number];
                    paint.clear_number(block.start, block.end, number as u32);
                }
                _ => break,
            }
        }
        if names[at].is_none() {
            let found = paint.at(address).and_then(|n| blocks.get(n as usize));
            names[at] = found.map(|block| &block.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NameSource;

    fn block(start: u64, end: u64, times: (u64, u64), name: &str) -> GeneratedBlock {
        GeneratedBlock {
            start,
            end,
            begin_ns: times.0,
            end_ns: times.1,
            name: GeneratedName::of_text(name, NameSource::Jitdump),
        }
    }

    fn names(code: &ProcessCode, samples: &[(u64, u64)]) -> Vec<String> {
        let names = code.names_of(samples).into_iter();
        names
            .map(|n| n.map_or(String::new(), |n| n.function.clone()))
            .collect()
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_name_holds_for_its_time() {
        let mut code = ProcessCode::default();
        code.add_source(vec![
            block(0x100, 0x200, (10 * S, 20 * S), "old"),
            block(0x180, 0x280, (30 * S, u64::MAX), "new"),
        ]);
        let samples = [
            (40 * S, 0x180),
            (15 * S, 0x180),
            (25 * S, 0x180),
            (5 * S, 0x180),
            (40 * S, 0x100),
            (30 * S - 1000, 0x270),
            (20 * S, 0x1ff),
            (15 * S, 0x200),
        ];
        assert_eq!(
            names(&code, &samples),
            ["new", "old", "", "", "", "new", "", ""]
        );
        let last = [0x180, 0x150, 0x300].map(|at| code.last_name_of(at));
        let last = last.map(|n| n.map(|n| n.function.as_str()));
        assert_eq!(last, [Some("new"), Some("old"), None]);
    }

    #[test]
    fn better_sources_come_first_and_the_last_line_counts() {
        let mut code = ProcessCode::default();
        code.add_source(vec![
            block(0x100, 0x200, (0, u64::MAX), "first line"),
            block(0x140, 0x180, (0, u64::MAX), "last line"),
        ]);
        code.add_source(vec![block(0x170, 0x300, (0, u64::MAX), "dump")]);
        let samples = [(1, 0x100), (1, 0x140), (1, 0x170), (1, 0x1f0), (1, 0x300)];
        assert_eq!(
            names(&code, &samples),
            ["first line", "last line", "dump", "dump", ""]
        );
    }
}
