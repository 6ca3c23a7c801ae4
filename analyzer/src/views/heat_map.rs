//! Heat maps: memory regions by time, for accesses and for reuse distance.
//!
//! The run is divided into columns with the same number of samples, in the order of time (a run of
//! few long samples: into equal parts of each). The rows are the hottest final regions of the
//! location zoom, by address. Inside one object, they are equal parts of these regions.

use crate::data::reuse_counts::GroupReuse;
use crate::data::samples::SampleInfo;
use crate::engine::{Aids, Collect, EngineOptions, analyse_with};
use crate::input::selection::{Chosen, Extent};
use crate::input::source::ChunkSource;
use crate::stages::reuse::by_page::HeatTable;
use crate::stages::reuse::by_region::{HeatRegions, HeatSums};
use crate::util::hex_address::HexAddress;
use crate::views::location::{LocationZoom, Region, collect_leaves};
use crate::views::location_sizes::Sizes;
use crate::views::sample_order::by_time;
use serde::Serialize;
use std::sync::Arc;

/// Maximum number of columns.
pub const COLUMNS: usize = 48;
/// Maximum number of rows.
const ROWS: usize = 16;

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatMapColumn {
    /// Start of its first sample, `time_ns`.
    pub from_ns: u64,
    /// End of its last sample.
    pub to_ns: u64,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatRow {
    /// Id of the region in the location zoom.
    pub region: String,
    /// First address.
    pub start: HexAddress,
    /// Last address.
    pub end: HexAddress,
    /// Object with most of the region's loads, or else the function with most of them.
    pub label: String,
    /// Loads by column.
    #[serde(rename = "A")]
    pub accesses: Vec<u64>,
    /// Mean D by column; none without reuses.
    #[serde(rename = "D_mean")]
    pub distances: Vec<Option<f64>>,
}

/// Accesses and D by region and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatMap {
    /// By time.
    pub columns: Vec<HeatMapColumn>,
    /// By address.
    pub rows: Vec<HeatRow>,
}

/// A cell, for files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Id of the region.
    pub region: String,
    /// First address.
    pub start: HexAddress,
    /// Number of the column.
    pub column: u64,
    /// Start of the column.
    pub from_ns: u64,
    /// Loads.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Mean D.
    #[serde(rename = "D_mean")]
    pub distance: Option<f64>,
}

impl HeatMap {
    /// One row per region and column.
    pub fn cells(&self) -> Vec<Cell> {
        let cell = |row: &HeatRow, k: usize| Cell {
            region: row.region.clone(),
            start: row.start,
            column: k as u64,
            from_ns: self.columns[k].from_ns,
            accesses: row.accesses[k],
            distance: row.distances[k],
        };
        self.rows
            .iter()
            .flat_map(|row| (0..self.columns.len()).map(move |k| cell(row, k)))
            .collect()
    }
}

fn label(region: &Region) -> String {
    let object = region
        .objects
        .first()
        .filter(|o| o.share.unwrap_or(0.0) >= 50.0)
        .map(|o| o.object.clone());
    object
        .or_else(|| region.functions.first().map(|f| f.function.clone()))
        .unwrap_or_default()
}

/// Divides the run into columns.
pub(crate) fn columns(samples: &[SampleInfo], order: &[usize]) -> Vec<Extent> {
    let n = order.len();
    if n >= COLUMNS {
        return (0..COLUMNS)
            .map(|c| Extent::Samples(order[c * n / COLUMNS..(c + 1) * n / COLUMNS].to_vec()))
            .collect();
    }
    let part = |loads: u64, c: usize| (u128::from(loads) * c as u128 / COLUMNS as u128) as u64;
    (0..COLUMNS)
        .map(|c| {
            Extent::Parts(
                order
                    .iter()
                    .map(|&s| (s, part(samples[s].loads, c)..part(samples[s].loads, c + 1)))
                    .collect(),
            )
        })
        .collect()
}

