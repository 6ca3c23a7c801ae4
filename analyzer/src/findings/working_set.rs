//! Working set: the memory that some loads go through.
//!
//! Windows see a small part of it. Two methods estimate the whole. *Extent*: the range of addresses
//! in each object. The ends seen by w windows at random places are (w − 1)/(w + 1) of the whole
//! apart. *Recapture*: the number of lines that several windows share. Among n lines drawn at
//! random from N, N(1 − e^(−n/N)) are different. If some lines are drawn more often than others, as
//! the upper nodes of a tree are, this estimate is too low. Then at least f₁²/2f₂ lines exist
//! beyond those seen, where f₁ and f₂ are the numbers of lines seen by one and by two windows
//! (Chao, *Scandinavian Journal of Statistics* 11, 1984). The extent is exact for walks and an
//! upper bound for scattered loads. Recapture is better if windows share many lines.

use crate::data::object_map::Resolver;
use crate::findings::params;
use crate::findings::places::Place;
use crate::findings::windows::Window;
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// Memory that some loads go through.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkingSet {
    /// Bytes from the lowest to the highest address, summed over objects.
    pub extent: u64,
    /// Bytes of the lines in use there.
    pub bytes: u64,
    /// `bytes` is a lower bound: some lines are visited much more often than others, and the number
    /// of rarely visited ones is unknown.
    pub at_least: bool,
    /// Lines that windows have seen.
    pub lines: u64,
    /// Pages of 4 KiB that windows have seen.
    pub pages: u64,
    /// Number of windows with at least one of the loads.
    pub windows: u64,
}

/// Computes the working set of rows. `places`: the rows; `step`: their regular step in bytes, if
/// any; `resolver`: knows the objects.
pub fn of(
    windows: &[Window],
    mut places: Vec<Place>,
    step: Option<i64>,
    resolver: Option<&Resolver>,
) -> WorkingSet {
    // Logged blocks lie among others, so the heap counts as one object.
    let place_of = |object: u32| match resolver {
        Some(known) if known.samples.contains_key(&object) || known.is_container(object) => 0,
        _ => object,
    };
    let gap_of = |object: u32| {
        let largest = resolver.and_then(|known| known.largest(object));
        largest.unwrap_or(0).max(params::MIN_BYTES_BETWEEN_BLOCKS)
    };
    // Places of one load are in order, those of several loads are not.
    places.sort();
    let mut set = WorkingSet::default();
    let mut objects: HashMap<(u32, u32), Vec<(u64, u64)>, Mixed> = HashMap::default();
    // Lines of each window, without repetition.
    let mut lines: Vec<u64> = Vec::with_capacity(places.len());
    let mut touched: Vec<(u32, u64, u64)> = Vec::new();
    for of_window in places.chunk_by(|a, b| a.0 == b.0) {
        let Some(window) = windows.get(of_window[0].0 as usize) else {
            continue;
        };
        touched.clear();
        let first = lines.len();
        for &(_, at) in of_window {
            let row = &window.rows[at as usize];
            lines.push(row.address >> 6);
            let end = row.address + u64::from(row.size);
            touched.push((place_of(row.object), row.address, end));
        }
        lines[first..].sort_unstable();
        keep_different(&mut lines, first);
        // A window may touch a heap, a stack and a library, which are far apart. Blocks of one
        // allocation site may lie in the heap and outside of it.
        touched.sort_unstable();
        for of_object in touched.chunk_by(|a, b| a.0 == b.0) {
            let gap = gap_of(of_object[0].0);
            for piece in of_object.chunk_by(|a, b| b.1.saturating_sub(a.2) < gap) {
                let end = piece.iter().map(|p| p.2).max().unwrap_or(0);
                let key = (window.process, piece[0].0);
                objects.entry(key).or_default().push((piece[0].1, end));
            }
        }
        set.windows += 1;
    }
    let drawn = lines.len() as u64;
    lines.par_sort_unstable();
    // Lines that exactly one window and exactly two windows have seen.
    let (mut once, mut twice) = (0.0, 0.0);
    let mut last_page = None;
    for same in lines.chunk_by(|a, b| a == b) {
        set.lines += 1;
        once += f64::from(u8::from(same.len() == 1));
        twice += f64::from(u8::from(same.len() == 2));
        let page = Some(same[0] >> 6);
        set.pages += u64::from(page != last_page);
        last_page = page;
    }
    for ((_, object), mut ends) in objects {
        ends.sort_unstable();
        set.extent += extent(&ends, gap_of(object));
    }
    let sparse = step.map_or(1.0, |s| 64.0 / (s.unsigned_abs() as f64).max(64.0));
    let walked = set.extent as f64 * sparse;
    let repeated = 1.0 - set.lines as f64 / drawn.max(1) as f64;
    let seen = set.lines as f64 * 64.0;
    let bytes = if repeated >= params::MIN_REPEATED_SHARE_FOR_RECAPTURE {
        let unseen = f64::powi(once, 2) / (2.0 * f64::max(twice, 1.0));
        let equal = population(drawn as f64, set.lines as f64);
        let known = set.lines as f64 + unseen;
        set.at_least = known > params::MIN_RATIO_OF_UNEQUAL_VISITS * equal && known * 64.0 < walked;
        walked.min(equal.max(known) * 64.0)
    } else {
        walked
    };
    set.bytes = bytes.max(seen) as u64;
    set
}

