//! Exchanged loops: walks along columns go along rows, and those along rows go along columns.

use crate::findings::gains::Costs;
use crate::findings::sites::SiteFacts;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::rows_of_array::Shape;
use crate::what_if::target::sites;
use std::collections::BTreeMap;

pub(crate) const EXCHANGE_LOOPS: Kind = Kind {
    name: "exchange-loops",
    target: Target::Code,
    by: "",
    make,
};

/// Walk of a load instruction.
#[derive(Clone, Copy, PartialEq)]
enum Walk {
    AlongColumns(Shape),
    AlongRows(Shape),
}

struct ExchangeLoops {
    /// By load instruction.
    walks: BTreeMap<u32, Walk>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = sites(costs, &spec.target)?;
    let users = &costs.context.users;
    let loops: Vec<_> = (found.iter())
        .map(|f| users.inner(f.group.piece()))
        .filter(|l| l.1.is_some())
        .collect();
    let in_loops = |f: &&SiteFacts| {
        let piece = f.group.piece();
        found.iter().any(|o| o.site == f.site) || users.is_in(piece, &loops)
    };
    let all: Vec<&SiteFacts> = costs.context.sites.values().filter(in_loops).collect();
    let shape = Shape::seen(&costs.context, found.iter().copied()).ok_or_else(|| {
        format!(
            "{}: none of its loads walks along a column, with a regular step of at least two lines",
            spec.target
        )
    })?;
    let walk = |facts: &SiteFacts| {
        let own = Shape::seen(&costs.context, std::iter::once(facts));
        let step = facts.regular_step().map(i64::unsigned_abs);
        let along_rows = step == Some(u64::from(facts.size)) && facts.is_in_order();
        match own {
            Some(own) => Some((facts.site, Walk::AlongColumns(own))),
            None => along_rows.then_some((facts.site, Walk::AlongRows(shape))),
        }
    };
    Ok(Box::new(ExchangeLoops {
        walks: all.into_iter().filter_map(walk).collect(),
    }))
}

impl Remedy for ExchangeLoops {
    fn apply(&self, _process: u32, loads: &mut [Load], _memory: &NewMemory) {
        for load in loads {
            let address = match self.walks.get(&load.site) {
                Some(Walk::AlongColumns(shape)) => shape.by_columns(load),
                Some(Walk::AlongRows(shape)) => shape.by_rows(load),
                None => None,
            };
            load.address = address.unwrap_or(load.address);
        }
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "The loops may be exchanged, and go over whole arrays with rows of one length.".into(),
            "Vector instructions that the new order allows are left out.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, line_misses, moved};

    /// A transposition `b[j][i] = a[i][j]`: loads of both arrays, as two load instructions with one
    /// block each.
    #[test]
    fn a_transposition_gains_nothing_from_an_exchange() {
        let shape = Shape {
            row: 1024,
            element: 8,
        };
        let columns = |n: u64| (n % 128 * 1024) + n / 128 * 8;
        let walk = (0..128 * 128u64).flat_map(|n| [columns(n), n * 8]);
        let mut walk = block(walk, 128 * 1024);
        for load in walk.iter_mut().skip(1).step_by(2) {
            load.site = 2;
            load.start += 1 << 30;
            load.address += 1 << 30;
        }
        let remedy = ExchangeLoops {
            walks: [(1, Walk::AlongColumns(shape)), (2, Walk::AlongRows(shape))].into(),
        };
        let after = moved(&remedy, &walk);
        assert_eq!(line_misses(&walk, 64), line_misses(&after, 64));
        let alone = |loads: &[Load], site| {
            let of: Vec<Load> = loads.iter().copied().filter(|l| l.site == site).collect();
            line_misses(&of, 64)
        };
        assert_eq!((alone(&walk, 1), alone(&after, 1)), (128 * 128, 128 * 16));
        assert_eq!((alone(&walk, 2), alone(&after, 2)), (128 * 16, 128 * 128));
    }
}
