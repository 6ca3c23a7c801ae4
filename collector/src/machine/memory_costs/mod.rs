//! Measured costs of the caches and of memory: latencies by chains of dependent loads, bandwidths
//! by streams, and page walks. `docs/design/memory-costs.md` explains the method.

mod buffer;
mod busy;
mod kernels;
mod levels;
mod plan;
mod platform;
mod stored;

pub use stored::StoreError;

use crate::machine::caches::caches;
use crate::machine::identity;
use crate::util::cache_folder::cache_folder;
use crate::util::clock;
use buffer::{Buffer, Pages};
use kernels::{LINE_WORDS, Random, chase, link, shuffled};
use levels::{LevelSamples, measure_far, measure_level, set_latencies};
use mgz_annotations_schema::manifest::Cache;
use mgz_annotations_schema::memory_costs::{
    LevelCosts, MIN_REPETITIONS_OF_SPREAD, MemoryCosts, SetCosts, Spread,
};
use plan::LevelPlan;
use std::time::Duration;
use stored::{load, store};

/// Source: Chosen.
const REPETITIONS_PER_ROUND: usize = 7;
/// Repetitions of a value that are done even if the time is over.
const MIN_REPETITIONS: usize = MIN_REPETITIONS_OF_SPREAD as usize;
/// Number of stretches per repetition, the best of which is the repetition's value. Source: Chosen.
const STRETCHES_PER_REPETITION: usize = 3;
/// Rounds at most.
const MAX_ROUNDS: u32 = 8;
/// Pages of the chain of page walks: several times as many as a TLB has entries.
const WALKED_PAGES: usize = 8192;
const PAGE_WORDS: usize = 4096 / size_of::<usize>();
/// Steps of a stretch of page walks.
const WALKED_STEPS: usize = WALKED_PAGES / 2;

/// The costs that an earlier measurement of this machine has kept in the user's cache folder.
pub fn kept() -> Option<MemoryCosts> {
    let (host, cpu) = (identity::host(), identity::cpu());
    load(&cache_folder()?, (&host, &cpu), &caches())
}

/// True if this machine was never measured, or if other programs disturbed the measurement and none
/// runs now.
pub fn is_to_be_measured() -> bool {
    let loads = || std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    kept().is_none_or(|costs| costs.disturbed && busy::is_quiet(&loads()))
}

/// Measures this machine in about the given time, and keeps the costs in the user's cache folder.
/// None if its caches or its memory are unknown.
pub fn measure_and_keep(time: Duration) -> Result<Option<MemoryCosts>, StoreError> {
    let caches = caches();
    let Some(costs) = measure(&caches, time) else {
        return Ok(None);
    };
    if let Some(folder) = cache_folder() {
        store(
            &folder,
            (&identity::host(), &identity::cpu()),
            &caches,
            &costs,
        )?;
    }
    Ok(Some(costs))
}

/// A point of time that ends the measurement.
#[derive(Clone, Copy)]
struct Deadline(u64);

impl Deadline {
    fn is_over(self) -> bool {
        platform::raw_ns() >= self.0
    }
}

/// Measures the machine with these caches in about the given time. None if the caches or the
/// memory are unknown.
pub fn measure(caches: &[Cache], time: Duration) -> Option<MemoryCosts> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let room = plan::room(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max"));
    let (plans, notes) = plan::plans(caches, room);
    if plans.is_empty() {
        return None;
    }
    // Only the measuring thread is pinned.
    std::thread::scope(|scope| {
        let more = (plan::far(room), plan::larger_sets(caches, &plans, room));
        let measured = scope.spawn(|| measure_pinned((&plans, more), notes, time));
        measured.join().ok().flatten()
    })
}

fn measure_pinned(
    (plans, (far, larger)): (&[LevelPlan], (Option<LevelPlan>, Vec<LevelPlan>)),
    mut notes: Vec<String>,
    time: Duration,
) -> Option<MemoryCosts> {
    if !platform::pin() {
        notes.push("the thread could not be kept on one processor".into());
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let before = busy::busy_ns(&read("/proc/stat"));
    let begin = platform::raw_ns();
    let deadline = Deadline(begin + time.as_nanos() as u64);
    let mut samples = vec![LevelSamples::default(); plans.len()];
    let (mut walks, mut larger_sets) = (Vec::new(), Vec::new());
    for round in 1..=MAX_ROUNDS {
        walks.extend(page_walks(deadline));
        for (plan, samples) in plans.iter().zip(&mut samples) {
            measure_level(plan, samples, deadline);
        }
        if round == 1 {
            larger_sets.extend(larger.iter().map(|plan| larger_set(plan, deadline)));
        }
        let is_time = round == 1 && !deadline.is_over();
        if let (Some(far), Some(memory), true) = (&far, samples.last_mut(), is_time) {
            measure_far(far, memory, deadline);
        }
        let spent = platform::raw_ns() - begin;
        if spent + spent / u64::from(round) > time.as_nanos() as u64 {
            break;
        }
    }
    let levels: Vec<LevelCosts> = plans
        .iter()
        .zip(&samples)
        .map(|(p, s)| s.costs(p))
        .collect();
    if levels.iter().all(|l| l.latency_huge_ns.is_none()) {
        notes.push(
            "the kernel gave no huge pages: their latencies and page walks are unknown".into(),
        );
    }
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let virtual_machine = has_flag(&cpuinfo, "hypervisor");
    if virtual_machine {
        notes.push("virtual machine: other guests add noise, which the quartiles show".into());
    }
    let mut costs = MemoryCosts {
        measured: clock::utc_now(),
        virtual_machine,
        huge_pages: chosen(
            &std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
                .unwrap_or_default(),
        ),
        levels,
        page_walk_ns: Spread::of(&walks),
        larger_sets,
        disturbed: false,
        notes,
    };
    let after = busy::busy_ns(&read("/proc/stat"));
    let is_busy = busy::others_ran((before, after), platform::raw_ns() - begin);
    costs.disturbed = is_busy && costs.has_little_of_last_cache();
    if costs.disturbed {
        costs.notes.push(
            "other programs ran, and left less than half of the last cache: mgz run measures again when nothing else runs"
                .into(),
        );
    }
    Some(costs)
}

fn larger_set(plan: &LevelPlan, deadline: Deadline) -> SetCosts {
    SetCosts {
        working_set: plan.working_set,
        latency_ns: match deadline.is_over() {
            true => None,
            false => Spread::of(&set_latencies(plan, deadline)),
        },
    }
}

/// True if the processor has a flag, by the text of `/proc/cpuinfo`.
fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let flags = cpuinfo.lines().find(|l| l.starts_with("flags"));
    flags.is_some_and(|l| l.split_whitespace().any(|word| word == flag))
}

