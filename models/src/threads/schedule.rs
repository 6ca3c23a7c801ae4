//! Distribution of a loop's iterations to threads, as in OpenMP.

/// The clause `schedule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// `static`: one run of iterations for each thread, the first ones longer by one if the number
    /// is not divisible.
    #[default]
    Static,
    /// `static,c`: chunks of c iterations in turn.
    Chunks(usize),
    /// `dynamic,c`: the next chunk of c goes to the first free thread. All accesses are assumed to
    /// take the same time.
    Dynamic(usize),
}

impl Schedule {
    /// From the clause's text: `static`, `static,4`, `dynamic`, `dynamic,4`.
    pub fn parse(text: &str) -> Option<Schedule> {
        let (kind, chunk) = match text.split_once(',') {
            Some((kind, chunk)) => (kind, Some(chunk.trim().parse().ok().filter(|&c| c > 0)?)),
            None => (text, None),
        };
        match (kind.trim(), chunk) {
            ("static", None) => Some(Schedule::Static),
            ("static", Some(chunk)) => Some(Schedule::Chunks(chunk)),
            ("dynamic", chunk) => Some(Schedule::Dynamic(chunk.unwrap_or(1))),
            _ => None,
        }
    }

    /// Distributes iterations to `threads`. Returns ranges of iterations in order, each with its
    /// thread. `work[i]` is the length of iteration i.
    pub fn deal(self, work: &[u64], threads: usize) -> Vec<(usize, std::ops::Range<usize>)> {
        let (n, threads) = (work.len(), threads.max(1));
        let chunks = |size: usize| {
            (0..n.div_ceil(size)).map(move |j| j * size..(j * size).saturating_add(size).min(n))
        };
        match self {
            Schedule::Static => {
                let (each, over) = (n / threads, n % threads);
                let from = |k: usize| k * each + k.min(over);
                (0..threads).map(|k| (k, from(k)..from(k + 1))).collect()
            }
            Schedule::Chunks(size) => chunks(size.max(1))
                .enumerate()
                .map(|(j, range)| (j % threads, range))
                .collect(),
            Schedule::Dynamic(size) => {
                let mut free: std::collections::BinaryHeap<_> =
                    (0..threads).map(|k| std::cmp::Reverse((0u64, k))).collect();
                chunks(size.max(1))
                    .filter_map(|range| {
                        let std::cmp::Reverse((busy, thread)) = free.pop()?;
                        let more: u64 = work[range.clone()].iter().sum();
                        free.push(std::cmp::Reverse((busy + more, thread)));
                        Some((thread, range))
                    })
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn clauses_are_read() {
        assert_eq!(Schedule::parse("static"), Some(Schedule::Static));
        assert_eq!(Schedule::parse("static,8"), Some(Schedule::Chunks(8)));
        assert_eq!(Schedule::parse("dynamic"), Some(Schedule::Dynamic(1)));
        assert_eq!(Schedule::parse("dynamic, 3"), Some(Schedule::Dynamic(3)));
        for bad in ["", "guided", "static,0", "static,x", "static,1,2"] {
            assert_eq!(Schedule::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        /// By the rules of OpenMP, iteration by iteration.
        #[test]
        fn each_iteration_goes_where_the_rules_say(
            work in prop::collection::vec(0u64..9, 0..60), threads in 1usize..9, chunk in 1usize..7,
        ) {
            for schedule in [Schedule::Static, Schedule::Chunks(chunk), Schedule::Dynamic(chunk)] {
                let mut got = vec![usize::MAX; work.len()];
                for (thread, range) in schedule.deal(&work, threads) {
                    for i in range {
                        prop_assert_eq!(got[i], usize::MAX);
                        got[i] = thread;
                    }
                }
                let mut clock = vec![0u64; threads];
                let mut now = 0;
                for (i, &got) in got.iter().enumerate() {
                    let want = match schedule {
                        Schedule::Static => {
                            let (each, over) = (work.len() / threads, work.len() % threads);
                            (0..threads).find(|&k| i < (k + 1) * each + (k + 1).min(over)).unwrap()
                        }
                        Schedule::Chunks(chunk) => i / chunk % threads,
                        Schedule::Dynamic(chunk) => {
                            if i % chunk == 0 {
                                now = (0..threads).min_by_key(|&k| clock[k]).unwrap();
                            }
                            clock[now] += work[i];
                            now
                        }
                    };
                    prop_assert_eq!(got, want, "{:?}, iteration {}", schedule, i);
                }
            }
        }
    }
}
