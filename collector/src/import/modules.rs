//! Which record a `ptwrite` at a run-time address writes: mappings, sidecars, and what joins them.
//!
//! A sidecar knows link-time addresses. The recording knows which part of which file was mapped where, and from that and
//! the file's base address follows the load bias, so the instrumented file itself need not be at hand.

use crate::modules;
use crate::note;
use crate::perfdata::Session;
use crate::perfdata::space::Mapping;
use mgz_annotations_schema::sidecar::Sidecar;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::{Path, PathBuf};

/// Hashes an address; addresses in a table come from one program, so no more is needed.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// What a `ptwrite` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Record id, as slots have it.
    pub id: u32,
    /// Which part of the record.
    pub part: u32,
}

/// A sidecar as far as the import needs it.
#[derive(Debug)]
pub struct Annotations {
    /// Where it is.
    pub path: PathBuf,
    /// Its identity, hex.
    pub id_hex: String,
    /// Build id of the program; empty if it has none.
    pub build_id: String,
    /// Path of the instrumented file when it was made.
    output: String,
    base: u64,
    id_first: u32,
    /// Slots of each record.
    slots: Vec<u32>,
    /// By link-time address.
    places: HashMap<u64, Place, BuildHasherDefault<AddressHasher>>,
}

/// Why a file cannot be imported with these sidecars. The text is for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ModulesError(String);

impl Annotations {
    fn read(path: &Path) -> Result<Annotations, ModulesError> {
        let shown = path.display();
        let sidecar = Sidecar::read(path).map_err(|e| ModulesError(format!("{shown}: {e}")))?;
        Self::new(path, &sidecar)
    }

    /// Takes what is needed out of a sidecar.
    pub fn new(path: &Path, sidecar: &Sidecar) -> Result<Annotations, ModulesError> {
        let header = &sidecar.header;
        if header.flavour != "pt" {
            return Err(ModulesError(format!(
                "{}: it belongs to a program of the {} flavour, which has no ptwrites; give the sidecar of the program that was recorded (`mgz-instrument --backend pt`)",
                path.display(),
                header.flavour
            )));
        }
        let place = |p: &mgz_annotations_schema::sidecar::PtWrite| {
            (
                p.ip,
                Place {
                    id: header.id_first.wrapping_add(p.record),
                    part: p.part,
                },
            )
        };
        Ok(Annotations {
            path: path.to_owned(),
            id_hex: sidecar.id_hex(),
            build_id: header.input.build_id.clone(),
            output: header.output.clone(),
            base: header.base,
            id_first: header.id_first,
            slots: sidecar.records.iter().map(|r| r.slots).collect(),
            places: sidecar.ptwrites.iter().map(place).collect(),
        })
    }

    /// Whether a mapping is of the file that this sidecar describes.
    fn describes(&self, mapping: &Mapping, build_id: Option<&str>) -> bool {
        match build_id {
            Some(id) if !self.build_id.is_empty() && !id.is_empty() => id == self.build_id,
            _ => Path::new(&mapping.path).file_name() == Path::new(&self.output).file_name(),
        }
    }
}

/// A mapping with its sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Number of the sidecar.
    pub sidecar: usize,
    /// Run-time address minus link-time address.
    pub bias: u64,
}

/// Sidecars and the mappings that they describe.
#[derive(Debug)]
pub struct Modules {
    sidecars: Vec<Annotations>,
    /// By number of the mapping.
    placed: Vec<Option<Placed>>,
}

impl Modules {
    /// Takes the sidecars given, and those that lie beside the mapped files, as far as those are there.
    pub fn find(session: &Session<'_>, given: &[PathBuf]) -> Result<Modules, ModulesError> {
        let mut sidecars = Vec::new();
        for path in given {
            sidecars.push(Annotations::read(path)?);
        }
        let paths: BTreeSet<&str> = session
            .spaces
            .mappings()
            .iter()
            .map(|m| m.path.as_str())
            .collect();
        for path in paths {
            if let Some(found) = beside(Path::new(path))
                && sidecars
                    .iter()
                    .all(|s: &Annotations| s.id_hex != found.id_hex)
            {
                sidecars.push(found);
            }
        }
        Self::new(session, sidecars)
    }

