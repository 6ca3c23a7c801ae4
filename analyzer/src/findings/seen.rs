//! Memory that some loads accessed in windows. It is a lower bound of the memory that the loads
//! access.

use crate::data::memory_units::CacheLine;
use crate::findings::places::Place;
use crate::findings::windows::Window;
use crate::util::radix;
use std::collections::BTreeMap;

/// Memory that loads accessed in windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Bytes from the lowest to the highest address, summed over objects.
    pub extent: u64,
    /// Different lines.
    pub lines: u64,
    /// Different pages of 4 KiB.
    pub pages: u64,
    /// Lines that a later window saw again.
    pub again: u64,
}

/// Collects the lines of the rows `places`.
pub fn of(windows: &[Window], places: &[Place]) -> Seen {
    let mut ends: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    let mut lines: Vec<(CacheLine, u32)> = Vec::with_capacity(places.len());
    let is_same = |a: &Place, b: &Place| {
        let object = |of: &Place| windows[of.0 as usize].rows[of.1 as usize].object;
        a.0 == b.0 && object(a) == object(b)
    };
    for same in places.chunk_by(is_same) {
        let (number, window) = (same[0].0, &windows[same[0].0 as usize]);
        let rows = || same.iter().map(|&(_, at)| &window.rows[at as usize]);
        for row in rows() {
            let line = (CacheLine::of(row.address), number);
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
        let object = window.rows[same[0].1 as usize].object;
        let of = ends
            .entry((window.process, object))
            .or_insert((u64::MAX, 0));
        for row in rows() {
            *of = (
                of.0.min(row.address),
                of.1.max(row.address + u64::from(row.size)),
            );
        }
    }
    radix::sort(&mut lines, |line| line.0.number());
    // Few lines are sorted by comparison, which does not keep the order of windows.
    lines.sort();
    lines.dedup();
    let mut seen = Seen {
        extent: ends.values().map(|e| e.1 - e.0).sum(),
        ..Seen::default()
    };
    let mut last_page = None;
    for same in lines.chunk_by(|a, b| a.0 == b.0) {
        seen.lines += 1;
        seen.again += u64::from(same.len() > 1);
        let page = Some(same[0].0.page());
        seen.pages += u64::from(page != last_page);
        last_page = page;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::windows::Row;

    #[test]
    fn lines_of_windows_are_counted_once() {
        let window = |first: u64| Window {
            rows: (first..first + 4)
                .map(|line| Row {
                    address: line * 64,
                    size: 8,
                    ..Row::default()
                })
                .collect(),
            ..Window::default()
        };
        let windows = [window(62), window(64)];
        let places: Vec<Place> = (0..2).flat_map(|w| (0..4).map(move |at| (w, at))).collect();
        let seen = of(&windows, &places);
        let wanted = Seen {
            extent: 5 * 64 + 8,
            lines: 6,
            pages: 2,
            again: 2,
        };
        assert_eq!(seen, wanted);
    }
}