/// First and last address of at most `parts` parts of a region, of whole units and equal but for
/// one unit.
fn equal_parts(
    start: u64,
    end: u64,
    unit_shift: u32,
    parts: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let units = ((end - start) >> unit_shift) + 1;
    let parts = parts.clamp(1, units);
    let edge = move |k: u64| {
        let whole = (u128::from(units) * u128::from(k) / u128::from(parts)) as u64;
        start + (whole << unit_shift)
    };
    (0..parts).map(move |k| (edge(k), if k + 1 < parts { edge(k + 1) - 1 } else { end }))
}

/// A map before its rows were counted.
pub struct HeatMapPlan {
    leaves: Vec<(Region, u64, u64)>,
    extents: Vec<Extent>,
    columns: Vec<HeatMapColumn>,
    regions: Arc<HeatRegions>,
    block_shift: u32,
}

impl HeatMapPlan {
    /// Plans a map of the hottest final regions of the location zoom and the selected time. With
    /// `divided`, the regions are cut into equal parts up to the maximum number of rows.
    pub(crate) fn new(
        samples: &[SampleInfo],
        zoom: &LocationZoom,
        sizes: Sizes,
        divided: bool,
    ) -> Option<HeatMapPlan> {
        let mut leaves = Vec::new();
        collect_leaves(&zoom.root, &mut leaves);
        leaves.retain(|l| !l.id.is_empty());
        leaves.sort_by_key(|l| std::cmp::Reverse(l.metrics.accesses));
        leaves.truncate(ROWS);
        leaves.sort_by_key(|l| (l.process, l.start));
        let order = by_time(samples);
        if leaves.is_empty() || order.is_empty() {
            return None;
        }
        let parts = if divided { ROWS / leaves.len() } else { 1 };
        let leaves: Vec<(Region, u64, u64)> = leaves
            .into_iter()
            .flat_map(|l| {
                let bounds = equal_parts(l.start.0, l.end.0, sizes.unit, parts as u64);
                bounds.map(move |(first, last)| (l.clone(), first, last))
            })
            .collect();
        let bounds: Vec<(u32, u64, u64)> = leaves
            .iter()
            .map(|l| (l.0.process.unwrap_or(0), l.1, l.2))
            .collect();
        let extents = columns(samples, &order);
        let column = |e: &Extent| {
            let list = e.samples();
            let from = list
                .iter()
                .map(|&s| samples[s].first_time)
                .min()
                .unwrap_or(0);
            let to = list
                .iter()
                .map(|&s| samples[s].last_time)
                .max()
                .unwrap_or(0);
            HeatMapColumn {
                from_ns: from,
                to_ns: to,
            }
        };
        Some(HeatMapPlan {
            columns: extents.iter().map(column).collect(),
            regions: Arc::new(HeatRegions::new(&bounds, sizes.block, COLUMNS)),
            leaves,
            extents,
            block_shift: sizes.block,
        })
    }

    /// Builds the map from units that were counted during the pass over the whole run. Returns the
    /// plan if there were too many.
    pub fn of_units(
        self,
        cells: &HeatTable,
        spaces: &[u32],
        unit_shift: u32,
    ) -> Result<HeatMap, Box<HeatMapPlan>> {
        let Some(cells) = cells.cells() else {
            return Err(Box::new(self));
        };
        let mut sums = HeatSums::default();
        let width = self.columns.len();
        for (unit, space, column, starts, reuses, distance) in cells {
            let process = spaces.get(space as usize).copied().unwrap_or(0);
            let regions = self.regions.of(process);
            // Regions consist of whole units; their bounds are in blocks.
            let block = unit << (unit_shift - self.block_shift);
            let behind = regions.partition_point(|r| r.0 <= block);
            if let Some(&(_, last, region)) = behind.checked_sub(1).and_then(|at| regions.get(at))
                && block <= last
            {
                let touched = GroupReuse {
                    reuses,
                    firsts: 1,
                    distance,
                    ..GroupReuse::default()
                };
                sums.add(region as usize * width + column as usize, starts, &touched);
            }
        }
        Ok(self.fill(&sums))
    }