    /// Joins sidecars with the mappings of a session. A mapping takes the first that describes it.
    pub fn new(session: &Session<'_>, sidecars: Vec<Annotations>) -> Result<Modules, ModulesError> {
        let place = |mapping: &Mapping| {
            let build_id = mapping
                .build_id
                .as_deref()
                .or_else(|| session.build_ids.get(&mapping.path).map(String::as_str));
            let sidecar = sidecars
                .iter()
                .position(|s| s.describes(mapping, build_id))?;
            let file = mapping.start.wrapping_sub(mapping.offset);
            Some(Placed {
                sidecar,
                bias: file.wrapping_sub(sidecars[sidecar].base),
            })
        };
        let placed: Vec<_> = session.spaces.mappings().iter().map(place).collect();
        if placed.iter().all(Option::is_none) {
            return Err(ModulesError(nothing_fits(session, &sidecars)));
        }
        let used: BTreeSet<usize> = placed.iter().flatten().map(|p| p.sidecar).collect();
        for a in &used {
            for b in used.range(..a) {
                let (x, y) = (&sidecars[*a], &sidecars[*b]);
                let end = |s: &Annotations| u64::from(s.id_first) + s.slots.len() as u64;
                if u64::from(x.id_first) < end(y)
                    && u64::from(y.id_first) < end(x)
                    && x.id_hex != y.id_hex
                {
                    return Err(ModulesError(format!(
                        "{} and {} were made apart and their record numbers overlap; instrument them together (`mgz-instrument --libs` on the program) and record again",
                        y.path.display(),
                        x.path.display()
                    )));
                }
            }
        }
        Ok(Modules { sidecars, placed })
    }

    /// A sidecar by number.
    pub fn sidecar(&self, number: usize) -> Option<&Annotations> {
        self.sidecars.get(number)
    }

    /// What is known of a mapping.
    pub fn placed(&self, mapping: usize) -> Option<Placed> {
        self.placed.get(mapping).copied().flatten()
    }

    /// What the `ptwrite` at a run-time address in a mapping writes.
    #[inline]
    pub fn record(&self, placed: Placed, ip: u64) -> Option<Place> {
        self.sidecars[placed.sidecar]
            .places
            .get(&ip.wrapping_sub(placed.bias))
            .copied()
    }

    /// Whether some record is written by several `ptwrite`s.
    pub fn has_parts(&self) -> bool {
        self.sidecars
            .iter()
            .any(|s| s.slots.iter().any(|&slots| slots > 1))
    }

    /// Slots of the record with this id.
    pub fn slots(&self, id: u32) -> Option<u32> {
        self.sidecars
            .iter()
            .find_map(|s| s.slots.get(id.checked_sub(s.id_first)? as usize).copied())
    }
}

/// The sidecar that lies beside an instrumented file, if that is here and is the same as when it was made.
fn beside(path: &Path) -> Option<Annotations> {
    let note = note::instrumented_note(path).ok()??;
    let sidecar = Sidecar::read(&modules::sidecar_path(path, &note)).ok()?;
    if sidecar.id != note.sidecar_id {
        return None;
    }
    Annotations::new(&modules::sidecar_path(path, &note), &sidecar).ok()
}

fn nothing_fits(session: &Session<'_>, sidecars: &[Annotations]) -> String {
    let files: BTreeSet<&str> = session
        .spaces
        .mappings()
        .iter()
        .map(|m| m.path.as_str())
        .filter(|p| p.starts_with('/') && !p.starts_with("//"))
        .collect();
    let shown = |list: Vec<&str>| match list.len() {
        0 => "none".to_owned(),
        n if n > 8 => format!("{}, … ({n} in all)", list[..8].join(", ")),
        _ => list.join(", "),
    };
    let mapped = shown(files.into_iter().collect());
    if sidecars.is_empty() {
        return format!(
            "no sidecar: none lies beside the recorded files; give it with --annotations (mapped files: {mapped})"
        );
    }
    let outputs = shown(sidecars.iter().map(|s| s.output.as_str()).collect());
    format!(
        "the sidecars given are of other files ({outputs}) than the recording ({mapped}); give those of the recorded build with --annotations"
    )
}
