//! Call paths of windows into the trace folder.

use crate::convert::SampleSeen;
use crate::objects::heap::generated_frames as generated;
use crate::objects::heap::names::plain;
use crate::paths::merge;
use crate::paths::waiting::LoadLocator;
use crate::paths::write::SamplePath;
use crate::paths::{Paths, tree, write};
use crate::python::stacks::NO_FRAME;
use crate::trace::recording::Recording;
use mgz_abi::MAX_INSTRUCTION_BYTES;
use mgz_abi::address_map::AddrMap;
use mgz_annotations_schema::PathRecording;
use mgz_annotations_schema::manifest::CallPaths;
use mgz_annotations_schema::sidecar::{Function, Sidecar};
use mgz_elf::demangle::readable;
use mgz_elf::function_names::unnamed;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The original address for an address in a clone. Where no instruction begins, the address is
/// inside the clone of the instruction before it, and the result is that instruction's second byte.
pub fn original(sidecar: &Sidecar, address: u64) -> Option<u64> {
    let map = AddrMap::new(&sidecar.map)?;
    let at = |address: u64| map.at_clone(address).map(|(step, _)| step);
    let around = || {
        let before =
            (1..=MAX_INSTRUCTION_BYTES as u64).filter_map(|back| address.checked_sub(back));
        let step = before.filter_map(at).next()?;
        let is_in = address <= step.clone + u64::from(step.clone_len);
        is_in.then_some(step.orig + 1)
    };
    at(address).map(|step| step.orig).or_else(around)
}

/// The name of the function at an address, in the original or in its clone.
pub fn function_at(sidecar: &Sidecar, address: u64) -> Option<String> {
    let is_in = |f: &&Function| {
        (f.start..f.end).contains(&address) || (f.clone_start..f.clone_end).contains(&address)
    };
    let found = sidecar.functions.iter().find(is_in)?;
    let name = sidecar.string(found.name);
    Some(match name {
        "" => unnamed(found.start),
        name => plain(&readable(name)),
    })
}

/// Sidecars of files, each read once.
#[derive(Default)]
struct ReadSidecars(RefCell<HashMap<PathBuf, Option<Rc<Sidecar>>>>);

impl ReadSidecars {
    fn of(&self, path: &Path, read: impl FnOnce() -> Option<Sidecar>) -> Option<Rc<Sidecar>> {
        let mut known = self.0.borrow_mut();
        let read = || read().map(Rc::new);
        known.entry(path.to_owned()).or_insert_with(read).clone()
    }
}

impl Recording {
    /// The file with the sidecar of an instrumented file.
    fn sidecar_of(&self, path: &Path) -> Option<PathBuf> {
        let modules = self.manifest.modules.iter();
        let module = modules
            .filter(|m| !m.sidecar.is_empty())
            .find(|m| Path::new(&m.path) == path)?;
        Some(self.folder.path().join(&module.sidecar))
    }

    /// Writes the paths of the samples, and enters in the manifest how many are known. `places`:
    /// locations of code in which windows begin.
    pub(crate) fn write_paths(
        &mut self,
        paths: &Paths,
        samples: &[SampleSeen],
        places: Option<&LoadLocator>,
    ) {
        // Large tables take long to read, and hardly ever are they needed.
        let (maps, tables) = (ReadSidecars::default(), ReadSidecars::default());
        let original = |path: &Path, address: u64| {
            let read = || Sidecar::read_address_map(&self.sidecar_of(path)?).ok();
            original(&*maps.of(path, read)?, address)
        };
        let elsewhere = |path: &Path, address: u64| {
            if generated::is_generated(path) {
                return generated::function(&self.generated_code, path, address);
            }
            let is_elsewhere = paths.elsewhere.contains(path);
            is_elsewhere.then(|| {
                let read = || Sidecar::read(&self.sidecar_of(path)?).ok();
                let name = (tables.of(path, read)).and_then(|tables| function_at(&tables, address));
                name.unwrap_or_else(|| unnamed(address))
            })
        };
        let named = merge::name_paths(paths, &original, &elsewhere);
        let mut told = CallPaths {
            state: PathRecording::Recorded,
            odd: paths.odd,
            absent: paths.absent,
            ..CallPaths::default()
        };
        let mut list = Vec::with_capacity(samples.len());
        for seen in samples {
            let (process, thread) = (seen.thread.process, seen.thread.thread);
            let window = paths.of(process, thread, seen.first_slot, seen.end_ns);
            let node = window.map_or(tree::NONE, |w| w.node);
            let waited = window.and_then(|w| places?.load_before(process, seen.end_ns, w.ip));
            let within = window.and_then(|w| places?.load_within(process, seen.end_ns, w.ip));
            let python = window.map_or(NO_FRAME, |w| w.python);
            let whole = match python {
                NO_FRAME => node != tree::NONE && paths.tree.is_whole(node),
                _ => paths.python.is_whole(python),
            };
            told.python += u64::from(python != NO_FRAME);
            let path = window.map_or(0, |w| named.of(w));
            *match (path, whole) {
                (0, _) => &mut told.unknown,
                (_, true) => &mut told.whole,
                (_, false) => &mut told.partial,
            } += 1;
            list.push(SamplePath {
                sample: seen.sample,
                path,
                whole,
                waited,
                within,
            });
        }
        if paths.lost > 0 {
            let dropped = &mut self.manifest.totals.dropped;
            *dropped.entry("window_stacks".into()).or_default() += paths.lost;
        }
        self.manifest.call_paths = told;
        if let Err(error) = write::write_call_paths(self.folder.path(), &named.calls, &list) {
            self.manifest.call_paths = CallPaths::default();
            self.problem(format!(
                "{}: call paths could not be written: {error:#}",
                self.folder.path().display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_clones_are_those_of_the_originals() {
        let words =
            |list: &[u32]| -> Vec<u8> { list.iter().flat_map(|w| w.to_le_bytes()).collect() };
        // Three bytes, a probe of four, a call of five, one byte.
        let stream = [0x33, 0x04, 0x55, 0x11];
        let mut map = words(&[1, 1, stream.len() as u32, 0]);
        map.extend(words(&[0x9000, 0x900d, 0x1000, 0]));
        map.extend(mgz_abi::address_map::ProbeState::IDLE.bytes());
        map.extend(stream);
        let mut sidecar = Sidecar {
            map,
            strings: vec!["_ZN3app6kernelEi".into()],
            ..Sidecar::default()
        };
        sidecar.functions = vec![Function {
            name: 0,
            start: 0x1000,
            end: 0x1009,
            clone_start: 0x9000,
            clone_end: 0x900d,
            ..Function::default()
        }];
        // Names are looked up by the address after the last byte.
        let of = |address: u64| Some(original(&sidecar, address + 1)? - 1);
        assert_eq!(of(0x900b), Some(0x1007), "behind which the call goes on");
        assert_eq!(of(0x9007), Some(0x1003), "the call itself");
        assert_eq!(of(0x9000), Some(0x1000));
        assert_eq!(of(0x9004), Some(0x1003), "a probe is of what follows it");
        assert_eq!(of(0x900c), Some(0x1008), "at the end");
        assert_eq!((of(0x900d), of(0x1000)), (None, None));
        let name = |address| function_at(&sidecar, address);
        assert_eq!(name(0x1008), name(0x900c));
        assert_eq!(name(0x9000).as_deref(), Some("app::kernel(int)"));
        assert_eq!((name(0x1009), name(0x900d)), (None, None));
    }
}
