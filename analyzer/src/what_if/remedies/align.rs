//! Align: data of different threads is in different lines.

use crate::findings::contended_lines::spared;
use crate::findings::gains::Costs;
use crate::findings::spared::Spared;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_meant;

pub(crate) const ALIGN: Kind = Kind {
    name: "align",
    target: Target::Object,
    by: "",
    make,
};

struct Align {
    spared: Vec<Spared>,
    knows_stores: bool,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_meant(costs, &spec.target)?;
    let context = &costs.context;
    let spared = spared(context, &found).map_err(|why| format!("{}: {why}", spec.target))?;
    Ok(Box::new(Align {
        spared,
        knows_stores: context.knows_stores(),
    }))
}

impl Remedy for Align {
    fn apply(&self, _process: u32, _loads: &mut [Load], _memory: &NewMemory) {}

    fn moves(&self) -> bool {
        false
    }

    fn spared(&self) -> &[Spared] {
        &self.spared
    }

    fn limits(&self) -> Vec<String> {
        let mut limits = vec![
            "Loads of these lines take the time of hits afterwards; the wait is what hits do not explain of their measured time.".into(),
            "Atomic instructions take longer than other loads even if no other thread uses their lines.".into(),
        ];
        if !self.knows_stores {
            limits.push("Stores were not recorded: the threads are taken to write to these lines (mgz run --stores shows it).".into());
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, moved};

    #[test]
    fn addresses_stay_and_time_is_spared() {
        let spared = vec![Spared {
            region: (1, None),
            part: [0.2, 0.5, 0.9],
        }];
        let remedy = Align {
            spared: spared.clone(),
            knows_stores: false,
        };
        let walk = block((0..100).map(|i| i % 2 * 8), 64);
        assert_eq!(moved(&remedy, &walk), walk);
        assert!(!remedy.moves() && remedy.spared() == spared);
        assert!(remedy.limits().iter().any(|l| l.contains("--stores")));
    }
}
