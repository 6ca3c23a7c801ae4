//! The load for which a thread waited when a trigger came.
//!
//! An interrupt lets the oldest instruction in flight finish. A load that waits for memory is the
//! oldest while it waits, so the trigger comes directly after it: the time belongs to the
//! instruction before the next one. If that is no load, the time still belongs to the function, and
//! one of the function's loads represents it.

use mgz_abi::MAX_INSTRUCTION_BYTES;
use mgz_annotations_schema::expand::{ModuleMap, Placement};
use mgz_annotations_schema::manifest::Module;
use mgz_annotations_schema::sidecar::{Sidecar, SiteFlags};
use std::collections::BTreeMap;

/// The needed part of a file's sidecar, read once because sidecars are large.
#[derive(Clone, Debug, Default)]
struct Code {
    /// Begin and end of functions, in order.
    functions: Vec<(u64, u64)>,
    /// Function, address and site of loads, in the order of these fields.
    loads: Vec<(u32, u64, u32)>,
    /// Address and site of loads, in the original and in the clone, in order.
    by_ip: Vec<(u64, u32)>,
    /// Addresses of the loops' first instructions, in order.
    heads: Vec<u64>,
}

impl Code {
    fn new(sidecar: &Sidecar) -> Code {
        let loads = || {
            let sites = (0u32..).zip(&sidecar.sites);
            sites.filter(|(_, s)| s.flags & SiteFlags::STORE == 0)
        };
        let mut by_ip: Vec<(u64, u32)> = loads()
            .flat_map(|(number, s)| [(s.ip, number), (s.clone_ip, number)])
            .collect();
        by_ip.sort_unstable();
        let mut heads: Vec<u64> = sidecar.loops.iter().map(|l| l.header).collect();
        heads.sort_unstable();
        Code {
            functions: sidecar.functions.iter().map(|f| (f.start, f.end)).collect(),
            loads: loads()
                .map(|(number, s)| (s.function, s.ip, number))
                .collect(),
            by_ip,
            heads,
        }
    }

    /// The function at an address.
    fn function(&self, ip: u64) -> Option<u32> {
        let behind = self.functions.partition_point(|f| f.0 <= ip);
        let function = behind
            .checked_sub(1)
            .filter(|&f| ip < self.functions[f].1)?;
        Some(function as u32)
    }

    /// The last load of a function before an address, or else its first one: address and site.
    fn nearest(&self, function: u32, ip: u64) -> Option<(u64, u32)> {
        let behind = self
            .loads
            .partition_point(|&(of, at, _)| (of, at) < (function, ip));
        let before = behind.checked_sub(1).and_then(|at| self.loads.get(at));
        let own = |load: &&(u32, u64, u32)| load.0 == function;
        let found = before.filter(own).or(self.loads.get(behind).filter(own))?;
        Some((found.1, found.2))
    }

    /// Site of a load in the function at `ip`.
    fn load_within(&self, ip: u64) -> Option<u32> {
        Some(self.nearest(self.function(ip)?, ip)?.1)
    }

    /// Site of the load at `ip`, in the original or in the clone. If the instruction loads more
    /// than once, the first site.
    fn load_at(&self, ip: u64) -> Option<u32> {
        let at = self.by_ip.partition_point(|load| load.0 < ip);
        self.by_ip
            .get(at)
            .filter(|load| load.0 == ip)
            .map(|load| load.1)
    }

    /// Site of the load directly before `ip`. `None` if there is none, or if control may have
    /// reached `ip` from elsewhere: from a loop's end to its head.
    fn load_before(&self, ip: u64) -> Option<u32> {
        let (at, site) = self.nearest(self.function(ip)?, ip)?;
        if at >= ip || at + (MAX_INSTRUCTION_BYTES as u64) < ip {
            return None;
        }
        let next_head = self.heads.partition_point(|&head| head <= at);
        let is_behind_head = self.heads.get(next_head).is_some_and(|&head| head <= ip);
        (!is_behind_head).then_some(site)
    }
}

