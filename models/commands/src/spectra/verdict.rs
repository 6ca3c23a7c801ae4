//! Advice based on the signatures.

use mgz_analyzer::data::memory_units::PAGE_BYTES;
use mgz_models::emd;

/// Advice.
pub(crate) struct Verdict {
    pub(crate) prototype: &'static str,
    pub(crate) page: u64,
    pub(crate) utilisation: f64,
    pub(crate) text: &'static str,
}

/// Minimum number of bins by which the mass must move on average for a shift. Source: Chosen.
const MIN_SHIFT_BINS: f64 = 0.5;
/// Minimum share in the first bin for a signature to count as local. Source: Chosen.
const MIN_LOCAL_SHARE: f64 = 0.85;
/// Minimum used share of a page for it to be advised. Source: Chosen.
const MIN_USED_PAGE_SHARE: f64 = 0.5;

/// The paper's interpretation, sections IV-A and IV-B: mass that shifts to short distances means
/// spatially dense accesses. Larger pages are useful for these, unless a large part of the pages is
/// never used. The used part is counted in whole small pages, because a kernel allocates no less:
/// if each small page is touched, large pages take no more memory.
pub(crate) fn judge(sizes: &[u64], signatures: &[Vec<f64>], bytes: &[u64]) -> Verdict {
    let share_first = |s: &[f64]| s[0] / s.iter().sum::<f64>().max(1e-300);
    let total = emd::earth_movers_distance(&signatures[0], &signatures[signatures.len() - 1])
        .unwrap_or(0.0);
    let used = |i: usize| bytes[0] as f64 / bytes[i].max(1) as f64;
    let base = sizes
        .iter()
        .position(|&s| s >= PAGE_BYTES)
        .unwrap_or(sizes.len() - 1);
    let in_pages = |i: usize| bytes[base] as f64 / bytes[i].max(1) as f64;
    let largest = (base..sizes.len())
        .rev()
        .find(|&i| in_pages(i) >= MIN_USED_PAGE_SHARE)
        .unwrap_or(base);
    if share_first(&signatures[0]) >= MIN_LOCAL_SHARE {
        return Verdict {
            prototype: "shape stays: local at every size",
            page: sizes[base],
            utilisation: used(base),
            text: "reuse is local in the smallest blocks already; page size matters little for locality",
        };
    }
    if total < MIN_SHIFT_BINS {
        let text = if used(sizes.len() - 1) >= MIN_USED_PAGE_SHARE {
            "larger pages do not shorten reuses, though all of them is used in the end: a candidate for another data layout"
        } else {
            "larger pages neither shorten reuses nor are used: keep small pages"
        };
        return Verdict {
            prototype: "shape stays",
            page: sizes[base],
            utilisation: used(base),
            text,
        };
    }
    let text = if largest > base && used(largest) < MIN_USED_PAGE_SHARE {
        "reuses move to short distances and large pages take no more memory: large pages pay, but most of them is unused: pack the data"
    } else if largest > base {
        "reuses move to short distances and the larger pages are used: large pages pay"
    } else if used(base) >= MIN_USED_PAGE_SHARE {
        "reuses move to short distances, but most of larger pages would stay unused: keep small pages"
    } else {
        "reuses move to short distances, but even small pages are mostly unused: pack the data"
    };
    Verdict {
        prototype: "mass shifts",
        page: sizes[largest],
        utilisation: used(largest),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectra::bands::BINS;

    #[test]
    fn prototypes_are_told_apart() {
        let sizes = [64, 4096, 2 << 20];
        let at = |bin: usize| {
            let mut s = vec![0.0; BINS];
            s[bin] = 100.0;
            s
        };
        // A blocked array: all mass moves to the first bin, and pages are fully used.
        let dense = judge(&sizes, &[at(6), at(1), at(0)], &[4 << 20, 4 << 20, 4 << 20]);
        assert_eq!((dense.prototype, dense.page), ("mass shifts", 2 << 20));
        // The same on a heap that uses only a tenth of each large page.
        let sparse = judge(
            &sizes,
            &[at(6), at(1), at(0)],
            &[4 << 20, 5 << 20, 40 << 20],
        );
        assert_eq!((sparse.prototype, sparse.page), ("mass shifts", 4096));
        // One line of each small page: large pages take no more memory than small ones.
        let lines = judge(
            &sizes,
            &[at(20), at(14), at(5)],
            &[1 << 20, 64 << 20, 64 << 20],
        );
        assert_eq!((lines.prototype, lines.page), ("mass shifts", 2 << 20));
        assert!(lines.utilisation < 0.02 && lines.text.contains("pack"));
        // Parallel streams, as in mega-stream.
        let streams = judge(&sizes, &[at(1), at(1), at(1)], &[4 << 20, 4 << 20, 4 << 20]);
        assert_eq!((streams.prototype, streams.page), ("shape stays", 4096));
        assert!(streams.text.contains("layout"));
        assert_eq!(
            judge(&sizes, &[at(0), at(0), at(0)], &[4096, 4096, 2 << 20]).prototype,
            "shape stays: local at every size"
        );
    }
}
