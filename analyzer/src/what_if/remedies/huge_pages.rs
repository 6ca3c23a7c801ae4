//! Huge pages: the memory of an object has pages of 2 MiB. Addresses stay; page walks change.

use crate::findings::gains::Costs;
use crate::util::fast_hash::Mixed;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_named;
use std::collections::HashSet;

pub(crate) const HUGE_PAGES: Kind = Kind {
    name: "huge-pages",
    target: Target::Object,
    by: "",
    make,
};

struct HugePages {
    objects: HashSet<u32, Mixed>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_named(costs, &spec.target)?;
    Ok(Box::new(HugePages {
        objects: found.into_iter().collect(),
    }))
}

impl Remedy for HugePages {
    fn apply(&self, _process: u32, _loads: &mut [Load], _memory: &NewMemory) {}

    fn moves(&self) -> bool {
        false
    }

    fn changes_pages(&self) -> bool {
        true
    }

    fn has_huge_pages(&self, object: u32) -> bool {
        self.objects.contains(&object)
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "The object has pages of 4 KiB now; if the kernel gives it huge pages already, nothing changes.".into(),
            "The kernel gives huge pages for all of the object.".into(),
            "Time of page faults, of which there are fewer, is left out.".into(),
            "The gain is of page walks, which the costs of findings leave out, so it may be greater than these.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, moved};

    #[test]
    fn pages_change_and_addresses_stay() {
        let walk = block((0..100).map(|i| i * 8192), 1 << 20);
        let remedy = HugePages {
            objects: [1].into_iter().collect(),
        };
        assert_eq!(moved(&remedy, &walk), walk);
        assert!(!remedy.moves() && remedy.changes_pages());
        assert!(remedy.has_huge_pages(1) && !remedy.has_huge_pages(2));
    }
}
