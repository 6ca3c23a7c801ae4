//! Counters of the processor over a run: loads, and misses per load, shown next to the predicted
//! ones.
//!
//! Counters count all user code of the run, recorded or not. Predictions cover only the recorded
//! code. Therefore differences between both are not assessed.

use crate::misses::{Misses, Range};
use mgz_annotations_schema::manifest::{Cache, RunCounter};
use serde::Serialize;

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CountedRun {
    /// Loads; an estimate if events were multiplexed.
    pub loads: f64,
    /// Misses by level, the first level first.
    pub misses: Vec<CountedMisses>,
    /// Loads that missed all levels of the TLB, percent; none if they were not counted.
    pub tlb_miss_pct: Option<f64>,
}

/// Misses of a level per load: counted, and predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CountedMisses {
    /// `L1`, `L2`, …
    pub level: String,
    /// Counted misses per load. The ends of the range count loads of lines in flight as hits or as
    /// misses. The value leaves those loads out.
    pub counted: Range,
    /// Predicted misses per load, if available.
    pub predicted: Option<Range>,
}

/// The last level of machines with unknown caches. Source: Chosen, as that of most machines.
const LAST_LEVEL: u32 = 3;

/// The counts of a run; `None` if loads were not counted.
pub fn counted_run(
    counters: &[RunCounter],
    caches: &[Cache],
    predicted: Option<&Misses>,
) -> Option<CountedRun> {
    let of = |what: &str| {
        let counter = counters.iter().find(|counter| counter.what == what);
        counter.and_then(RunCounter::estimate)
    };
    let loads = of("loads").filter(|&loads| loads > 0.0)?;
    let on_their_way = of("lines_on_their_way").unwrap_or(0.0).min(loads);
    let last = caches.iter().map(|cache| cache.level).max();
    let levels = [
        ("l1_misses", 1),
        ("l2_misses", 2),
        ("last_level_misses", last.unwrap_or(LAST_LEVEL)),
    ];
    let misses = levels.into_iter().filter_map(|(what, level)| {
        let missed = of(what)?.min(loads);
        let known = (loads - on_their_way).max(1.0);
        let ends = [missed, missed + on_their_way].map(|n| (n / loads).min(1.0));
        let level = format!("L{level}");
        let row = predicted.and_then(|p| p.levels.iter().find(|l| l.level == level));
        Some(CountedMisses {
            counted: [ends[0], (missed / known).clamp(ends[0], ends[1]), ends[1]],
            predicted: row.and_then(|row| row.ratio),
            level,
        })
    });
    Some(CountedRun {
        loads,
        misses: misses.collect(),
        tlb_miss_pct: of("tlb_misses").map(|missed| 100.0 * (missed / loads).min(1.0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::misses::LevelMisses;

    fn counter(what: &str, value: u64, share: u64) -> RunCounter {
        RunCounter {
            what: what.into(),
            value,
            enabled_ns: 100,
            running_ns: share,
            ..RunCounter::default()
        }
    }

    #[test]
    fn misses_are_per_load_and_lines_on_their_way_widen_them() {
        let counters = [
            counter("loads", 1000, 100),
            // Active for half of the time.
            counter("l1_misses", 50, 50),
            counter("lines_on_their_way", 200, 100),
            counter("last_level_misses", 10, 100),
            counter("tlb_misses", 5, 100),
            // Never active.
            counter("l2_misses", 0, 0),
        ];
        let caches = [1, 2, 4].map(|level| Cache {
            level,
            ..Cache::default()
        });
        let predicted = Misses {
            levels: vec![LevelMisses {
                level: "L1".into(),
                ratio: Some([0.1, 0.2, 0.3]),
                ..LevelMisses::default()
            }],
            ..Misses::default()
        };
        let run = counted_run(&counters, &caches, Some(&predicted)).unwrap();
        assert_eq!((run.loads, run.tlb_miss_pct), (1000.0, Some(0.5)));
        let names: Vec<_> = run.misses.iter().map(|m| m.level.as_str()).collect();
        assert_eq!(names, ["L1", "L4"]);
        assert_eq!(run.misses[0].counted, [0.1, 0.125, 0.3]);
        assert_eq!(run.misses[0].predicted, Some([0.1, 0.2, 0.3]));
        assert_eq!(run.misses[1].predicted, None);
    }

    #[test]
    fn without_loads_there_is_nothing_to_tell() {
        assert_eq!(counted_run(&[], &[], None), None);
        let misses = [counter("l1_misses", 5, 100), counter("loads", 0, 100)];
        assert_eq!(counted_run(&misses, &[], None), None);
        // Multiplexed events may yield more misses than loads.
        let odd = [counter("loads", 10, 100), counter("l1_misses", 90, 100)];
        let run = counted_run(&odd, &[], None).unwrap();
        assert_eq!(run.misses[0].counted, [1.0, 1.0, 1.0]);
    }
}
