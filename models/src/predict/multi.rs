//! Multi-model prediction (section 3.4): each bin of the standard histogram is a mix of patterns.
//!
//! The unknowns are φ_m(i), the part of bin i of the standard histogram (that of the largest
//! training run) that follows pattern m. A training run of size s gives the equation that its bin r
//! equals Σ_m Σ_i φ_m(i)·w_m(i→r). Here w is the share of bin i that lands in r after its distances
//! have grown by f_m(s)/f_m(s₀). Values are assumed to be evenly spread between the least and the
//! greatest in the bin (the paper: over the whole bin). All runs together, including the standard
//! one, give an overdetermined system with non-negative unknowns. It is solved by the
//! multiplicative iteration for mixtures (expectation–maximisation), which keeps the unknowns
//! non-negative and never worsens the fit.

use crate::histogram::{Bin, Scale, reference, similarity};
use crate::predict::{
    DIMENSIONS, HistogramSegment, Pattern, Profile, collect, histogram_segments, scaled, spread,
};
use serde::{Deserialize, Serialize};

/// The histogram on which a multi-model is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Logarithmic distance histogram.
    Log,
    /// Log-linear distance histogram.
    LogLinear,
    /// Reference histogram.
    Reference,
}

/// A trained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MultiModel {
    /// Histogram on which it is built.
    pub basis: Basis,
    /// Size of the standard run.
    pub size: f64,
    /// Patterns of the chosen number of dimensions.
    pub patterns: Vec<Pattern>,
    /// Standard bins, each with its shares by pattern.
    pub mix: Vec<(HistogramSegment, Vec<f64>)>,
    /// Mean of Σ|x − y| / 2 on the training runs, over the cells of the equations.
    pub residual: f64,
}

/// Maximum number of standard bins; linear bins become wider if there would be more.
const MAX_BINS: f64 = 2048.0;
/// Rounds of training. Source: Chosen.
const TRAINING_ROUNDS: usize = 400;
/// Initial weight of all patterns except the constant one. Source: Chosen.
const FIRST_PATTERN_WEIGHT: f64 = 0.02;

/// Trains on two or more runs.
pub fn train(runs: &[Profile], basis: Basis, partitions: usize) -> Option<MultiModel> {
    let standard = runs.iter().max_by(|a, b| a.size.total_cmp(&b.size))?;
    let sources = standard_pieces(standard, basis, partitions);
    let mut best: Option<MultiModel> = None;
    for patterns in DIMENSIONS {
        let model = solve(runs, standard.size, &sources, patterns, basis);
        if best
            .as_ref()
            .is_none_or(|b| model.residual < 0.95 * b.residual - 1e-6)
        {
            best = Some(model);
        }
    }
    best
}

fn standard_pieces(standard: &Profile, basis: Basis, partitions: usize) -> Vec<HistogramSegment> {
    match basis {
        Basis::Log => histogram_segments(&standard.bins, &Scale::Log),
        Basis::LogLinear => {
            let last = standard.bins.last().map_or(0.0, |b| b.to);
            let mut width = 2048u64;
            while last / width as f64 > MAX_BINS {
                width *= 2;
            }
            histogram_segments(&standard.bins, &Scale::LogLinear { width })
        }
        Basis::Reference => {
            let parts = reference(standard.bins.iter().copied(), partitions);
            let share = 1.0 / parts.len().max(1) as f64;
            parts
                .iter()
                .map(|p| HistogramSegment::new(p.from, p.to.max(p.from + 1.0), share))
                .collect()
        }
    }
}

/// Distribution of one source under one pattern over the cells of one run.
struct Landing {
    unknown: usize,
    run: usize,
    cell: usize,
    share: f64,
}

/// The target cell for a cell of distances. The coarse basis has coarser targets, because values in
/// bins of an octave are evenly spread only on average.
fn target_cell(cell: usize, basis: Basis) -> usize {
    match (basis, cell) {
        (Basis::Log, 0..16) => (usize::BITS - cell.leading_zeros()) as usize,
        (Basis::Log, _) => (cell - 16) / 8 + 5,
        _ => cell,
    }
}

