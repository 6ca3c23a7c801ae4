//! Executed loads of lines and loops if windows are triggered by time and only the speed of whole
//! functions was measured.
//!
//! If all parts of a function run at the same speed, a line's share of its function's recorded
//! loads equals its share of the executed ones. If not, windows by time see slow parts of the
//! function more often than fast ones, so the share of recorded loads does not show the share of
//! executed ones. Therefore loads of a line are estimated only if nearly all windows that see the
//! function also see the line: then no part of the function runs without it. Lines and loops that
//! several functions share have no estimate.

use crate::data::code_map::{CodeMap, Target};
use crate::data::group::Group;
use crate::engine::BucketOutcome;
use crate::estimate::{Estimate, ReplicateLoads, jackknife, params};
use crate::stages::reuse::REPLICATES;
use std::collections::HashMap;

/// Loads of a row, by the functions that contain it.
type LoadsByFunction = HashMap<u32, [f64; REPLICATES]>;

/// Executed loads by row of `target`. `functions` has those of functions; `seen` has the number of
/// windows with loads of each function, and of each row.
pub(crate) fn part_loads(
    bucket: &BucketOutcome,
    code: &CodeMap,
    target: Target,
    functions: &[Option<Estimate>],
    (seen_functions, seen): (&[u64], &[u64]),
) -> Vec<Option<Estimate>> {
    let mut parts: Vec<LoadsByFunction> = vec![LoadsByFunction::new(); code.rows(target)];
    let mut wholes: Vec<[f64; REPLICATES]> = vec![[0.0; REPLICATES]; code.functions.len()];
    let mut observed = vec![0u64; parts.len()];
    for (at, replicates) in bucket.reuse.replicates.iter().enumerate() {
        let group = Group::from_index(at);
        let piece = code.pieces.get(group.piece() as usize);
        let (Some(replicates), Some(piece)) = (replicates, piece) else {
            continue;
        };
        if group.is_store() {
            continue;
        }
        let rows = bucket.counts.get(at).copied().unwrap_or_default();
        let mut loads = ReplicateLoads::default();
        loads.add(replicates, rows.rows + rows.implied);
        let add = |into: &mut [f64; REPLICATES]| {
            into.iter_mut()
                .zip(&loads.weighted)
                .for_each(|(a, b)| *a += b);
        };
        add(&mut wholes[piece.function as usize]);
        for &row in code.targets(target, group) {
            let part = parts[row as usize].entry(piece.function);
            add(part.or_insert([0.0; REPLICATES]));
            observed[row as usize] += rows.rows + rows.implied;
        }
    }
    let of = |(row, parts): (usize, &LoadsByFunction)| {
        let mut functions_of = parts.iter();
        let (&function, part) = functions_of.next()?;
        if functions_of.next().is_some() {
            return None;
        }
        let function = function as usize;
        if (seen[row] as f64) < params::MIN_WINDOW_SHARE_OF_PART * seen_functions[function] as f64 {
            return None;
        }
        let loads = functions.get(function).copied().flatten()?;
        let sum = |of: &[f64; REPLICATES], without: Option<usize>| -> f64 {
            let all = of.iter().enumerate();
            all.filter(|(r, _)| Some(*r) != without)
                .map(|(_, x)| x)
                .sum()
        };
        let whole = &wholes[function];
        let (share, lo, hi) = jackknife(&bucket.reuse.samples, 0.0, |without, _| {
            let all = sum(whole, without);
            (all > 0.0).then(|| sum(part, without) / all)
        })?;
        let least = observed[row] as f64;
        let less = (loads.value / loads.lo)
            .ln()
            .hypot((share / lo.max(1e-9)).ln());
        let more = (loads.hi / loads.value).ln().hypot((hi / share).ln());
        let value = loads.value * share;
        (share > 0.0 && value > 0.0).then(|| {
            Estimate {
                value,
                lo: value * (-less).exp(),
                hi: value * more.exp(),
            }
            .at_least(least)
        })
    };
    parts.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::code_map::{FunctionName, LineName, LinePiece};
    use crate::data::group::AccessClass;
    use crate::engine::ReuseTotals;
    use crate::input::weights::UNIT;
    use crate::stages::footprint::{FootprintSet, GroupCount};
    use crate::stages::reuse::RepSums;

    /// One function has two lines in one loop, which all windows see. Another has lines that run at
    /// different times.
    #[test]
    fn only_what_runs_with_all_of_its_function_has_its_part_of_the_loads() {
        let name = |function: &str, line| LineName {
            function: function.into(),
            line,
            ..LineName::default()
        };
        let piece = |function, line| LinePiece {
            function,
            line,
            loops: Vec::new(),
            chain: Vec::new(),
        };
        let code = CodeMap::from_parts(
            vec![FunctionName::default(), FunctionName::default()],
            vec![name("f", 1), name("f", 2), name("g", 3), name("g", 4)],
            Vec::new(),
            vec![piece(0, 0), piece(0, 1), piece(1, 2), piece(1, 3)],
        );
        let mut reuse = ReuseTotals::new(None);
        reuse.reserve(16);
        reuse.samples = [4; REPLICATES];
        let mut counts = vec![GroupCount::default(); 16];
        for (piece, touches) in [(0, 30), (1, 10), (2, 20), (3, 20)] {
            let sums = RepSums {
                touches,
                weighted: touches * UNIT,
                samples: 1,
                ..RepSums::default()
            };
            let group = Group::new(piece, AccessClass::Constant).index();
            reuse.replicates[group] = Some(Box::new([sums; REPLICATES]));
            counts[group].rows = touches * REPLICATES as u64;
        }
        let bucket = BucketOutcome {
            footprint: FootprintSet::default(),
            counts,
            reuse,
        };
        let measured = Some(Estimate {
            value: 4e6,
            lo: 3e6,
            hi: 5e6,
        });
        let seen = (&[100, 100][..], &[100, 98, 60, 60][..]);
        let of = part_loads(&bucket, &code, Target::Line, &[measured, measured], seen);
        let line = of[1].unwrap();
        assert!((line.value - 1e6).abs() < 1.0 && line.lo < 0.76e6 && line.hi > 1.24e6);
        assert!((of[0].unwrap().value - 3e6).abs() < 1.0);
        assert_eq!(of[2..], [None, None]);
        // If the function's loads are unknown, so are those of its lines.
        let of = part_loads(&bucket, &code, Target::Line, &[None, measured], seen);
        assert_eq!(of[0], None);
    }
}
