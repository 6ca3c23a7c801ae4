//! The modules of a process at the time of a segment, according to the manifest.

use crate::expand::Placement;
use crate::manifest::Module;

/// Looks up the modules of a process.
#[derive(Debug, Default)]
pub struct ModuleMap {
    /// Placements of each sidecar, by time.
    sidecars: Vec<Vec<DatedPlacement>>,
}

#[derive(Clone, Copy, Debug)]
struct DatedPlacement {
    begin_ns: u64,
    /// `None`: any process.
    process: Option<u32>,
    placement: Placement,
}

impl ModuleMap {
    /// A map of these modules. `sidecar_of` returns the number of a module's sidecar in
    /// [`crate::expand::Tables`]; modules without one are ignored.
    pub fn new(modules: &[Module], sidecar_of: impl Fn(&Module) -> Option<usize>) -> ModuleMap {
        let mut map = ModuleMap::default();
        for (number, module) in modules.iter().enumerate() {
            let (Some(sidecar), Ok(number)) = (sidecar_of(module), u16::try_from(number)) else {
                continue;
            };
            if map.sidecars.len() <= sidecar {
                map.sidecars.resize(sidecar + 1, Vec::new());
            }
            let placement = Placement {
                sidecar,
                module: number,
                bias: module.bias,
            };
            let places = &mut map.sidecars[sidecar];
            if module.loads.is_empty() {
                places.push(DatedPlacement {
                    begin_ns: 0,
                    process: None,
                    placement,
                });
            }
            places.extend(module.loads.iter().map(|l| DatedPlacement {
                begin_ns: l.begin_ns,
                process: Some(l.process),
                placement,
            }));
        }
        for places in &mut map.sidecars {
            places.sort_by_key(|seen| seen.begin_ns);
        }
        map
    }

    /// Writes the modules of `process` for a segment that ended at `end_ns` to `out` (cleared
    /// first). For each sidecar, that is its last placement in the process by then, else the first
    /// later one. For a process without own entries, it is the same over all processes (a forked
    /// child has its parent's modules).
    pub fn at(&self, process: u32, end_ns: u64, out: &mut Vec<Placement>) {
        out.clear();
        for places in &self.sidecars {
            let own = |seen: &&DatedPlacement| seen.process.is_none_or(|p| p == process);
            let by_then = |seen: &&DatedPlacement| seen.begin_ns <= end_ns;
            let found = places
                .iter()
                .filter(own)
                .rfind(by_then)
                .or_else(|| places.iter().find(own));
            let found = found
                .or_else(|| places.iter().rfind(by_then))
                .or_else(|| places.first());
            out.extend(found.map(|seen| seen.placement));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::ModuleLoad;

    fn module(sidecar: &str, bias: u64, loads: &[(u32, u64)]) -> Module {
        let loads = loads
            .iter()
            .map(|&(process, begin_ns)| ModuleLoad { process, begin_ns })
            .collect();
        Module {
            sidecar_id: sidecar.into(),
            bias,
            loads,
            ..Module::default()
        }
    }

    fn biases(map: &ModuleMap, process: u32, end_ns: u64) -> Vec<(u16, u64)> {
        let mut out = Vec::new();
        map.at(process, end_ns, &mut out);
        out.iter().map(|p| (p.module, p.bias)).collect()
    }

    #[test]
    fn each_process_has_its_own_places_at_each_time() {
        let modules = [
            module("app", 0x1000, &[(10, 100), (11, 150)]),
            module("app", 0x2000, &[(10, 500)]), // exec in process 10
            module("lib", 0x7000, &[(10, 120)]),
            module("lost", 0x9000, &[(10, 1)]),
        ];
        let map = ModuleMap::new(&modules, |m| match m.sidecar_id.as_str() {
            "app" => Some(0),
            "lib" => Some(1),
            _ => None,
        });
        assert_eq!(biases(&map, 10, 400), [(0, 0x1000), (2, 0x7000)]);
        assert_eq!(biases(&map, 10, 600), [(1, 0x2000), (2, 0x7000)]);
        assert_eq!(
            biases(&map, 10, 50),
            [(0, 0x1000), (2, 0x7000)],
            "told late"
        );
        assert_eq!(biases(&map, 11, 900), [(0, 0x1000), (2, 0x7000)]);
        assert_eq!(
            biases(&map, 12, 300),
            [(0, 0x1000), (2, 0x7000)],
            "a forked child"
        );
        assert_eq!(biases(&map, 12, 900), [(1, 0x2000), (2, 0x7000)]);
    }

    #[test]
    fn modules_without_loads_belong_to_all() {
        let map = ModuleMap::new(&[module("app", 0x1000, &[])], |_| Some(0));
        assert_eq!(biases(&map, 5, 0), [(0, 0x1000)]);
    }
}
