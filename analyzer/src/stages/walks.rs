//! Walks that return: load instructions that move through memory in even steps, step back, and
//! repeat the same path.
//!
//! A column of an array that is read again for its next element, and a block that is used twenty
//! times, return after more loads than a sample has. But some samples contain the step back. It
//! shows how far back the walk begins again. From this follows the number of loads until it
//! returns. The rows after the step show if the lines are the same as before.
//!
//! Walks that follow one another through an array are similar: a stencil reads the row below first,
//! and the row above last.

use crate::data::group::Group;
use crate::data::memory_units::{CacheLine, LINE_BYTES};
use crate::stages::strides::NO_SITE;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// A step back by at least this many bytes may end a walk.
const BACK: i64 = 4096;
/// Number of even steps in a sample that are required for each step back. Source: Chosen.
const MIN_EVEN_STEPS: u32 = 16;
/// Rows after a step back that are compared with the rows before it.
const COMPARED: usize = 64;
/// Minimum number of steps back, or of samples, for evidence. Source: Chosen.
const MIN_EVIDENCE: u64 = 8;
/// A walk has gaps if its mean step exceeds the even step by this factor.
const GAPS: f64 = 1.3;
/// Minimum part of its memory that a walk shares with the one that it follows. Source: Chosen.
const MIN_COMMON_SHARE: f64 = 0.1;
/// Minimum number of rows of a walk in a sample. Source: Chosen.
const MIN_ROWS: usize = 16;

/// A row that represents others: address, sample, address space.
pub type WalkPlace = (u64, u32, u32);

/// Steps back of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Back {
    times: u64,
    /// Rows after the step that were compared, and those among them in a line of the previous walk.
    compared: u64,
    same: u64,
}

/// Observations of a load instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Walk {
    /// Code and class.
    pub group: Group,
    /// Rows.
    pub rows: u64,
    /// Samples that contain it.
    pub samples: u64,
    /// First touches of a line in the second halves of samples.
    pub late: u64,
    /// One of these first touches.
    pub place: Option<WalkPlace>,
    /// Number of other steps, and the sum of their bytes.
    forward: u64,
    moved: i64,
    back: HashMap<i64, Back, Mixed>,
    /// Steps back in samples with an uneven walk.
    uneven: u64,
    /// Samples in which most steps are equal.
    even: u64,
    /// Lowest address in these samples.
    low: u64,
    /// Highest address in these samples.
    high: u64,
    /// The next walk ahead in these samples, by instruction.
    ahead: HashMap<u32, Ahead, Mixed>,
}

/// Distance by which a walk is ahead of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead {
    times: u64,
    /// Bytes: least and most.
    by: (i64, i64),
    /// Greatest step of the walks, bytes.
    step: u64,
}

/// A walk that returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lap {
    /// Rows of its instruction until it returns.
    pub rows: f64,
    /// Probability that a line was touched one lap ago: lower end of its 95 % interval, estimate,
    /// upper end.
    pub again: [f64; 3],
}

impl Walk {
    /// Laps by the sizes of steps back: one size or a few, if most steps back have them.
    fn laps(&self) -> Vec<Lap> {
        let all: u64 = self.back.values().map(|b| b.times).sum::<u64>() + self.uneven;
        let is_even = |step: i64, b: &Back| {
            b.times >= MIN_EVIDENCE && b.compared > 0 && step.signum() == -self.moved.signum()
        };
        let mut backs: Vec<(i64, Back)> = (self.back.iter())
            .map(|(&step, &back)| (step, back))
            .filter(|(step, back)| is_even(*step, back))
            .collect();
        backs.sort_unstable_by_key(|&(step, _)| step);
        if backs.iter().map(|b| b.1.times).sum::<u64>() * 10 < all * 6 {
            return Vec::new();
        }
        let lap = |&(step, back): &(i64, Back)| {
            let (length, moved) = (step.unsigned_abs() as f64, self.moved.unsigned_abs() as f64);
            let rows = length / (moved / self.forward.max(1) as f64) + 1.0;
            let same = back.same as f64 / back.compared as f64;
            // Walks that are shorter than the step back do not return each time.
            (rows, length * back.times as f64 / moved, same, back.times)
        };
        let laps: Vec<_> = backs.iter().map(lap).collect();
        let share: f64 = laps.iter().map(|l| l.1).sum();
        if share >= 1.5 {
            return Vec::new();
        }
        let of = |(rows, part, same, times): (f64, f64, f64, u64)| {
            // If there are more steps back than possible, the surplus is chance. It does not make
            // it certain that all walks return.
            let part = part / share.max(1.0);
            let doubt = 2.0 * part / (times as f64).sqrt();
            let again = [part - doubt, part, part + doubt].map(|s| s.clamp(0.0, 1.0) * same);
            Lap { rows, again }
        };
        laps.into_iter().map(of).collect()
    }