/// The word in brackets.
fn chosen(setting: &str) -> String {
    let word = setting
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    word.map_or_else(String::new, |(word, _)| word.into())
}

/// Values of repetitions: the least value of some stretches each. `prepare` runs before each
/// repetition.
fn repeat(
    deadline: Deadline,
    mut prepare: impl FnMut(),
    mut stretch: impl FnMut() -> f64,
) -> Vec<f64> {
    let mut values = Vec::new();
    for _ in 0..REPETITIONS_PER_ROUND {
        prepare();
        let best = (0..STRETCHES_PER_REPETITION)
            .map(|_| stretch())
            .fold(f64::INFINITY, f64::min);
        values.push(best);
        if values.len() >= MIN_REPETITIONS && deadline.is_over() {
            break;
        }
    }
    values
}

/// Nanoseconds of something.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begin = platform::raw_ns();
    let done = work();
    ((platform::raw_ns() - begin) as f64, done)
}

/// Additional nanoseconds of a load whose page of 4 KiB is not in the TLB. Two chains go over one
/// line of each page, one of them in huge pages.
fn page_walks(deadline: Deadline) -> Vec<f64> {
    let chain = |pages: Pages| -> Option<Vec<f64>> {
        let mut random = Random(0x9e37_79b9);
        let mut buffer = Buffer::new(WALKED_PAGES * PAGE_WORDS * size_of::<usize>(), pages)?;
        let lines = PAGE_WORDS / LINE_WORDS;
        let order: Vec<usize> = shuffled(WALKED_PAGES, &mut random)
            .into_iter()
            .map(|page| page * PAGE_WORDS + random.below(lines) * LINE_WORDS)
            .collect();
        link(buffer.words_mut(), &order);
        let words = buffer.words();
        let mut at = chase(words, order[0], 2 * WALKED_PAGES);
        Some(repeat(
            deadline,
            || {},
            || {
                let (ns, to) = timed(|| chase(words, at, WALKED_STEPS));
                at = to;
                ns / WALKED_STEPS as f64
            },
        ))
    };
    let huge = chain(Pages::Huge).and_then(|values| Spread::of(&values));
    let Some((huge, small)) = huge.zip(chain(Pages::Small)) else {
        return Vec::new();
    };
    small.into_iter().map(|ns| ns - huge.median).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_flags_are_read() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen(""), "");
        assert!(has_flag(
            "model name: x\nflags\t\t: fpu hypervisor sse\n",
            "hypervisor"
        ));
        assert!(!has_flag("flags\t\t: fpu\n", "hypervisor"));
    }

    #[test]
    fn repetitions_have_their_best_stretch() {
        let mut next = 0.0;
        let stretch = || {
            next += 1.0;
            next
        };
        let values = repeat(Deadline(u64::MAX), || {}, stretch);
        assert_eq!(values.len(), REPETITIONS_PER_ROUND);
        assert_eq!(values[..2], [1.0, 4.0]);
        assert_eq!(repeat(Deadline(0), || {}, || 1.0).len(), MIN_REPETITIONS);
    }

    #[test]
    fn a_short_measurement_has_all_latencies() {
        let cache = |level, size| Cache {
            level,
            size,
            ..Cache::default()
        };
        let caches = [cache(1, 32 << 10), cache(2, 1 << 20)];
        let costs = measure(&caches, Duration::from_millis(200)).unwrap();
        let names: Vec<String> = costs.levels.iter().map(LevelCosts::name).collect();
        assert_eq!(names, ["L1", "L2", "memory"]);
        assert!(costs.latency(1, 32 << 10).is_some_and(|ns| ns[1] < 1000.0));
        assert!(costs.latency(0, 0).is_some());
        assert_eq!(measure(&[], Duration::ZERO), None);
    }
}
