//! The measurement of one level.

use super::buffer::{Buffer, Pages};
use super::kernels::{
    LINE_WORDS, PARALLEL_CHAINS, Random, chase, link, parallel, shuffled, stream,
};
use super::plan::LevelPlan;
use super::{Deadline, STRETCHES_PER_REPETITION, platform, repeat, timed};
use mgz_annotations_schema::memory_costs::{LevelCosts, Spread};

/// Lines of a stride that no prefetcher of neighbors covers.
const STRIDE_LINES: usize = 4;
/// Bytes of a stretch of a stream.
const STREAM_BYTES: usize = 2 << 20;
/// Steps of a stretch in a small working set. Source: Chosen.
const STEPS_PER_STRETCH: usize = 32_768;
/// Steps of a stretch in a large working set.
const STEPS_OF_LARGE_SET: usize = 8192;
/// Bytes from which on a working set is large.
const LARGE_SET: u64 = 4 << 20;

/// A working set of at least this many bytes exceeds all caches, so it is not loaded in advance.
const MEMORY_SET: usize = 64 << 20;

/// Values of all repetitions.
#[derive(Clone, Debug, Default)]
pub struct LevelSamples {
    latency: Vec<f64>,
    latency_huge: Vec<f64>,
    far: Vec<f64>,
    parallel: Vec<f64>,
    sequential: Vec<f64>,
    strided: Vec<f64>,
    bandwidth: Vec<f64>,
}

impl LevelSamples {
    /// Their distributions.
    pub fn costs(&self, plan: &LevelPlan) -> LevelCosts {
        LevelCosts {
            level: plan.level,
            size: plan.size,
            working_set: plan.working_set,
            flushed: plan.flushed,
            latency_ns: Spread::of(&self.latency),
            latency_huge_ns: Spread::of(&self.latency_huge),
            far_ns: Spread::of(&self.far),
            parallel_ns: Spread::of(&self.parallel),
            sequential_ns: Spread::of(&self.sequential),
            strided_ns: Spread::of(&self.strided),
            bandwidth_gbs: Spread::of(&self.bandwidth),
        }
    }
}

/// A chain of loads in a buffer.
struct Chain<'a> {
    words: &'a [usize],
    order: &'a [usize],
    /// Lines are flushed before each repetition, which begins at the first element.
    flushed: bool,
    /// Steps of a stretch.
    steps: usize,
}

/// Adds the values of a round.
pub fn measure_level(plan: &LevelPlan, samples: &mut LevelSamples, deadline: Deadline) {
    let bytes = plan.working_set as usize;
    if let Some(mut buffer) = Buffer::new(bytes, Pages::Huge) {
        let order = random_order(&mut buffer, plan);
        let chain = Chain::new(plan, buffer.words(), &order);
        samples.latency_huge.extend(chain.latencies(deadline));
    }
    let Some(mut buffer) = Buffer::new(bytes, Pages::Small) else {
        return;
    };
    let order = random_order(&mut buffer, plan);
    let chain = Chain::new(plan, buffer.words(), &order);
    samples.latency.extend(chain.latencies(deadline));
    if deadline.is_over() {
        return;
    }
    samples.parallel.extend(chain.in_parallel(deadline));
    for (lines, into) in [
        (1, &mut samples.sequential),
        (STRIDE_LINES, &mut samples.strided),
    ] {
        let words = buffer.words_mut();
        let order: Vec<usize> = (0..words.len()).step_by(lines * LINE_WORDS).collect();
        link(words, &order);
        let chain = Chain::new(plan, buffer.words(), &order);
        into.extend(chain.latencies(deadline));
    }
    samples
        .bandwidth
        .extend(bandwidths(plan, buffer.words(), deadline));
}

/// Adds the latencies of a chain over much memory.
pub fn measure_far(plan: &LevelPlan, samples: &mut LevelSamples, deadline: Deadline) {
    if let Some(mut buffer) = Buffer::new(plan.working_set as usize, Pages::Small) {
        let order = random_order(&mut buffer, plan);
        let chain = Chain::new(plan, buffer.words(), &order);
        samples.far.extend(chain.latencies(deadline));
    }
}

/// Latencies of a chain over a working set, in huge pages where the kernel gives them.
pub fn set_latencies(plan: &LevelPlan, deadline: Deadline) -> Vec<f64> {
    let bytes = plan.working_set as usize;
    let huge = Buffer::new(bytes, Pages::Huge);
    let Some(mut buffer) = huge.or_else(|| Buffer::new(bytes, Pages::Small)) else {
        return Vec::new();
    };
    // Linking the lines brings them into the cache.
    let order = random_order(&mut buffer, plan);
    Chain::new(plan, buffer.words(), &order).latencies(deadline)
}