/// The shares of a histogram's distances by cell.
fn cells_of(bins: &[Bin], basis: Basis) -> Vec<f64> {
    let total: f64 = bins.iter().map(|b| b.count).sum();
    let mut cells = Vec::new();
    for bin in bins {
        let piece = HistogramSegment::new(bin.from, bin.to, bin.count / total.max(1e-300));
        spread(&piece, |c, share| {
            add(&mut cells, target_cell(c, basis), share)
        });
    }
    cells
}

/// The cells in which each source lands, by run and pattern.
fn landings(
    runs: &[Profile],
    size: f64,
    sources: &[HistogramSegment],
    patterns: &[Pattern],
    basis: Basis,
) -> Vec<Landing> {
    let mut landings = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        for (m, pattern) in patterns.iter().enumerate() {
            for (run, profile) in runs.iter().enumerate() {
                let moved = scaled(
                    &HistogramSegment {
                        share: 1.0,
                        ..*source
                    },
                    pattern.of(profile.size) / pattern.of(size),
                );
                let mut cells: Vec<(usize, f64)> = Vec::new();
                spread(&moved, |c, share| match cells.last_mut() {
                    Some(last) if last.0 == target_cell(c, basis) => last.1 += share,
                    _ => cells.push((target_cell(c, basis), share)),
                });
                landings.extend(
                    cells
                        .into_iter()
                        .filter(|c| c.1 > 0.0)
                        .map(|(cell, share)| Landing {
                            unknown: i * patterns.len() + m,
                            run,
                            cell,
                            share,
                        }),
                );
            }
        }
    }
    landings
}

fn solve(
    runs: &[Profile],
    size: f64,
    sources: &[HistogramSegment],
    patterns: &[Pattern],
    basis: Basis,
) -> MultiModel {
    let measured: Vec<Vec<f64>> = runs.iter().map(|r| cells_of(&r.bins, basis)).collect();
    let landings = landings(runs, size, sources, patterns, basis);
    // A part that the runs cannot distinguish keeps its initial weight: constant, unless the data
    // contradict it.
    let weight = |m: usize| {
        if m == 0 {
            1.0 - FIRST_PATTERN_WEIGHT
        } else {
            FIRST_PATTERN_WEIGHT / (patterns.len() - 1) as f64
        }
    };
    let mut mix: Vec<f64> = sources
        .iter()
        .flat_map(|s| (0..patterns.len()).map(move |m| s.share * weight(m)))
        .collect();
    let mut predicted: Vec<Vec<f64>> = measured.iter().map(|m| vec![0.0; m.len()]).collect();
    let mut gain = vec![0.0; mix.len()];
    for _ in 0..TRAINING_ROUNDS {
        predicted.iter_mut().for_each(|p| p.fill(0.0));
        for l in &landings {
            add(&mut predicted[l.run], l.cell, mix[l.unknown] * l.share);
        }
        gain.fill(0.0);
        for l in &landings {
            let want = measured[l.run].get(l.cell).copied().unwrap_or(0.0);
            let have = predicted[l.run][l.cell];
            if have > 0.0 {
                gain[l.unknown] += l.share * want / have;
            }
        }
        mix.iter_mut()
            .zip(&gain)
            .for_each(|(x, g)| *x *= g / runs.len() as f64);
    }
    // The standard bins keep their size, since shares are parts of a bin.
    let mix = sources
        .iter()
        .enumerate()
        .map(|(i, source)| {
            let part = &mix[i * patterns.len()..(i + 1) * patterns.len()];
            let total: f64 = part.iter().sum();
            let shares = if total > 0.0 {
                part.iter().map(|x| x / total).collect()
            } else {
                (0..patterns.len())
                    .map(|m| f64::from(u8::from(m == 0)))
                    .collect()
            };
            (*source, shares)
        })
        .collect();
    let mut model = MultiModel {
        basis,
        size,
        patterns: patterns.to_vec(),
        mix,
        residual: 0.0,
    };
    let apart = |run: &Profile, measured: &[f64]| {
        let predicted = cells_of(&model.predict(run.size), basis);
        1.0 - similarity(&predicted, measured)
    };
    let sum: f64 = runs.iter().zip(&measured).map(|(r, m)| apart(r, m)).sum();
    model.residual = sum / runs.len().max(1) as f64;
    model
}

