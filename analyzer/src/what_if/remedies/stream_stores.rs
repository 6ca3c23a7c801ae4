//! Stream stores: stores go around the caches, so that lines are not read only to be overwritten.

use crate::findings::gains::Costs;
use crate::findings::spared::Spared;
use crate::findings::store_traffic::spared;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::is_at;

pub(crate) const STREAM_STORES: Kind = Kind {
    name: "stream-stores",
    target: Target::Code,
    by: "",
    make,
};

struct StreamStores {
    spared: Vec<Spared>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let context = &costs.context;
    let is_meant = |piece: u32| is_at(context, piece, &spec.target);
    let spared = spared(context, is_meant).map_err(|why| format!("{}: {why}", spec.target))?;
    Ok(Box::new(StreamStores { spared }))
}

impl Remedy for StreamStores {
    fn apply(&self, _process: u32, _loads: &mut [Load], _memory: &NewMemory) {}

    fn moves(&self) -> bool {
        false
    }

    fn spared(&self) -> &[Spared] {
        &self.spared
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "The bandwidth of memory limits the loop, and a line that is read takes as long as one that is written.".into(),
            "Code that reads the stored data soon afterwards misses the caches then; its loss is left out.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, moved};

    #[test]
    fn addresses_stay_and_time_is_spared() {
        let remedy = StreamStores {
            spared: vec![Spared {
                region: (1, None),
                part: [0.1, 0.3, 0.4],
            }],
        };
        let walk = block((0..100).map(|i| i * 64), 6400);
        assert_eq!(moved(&remedy, &walk), walk);
        assert!(!remedy.moves() && remedy.spared().len() == 1);
    }
}
