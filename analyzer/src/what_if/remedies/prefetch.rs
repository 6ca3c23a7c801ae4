//! Prefetch: hides waits of loads whose addresses are known in advance.

use crate::findings::gains::Costs;
use crate::util::fast_hash::Mixed;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::{chain_of, left_out, sites};
use std::collections::HashSet;

pub(crate) const PREFETCH: Kind = Kind {
    name: "prefetch",
    target: Target::Code,
    by: "",
    make,
};

struct Prefetch {
    sites: HashSet<u32, Mixed>,
    /// A sentence on loads of the target that the remedy cannot change. Empty if there are none.
    left_out: String,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = sites(costs, &spec.target)?;
    let (chained, free): (Vec<u32>, Vec<u32>) =
        (found.iter().map(|f| f.site)).partition(|&site| chain_of(costs, site).is_some());
    let sites: HashSet<u32, Mixed> = free.into_iter().collect();
    match sites.is_empty() {
        true => Err(format!(
            "{}: each load waits for the one before, so there is no address to prefetch",
            spec.target
        )),
        false => Ok(Box::new(Prefetch {
            sites,
            left_out: left_out(costs, &chained),
        })),
    }
}

impl Remedy for Prefetch {
    fn apply(&self, _process: u32, _loads: &mut [Load], _memory: &NewMemory) {}

    fn moves(&self) -> bool {
        false
    }

    fn prefetches(&self, site: u32) -> bool {
        self.sites.contains(&site)
    }

    fn limits(&self) -> Vec<String> {
        let left_out = (!self.left_out.is_empty()).then(|| self.left_out.clone());
        let known = [
            "Prefetches come early enough, as in loops of many iterations; the time of their instructions is left out.".into(),
            "What is left of a wait is that of loads that the processor prefetches itself.".into(),
        ];
        left_out.into_iter().chain(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, moved};

    #[test]
    fn addresses_stay_and_waits_are_hidden() {
        let walk = block((0..100).map(|i| i * 640), 64_000);
        let remedy = Prefetch {
            sites: [1].into_iter().collect(),
            left_out: String::new(),
        };
        assert_eq!(moved(&remedy, &walk), walk);
        assert!(!remedy.moves() && remedy.prefetches(1) && !remedy.prefetches(2));
    }
}