fn add(cells: &mut Vec<f64>, at: usize, share: f64) {
    if at >= cells.len() {
        cells.resize(at + 1, 0.0);
    }
    cells[at] += share;
}

impl MultiModel {
    /// The predicted histogram for another input size; counts are shares of the reuses.
    pub fn predict(&self, size: f64) -> Vec<Bin> {
        let moved = self.mix.iter().flat_map(|(piece, shares)| {
            self.patterns
                .iter()
                .zip(shares)
                .map(move |(pattern, share)| {
                    scaled(
                        &HistogramSegment {
                            share: piece.share * share,
                            ..*piece
                        },
                        pattern.of(size) / pattern.of(self.size),
                    )
                })
        });
        collect(moved)
    }

    /// Share of the reuses by pattern.
    pub fn patterns(&self) -> Vec<(Pattern, f64)> {
        let share = |m: usize| {
            self.mix
                .iter()
                .map(|(piece, shares)| piece.share * shares[m])
                .sum()
        };
        self.patterns
            .iter()
            .enumerate()
            .map(|(m, &p)| (p, share(m)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::shares;
    use crate::predict::accuracy;
    use crate::predict::tests::bins;

    /// Half of the reuses constant between 4 and 8, half linear: between s/16 and s/8; both overlap
    /// in the bins of the smaller run.
    fn run(size: f64) -> Profile {
        Profile {
            size,
            bins: bins(&[(4.0, 8.0, 40.0), (size / 16.0, size / 8.0, 60.0)]),
            cold: size,
        }
    }

    #[test]
    fn zhong_figure_6() {
        // The constant part stays, the linear part moves up by three bins for eight times the input
        // size.
        let model = MultiModel {
            basis: Basis::Log,
            size: 1.0,
            patterns: vec![Pattern::Constant, Pattern::Linear],
            mix: vec![
                (HistogramSegment::new(1.0, 2.0, 0.25), vec![1.0, 0.0]),
                (HistogramSegment::new(4.0, 8.0, 0.5), vec![0.5, 0.5]),
                (HistogramSegment::new(64.0, 128.0, 0.25), vec![0.0, 1.0]),
            ],
            residual: 0.0,
        };
        let got = crate::histogram::shares(model.predict(8.0).into_iter(), &Scale::Log);
        // Log bins: [1,2) is 1, [4,8) is 3, [32,64) is 6, [512,1024) is 10.
        for (index, want) in [(1, 0.25), (3, 0.25), (6, 0.25), (10, 0.25)] {
            assert!((got[index] - want).abs() < 1e-6, "{got:?}");
        }
    }

    #[test]
    fn the_worked_equations_of_section_3_4() {
        // s1 = 3 s0: the linear part of [4,8) comes from [4/3, 8/3): two thirds of [1,2) and one
        // third of [2,4).
        let mut parts = [0.0; 2];
        for (i, source) in [(1.0, 2.0), (2.0, 4.0)].iter().enumerate() {
            let moved = scaled(&HistogramSegment::new(source.0, source.1, 1.0), 3.0);
            let (from, to) = if moved.to - moved.from > 1.0 {
                (moved.from, moved.to)
            } else {
                (3.0 * source.0, 3.0 * source.1)
            };
            parts[i] = (to.min(8.0) - from.max(4.0)) / (to - from);
        }
        assert!((parts[0] - 2.0 / 3.0).abs() < 1e-9 && (parts[1] - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn mixed_bins_are_separated() {
        for basis in [Basis::Log, Basis::LogLinear, Basis::Reference] {
            for runs in [
                vec![run(1024.0), run(8192.0)],
                vec![run(512.0), run(1024.0), run(8192.0)],
            ] {
                let model = train(&runs, basis, 1000).unwrap();
                for size in [65536.0, 1048576.0] {
                    let got = accuracy(&model.predict(size), &run(size).bins);
                    // The reference histogram also has the lowest accuracy in the paper, since its
                    // partitions mix both parts.
                    let least = if basis == Basis::Reference { 0.9 } else { 0.95 };
                    assert!(got > least, "{basis:?} {size}: {got}");
                }
                let linear: f64 = model
                    .patterns()
                    .iter()
                    .filter(|p| p.0 == Pattern::Linear)
                    .map(|p| p.1)
                    .sum();
                assert!((linear - 0.6).abs() < 0.05, "{basis:?}: {linear}");
            }
        }
    }

    /// The rows of products of matrices (23, 27 and 31 other elements) lie in one octave, so only finer
    /// cells tell growth from none.
    #[test]
    fn growth_inside_an_octave_is_found() {
        let at = |d: f64| (d, d + 1.0, 50.0);
        let product = |n: f64| Profile {
            size: 2.0 * n * n,
            bins: bins(&[at(2.0 * n - 1.0), at(n * n + n)]),
            cold: 0.0,
        };
        let runs = [12.0, 14.0, 16.0].map(product);
        let large = product(160.0);
        for basis in [Basis::LogLinear, Basis::Reference] {
            let model = train(&runs, basis, 1000).unwrap();
            let got = accuracy(&model.predict(large.size), &large.bins);
            assert!(got > 0.95, "{basis:?}: {got}");
        }
    }

    use proptest::prelude::*;

    /// Points for a share of distances that are evenly spread over a range. Each point is moved
    /// separately.
    fn points(from: f64, to: f64, share: f64, factor: f64) -> Vec<(f64, f64)> {
        const POINTS: usize = 2000;
        (0..POINTS)
            .map(|k| {
                (
                    (from + (to - from) * (k as f64 + 0.5) / POINTS as f64) * factor,
                    share / POINTS as f64,
                )
            })
            .collect()
    }

    /// Shares of the logarithmic bins [0,1) [1,2) [2,4) …, point by point.
    fn octaves(points: &[(f64, f64)]) -> Vec<f64> {
        let mut out = vec![0.0; 64];
        points
            .iter()
            .for_each(|&(d, share)| out[if d < 1.0 { 0 } else { d.log2() as usize + 1 }] += share);
        out
    }

    fn overlap(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x.min(*y)).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Moved and divided pieces agree with points that are moved one by one.
        #[test]
        fn predictions_are_what_moving_each_distance_gives(
            pieces in prop::collection::vec((1.0f64..5000.0, 2.0f64..3000.0, 0.05f64..1.0, 0.0f64..1.0, 0.0f64..1.0), 1..6), size in 10.0f64..1e6,
        ) {
            let patterns = vec![Pattern::Constant, Pattern::SquareRoot, Pattern::Linear];
            let total: f64 = pieces.iter().map(|p| p.2).sum();
            let mix: Vec<(HistogramSegment, Vec<f64>)> = pieces
                .iter()
                .map(|&(from, width, share, a, b)| (HistogramSegment::new(from, from + width, share / total), vec![a * b, a * (1.0 - b), 1.0 - a]))
                .collect();
            let model = MultiModel { basis: Basis::Log, size: 1000.0, patterns: patterns.clone(), mix: mix.clone(), residual: 0.0 };
            let moved: Vec<(f64, f64)> = mix
                .iter()
                .flat_map(|(p, shares)| patterns.iter().zip(shares).flat_map(|(f, x)| points(p.from, p.to, p.share * x, f.of(size) / f.of(1000.0))).collect::<Vec<_>>())
                .collect();
            let want = octaves(&moved);
            let got = shares(model.predict(size).into_iter(), &Scale::Log);
            for (i, &y) in want.iter().enumerate() {
                let x = got.get(i).copied().unwrap_or(0.0);
                prop_assert!((x - y).abs() < 0.01, "bin {}: {} {}", i, x, y);
            }
        }

        /// Two bins, each partly constant and partly linear: the fit is compared with the best of
        /// all mixes in steps of a twentieth.
        #[test]
        fn fits_are_as_good_as_the_best_of_all_mixes(
            low in 3u32..7, gap in 1u32..4, shares in (0.1f64..0.9, 0.0f64..1.0, 0.0f64..1.0), sizes in (2u32..4, 1u32..3),
        ) {
            let standard = 65_536.0;
            let ranges = [(f64::from(low).exp2(), f64::from(low + 1).exp2()), (f64::from(low + gap).exp2(), f64::from(low + gap + 1).exp2())];
            let weights = [shares.0, 1.0 - shares.0];
            let truth = [shares.1, shares.2];
            // Each bin under each pattern.
            let part = |i: usize, linear: bool, share: f64, size: f64| points(ranges[i].0, ranges[i].1, weights[i] * share, if linear { size / standard } else { 1.0 });
            let run = |size: f64| {
                // Sorted into fine bins of a sixteenth of an octave.
                let mut cells: std::collections::BTreeMap<i64, f64> = std::collections::BTreeMap::new();
                let all = (0..2).flat_map(|i| [part(i, false, 1.0 - truth[i], size), part(i, true, truth[i], size)].concat());
                all.for_each(|(d, share)| *cells.entry((d.log2() * 16.0).floor() as i64).or_default() += share);
                let edge = |c: i64| (c as f64 / 16.0).exp2();
                Profile { size, bins: bins(&cells.iter().map(|(&c, &n)| (edge(c), edge(c + 1), n)).collect::<Vec<_>>()), cold: 0.0 }
            };
            let sizes = [standard, standard / f64::from(sizes.0).exp2(), standard / f64::from(sizes.0 + sizes.1).exp2(), 4.0 * standard];
            let model = train(&sizes[..3].iter().map(|&s| run(s)).collect::<Vec<_>>(), Basis::Log, 1000).unwrap();
            let parts: Vec<[Vec<f64>; 4]> = sizes.iter().map(|&s| [(0, false), (0, true), (1, false), (1, true)].map(|(i, linear)| octaves(&part(i, linear, 1.0, s)))).collect();
            let mixed = |at: usize, mix: [f64; 2]| -> Vec<f64> {
                let [a, b, c, d] = &parts[at];
                (0..64).map(|i| (1.0 - mix[0]) * a[i] + mix[0] * b[i] + (1.0 - mix[1]) * c[i] + mix[1] * d[i]).collect()
            };
            let fit = |mix: Option<[f64; 2]>, at: usize| {
                let want = mixed(at, truth);
                match mix {
                    Some(mix) => overlap(&mixed(at, mix), &want),
                    None => overlap(&crate::histogram::shares(model.predict(sizes[at]).into_iter(), &Scale::Log), &want),
                }
            };
            let mean = |mix: Option<[f64; 2]>| (0..3).map(|at| fit(mix, at)).sum::<f64>() / 3.0;
            let best = (0..=20).flat_map(|a| (0..=20).map(move |b| [f64::from(a) / 20.0, f64::from(b) / 20.0])).map(|mix| mean(Some(mix))).fold(0.0, f64::max);
            prop_assert!(mean(None) > best - 0.03, "{} {} {:?}", mean(None), best, model.patterns());
            // And on a run that was not in training.
            prop_assert!(fit(None, 3) > 0.9, "{} {:?}", fit(None, 3), model.mix);
        }
    }
}