    /// Counts in a separate pass over the trace.
    pub fn count(
        self,
        source: &dyn ChunkSource,
        options: EngineOptions,
        samples: &[SampleInfo],
    ) -> HeatMap {
        let chosen = Chosen::new(
            source,
            samples,
            self.extents
                .iter()
                .enumerate()
                .map(|(c, e)| (e, 0, c as u32)),
            false,
        );
        let options = EngineOptions {
            zoom: None,
            windows: false,
            samples: false,
            incidence: Collect::Nothing,
            ..options
        };
        let aids = Aids {
            heat: Some(self.regions.clone()),
            ..Aids::default()
        };
        let outcome = analyse_with(&chosen, options, aids, &|_| ());
        let mut sums = HeatSums::default();
        outcome
            .buckets
            .iter()
            .for_each(|b| sums.merge(&b.reuse.heat));
        self.fill(&sums)
    }

    /// Fills the map from its sums.
    fn fill(self, sums: &HeatSums) -> HeatMap {
        let width = self.columns.len();
        let rows = self
            .leaves
            .iter()
            .enumerate()
            .map(|(row, (leaf, first, last))| {
                let cells: Vec<(u64, GroupReuse)> =
                    (0..width).map(|c| sums.cell(row * width + c)).collect();
                HeatRow {
                    region: leaf.id.clone(),
                    start: HexAddress(*first),
                    end: HexAddress(*last),
                    label: label(leaf),
                    accesses: cells.iter().map(|c| c.0).collect(),
                    distances: cells
                        .iter()
                        .map(|c| (c.1.reuses > 0).then(|| c.1.distance as f64 / c.1.reuses as f64))
                        .collect(),
                }
            });
        HeatMap {
            rows: rows.collect(),
            columns: self.columns,
        }
    }
}

/// A row of shades for values: darker is more, relative to `most`. A blank stands for no value.
pub fn shades(values: impl Iterator<Item = Option<f64>>, most: f64) -> String {
    const SHADE_CHARACTERS: [char; 5] = ['·', '░', '▒', '▓', '█'];
    values
        .map(|value| match value {
            None => ' ',
            // The square root makes small values visible next to large ones.
            Some(value) => {
                SHADE_CHARACTERS[((value / most.max(1e-300)).max(0.0).sqrt() * 4.0)
                    .round()
                    .min(4.0) as usize]
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_go_from_nothing_to_full() {
        assert_eq!(
            shades(
                [None, Some(0.0), Some(1.0), Some(25.0), Some(100.0)].into_iter(),
                100.0
            ),
            " ··▒█"
        );
        assert_eq!(shades([Some(0.0)].into_iter(), 0.0), "·");
    }

    #[test]
    fn parts_cover_a_region_once() {
        let of = |start, end, parts| equal_parts(start, end, 12, parts).collect::<Vec<_>>();
        assert_eq!(of(0x1000, 0x1fff, 16), [(0x1000, 0x1fff)]);
        assert_eq!(of(0x1000, 0x3fff, 1), [(0x1000, 0x3fff)]);
        assert_eq!(of(0x1000, 0x5fff, 2), [(0x1000, 0x2fff), (0x3000, 0x5fff)]);
        let parts = of(0x7000, 0xffff_ffff, 16);
        assert_eq!((parts[0].0, parts[15].1), (0x7000, 0xffff_ffff));
        assert!(parts.windows(2).all(|p| p[0].1 + 1 == p[1].0));
    }

    #[test]
    fn columns_cover_every_load_once() {
        let info = |loads| SampleInfo {
            process: 1,
            thread: 1,
            sample: 0,
            loads,
            begin: None,
            first_time: 0,
            last_time: 1,
            parts: vec![(0, loads)],
        };
        let samples = vec![info(1000), info(7)];
        let all = columns(&samples, &[0, 1]);
        assert_eq!(all.len(), COLUMNS);
        let mut loads = [0, 0];
        for extent in &all {
            let Extent::Parts(parts) = extent else {
                panic!("not parts")
            };
            parts.iter().for_each(|(s, r)| loads[*s] += r.end - r.start);
        }
        assert_eq!(loads, [1000, 7]);
        let many = vec![info(10); 100];
        let order: Vec<usize> = (0..100).collect();
        let all: Vec<usize> = columns(&many, &order)
            .iter()
            .flat_map(|e| e.samples())
            .collect();
        assert_eq!(all, order);
    }
}
