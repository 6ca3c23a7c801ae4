//! Footprints by observed class.

use crate::data::code_map::{CodeMap, Target};
use crate::stages::footprint::{Entry, FootprintSet};

/// Distinct start addresses of loads by observed class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// Addresses of all code.
    pub all: u64,
    /// Addresses of Strided code.
    pub strided: u64,
    /// Addresses of Irregular and Mixed code.
    pub irregular: u64,
}

/// Class in which a group counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// In none.
    #[default]
    None,
    /// As Strided.
    Strided,
    /// As Irregular.
    Irregular,
}

/// By table and row; the whole is the only row of the first.
pub type Tables = [Vec<Starts>; 4];
/// The tables.
pub const TARGETS: [Target; 4] = [Target::Whole, Target::Function, Target::Line, Target::Loop];

/// Counts start addresses. `sides` has the class of each group.
pub fn starts(set: &FootprintSet, code: &CodeMap, sides: &[Side]) -> Tables {
    set.fold_with(
        || TARGETS.map(|target| vec![Starts::default(); code.rows(target)]),
        |tables, entries| add(tables, entries, code, sides),
        |mut a, b| {
            for (a, b) in a.iter_mut().flatten().zip(b.iter().flatten()) {
                a.all += b.all;
                a.strided += b.strided;
                a.irregular += b.irregular;
            }
            a
        },
    )
}

fn add(tables: &mut Tables, entries: &[Entry], code: &CodeMap, sides: &[Side]) {
    let same_line =
        |a: &Entry, b: &Entry| (a.key().space, a.key().line) == (b.key().space, b.key().line);
    // Row, and maps of starts of all, of Strided and of Irregular groups.
    let mut rows: Vec<(u32, [u64; 3])> = Vec::new();
    for line in entries.chunk_by(same_line) {
        for (target, table) in TARGETS.into_iter().zip(tables.iter_mut()) {
            rows.clear();
            for entry in line {
                let group = entry.key().group;
                if group.is_store() {
                    continue;
                }
                let seen = entry.maps().seen;
                let maps = match sides.get(group.index()).copied().unwrap_or_default() {
                    Side::None => [seen, 0, 0],
                    Side::Strided => [seen, seen, 0],
                    Side::Irregular => [seen, 0, seen],
                };
                for &row in code.targets(target, group) {
                    match rows.iter_mut().find(|r| r.0 == row) {
                        Some((_, all)) => all.iter_mut().zip(maps).for_each(|(a, m)| *a |= m),
                        None => rows.push((row, maps)),
                    }
                }
            }
            for &(row, [all, strided, irregular]) in &rows {
                if let Some(starts) = table.get_mut(row as usize) {
                    starts.all += u64::from(all.count_ones());
                    starts.strided += u64::from(strided.count_ones());
                    starts.irregular += u64::from(irregular.count_ones());
                }
            }
        }
    }
}