/// Links lines of a buffer in random order. Returns the order.
fn random_order(buffer: &mut Buffer, plan: &LevelPlan) -> Vec<usize> {
    let places = LINE_WORDS * plan.spacing;
    let words = buffer.words_mut();
    let order: Vec<usize> = shuffled(words.len() / places, &mut Random(0x2545_f491_4f6c_dd1d))
        .into_iter()
        .map(|line| line * places)
        .collect();
    link(words, &order);
    order
}

impl<'a> Chain<'a> {
    fn new(plan: &LevelPlan, words: &'a [usize], order: &'a [usize]) -> Chain<'a> {
        let steps = match plan.working_set {
            small if small < LARGE_SET => STEPS_PER_STRETCH,
            _ => STEPS_OF_LARGE_SET,
        };
        Chain {
            words,
            order,
            flushed: plan.flushed,
            // Flushed lines are accessed once.
            steps: match plan.flushed {
                true => steps.min(order.len() / STRETCHES_PER_REPETITION).max(1),
                false => steps,
            },
        }
    }

    /// Flushes the lines of a repetition. Chains begin at these places of the order.
    fn flush(&self, begins: &[usize], steps: usize) {
        if self.flushed {
            let places = |&begin: &usize| {
                begin..(begin + STRETCHES_PER_REPETITION * steps).min(self.order.len())
            };
            let touched = begins.iter().flat_map(places);
            platform::flush(touched.map(|at| &self.words[self.order[at]]));
        }
    }

    /// Nanoseconds per load.
    fn latencies(&self, deadline: Deadline) -> Vec<f64> {
        let place = std::cell::Cell::new(self.order[0]);
        if size_of_val(self.words) < MEMORY_SET && !self.flushed {
            // One pass loads the lines into the cache.
            chase(self.words, place.get(), self.order.len());
        }
        let prepare = || {
            self.flush(&[0], self.steps);
            if self.flushed {
                place.set(self.order[0]);
            }
        };
        repeat(deadline, prepare, || {
            let (ns, to) = timed(|| chase(self.words, place.get(), self.steps));
            place.set(to);
            ns / self.steps as f64
        })
    }

    /// Nanoseconds per load of several chains at a time.
    fn in_parallel(&self, deadline: Deadline) -> Vec<f64> {
        let part = self.order.len() / PARALLEL_CHAINS;
        let begins: [usize; PARALLEL_CHAINS] = std::array::from_fn(|chain| chain * part);
        let begin = begins.map(|at| self.order[at]);
        let steps = match self.flushed {
            true => (self.steps / PARALLEL_CHAINS)
                .min(part / STRETCHES_PER_REPETITION)
                .max(1),
            false => self.steps / PARALLEL_CHAINS,
        };
        let places = std::cell::Cell::new(begin);
        let prepare = || {
            self.flush(&begins, steps);
            if self.flushed {
                places.set(begin);
            }
        };
        repeat(deadline, prepare, || {
            let (ns, to) = timed(|| parallel(self.words, places.get(), steps));
            places.set(to);
            ns / (steps * PARALLEL_CHAINS) as f64
        })
    }
}

/// Bytes per nanosecond. Large sets are streamed in pieces, so that each stretch is short.
fn bandwidths(plan: &LevelPlan, words: &[usize], deadline: Deadline) -> Vec<f64> {
    let piece = words.len().min(STREAM_BYTES / size_of::<usize>());
    let rounds = (STREAM_BYTES / size_of::<usize>() / piece).max(1);
    let place = std::cell::Cell::new(0);
    let prepare = || {
        if plan.flushed {
            let touched = words.iter().step_by(LINE_WORDS);
            platform::flush(touched.take(STRETCHES_PER_REPETITION * piece / LINE_WORDS));
            place.set(0);
        }
    };
    let per_byte = repeat(deadline, prepare, || {
        let from = place.get();
        let part = &words[from..from + piece];
        place.set(if from + 2 * piece <= words.len() {
            from + piece
        } else {
            0
        });
        let (ns, _) = timed(|| {
            for _ in 0..rounds {
                std::hint::black_box(stream(part));
            }
        });
        ns / (rounds * piece * size_of::<usize>()) as f64
    });
    per_byte.into_iter().map(|ns| 1.0 / ns).collect()
}
