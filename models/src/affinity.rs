//! Affinity of places in memory: how closely in time two of them are accessed.
//!
//! After the later work on MemGaze (MemFriend, Suriyakumar et al. 2024), for an ordered pair of
//! places (x, y) of a set of hot ones. An *interval* of x is the accesses from one access to x up
//! to the next one (or the end).
//!
//! - *affinity* SA(x, y): share of x's intervals in which y is accessed (what comes after x);
//! - *interval* SI(x, y): mean number of accesses from the access to x to the first one to y in the
//!   interval, where there is one (how soon);
//! - *density* SD(x, y): accesses to y among the `reach` accesses after each access to x, per
//!   access (how many nearby).
//!
//! - *saved*: accesses to y shortly after one to x but long after the last one to y. They would hit
//!   if the two were adjacent in memory;
//! - *by chance*: what `saved` would be if x were accessed independently of y. It is the number of
//!   accesses to y long after the last one to y, times the share of time within reach of x. A place
//!   that is accessed all the time is near all others, but has affinity to none.
//!
//! - *beside*: accesses to x with an access to y among the `reach` accesses before or after. Places
//!   for which this holds at nearly all of their accesses have reference affinity
//!   ([`crate::affinity_groups`]).
//!
//! Time counts all accesses, hot or not. x = y is included: SA is then the share of accesses to x
//! that are followed by another one, SI its mean reuse interval.

use std::collections::VecDeque;

/// Counts of an ordered pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounts {
    /// Intervals of x with an access to y.
    pub followed: u64,
    /// Sum over those intervals of the accesses up to the first access to y.
    pub until: u64,
    /// Accesses to y within reach of accesses to x.
    pub near: u64,
    /// Accesses to y within reach of an access to x, but not within reach of the last one to y.
    /// They would hit if x and y were adjacent.
    pub saved: u64,
    /// Accesses to x with an access to y within reach, before or after; 0 for a place with itself.
    pub beside: u64,
}

/// Counts pairs over a stream.
pub struct Affinity {
    hot: usize,
    reach: u64,
    pairs: Vec<PairCounts>,
    accesses: Vec<u64>,
    /// Time of the last access of each place; 0 if there was none.
    last: Vec<u64>,
    /// Hot places by last access, most recent first.
    recent: Vec<u32>,
    /// Hot accesses within reach: (time, place).
    window: VecDeque<(u64, u32)>,
    in_window: Vec<u64>,
    /// By place: times of its accesses in the window.
    times: Vec<VecDeque<u64>>,
    /// Number of accesses to each place that are not within reach of the place's previous access.
    away: Vec<u64>,
    /// Time within reach of an access to each place, up to `until`.
    covered: Vec<u64>,
    until: Vec<u64>,
    now: u64,
    /// Accesses to all places.
    total: u64,
}

impl Affinity {
    /// Empty counts of `hot` places, numbered from 0, and a reach in accesses.
    pub fn new(hot: usize, reach: u64) -> Affinity {
        Affinity {
            hot,
            reach,
            pairs: vec![PairCounts::default(); hot * hot],
            accesses: vec![0; hot],
            last: vec![0; hot],
            recent: Vec::new(),
            window: VecDeque::new(),
            in_window: vec![0; hot],
            times: vec![VecDeque::new(); hot],
            away: vec![0; hot],
            covered: vec![0; hot],
            until: vec![0; hot],
            now: 0,
            total: 0,
        }
    }

    /// Counts an access to a place that is not hot.
    #[inline]
    pub fn other(&mut self) {
        self.now += 1;
        self.total += 1;
    }

    /// Counts an access to place `y`.
    pub fn access(&mut self, y: u32) {
        self.now += 1;
        self.total += 1;
        let at = y as usize;
        let end = self.now + self.reach;
        self.covered[at] += end - self.until[at].max(self.now);
        self.until[at] = end;
        self.accesses[at] += 1;
        while self
            .window
            .front()
            .is_some_and(|w| self.now - w.0 > self.reach)
        {
            if let Some((_, x)) = self.window.pop_front() {
                self.in_window[x as usize] -= 1;
                self.times[x as usize].pop_front();
            }
        }
        let away = self.in_window[at] == 0;
        self.away[at] += u64::from(away);
        for (x, &n) in self.in_window.iter().enumerate() {
            if n > 0 {
                let pair = &mut self.pairs[x * self.hot + at];
                pair.near += n;
                pair.saved += u64::from(away);
            }
        }
        self.count_beside(at);
        self.times[at].push_back(self.now);
        self.window.push_back((self.now, y));
        self.in_window[at] += 1;
        // For places accessed since y's last access, this is the first access to y in their current
        // interval.
        let before = self.last[at];
        for &x in &self.recent {
            let used = self.last[x as usize];
            if used < before {
                break;
            }
            let pair = &mut self.pairs[x as usize * self.hot + at];
            pair.followed += 1;
            pair.until += self.now - used;
        }
        self.last[at] = self.now;
        if let Some(place) = self.recent.iter().position(|&p| p == y) {
            self.recent.remove(place);
        }
        self.recent.insert(0, y);
    }