    /// The lap since the walk ahead of this one passed here. `None` if no walk is ahead.
    fn behind(&self, all: &HashMap<u32, Walk, Mixed>) -> Option<Lap> {
        let (site, ahead) = (self.ahead.iter()).max_by_key(|&(&s, a)| (a.times, s))?;
        let first = all.get(site)?;
        let each = self.moved.unsigned_abs() as f64 / self.forward.max(1) as f64;
        let apart = (ahead.by.0.abs() + ahead.by.1.abs()) as f64 / 2.0;
        // The distance may vary by one step, depending on the compared rows.
        let same = ahead.by.1.abs_diff(ahead.by.0) <= 4 * ahead.step;
        // A walk with gaps may have skipped the lines of the other.
        let gaps = each > GAPS * ahead.step as f64;
        if ahead.times < MIN_EVIDENCE || ahead.times * 10 < self.even * 6 || !same || gaps {
            return None;
        }
        // Two arrays that are walked in parallel also have a constant distance.
        let common = (self.high.min(first.high)).saturating_sub(self.low.max(first.low));
        let part = common as f64 / (self.high - self.low).max(1) as f64;
        if part < MIN_COMMON_SHARE {
            return None;
        }
        let doubt = part * 2.0 / (ahead.times as f64).sqrt();
        Some(Lap {
            rows: apart / each,
            again: [part - doubt, part, part + doubt].map(|p| p.clamp(0.0, 1.0)),
        })
    }

    fn merge(&mut self, other: Walk) {
        self.group = other.group;
        if other.even > 0 {
            self.reach(other.low, other.high);
        }
        self.even += other.even;
        for (site, of) in other.ahead {
            self.follow(site, of);
        }
        self.rows += other.rows;
        self.samples += other.samples;
        self.late += other.late;
        self.place = [self.place, other.place].into_iter().flatten().min();
        self.forward += other.forward;
        self.moved += other.moved;
        self.uneven += other.uneven;
        for (step, of) in other.back {
            let back = self.back.entry(step).or_default();
            back.times += of.times;
            back.compared += of.compared;
            back.same += of.same;
        }
    }
}

impl Walk {
    fn reach(&mut self, low: u64, high: u64) {
        self.low = if self.even == 0 {
            low
        } else {
            low.min(self.low)
        };
        self.high = self.high.max(high);
    }

    fn follow(&mut self, site: u32, by: Ahead) {
        let Some(of) = self.ahead.get_mut(&site) else {
            self.ahead.insert(site, by);
            return;
        };
        of.times += by.times;
        of.by = (of.by.0.min(by.by.0), of.by.1.max(by.by.1));
        of.step = of.step.max(by.step);
    }
}

/// Walks by load instruction.
#[derive(Clone, Debug, Default)]
pub struct Walks {
    /// By number of the instruction in the whole trace.
    pub sites: HashMap<u32, Walk, Mixed>,
    work: HashMap<u32, Rows, Mixed>,
    /// Instructions in the current sample.
    seen: Vec<u32>,
    /// Their most frequent steps, with the frequencies.
    even: Vec<(i64, u32)>,
    /// Steps of the current instruction.
    steps: Vec<i64>,
}

/// Rows of an instruction in the current sample: group, and addresses with true for late first
/// touches.
type Rows = (Group, Vec<(u64, bool)>);

