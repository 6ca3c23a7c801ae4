//! Locality of other inputs: prediction of reuse-distance histograms (Zhong, Shen, Ding 2009,
//! section 3).
//!
//! A [`Profile`] has the measurements of one run: its histogram and its input size. Patterns
//! describe how distances grow with the input size s: not at all, or with s, s^½, s^⅓, s^⅔.
//! [`single`] gives each partition of the reference histogram one pattern; [`multi`] lets every bin
//! of a histogram be a mix of patterns; [`combined`] weighs their predictions.

pub mod by_code;
pub mod combined;
pub mod multi;
pub mod sampling;
pub mod single;

use crate::histogram::{Bin, Scale, shares, similarity};
use serde::{Deserialize, Serialize};

/// Growth of distances with the input size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// No growth.
    Constant,
    /// With the cube root: one side of a cube.
    CubeRoot,
    /// With the square root: one side of a square.
    SquareRoot,
    /// With the cube root squared: one face of a cube.
    TwoThirds,
    /// In proportion.
    Linear,
}

impl Pattern {
    /// f(s), the growth of a distance at input size s.
    pub fn of(self, size: f64) -> f64 {
        match self {
            Pattern::Constant => 1.0,
            Pattern::CubeRoot => size.cbrt(),
            Pattern::SquareRoot => size.sqrt(),
            Pattern::TwoThirds => size.cbrt().powi(2),
            Pattern::Linear => size,
        }
    }
}

/// Patterns that may be mixed: "we take care not to mix sublinear patterns from a different number
/// of dimensions".
pub const DIMENSIONS: [&[Pattern]; 3] = [
    &[Pattern::Constant, Pattern::Linear],
    &[Pattern::Constant, Pattern::SquareRoot, Pattern::Linear],
    &[
        Pattern::Constant,
        Pattern::CubeRoot,
        Pattern::TwoThirds,
        Pattern::Linear,
    ],
];

/// Measurements of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Input size.
    pub size: f64,
    /// Reuse distances, ascending.
    pub bins: Vec<Bin>,
    /// First touches.
    pub cold: f64,
}

/// Accuracy of a predicted histogram: 1 − Σ|x − y| / 2 over the bars of logarithmic histograms
/// (section 4.2.1).
pub fn accuracy(predicted: &[Bin], measured: &[Bin]) -> f64 {
    similarity(
        &shares(predicted.iter().copied(), &Scale::Log),
        &shares(measured.iter().copied(), &Scale::Log),
    )
}

/// Part of a histogram that moves as one: values from `from` to `to`, evenly spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramSegment {
    /// Least value.
    pub from: f64,
    /// First value after the part.
    pub to: f64,
    /// Share of all reuses.
    pub share: f64,
}

impl HistogramSegment {
    pub(crate) fn new(from: f64, to: f64, share: f64) -> HistogramSegment {
        HistogramSegment { from, to, share }
    }
}

/// Collects pieces on a fine scale: bins of an eighth of an octave; whole values below 16.
pub fn collect(pieces: impl Iterator<Item = HistogramSegment>) -> Vec<Bin> {
    let mut cells: std::collections::BTreeMap<usize, f64> = std::collections::BTreeMap::new();
    for piece in pieces.filter(|p| p.share > 0.0) {
        spread(&piece, |index, share| {
            *cells.entry(index).or_default() += share
        });
    }
    cells
        .into_iter()
        .map(|(index, count)| {
            let (from, to) = (cell_edge(index), cell_edge(index + 1));
            Bin {
                from,
                to,
                count,
                sum: count * 0.5 * (from + to - 1.0),
            }
        })
        .collect()
}

/// Index of the cell that contains a value.
pub(crate) fn cell(value: f64) -> usize {
    let v = value.max(0.0);
    if v < 16.0 {
        v as usize
    } else {
        (((v / 16.0).log2() * 8.0) + 1e-9) as usize + 16
    }
}

/// First value of a cell.
pub(crate) fn cell_edge(index: usize) -> f64 {
    if index <= 16 {
        index as f64
    } else {
        16.0 * ((index - 16) as f64 / 8.0).exp2()
    }
}

/// Divides a piece among the cells that it covers.
pub(crate) fn spread(piece: &HistogramSegment, mut put: impl FnMut(usize, f64)) {
    // A model file may contain sizes beyond all memories, but cells end there.
    let bounded = |v: f64| if v.is_nan() { 0.0 } else { v.clamp(0.0, 1e18) };
    let piece = &HistogramSegment::new(bounded(piece.from), bounded(piece.to), piece.share);
    let width = piece.to - piece.from;
    if width <= 1.0 + 1e-9 {
        return put(cell(piece.from), piece.share);
    }
    let last = cell(piece.to - 1e-9);
    for index in cell(piece.from)..=last {
        let part = (cell_edge(index + 1).min(piece.to) - cell_edge(index).max(piece.from)).max(0.0);
        put(index, piece.share * part / width);
    }
}

/// The piece with distances multiplied by a factor. A single value stays a single value.
pub(crate) fn scaled(piece: &HistogramSegment, factor: f64) -> HistogramSegment {
    if piece.to - piece.from <= 1.0 + 1e-9 {
        let at = piece.from * factor;
        return HistogramSegment::new(at, at + 1.0, piece.share);
    }
    HistogramSegment::new(piece.from * factor, piece.to * factor, piece.share)
}

/// Pieces of a histogram on a scale: one per bin that has values, narrowed to the values that it
/// has.
pub(crate) fn histogram_segments(bins: &[Bin], scale: &Scale) -> Vec<HistogramSegment> {
    let total: f64 = bins.iter().map(|b| b.count).sum();
    let mut out: Vec<(usize, HistogramSegment)> = Vec::new();
    for bin in bins.iter().filter(|b| b.count > 0.0) {
        let (index, share) = (scale.index(bin.from), bin.count / total);
        match out.last_mut() {
            Some((last, piece)) if *last == index => {
                piece.to = bin.to;
                piece.share += share;
            }
            _ => out.push((index, HistogramSegment::new(bin.from, bin.to, share))),
        }
    }
    out.into_iter().map(|(_, piece)| piece).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn bins(values: &[(f64, f64, f64)]) -> Vec<Bin> {
        values
            .iter()
            .map(|&(from, to, count)| Bin {
                from,
                to,
                count,
                sum: count * 0.5 * (from + to - 1.0),
            })
            .collect()
    }

    #[test]
    fn pieces_keep_their_share_and_powers_of_two_are_edges() {
        let got = collect(
            [
                HistogramSegment::new(3.0, 100.0, 0.5),
                HistogramSegment::new(7.0, 8.0, 0.25),
            ]
            .into_iter(),
        );
        assert!((got.iter().map(|b| b.count).sum::<f64>() - 0.75).abs() < 1e-9);
        for k in 0..40 {
            let edge = f64::from(k).exp2();
            assert!((cell_edge(cell(edge)) - edge).abs() < 1e-6 * edge, "{edge}");
        }
    }

    #[test]
    fn accuracy_of_the_paper() {
        let a = bins(&[(0.0, 1.0, 2.0), (4.0, 8.0, 2.0)]);
        assert_eq!(accuracy(&a, &a), 1.0);
        assert_eq!(accuracy(&a, &bins(&[(0.0, 1.0, 1.0)])), 0.5);
        assert_eq!(accuracy(&a, &bins(&[(64.0, 128.0, 1.0)])), 0.0);
    }
}
