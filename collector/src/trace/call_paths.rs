//! Call paths of windows into the trace folder.

use crate::convert::SampleSeen;
use crate::paths::waiting::LoadLocator;
use crate::paths::write::SamplePath;
use crate::paths::{Paths, names, tree, write};
use crate::trace::recording::Recording;
use mgz_abi::address_map::AddrMap;
use mgz_annotations_schema::manifest::CallPaths;
use mgz_annotations_schema::sidecar::Sidecar;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

impl Recording {
    /// The sidecar of an instrumented file.
    fn sidecar_of(&self, path: &Path) -> Option<Sidecar> {
        let modules = self.manifest.modules.iter();
        let module = modules
            .filter(|m| !m.sidecar.is_empty())
            .find(|m| Path::new(&m.path) == path)?;
        Sidecar::read(&self.folder.path().join(&module.sidecar)).ok()
    }

    /// Writes the paths of the samples, and tells in the manifest of how many they are known.
    /// `places`: of code in which windows begin.
    pub(crate) fn write_paths(
        &mut self,
        paths: &Paths,
        samples: &[SampleSeen],
        places: Option<&LoadLocator>,
    ) {
        // Large ones take long to read, and hardly ever is one needed.
        let known: RefCell<HashMap<PathBuf, Option<Sidecar>>> = RefCell::default();
        let original = |path: &Path, address: u64| {
            let mut known = known.borrow_mut();
            let sidecar = known
                .entry(path.to_owned())
                .or_insert_with(|| self.sidecar_of(path));
            let map = AddrMap::new(&sidecar.as_ref()?.map)?;
            map.at_clone(address).map(|(step, _)| step.orig)
        };
        let named = names::name(&paths.tree, &original);
        let mut told = CallPaths {
            state: "recorded".into(),
            ..CallPaths::default()
        };
        let mut list = Vec::with_capacity(samples.len());
        for seen in samples {
            let (process, thread) = (seen.thread.process, seen.thread.thread);
            let window = paths.of(process, thread, seen.first_slot, seen.end_ns);
            let node = window.map_or(tree::NONE, |w| w.node);
            let waited = window.and_then(|w| places?.load_before(process, seen.end_ns, w.ip));
            let within = window.and_then(|w| places?.load_within(process, seen.end_ns, w.ip));
            let whole = node != tree::NONE && paths.tree.is_whole(node);
            *match (node, whole) {
                (tree::NONE, _) => &mut told.unknown,
                (_, true) => &mut told.whole,
                (_, false) => &mut told.partial,
            } += 1;
            list.push(SamplePath {
                sample: seen.sample,
                path: named.of_node.get(node as usize).copied().unwrap_or(0),
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
        if let Err(error) = write::write(self.folder.path(), &named.calls, &list) {
            self.manifest.call_paths = CallPaths::default();
            self.problem(format!(
                "{}: call paths could not be written: {error:#}",
                self.folder.path().display()
            ));
        }
    }
}