impl Walks {
    /// Rows of a sample: instruction, group, address, and true if the line is new to the sample.
    pub fn sample(
        &mut self,
        (sample, space): (u32, u32),
        rows: impl ExactSizeIterator<Item = (u32, Group, u64, bool)>,
    ) {
        let half = rows.len() / 2;
        for (at, (site, group, address, first)) in rows.enumerate() {
            if site == NO_SITE {
                continue;
            }
            let of = self.work.entry(site).or_default();
            if of.1.is_empty() {
                self.seen.push(site);
            }
            of.0 = group;
            of.1.push((address, first && at >= half));
        }
        for &site in &self.seen {
            let (group, rows) = &self.work[&site];
            let of = self.sites.entry(site).or_default();
            of.group = *group;
            of.samples += 1;
            of.rows += rows.len() as u64;
            of.late += rows.iter().filter(|r| r.1).count() as u64;
            let late = rows.iter().filter(|r| r.1).map(|r| r.0);
            let place = late.min().map(|address| (address, sample, space));
            of.place = [of.place, place].into_iter().flatten().min();
            self.steps.clear();
            self.steps.extend(steps(rows));
            let even = even(&self.steps);
            add(of, rows, &self.steps, even);
            self.even.push(even);
        }
        self.followers();
        self.even.clear();
        for site in self.seen.drain(..) {
            self.work.entry(site).or_default().1.clear();
        }
    }

    /// Finds the walks of the current sample that follow others.
    fn followers(&mut self) {
        let mut even: Vec<(i64, u32)> = Vec::new();
        for (&site, &(step, times)) in self.seen.iter().zip(&self.even) {
            let rows = &self.work[&site].1;
            if rows.len() < MIN_ROWS {
                continue;
            }
            if step != 0 && times as usize * 10 >= rows.len() * 6 {
                even.push((step, site));
            }
        }
        even.sort_unstable();
        for same in even.chunk_by(|a, b| a.0 == b.0) {
            for &(step, site) in same {
                let own = &self.work[&site].1;
                let others = same.iter().filter(|o| o.1 != site);
                let next = others
                    .filter_map(|&(_, other)| {
                        let by = ahead(own, &self.work[&other].1, step)?;
                        Some((by.abs(), other, by))
                    })
                    .min();
                let Some(of) = self.sites.get_mut(&site) else {
                    continue;
                };
                let addresses = || own.iter().map(|r| r.0);
                let low = addresses().min().unwrap_or(0);
                of.reach(low, addresses().max().unwrap_or(low));
                of.even += 1;
                if let Some((_, other, by)) = next {
                    let by = Ahead {
                        times: 1,
                        by: (by, by),
                        step: step.unsigned_abs(),
                    };
                    of.follow(other, by);
                }
            }
        }
    }

    /// Laps after which the lines of an instruction are touched again. Empty if samples show none.
    pub fn laps(&self, site: u32) -> Vec<Lap> {
        let Some(walk) = self.sites.get(&site) else {
            return Vec::new();
        };
        match walk.behind(&self.sites) {
            Some(behind) => vec![behind],
            None => walk.laps(),
        }
    }

    /// Adds the walks of `other`.
    pub fn merge(&mut self, other: Walks) {
        for (site, walk) in other.sites {
            self.sites.entry(site).or_default().merge(walk);
        }
    }
}

/// The most frequent difference and its frequency.
fn even(steps: &[i64]) -> (i64, u32) {
    if let Some(most) = majority(steps) {
        return most;
    }
    let mut sorted = steps.to_vec();
    sorted.sort_unstable();
    let best = sorted
        .chunk_by(|a, b| a == b)
        .max_by_key(|same| same.len())
        .unwrap_or_default();
    (best.first().copied().unwrap_or(0), best.len() as u32)
}

/// The difference that more than half of the steps have, and its frequency.
fn majority(steps: &[i64]) -> Option<(i64, u32)> {
    let (mut candidate, mut lead) = (0, 0u32);
    for &step in steps {
        match (lead, step == candidate) {
            (0, _) => (candidate, lead) = (step, 1),
            (_, true) => lead += 1,
            (_, false) => lead -= 1,
        }
    }
    let times = steps.iter().filter(|&&s| s == candidate).count();
    (2 * times > steps.len()).then_some((candidate, times as u32))
}

fn steps(rows: &[(u64, bool)]) -> impl Iterator<Item = i64> + '_ {
    let step = |w: &[(u64, bool)]| w[1].0.wrapping_sub(w[0].0) as i64;
    rows.windows(2).map(step)
}

