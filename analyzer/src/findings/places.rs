//! Index of rows by load instruction.

use crate::findings::windows::Window;
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

/// Number of a window, and of a row in it.
pub type Place = (u32, u32);

/// Places of all rows, by load instruction.
#[derive(Debug, Default)]
pub struct Places {
    /// Places sorted by instruction, then by position.
    all: Vec<Place>,
    of_sites: HashMap<u32, Range<usize>, Mixed>,
}

impl Places {
    /// Indexes the rows of some windows.
    pub fn new(windows: &[Window]) -> Places {
        let mut counts: HashMap<u32, usize, Mixed> = HashMap::default();
        for same in windows
            .iter()
            .flat_map(|w| w.rows.chunk_by(|a, b| a.site == b.site))
        {
            *counts.entry(same[0].site).or_default() += same.len();
        }
        let mut end = 0;
        let empty = |(site, rows)| {
            end += rows;
            // The range is empty here and grows as places are filled in.
            (site, end - rows..end - rows)
        };
        let mut of_sites: HashMap<u32, Range<usize>, Mixed> =
            counts.into_iter().map(empty).collect();
        let mut all = vec![(0, 0); end];
        for (window, number) in windows.iter().zip(0..) {
            for (row, at) in window.rows.iter().zip(0..) {
                if let Some(range) = of_sites.get_mut(&row.site) {
                    all[range.end] = (number, at);
                    range.end += 1;
                }
            }
        }
        Places { all, of_sites }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Places of an instruction.
    pub fn of(&self, site: u32) -> &[Place] {
        &self.all[self.of_sites.get(&site).cloned().unwrap_or_default()]
    }

    /// All instructions, with their places.
    pub fn by_site(&self) -> impl ParallelIterator<Item = (u32, &[Place])> {
        let of = |(&site, range): (&u32, &Range<usize>)| (site, &self.all[range.clone()]);
        self.of_sites.par_iter().map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::windows::Row;

    #[test]
    fn rows_of_an_instruction_are_in_order() {
        let window = |sites: &[u32]| Window {
            rows: sites
                .iter()
                .map(|&site| Row {
                    site,
                    ..Row::default()
                })
                .collect(),
            ..Window::default()
        };
        let places = Places::new(&[window(&[7, 3, 7, 7]), window(&[]), window(&[3, 7])]);
        assert_eq!(places.len(), 6);
        assert_eq!(places.of(7), [(0, 0), (0, 2), (0, 3), (2, 1)]);
        assert_eq!(places.of(3), [(0, 1), (2, 0)]);
        assert!(places.of(5).is_empty());
        let mut sites: Vec<(u32, usize)> = places
            .by_site()
            .map(|(site, of)| (site, of.len()))
            .collect();
        sites.sort_unstable();
        assert_eq!(sites, [(3, 2), (7, 4)]);
    }
}