    /// Counts accesses to other places that have this access to `y` within reach.
    fn count_beside(&mut self, y: usize) {
        // Accesses up to this time already had an access to y within reach.
        let settled = match self.last[y] {
            0 => 0,
            before => before + self.reach,
        };
        for x in (0..self.hot).filter(|&x| x != y && self.in_window[x] > 0) {
            let times = &self.times[x];
            let first = times.partition_point(|&time| time <= settled);
            self.pairs[x * self.hot + y].beside += (times.len() - first) as u64;
            self.pairs[y * self.hot + x].beside += 1;
        }
    }

    /// Ends the stream: the next access belongs to another one.
    pub fn cut(&mut self) {
        for x in 0..self.hot {
            self.covered[x] = self.covered_so_far(x);
            self.until[x] = 0;
        }
        self.now += self.reach + 1;
        self.recent.clear();
        self.last.fill(0);
        self.window.clear();
        self.in_window.fill(0);
        self.times.iter_mut().for_each(VecDeque::clear);
    }

    /// Time within reach of an access to x.
    fn covered_so_far(&self, x: usize) -> u64 {
        self.covered[x] - self.until[x].saturating_sub(self.now)
    }

    /// Expected `saved` of a pair if x were accessed independently of y.
    pub fn by_chance(&self, x: usize, y: usize) -> f64 {
        self.away[y] as f64 * self.covered_so_far(x) as f64 / self.total.max(1) as f64
    }

    /// Accesses to a place.
    pub fn accesses(&self, x: usize) -> u64 {
        self.accesses[x]
    }

    /// Counts of a pair.
    pub fn pair(&self, x: usize, y: usize) -> PairCounts {
        self.pairs[x * self.hot + y]
    }

    /// Share of the accesses to either place that have the other one within reach, the smaller of
    /// the two shares; 0 if one was never accessed.
    pub fn together(&self, x: usize, y: usize) -> f64 {
        let share = |x: usize, y: usize| match self.accesses[x] {
            0 => 0.0,
            accesses => self.pair(x, y).beside as f64 / accesses as f64,
        };
        share(x, y).min(share(y, x))
    }

    /// SA(x, y); `None` if x was never accessed.
    pub fn affinity(&self, x: usize, y: usize) -> Option<f64> {
        (self.accesses[x] > 0).then(|| self.pair(x, y).followed as f64 / self.accesses[x] as f64)
    }

    /// SI(x, y); `None` if y never follows x.
    pub fn interval(&self, x: usize, y: usize) -> Option<f64> {
        let pair = self.pair(x, y);
        (pair.followed > 0).then(|| pair.until as f64 / pair.followed as f64)
    }

    /// SD(x, y); `None` if x was never accessed.
    pub fn density(&self, x: usize, y: usize) -> Option<f64> {
        (self.accesses[x] > 0 && self.reach > 0)
            .then(|| self.pair(x, y).near as f64 / (self.accesses[x] * self.reach) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn agrees_with_the_definitions(trace in prop::collection::vec(0u32..7, 0..80), hot in 1usize..5, reach in 1u64..12, cut in 0usize..80) {
            let mut counted = Affinity::new(hot, reach);
            let streams = [&trace[..cut.min(trace.len())], &trace[cut.min(trace.len())..]];
            for stream in streams {
                for &place in stream {
                    if (place as usize) < hot { counted.access(place) } else { counted.other() }
                }
                counted.cut();
            }
            for x in 0..hot as u32 {
                for y in 0..hot as u32 {
                    let mut want = PairCounts::default();
                    for stream in streams {
                        for (i, _) in stream.iter().enumerate().filter(|(_, p)| **p == x) {
                            let end = (i + 1..stream.len()).find(|&j| stream[j] == x).map_or(stream.len(), |j| j + 1);
                            if let Some(j) = (i + 1..end).find(|&j| stream[j] == y) {
                                want.followed += 1;
                                want.until += (j - i) as u64;
                            }
                            want.near += stream[i + 1..stream.len().min(i + 1 + reach as usize)].iter().filter(|p| **p == y).count() as u64;
                        }
                    }
                    for stream in streams.iter().filter(|_| x != y) {
                        for (i, _) in stream.iter().enumerate().filter(|(_, p)| **p == x) {
                            let (from, to) = (i.saturating_sub(reach as usize), stream.len().min(i + 1 + reach as usize));
                            want.beside += u64::from(stream[from..to].contains(&y));
                        }
                    }
                    for stream in streams {
                        for (i, _) in stream.iter().enumerate().filter(|(_, p)| **p == y) {
                            let near = &stream[i.saturating_sub(reach as usize)..i];
                            want.saved += u64::from(near.contains(&x) && !near.contains(&y));
                        }
                    }
                    prop_assert_eq!(counted.pair(x as usize, y as usize), want);
                    let before = |stream: &[u32], i: usize, place: u32| {
                        stream[i.saturating_sub(reach as usize)..i].contains(&place)
                    };
                    let (mut away, mut covered) = (0, 0);
                    for stream in streams {
                        for i in 0..stream.len() {
                            away += u64::from(stream[i] == y && !before(stream, i, y));
                            covered += u64::from(before(stream, i, x));
                        }
                    }
                    let chance = away as f64 * covered as f64 / trace.len().max(1) as f64;
                    prop_assert_eq!(counted.by_chance(x as usize, y as usize), chance);
                }
                prop_assert_eq!(counted.accesses(x as usize), trace.iter().filter(|p| **p == x).count() as u64);
            }
        }
    }
}