/// Distance by which `other` is ahead in the direction of the step. `None` unless it is always
/// ahead by a line or more.
fn ahead(own: &[(u64, bool)], other: &[(u64, bool)], step: i64) -> Option<i64> {
    let rows = own.len().min(other.len());
    if own.len().abs_diff(other.len()) > 1 {
        return None;
    }
    let at = |row: usize| other[row].0.wrapping_sub(own[row].0) as i64;
    let by = at(rows / 2);
    let alike = [0, rows / 4, rows * 3 / 4, rows - 1]
        .iter()
        .all(|&r| at(r).abs_diff(by) <= step.unsigned_abs());
    (alike && by.signum() == step.signum() && by.unsigned_abs() >= LINE_BYTES).then_some(by)
}

/// Adds the rows of a sample. `step` is their most frequent step, with its frequency.
fn add(of: &mut Walk, rows: &[(u64, bool)], steps: &[i64], (step, times): (i64, u32)) {
    let is_back = |s: i64| {
        let s = if step < 0 { s.saturating_neg() } else { s };
        s <= -BACK
    };
    let backs = steps.iter().filter(|&&s| is_back(s)).count() as u32;
    if step == 0 || times < MIN_EVEN_STEPS * backs {
        of.uneven += u64::from(backs);
        return;
    }
    for (at, &back) in steps.iter().enumerate() {
        if !is_back(back) {
            of.forward += 1;
            of.moved = of.moved.saturating_add(back);
            continue;
        }
        let seen = of.back.entry(back).or_default();
        seen.times += 1;
        let last = rows[at].0;
        for &(address, _) in rows[at + 1..].iter().take(COMPARED) {
            // The previous walk touched addresses at multiples of the step: one is in the line of
            // this row, or not.
            let off = (address.wrapping_sub(last) as i64).rem_euclid(step.abs());
            let (below, above) = (address.wrapping_sub(off as u64), step.abs() - off);
            let above = address.wrapping_add(above as u64);
            seen.compared += 1;
            let line = CacheLine::of(address);
            seen.same += u64::from(CacheLine::of(below) == line || CacheLine::of(above) == line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of `length` rows anywhere in a walk.
    const GROUP: Group = Group::from_raw(1);

    fn walks(samples: u64, length: u64, at: impl Fn(u64) -> u64) -> Walks {
        let mut walks = Walks::default();
        for s in 0..samples {
            // All samples begin at different positions.
            let begin = s.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let rows: Vec<_> = (begin..begin + length)
                .map(|i| (7, GROUP, at(i), true))
                .collect();
            walks.sample((s as u32, 0), rows.into_iter());
        }
        walks
    }

    /// The only lap.
    fn lap(walks: &Walks, site: u32) -> Option<Lap> {
        let laps = walks.laps(site);
        assert!(laps.len() < 2, "{laps:?}");
        laps.first().copied()
    }

    fn near(lap: Lap, rows: f64, again: f64) {
        assert!((lap.rows / rows - 1.0).abs() < 0.02, "{lap:?}");
        let [low, _, high] = lap.again;
        assert!(
            low <= again && again <= high + 0.02 && high - low < 0.25,
            "{lap:?} for {again}"
        );
    }

    #[test]
    fn a_column_comes_again_with_the_next_element() {
        // 1,500 rows of 6,000 bytes; a line has 16 elements.
        let column = walks(400, 1000, |i| i / 1500 % 1500 * 4 + i % 1500 * 6000);
        near(lap(&column, 7).unwrap(), 1500.0, 0.9375);
        // The same towards lower addresses.
        let down = walks(400, 1000, |i| {
            (1 << 40) - (i / 1500 % 1500 * 4 + i % 1500 * 6000)
        });
        near(lap(&down, 7).unwrap(), 1500.0, 0.9375);
    }

    /// Columns of an image, and columns of a quarter of it.
    #[test]
    fn walks_of_two_lengths_come_back_after_either() {
        let columns = walks(3000, 1000, |i| {
            let at = i % 1_250_000;
            let (rows, at) = if at < 1_000_000 {
                (1000, at)
            } else {
                (500, at - 1_000_000)
            };
            at / rows * 4 + at % rows * 6000
        });
        let found = columns.laps(7);
        assert_eq!(found.len(), 2, "{found:?}");
        let [long, short] = [found[0], found[1]];
        assert!(
            (long.rows - 1000.0).abs() < 20.0 && (short.rows - 500.0).abs() < 20.0,
            "{found:?}"
        );
        assert!(
            (long.again[1] - 0.75).abs() < 0.1 && (short.again[1] - 0.1875).abs() < 0.06,
            "{found:?}"
        );
    }

    #[test]
    fn a_block_is_used_many_times_and_left() {
        let lines = 8192;
        let block = walks(3000, 1000, |i| (i / (20 * lines) * lines + i % lines) * 64);
        near(lap(&block, 7).unwrap(), lines as f64, 0.95);
    }

    /// Samples begin more often just before a walk returns than elsewhere. This does not make the
    /// returns certain.
    #[test]
    fn more_returns_than_there_can_be_are_not_certain() {
        let lines = 8192u64;
        let mut walks = Walks::default();
        for s in 0..1000u64 {
            let begin = match s % 40 {
                0 => s * lines + lines - 500,
                _ => s.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            };
            let address = |i: u64| (i / (20 * lines) * lines + i % lines) * 64;
            let rows: Vec<_> = (begin..begin + 1000)
                .map(|i| (7, GROUP, address(i), true))
                .collect();
            walks.sample((s as u32, 0), rows.into_iter());
        }
        let lap = lap(&walks, 7).unwrap();
        assert!(lap.again[0] < 0.9 && lap.again[1] > 0.9, "{lap:?}");
    }

    #[test]
    fn what_goes_on_elsewhere_does_not_come_again() {
        // Elements of 128 bytes. The second round accesses the second half of each.
        let halves = walks(400, 1000, |i| i % 1200 * 128 + i / 1200 % 2 * 64);
        let of_halves = halves.laps(7);
        assert!(of_halves.iter().all(|l| l.again[1] < 0.05), "{of_halves:?}");
        // Random accesses, and one walk through everything.
        let random = walks(400, 1000, |i| {
            i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34 << 3
        });
        assert_eq!(lap(&random, 7), None);
        assert_eq!(lap(&walks(400, 1000, |i| i * 8), 7), None);
    }

    #[test]
    fn rows_of_a_stencil_follow_one_another() {
        let mut walks = Walks::default();
        let (columns, rows) = (4000, 300);
        let apart = 1u64 << 30;
        for s in 0..60u64 {
            let begin = s.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let at = (0..200).flat_map(|i| {
                let here = (begin + i) % ((rows - 2) * columns);
                // The row above, this one, the row below, and another array.
                let places = [here, here + columns, here + 2 * columns, here];
                (0..4u32).map(move |n| {
                    let array = if n == 3 { apart } else { 0 };
                    (n, GROUP, array + places[n as usize] * 8, true)
                })
            });
            let all: Vec<_> = at.collect();
            walks.sample((s as u32, 0), all.into_iter());
        }
        for site in [0, 1] {
            let lap = lap(&walks, site).unwrap();
            assert!((lap.rows / columns as f64 - 1.0).abs() < 0.01, "{lap:?}");
            assert!(lap.again[1] > 0.97, "{lap:?}");
        }
        assert_eq!(lap(&walks, 2), None);
        assert_eq!(lap(&walks, 3), None);
    }

    /// Both halves of blocks are walked in parallel: neither walk goes where the other was.
    #[test]
    fn halves_of_blocks_do_not_follow_one_another() {
        let mut walks = Walks::default();
        for s in 0..60u64 {
            let begin = s.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let at = (begin..begin + 500).flat_map(|i| {
                let low = (i / 100 * 200 + i % 100) * 8;
                [(0, GROUP, low, true), (1, GROUP, low + 800, true)]
            });
            let all: Vec<_> = at.collect();
            walks.sample((s as u32, 0), all.into_iter());
        }
        assert_eq!((lap(&walks, 0), lap(&walks, 1)), (None, None));
    }

    #[test]
    fn it_does_not_matter_who_saw_what() {
        let at = |i: u64| i % 1500 * 640;
        let all = walks(40, 1000, at);
        let mut parts = walks(20, 1000, at);
        let mut rest = Walks::default();
        for s in 20..40u64 {
            let begin = s.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let rows: Vec<_> = (begin..begin + 1000)
                .map(|i| (7, GROUP, at(i), true))
                .collect();
            rest.sample((s as u32, 0), rows.into_iter());
        }
        parts.merge(rest);
        assert_eq!(parts.sites, all.sites);
    }
}