/// Removes repeated numbers from index `first` on. They are sorted there.
fn keep_different(numbers: &mut Vec<u64>, first: usize) {
    let mut kept = first;
    for at in first..numbers.len() {
        if kept == first || numbers[kept - 1] != numbers[at] {
            numbers[kept] = numbers[at];
            kept += 1;
        }
    }
    numbers.truncate(kept);
}

/// Estimated extent from the sorted ranges that windows saw.
fn extent(ends: &[(u64, u64)], gap: u64) -> u64 {
    let mut sum = 0;
    let mut from = 0;
    while from < ends.len() {
        let start = ends[from].0;
        let mut end = ends[from].1;
        let mut to = from + 1;
        while to < ends.len() && ends[to].0.saturating_sub(end) < gap {
            end = end.max(ends[to].1);
            to += 1;
        }
        let n = (to - from) as f64;
        let wider = if n > 2.0 { (n + 1.0) / (n - 1.0) } else { 1.0 };
        // The range within a single window needs no correction.
        let inner = ends[from..to].iter().map(|e| e.1 - e.0).max().unwrap_or(0);
        sum += (((end - start - inner) as f64 * wider) as u64).saturating_add(inner);
        from = to;
    }
    sum
}

/// Solves for the size of a population of which `drawn` random draws hit `different` members.
fn population(drawn: f64, different: f64) -> f64 {
    let (mut low, mut high) = (different, different * 1e4);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if middle * (1.0 - (-drawn / middle).exp()) < different {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::windows::Row;

    fn window(addresses: impl Iterator<Item = u64>) -> Window {
        let row = |address| Row {
            address,
            site: 0,
            group: 0,
            size: 8,
            object: 1,
            into: crate::findings::windows::NOWHERE,
            first: true,
            first_in_page: false,
        };
        Window {
            rows: addresses.map(row).collect(),
            ..Window::default()
        }
    }

    fn all(windows: &[Window], step: Option<i64>) -> WorkingSet {
        let places = (windows.iter().zip(0..))
            .flat_map(|(w, n)| (0..w.rows.len() as u32).map(move |at| (n, at)));
        of(windows, places.collect(), step, None)
    }

    /// A fixed sequence of random numbers.
    fn random() -> impl FnMut() -> u64 {
        let mut at = 7u64;
        move || {
            at = at
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            at >> 33
        }
    }

    #[test]
    fn a_walk_has_its_extent() {
        let windows: Vec<Window> = (0..32u64)
            .map(|w| window((0..100).map(move |i| (1 << 30) | ((w * 2) << 20) | (i * 8))))
            .collect();
        let set = all(&windows, Some(8));
        assert!((60 << 20..70 << 20).contains(&set.bytes), "{set:?}");
        // A step of four lines leaves three out.
        let quarter = all(&windows, Some(256)).bytes;
        assert!((15 << 20..18 << 20).contains(&quarter), "{quarter}");
    }

    #[test]
    fn a_window_may_be_in_several_places() {
        for object in [0, 1] {
            in_several_places(object);
        }
    }

    fn in_several_places(object: u32) {
        let windows: Vec<Window> = (0..8u64)
            .map(|w| {
                let places = [1 << 30, 0x7f00_0000_0000, 0x7fff_0000_0000u64];
                let at = move |place: u64| (0..50).map(move |i| place + w * 4096 + i * 64);
                let mut window = window(places.into_iter().flat_map(at));
                for row in &mut window.rows {
                    row.object = object;
                }
                window
            })
            .collect();
        let set = all(&windows, None);
        assert!(set.extent < 1 << 20, "{set:?}");
    }

    /// Searches in a tree of 2¹⁷ nodes. Half of the nodes in a window are the few near the root.
    #[test]
    fn a_tree_is_larger_than_what_searches_share() {
        let mut next = random();
        let windows: Vec<Window> = (0..200)
            .map(|_| {
                let mut nodes = Vec::new();
                for _ in 0..60 {
                    let key = next() & ((1 << 17) - 1);
                    nodes.extend(
                        (0..17u32).map(|level| ((1 << level) | (key >> (17 - level))) * 64),
                    );
                }
                window(nodes.into_iter())
            })
            .collect();
        let set = all(&windows, None);
        assert!((3 << 20..9 << 20).contains(&set.bytes), "{set:?}");
        assert!(set.at_least);
    }

    #[test]
    fn what_windows_share_is_not_larger_than_it_is() {
        let mut next = random();
        // 1,000 lines of 64 bytes, spread over 64 MiB.
        let windows: Vec<Window> = (0..20)
            .map(|_| {
                let lines: Vec<u64> = (0..500).map(|_| next() % 1000 * (1 << 16)).collect();
                window(lines.into_iter())
            })
            .collect();
        let set = all(&windows, None);
        assert!((60_000..72_000).contains(&set.bytes), "{set:?}");
    }
}
