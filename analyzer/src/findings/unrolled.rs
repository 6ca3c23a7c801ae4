//! Unrolled loops: several copies of a load instruction, each of which moves by several rows at a
//! time.

use crate::findings::context::Context;
use crate::findings::sites::SiteFacts;
use crate::findings::windows::Row;
use crate::util::fast_hash::Mixed;
use std::collections::{BTreeSet, HashMap};

/// Bytes from a row to the next: the step of a load instruction, divided by the number of its copies.
/// 0 if its steps are not regular.
pub(crate) fn row_step(context: &Context, main: &SiteFacts) -> u64 {
    let step = main.regular_step().unwrap_or(0).unsigned_abs();
    let offsets = offsets(context, main, step);
    let copies = (2..=offsets.len() as u64).rev();
    let mut rows = copies.filter(|&n| step.is_multiple_of(n)).map(|n| step / n);
    rows.find(|&row| are_copies(&offsets, step, row))
        .unwrap_or(step)
}

/// True if a load instruction has copies that lie `apart` bytes apart.
pub(super) fn are_apart(context: &Context, main: &SiteFacts, apart: u64) -> bool {
    let step = main.regular_step().unwrap_or(0).unsigned_abs();
    let is_part = apart > 0 && apart < step && step.is_multiple_of(apart);
    is_part && are_copies(&offsets(context, main, step), step, apart)
}

/// True if offsets repeat every `apart` bytes of a step.
fn are_copies(offsets: &BTreeSet<u64>, step: u64, apart: u64) -> bool {
    offsets
        .iter()
        .all(|offset| offsets.contains(&((offset + apart) % step)))
}

/// Offsets of the load instructions with the step and object of `main`, in the same loop: bytes behind
/// the address of `main`, modulo the step.
fn offsets(context: &Context, main: &SiteFacts, step: u64) -> BTreeSet<u64> {
    let traits = |f: &SiteFacts| {
        let inner = context.users.inner(f.group.piece());
        (inner, f.regular_step(), f.main_object())
    };
    let of_main = traits(main);
    let copies = context.sites.values().filter(|f| traits(f) == of_main);
    let sites: Vec<u32> = copies.map(|f| f.site).collect();
    let places = context.places_of(&sites);
    let windows = places.chunk_by(|a, b| a.0 == b.0).map(|of_window| {
        let rows = &context.windows[of_window[0].0 as usize].rows;
        of_window.iter().map(|&(_, at)| &rows[at as usize])
    });
    offsets_of(windows, main.site, step)
}

/// The most frequent offset of each load instruction. `windows`: rows of each window.
fn offsets_of<'a>(
    windows: impl Iterator<Item = impl Iterator<Item = &'a Row>>,
    main: u32,
    step: u64,
) -> BTreeSet<u64> {
    let mut counts: HashMap<u32, HashMap<u64, u64, Mixed>, Mixed> = HashMap::default();
    for rows in windows {
        let mut base = None;
        for row in rows {
            if row.site == main {
                base = Some(row.address);
            }
            if let Some(base) = base {
                let offset = i128::from(row.address) - i128::from(base);
                let offset = offset.rem_euclid(i128::from(step.max(1))) as u64;
                let of_site = counts.entry(row.site).or_default();
                *of_site.entry(offset).or_default() += 1;
            }
        }
    }
    let most = |of: &HashMap<u64, u64, Mixed>| {
        let best = of.iter().max_by_key(|&(&offset, &n)| (n, offset));
        best.map(|(&offset, _)| offset)
    };
    counts.values().filter_map(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of 12,000 bytes, read along columns by a loop with these copies in this order.
    fn column_walk(order: &[u64]) -> Vec<Row> {
        let iteration = |column: u64, times: u64| {
            order.iter().map(move |&copy| Row {
                site: copy as u32,
                address: (1 << 20) + (times * order.len() as u64 + copy) * 12_000 + column * 8,
                ..Row::default()
            })
        };
        (0..3)
            .flat_map(|column| (0..5).flat_map(move |times| iteration(column, times)))
            .collect()
    }

    #[test]
    fn copies_of_an_unrolled_load_lie_a_row_apart() {
        // Compilers change the order of copies, and their number need be no power of two.
        for order in [&[0, 1, 2, 3, 4][..], &[2, 0, 3, 1]] {
            let rows = column_walk(order);
            let step = order.len() as u64 * 12_000;
            let offsets = offsets_of(std::iter::once(rows.iter()), 2, step);
            assert_eq!(offsets.len(), order.len());
            assert!(are_copies(&offsets, step, 12_000));
            assert!(!are_copies(&offsets, step, 6_000));
        }
    }

    #[test]
    fn fields_of_one_element_are_no_copies() {
        let row = |site, address| Row {
            site,
            address,
            ..Row::default()
        };
        let rows: Vec<Row> = (0..9u64)
            .flat_map(|i| [row(1, i * 128 + 16), row(2, i * 128 + 24)])
            .collect();
        let offsets = offsets_of(std::iter::once(rows.iter()), 1, 128);
        assert_eq!(offsets, BTreeSet::from([0, 8]));
        assert!([8, 64].iter().all(|&by| !are_copies(&offsets, 128, by)));
    }
}
