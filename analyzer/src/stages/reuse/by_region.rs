//! Counts for the regions of a heat map during the pass over the rows.

use crate::data::reuse_counts::GroupReuse;
use std::collections::HashMap;

/// Regions by process: first and last block, and index.
#[derive(Debug, Default)]
pub struct HeatRegions {
    by_process: HashMap<u32, Vec<(u64, u64, u32)>>,
    columns: u32,
}

impl HeatRegions {
    /// Builds them from process, first and last address of each region. Regions of one process must
    /// not overlap.
    pub fn new(regions: &[(u32, u64, u64)], block_shift: u32, columns: usize) -> HeatRegions {
        let mut by_process: HashMap<u32, Vec<(u64, u64, u32)>> = HashMap::new();
        for (number, &(process, first, last)) in regions.iter().enumerate() {
            // A block belongs to the region that contains its first byte.
            by_process.entry(process).or_default().push((
                first.div_ceil(1 << block_shift),
                last >> block_shift,
                number as u32,
            ));
        }
        by_process
            .values_mut()
            .for_each(|list| list.sort_unstable());
        HeatRegions {
            by_process,
            columns: columns as u32,
        }
    }

    /// Regions of a process, by address.
    pub fn of(&self, process: u32) -> &[(u64, u64, u32)] {
        self.by_process.get(&process).map_or(&[], Vec::as_slice)
    }

    /// Columns of the map.
    pub fn columns(&self) -> u32 {
        self.columns
    }
}

/// Accesses and reuse by region and column: number of the region × columns + column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatSums {
    cells: Vec<(u64, GroupReuse)>,
}

impl HeatSums {
    /// Counts a touch.
    #[inline(always)]
    pub fn add(&mut self, cell: usize, starts: u64, touch: &GroupReuse) {
        if self.cells.len() <= cell {
            self.cells.resize(cell + 1, Default::default());
        }
        self.cells[cell].0 += starts;
        self.cells[cell].1.merge(touch);
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &HeatSums) {
        for (cell, (starts, reuse)) in other.cells.iter().enumerate() {
            if reuse.reuses + reuse.firsts > 0 {
                self.add(cell, *starts, reuse);
            }
        }
    }

    /// Accesses and reuse of a cell.
    pub fn cell(&self, cell: usize) -> (u64, GroupReuse) {
        self.cells.get(cell).copied().unwrap_or_default()
    }
}
