//! Data objects on their way into the trace folder: heap blocks get the names of their sites.

use crate::objects::Instance;
use crate::objects::heap::names::AddressNames;
use crate::objects::heap::{CallFrame, Heap};
use crate::objects::write::{Blocks, write_objects};
use mgz_abi::address_map::AddrMap;
use mgz_annotations_schema::manifest::Module;
use mgz_annotations_schema::sidecar::Sidecar;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// See the module's text. Names are looked up in debug information, which takes long.
pub(crate) struct ObjectsToWrite<'h> {
    /// The trace folder.
    pub(crate) folder: PathBuf,
    pub(crate) modules: Vec<Module>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) heap: Option<&'h Heap>,
}

impl ObjectsToWrite<'_> {
    /// Names the objects and writes them. Where that fails, a sentence says so.
    pub(crate) fn write(&self) -> Result<(), String> {
        let blocks = self.heap.map(|heap| self.blocks(heap)).unwrap_or_default();
        write_objects(&self.folder, &self.instances, &blocks).map_err(|error| {
            format!(
                "{}: data objects could not be written: {error:#}",
                self.folder.display()
            )
        })
    }

    /// Heap blocks with the names of their sites.
    fn blocks(&self, heap: &Heap) -> Blocks {
        let mut maps: BTreeMap<PathBuf, Option<Sidecar>> = BTreeMap::new();
        for module in &self.modules {
            let sidecar = (!module.sidecar.is_empty())
                .then(|| Sidecar::read_address_map(&self.folder.join(&module.sidecar)).ok())
                .flatten();
            maps.insert(module.path.clone().into(), sidecar);
        }
        let original = |path: &Path, address: u64| {
            let map = AddrMap::new(&maps.get(path)?.as_ref()?.map)?;
            map.at_clone(address).map(|(step, _)| step.orig)
        };
        let mut names = AddressNames::new(&original);
        let named = names.sites(&heap.stacks);
        let file_name = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        // Addresses are those of the original, so its name is told.
        let module = |path: &Path| match maps.get(path) {
            Some(Some(sidecar)) => file_name(Path::new(&sidecar.header.input.path)),
            _ => file_name(path),
        };
        let known = |stack: &Vec<CallFrame>| stack.iter().all(|f| !f.file.as_os_str().is_empty());
        let returns = named.returns.iter().map(|stack| {
            let frame = |f: &CallFrame| format!("{}+{:#x}", module(&f.file), f.address);
            let texts = stack.iter().filter(|_| known(stack)).map(frame);
            texts.collect::<Vec<String>>().join(" < ")
        });
        let returns = returns.collect();
        Blocks {
            sites: named.sites,
            returns,
            lives: heap.lives.clone(),
        }
    }
}
