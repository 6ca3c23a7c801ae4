//! Blocks over time.

use std::collections::BTreeMap;

/// More are counted only. Source: Chosen.
const MAX_LIVES: usize = 1 << 23;
/// Places below a new block, and above its start, that are searched for blocks that it overlaps.
/// Source: Chosen.
const MAX_PLACES_SEARCHED: usize = 1 << 12;

/// A block, from its allocation to its end. Several that followed one another at the same place, of
/// the same size and from the same stack, are one, unless another block overlapped the place in
/// between, or a block that was not logged may have done so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Life {
    /// Process.
    pub pid: u32,
    /// Number of the call stack.
    pub stack: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// CLOCK_MONOTONIC of the (first) allocation.
    pub begin_ns: u64,
    /// CLOCK_MONOTONIC of its (last) end; `u64::MAX` if it did not end.
    pub end_ns: u64,
    /// Number of consecutive blocks that this life stands for.
    pub times: u64,
    /// Number of blocks that each of these stands for, itself included, if blocks are a sample.
    pub weight: f32,
}

/// All blocks.
#[derive(Debug, Default)]
pub struct Lives {
    /// True if blocks may be joined where all blocks of their kind are logged.
    pub joins_certain: bool,
    lives: Vec<Life>,
    /// The last life at a place. After its end it stays until another block overlaps it.
    last: BTreeMap<(u32, u64), u32>,
    forgotten: u64,
}

impl Lives {
    /// A process has begun, or has executed a new program.
    pub fn begin(&mut self, pid: u32, ns: u64) {
        let all = self.last.range((pid, 0)..=(pid, u64::MAX));
        let gone: Vec<(u32, u64)> = all.map(|(&key, _)| key).collect();
        for key in gone {
            self.end(key, ns);
            self.last.remove(&key);
        }
    }

    /// A process has everything that its parent has.
    pub fn fork(&mut self, parent: u32, child: u32, ns: u64) {
        self.begin(child, ns);
        let there = self
            .last
            .range((parent, 0)..=(parent, u64::MAX))
            .filter(|(_, at)| self.lives[**at as usize].end_ns == u64::MAX);
        let copies: Vec<Life> = there
            .map(|(_, &at)| Life {
                pid: child,
                begin_ns: ns,
                times: 1,
                ..self.lives[at as usize]
            })
            .collect();
        copies.into_iter().for_each(|life| self.push(life));
    }

    /// A block was allocated.
    pub fn alloc(&mut self, pid: u32, start: u64, bytes: u64, ns: u64, stack: u32, weight: f32) {
        // The program may have overwritten the log.
        let weight = if weight.is_finite() {
            weight.clamp(1.0, 1e12)
        } else {
            1.0
        };
        self.forget_overlapped(pid, start, bytes);
        if let Some(&at) = self.last.get(&(pid, start)) {
            let before = &mut self.lives[at as usize];
            // A new block at the same place ends the former one, even if no free was seen.
            before.end_ns = before.end_ns.min(ns);
            let joined = self.joins_certain && before.weight.max(weight) <= 1.0;
            if joined && (before.bytes, before.stack) == (bytes, stack) {
                before.end_ns = u64::MAX;
                before.times += 1;
                return;
            }
        }
        self.push(Life {
            pid,
            stack,
            start,
            bytes,
            begin_ns: ns,
            end_ns: u64::MAX,
            times: 1,
            weight,
        });
    }

    /// Ends joining for blocks that a new one overlaps at another start.
    fn forget_overlapped(&mut self, pid: u32, start: u64, bytes: u64) {
        let life = |at: &u32| &self.lives[*at as usize];
        let below = self.last.range((pid, 0)..(pid, start)).rev();
        let below = below
            .take(MAX_PLACES_SEARCHED)
            .take_while(|(key, at)| key.1.saturating_add(life(at).bytes) > start);
        let next = start.saturating_add(1);
        let end = start.saturating_add(bytes).max(next);
        let above = self
            .last
            .range((pid, next)..(pid, end))
            .take(MAX_PLACES_SEARCHED);
        let over = below
            .chain(above)
            .filter(|(_, at)| life(at).end_ns != u64::MAX);
        let over: Vec<(u32, u64)> = over.map(|(&key, _)| key).collect();
        for key in over {
            self.last.remove(&key);
        }
    }