/// The loads of all files of a trace, where its processes have mapped them.
#[derive(Debug, Default)]
pub struct LoadLocator {
    modules: ModuleMap,
    code: Vec<Code>,
}

impl LoadLocator {
    /// A locator for the modules whose sidecars are given, by id.
    pub fn new(modules: &[Module], sidecars: &BTreeMap<String, Sidecar>) -> LoadLocator {
        let numbers: BTreeMap<&str, usize> = sidecars
            .keys()
            .enumerate()
            .map(|(number, id)| (id.as_str(), number))
            .collect();
        LoadLocator {
            modules: ModuleMap::new(modules, |module| {
                numbers.get(module.sidecar_id.as_str()).copied()
            }),
            code: sidecars.values().map(Code::new).collect(),
        }
    }

    /// The load right before an address of a process, at a time: module and site.
    pub fn load_before(&self, process: u32, time: u64, ip: u64) -> Option<(u16, u32)> {
        self.load(process, time, ip, Code::load_before)
    }

    /// The load at an address of a process, at a time, in original code or in a clone: module and
    /// site.
    pub fn load_at(&self, process: u32, time: u64, ip: u64) -> Option<(u16, u32)> {
        self.load(process, time, ip, Code::load_at)
    }

    /// A load of the function at an address: module and site.
    pub fn load_within(&self, process: u32, time: u64, ip: u64) -> Option<(u16, u32)> {
        self.load(process, time, ip, Code::load_within)
    }

    fn load(
        &self,
        process: u32,
        time: u64,
        ip: u64,
        find: impl Fn(&Code, u64) -> Option<u32>,
    ) -> Option<(u16, u32)> {
        let mut placements: Vec<Placement> = Vec::new();
        self.modules.at(process, time, &mut placements);
        placements.iter().find_map(|placement| {
            let code = self.code.get(placement.sidecar)?;
            let site = find(code, ip.wrapping_sub(placement.bias))?;
            Some((placement.module, site))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::sidecar::{Function, Loop, Site};

    #[test]
    fn the_load_right_before_has_waited() {
        let function = |start: u64, end: u64| Function {
            start,
            end,
            ..Function::default()
        };
        let site = |function, ip, flags| Site {
            function,
            ip,
            flags,
            ..Site::default()
        };
        let sidecar = Sidecar {
            functions: vec![function(0x100, 0x180), function(0x200, 0x280)],
            sites: vec![
                site(0, 0x100, 0),
                site(0, 0x170, 0),
                site(1, 0x200, 0),
                site(1, 0x210, 0),
                site(1, 0x214, SiteFlags::STORE),
            ],
            loops: vec![Loop {
                function: 1,
                header: 0x208,
                latch: 0x230,
                ..Loop::default()
            }],
            ..Sidecar::default()
        };
        let code = Code::new(&sidecar);
        let before = |ip| code.load_before(ip);
        assert_eq!(before(0x100), None, "it has only just begun");
        assert_eq!(before(0x104), Some(0));
        assert_eq!(before(0x120), None, "what lies between has run since");
        assert_eq!(before(0x17f), Some(1));
        assert_eq!(before(0x200), None, "of another function");
        assert_eq!(before(0x204), Some(2));
        assert_eq!(before(0x208), None, "control may come from the loop's end");
        assert_eq!(before(0x20a), None);
        assert_eq!(before(0x218), Some(3), "a store does not wait");
        assert_eq!(before(0x190), None, "in no function");
        assert_eq!(before(0), None);
        let within = |ip| code.load_within(ip);
        assert_eq!(within(0x120), Some(0), "the last one before it");
        assert_eq!(within(0x100), Some(0), "or else the first");
        assert_eq!(within(0x27f), Some(3));
        assert_eq!(within(0x190), None, "in no function");
    }
}
