//! Sort: the loads of a line are sorted by address, window by window.

use crate::findings::gains::Costs;
use crate::util::fast_hash::Mixed;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::{chain_of, left_out, sites};
use std::collections::{BTreeMap, HashSet};

pub(crate) const SORT: Kind = Kind {
    name: "sort",
    target: Target::Code,
    by: "",
    make,
};

struct Sort {
    sites: HashSet<u32, Mixed>,
    /// A sentence on loads of the target that the remedy cannot change. Empty if there are none.
    left_out: String,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = sites(costs, &spec.target)?;
    let found = found.iter().filter(|f| !f.is_in_order());
    let sites: HashSet<u32, Mixed> = found.map(|f| f.site).collect();
    let chained = |site: &u32| chain_of(costs, *site).is_some();
    if sites.is_empty() {
        return Err(format!("{}: its loads are in order already", spec.target));
    }
    if sites.iter().all(chained) {
        return Err(format!(
            "{}: each load waits for the one before, so their order cannot change",
            spec.target
        ));
    }
    let (chained, free): (Vec<u32>, Vec<u32>) = sites.iter().partition(|&site| chained(site));
    Ok(Box::new(Sort {
        sites: free.into_iter().collect(),
        left_out: left_out(costs, &chained),
    }))
}

impl Remedy for Sort {
    fn apply(&self, _process: u32, loads: &mut [Load], _memory: &NewMemory) {
        // By load instruction: its rows.
        let mut rows: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, load) in loads.iter().enumerate() {
            if self.sites.contains(&load.site) {
                rows.entry(load.site).or_default().push(at);
            }
        }
        for rows in rows.values() {
            let mut sorted: Vec<Load> = rows.iter().map(|&at| loads[at]).collect();
            sorted.sort_by_key(|l| l.address);
            for (&at, load) in rows.iter().zip(sorted) {
                loads[at] = load;
            }
        }
    }

    fn sorts(&self, site: u32) -> bool {
        self.sites.contains(&site)
    }

    fn limits(&self) -> Vec<String> {
        let left_out = (!self.left_out.is_empty()).then(|| self.left_out.clone());
        let known = [
            "The lower end is a sort inside each window; the upper end is one that leaves no wait."
                .into(),
            "Time to sort is left out.".into(),
        ];
        left_out.into_iter().chain(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, line_misses, moved};

    #[test]
    fn sorted_loads_visit_each_line_once() {
        let walk = block((0..4096u64).map(|i| i * 1021 % 4096 * 8), 4096 * 8);
        let remedy = Sort {
            sites: [1].into_iter().collect(),
            left_out: String::new(),
        };
        let after = moved(&remedy, &walk);
        assert_eq!((line_misses(&walk, 8), line_misses(&after, 8)), (4096, 512));
        let other = Sort {
            sites: [2].into_iter().collect(),
            left_out: String::new(),
        };
        assert_eq!(moved(&other, &walk), walk);
    }
}