    fn push(&mut self, life: Life) {
        if self.lives.len() >= MAX_LIVES {
            self.forgotten += 1;
            self.last.remove(&(life.pid, life.start));
            return;
        }
        self.last
            .insert((life.pid, life.start), self.lives.len() as u32);
        self.lives.push(life);
    }

    /// A block was freed.
    pub fn free(&mut self, pid: u32, start: u64, ns: u64) {
        self.end((pid, start), ns);
    }

    fn end(&mut self, key: (u32, u64), ns: u64) {
        if let Some(&at) = self.last.get(&key) {
            let life = &mut self.lives[at as usize];
            life.end_ns = life.end_ns.min(ns.max(life.begin_ns));
        }
    }

    /// All lives, and the number of those given up. Blocks of size 0 are left out.
    pub fn finish(mut self) -> (Vec<Life>, u64) {
        self.lives.retain(|l| l.bytes > 0);
        (self.lives, self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_does_not_go_on_over_a_block_that_overlapped_its_place() {
        let mut lives = Lives {
            joins_certain: true,
            ..Lives::default()
        };
        let mut ns = 0;
        let mut block = |lives: &mut Lives, start, bytes, stack| {
            lives.alloc(1, start, bytes, ns, stack, 1.0);
            lives.free(1, start, ns + 1);
            ns += 2;
        };
        // This block contains all others and lives on.
        lives.alloc(1, 0, 1000, 0, 9, 1.0);
        for larger in [(96, 64), (80, 40), (110, 4), (300, 8)] {
            block(&mut lives, 100, 16, 0);
            block(&mut lives, larger.0, larger.1, 1);
            block(&mut lives, 100, 16, 0);
        }
        lives.alloc(1, u64::MAX, u64::MAX, 99, 2, 1.0);
        lives.free(1, 0, 100);
        let all = lives.finish().0;
        let of_first = all.iter().filter(|l| l.stack == 0);
        // The last of the other blocks lay elsewhere.
        assert_eq!(of_first.map(|l| l.times).collect::<Vec<_>>(), [1, 2, 2, 3]);
        assert_eq!(all[0].end_ns, 100);
    }

    #[test]
    fn places_that_are_used_again_have_lives_of_their_own_unless_nothing_differs() {
        let mut lives = Lives {
            joins_certain: true,
            ..Lives::default()
        };
        lives.alloc(1, 0x10, 8, 5, 0, 1.0);
        lives.free(1, 0x10, 6);
        lives.alloc(1, 0x10, 8, 7, 0, 1.0);
        lives.free(1, 0x10, 8);
        lives.alloc(1, 0x10, 8, 9, 1, 1.0);
        // No free was logged for this block.
        lives.alloc(1, 0x10, 16, 11, 1, 1.0);
        lives.free(1, 0x99, 12);
        lives.fork(1, 2, 20);
        lives.free(1, 0x10, 21);
        lives.begin(2, 30);
        let list: Vec<_> = lives
            .finish()
            .0
            .iter()
            .map(|l| (l.pid, l.bytes, l.begin_ns, l.end_ns, l.stack, l.times))
            .collect();
        assert_eq!(
            list,
            [
                (1, 8, 5, 8, 0, 2),
                (1, 8, 9, 11, 1, 1),
                (1, 16, 11, 21, 1, 1),
                (2, 16, 20, 30, 1, 1)
            ]
        );
    }

    /// A block of another site may have lived there in between, without being logged.
    #[test]
    fn blocks_of_a_sample_are_not_joined() {
        for (joins_certain, weight, expected) in [(true, 9.0, 2), (false, 1.0, 2), (true, 1.0, 1)] {
            let mut lives = Lives {
                joins_certain,
                ..Lives::default()
            };
            for begin in [5, 9] {
                lives.alloc(1, 0x10, 8, begin, 0, weight);
                lives.free(1, 0x10, begin + 1);
            }
            let list = lives.finish().0;
            assert_eq!(list.len(), expected);
            assert_eq!(list.iter().map(|l| l.times).sum::<u64>(), 2);
        }
    }
}
