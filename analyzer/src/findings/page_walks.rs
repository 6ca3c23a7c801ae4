//! Waits for page walks, as far as windows show them.
//!
//! Predicted misses are those of caches. Windows also show how many pages a program goes through.
//! If these are more than a TLB holds, the first touch of a page in a window may need a walk. The
//! price of a walk depends on the machine, so these waits are only a doubt of other numbers.

use crate::data::memory_units::{PAGE_BYTES, Page};
use crate::findings::params;
use crate::findings::windows::Window;
use crate::util::fast_hash::Mixed;
use std::collections::{HashMap, HashSet};

/// By load instruction: nanoseconds that its rows may wait for page walks.
pub(super) fn page_walks(windows: &[Window]) -> HashMap<u32, f64, Mixed> {
    let mut all: HashSet<(u32, Page), Mixed> = HashSet::default();
    let mut firsts: HashMap<u32, u64, Mixed> = HashMap::default();
    for window in windows {
        let mut pages: HashSet<Page, Mixed> = HashSet::default();
        for (at, row) in window.rows.iter().enumerate() {
            let page = Page::of(row.address);
            if pages.insert(page) {
                all.insert((window.process, page));
                // A window begins with an empty set of pages, so its second half counts for all.
                let late = 2 * u64::from(2 * at >= window.rows.len());
                *firsts.entry(row.site).or_default() += late;
            }
        }
    }
    let held = params::TLB_REACH_BYTES / PAGE_BYTES;
    let missing = (1.0 - held as f64 / all.len().max(1) as f64).max(0.0);
    let wait = missing * params::NS_OF_PAGE_WALK;
    (firsts.into_iter())
        .map(|(site, firsts)| (site, firsts as f64 * wait))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::windows::Row;

    fn windows(pages: u64) -> Vec<Window> {
        let row = |at: u64| Row {
            address: at * 7919 % pages * PAGE_BYTES,
            site: 5,
            ..Row::default()
        };
        let window = |number: u64| Window {
            rows: (0..1000).map(|at| row(number * 1000 + at)).collect(),
            ..Window::default()
        };
        (0..100).map(window).collect()
    }

    #[test]
    fn pages_that_a_tlb_holds_need_no_walk() {
        assert_eq!(page_walks(&windows(2000))[&5], 0.0);
        let walks = page_walks(&windows(20_000))[&5] / params::NS_OF_PAGE_WALK;
        assert!((85_000.0..100_000.0).contains(&walks), "{walks}");
    }
}
