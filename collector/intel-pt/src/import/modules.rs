//! Which record a `ptwrite` at a run-time address writes: mappings, sidecars, and the links between
//! them.
//!
//! A sidecar contains link-time addresses. The recording contains the mapped address of each part
//! of a file, which together with the file's base address gives the load bias. So the instrumented
//! file itself is not needed.

use mgz_annotations_schema::ProbeFlavour;
use mgz_annotations_schema::manifest::NotInstrumented;
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_collector::program::{modules, note};
use mgz_perf_data::Session;
use mgz_perf_data::mapping::Mapping;
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

/// The part of a record that a `ptwrite` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPart {
    /// Record id, as in slots.
    pub id: u32,
    /// Number of the part in the record.
    pub part: u32,
}

/// The parts of a sidecar that the import needs.
#[derive(Debug)]
pub struct Annotations {
    /// Path of the sidecar.
    pub path: PathBuf,
    /// Its identity, hex.
    pub id_hex: String,
    /// Build id of the program; empty if it has none.
    pub build_id: String,
    /// Code of the program that is not recorded.
    pub not_instrumented: NotInstrumented,
    /// Path of the instrumented file when it was made.
    output: String,
    /// The user named this sidecar.
    pub given: bool,
    base: u64,
    id_first: u32,
    /// Number of slots of each record.
    slots: Vec<u32>,
    /// Record parts by link-time address.
    places: HashMap<u64, RecordPart, BuildHasherDefault<AddressHasher>>,
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

    /// Extracts the needed parts of a sidecar.
    pub fn new(path: &Path, sidecar: &Sidecar) -> Result<Annotations, ModulesError> {
        let header = &sidecar.header;
        if header.flavour != ProbeFlavour::Pt {
            return Err(ModulesError(format!(
                "{}: it belongs to a program of the {} flavour, which has no ptwrites; give the sidecar of the program that was recorded (`mgz-instrument --backend pt`)",
                path.display(),
                header.flavour
            )));
        }
        let place = |p: &mgz_annotations_schema::sidecar::PtWrite| {
            (
                p.ip,
                RecordPart {
                    id: header.id_first.wrapping_add(p.record),
                    part: p.part,
                },
            )
        };
        Ok(Annotations {
            path: path.to_owned(),
            id_hex: sidecar.id_hex(),
            build_id: header.input.build_id.clone(),
            not_instrumented: NotInstrumented::of_report(&header.report),
            output: header.output.clone(),
            given: false,
            base: header.base,
            id_first: header.id_first,
            slots: sidecar.records.iter().map(|r| r.slots).collect(),
            places: sidecar.ptwrites.iter().map(place).collect(),
        })
    }

    /// Score for the fit of a mapping to the file that this sidecar describes; higher is better.
    /// `None`: it is another file.
    ///
    /// Differently instrumented files of one original share its build id. They are then
    /// distinguished by the number of equal components at the ends of the paths.
    fn fit(&self, mapping: &Mapping, build_id: Option<&str>) -> Option<usize> {
        let parts = |path: &str| {
            let reversed: Vec<_> = Path::new(path)
                .components()
                .rev()
                .map(|c| c.as_os_str().to_owned())
                .collect();
            reversed
        };
        let (mapped, made) = (parts(&mapping.path), parts(&self.output));
        let common = mapped.iter().zip(&made).take_while(|(a, b)| a == b).count();
        match build_id {
            Some(id) if !self.build_id.is_empty() && !id.is_empty() => {
                same_build_id(id, &self.build_id).then_some(common)
            }
            _ => Some(common).filter(|&common| common > 0),
        }
    }
}

/// True if a recorded build id is that of a file. Records hold 20 bytes: the first ones of a longer
/// build id, and zeros behind a shorter one if the record does not tell its length.
pub(crate) fn same_build_id(recorded: &str, own: &str) -> bool {
    const DIGITS: usize = 40;
    if recorded.len() < DIGITS || own.len() == DIGITS {
        return recorded == own;
    }
    match recorded.strip_prefix(own) {
        Some(rest) => rest.bytes().all(|digit| digit == b'0'),
        None => own.starts_with(recorded),
    }
}

/// A mapping with its sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedModule {
    /// Number of the sidecar.
    pub sidecar: usize,
    /// Run-time address minus link-time address.
    pub bias: u64,
}

/// Sidecars and the mappings that they describe.
#[derive(Debug)]
pub struct Modules {
    sidecars: Vec<Annotations>,
    /// Placement by number of the mapping.
    placed: Vec<Option<PlacedModule>>,
    /// By number of the mapping: two sidecars that fit it equally well.
    doubts: Vec<Option<(usize, usize)>>,
    has_doubts: bool,
}

/// The sidecar of a mapping.
enum Choice {
    None,
    One(usize),
    /// Either of two, which cannot be distinguished.
    Doubt(usize, usize),
}

/// Chooses a sidecar for a mapping. `noted`: by path of a file that exists here, the sidecar that
/// the file itself names.
fn choose(
    sidecars: &[Annotations],
    noted: &HashMap<String, String>,
    mapping: &Mapping,
    build_id: Option<&str>,
) -> Choice {
    let whole = Path::new(&mapping.path).components().count();
    let fits = sidecars.iter().enumerate().filter_map(|(number, sidecar)| {
        let common = sidecar.fit(mapping, build_id)?;
        let named = noted.get(&mapping.path) == Some(&sidecar.id_hex);
        // A sidecar given by the user for exactly this path takes precedence over that of the file
        // that is there now.
        Some(((common == whole && sidecar.given, named, common), number))
    });
    let mut best: Option<((bool, bool, usize), usize)> = None;
    let mut doubt = None;
    for (fit, number) in fits {
        match best {
            Some((before, _)) if fit < before => {}
            Some((before, other)) if fit == before => {
                if sidecars[other].id_hex != sidecars[number].id_hex {
                    doubt = Some(Choice::Doubt(other, number));
                }
            }
            _ => (best, doubt) = (Some((fit, number)), None),
        }
    }
    doubt.unwrap_or(best.map_or(Choice::None, |(_, number)| Choice::One(number)))
}

impl Modules {
    /// Reads the given sidecars, and those beside the mapped files that exist.
    pub fn find(session: &Session<'_>, given: &[PathBuf]) -> Result<Modules, ModulesError> {
        let mut sidecars = Vec::new();
        for path in given {
            sidecars.push(Annotations {
                given: true,
                ..Annotations::read(path)?
            });
        }
        let paths: BTreeSet<&str> = session
            .spaces
            .mappings()
            .iter()
            .map(|m| m.path.as_str())
            .collect();
        let mut noted = HashMap::new();
        for path in paths {
            let Some(found) = beside(Path::new(path)) else {
                continue;
            };
            noted.insert(path.to_owned(), found.id_hex.clone());
            if sidecars
                .iter()
                .all(|s: &Annotations| s.id_hex != found.id_hex)
            {
                sidecars.push(found);
            }
        }
        Self::new(session, sidecars, &noted)
    }

    /// Joins sidecars with the mappings of a session. `noted`: by path of a mapped file, the id of
    /// the sidecar that it names.
    pub fn new(
        session: &Session<'_>,
        sidecars: Vec<Annotations>,
        noted: &HashMap<String, String>,
    ) -> Result<Modules, ModulesError> {
        let mappings = session.spaces.mappings();
        let build_id = |mapping: &Mapping| {
            let own = mapping.build_id.clone();
            own.or_else(|| session.build_ids.get(&mapping.path).cloned())
        };
        let mut choices: Vec<Choice> = mappings
            .iter()
            .map(|m| choose(&sidecars, noted, m, build_id(m).as_deref()))
            .collect();
        // If a sidecar's file is in the recording by name, the sidecar does not belong to another
        // file with the same build id, e.g. one that was instrumented differently.
        let by_name = |number: usize, mapping: &Mapping| {
            noted.get(&mapping.path) == Some(&sidecars[number].id_hex)
                || sidecars[number]
                    .fit(mapping, build_id(mapping).as_deref())
                    .is_some_and(|common| common > 0)
        };
        let named: BTreeSet<usize> = choices
            .iter()
            .zip(mappings)
            .filter_map(|(choice, mapping)| match *choice {
                Choice::One(number) if by_name(number, mapping) => Some(number),
                _ => None,
            })
            .collect();
        for (choice, mapping) in choices.iter_mut().zip(mappings) {
            let taken = |number: usize| named.contains(&number) && !by_name(number, mapping);
            *choice = match std::mem::replace(choice, Choice::None) {
                Choice::One(number) if taken(number) => Choice::None,
                Choice::Doubt(a, b) => match (taken(a), taken(b)) {
                    (true, true) => Choice::None,
                    (true, false) => Choice::One(b),
                    (false, true) => Choice::One(a),
                    (false, false) => Choice::Doubt(a, b),
                },
                other => other,
            };
        }
        let placed: Vec<_> = choices
            .iter()
            .zip(mappings)
            .map(|(choice, mapping)| match *choice {
                Choice::One(sidecar) => {
                    let file = mapping.start.wrapping_sub(mapping.offset);
                    Some(PlacedModule {
                        sidecar,
                        bias: file.wrapping_sub(sidecars[sidecar].base),
                    })
                }
                _ => None,
            })
            .collect();
        let doubts: Vec<_> = choices
            .iter()
            .map(|choice| match *choice {
                Choice::Doubt(a, b) => Some((a, b)),
                _ => None,
            })
            .collect();
        let made = Modules {
            sidecars,
            placed,
            has_doubts: doubts.iter().any(Option::is_some),
            doubts,
        };
        if made.placed.iter().all(Option::is_none) {
            let doubt = made.doubt(mappings);
            return Err(ModulesError(
                doubt.unwrap_or_else(|| nothing_fits(session, &made.sidecars)),
            ));
        }
        Ok(made)
    }

    /// No sidecars, for a recording without `ptwrite`s.
    pub fn none() -> Modules {
        Modules {
            sidecars: Vec::new(),
            placed: Vec::new(),
            doubts: Vec::new(),
            has_doubts: false,
        }
    }

    /// True if several sidecars fit a mapping equally well.
    pub fn is_doubtful(&self, mapping: usize) -> bool {
        self.doubts.get(mapping).is_some_and(Option::is_some)
    }

    /// True if any mapping is doubtful.
    pub fn has_doubts(&self) -> bool {
        self.has_doubts
    }

    /// A sentence on a doubtful mapping, if there is one.
    pub fn doubt(&self, mappings: &[Mapping]) -> Option<String> {
        let mut doubts = self.doubts.iter().zip(mappings);
        let ((a, b), mapping) = doubts.find_map(|(doubt, mapping)| Some(((*doubt)?, mapping)))?;
        Some(format!(
            "{} and {} both describe a file with the build id of {}, and it is unknown which was recorded; give only that one with --annotations",
            self.sidecars[a].path.display(),
            self.sidecars[b].path.display(),
            mapping.path
        ))
    }

    /// Checks that records of different sidecars can be distinguished in each process. `met`: the
    /// mappings with records of each process.
    pub fn check(&self, met: &BTreeSet<(u32, usize)>) -> Result<(), ModulesError> {
        let list: Vec<_> = met.iter().collect();
        for process in list.chunk_by(|a, b| a.0 == b.0) {
            let used = self.used(process.iter().map(|m| m.1));
            for a in &used {
                for b in used.range(..a) {
                    let (x, y) = (&self.sidecars[*a], &self.sidecars[*b]);
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
        }
        Ok(())
    }

    /// The sidecars of mappings, by number.
    pub fn used(&self, mappings: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        mappings
            .filter_map(|mapping| Some(self.placed(mapping)?.sidecar))
            .collect()
    }

    /// A sidecar by number.
    pub fn sidecar(&self, number: usize) -> Option<&Annotations> {
        self.sidecars.get(number)
    }

    /// The sidecar and the address offset of a mapping, if they are known.
    pub fn placed(&self, mapping: usize) -> Option<PlacedModule> {
        self.placed.get(mapping).copied().flatten()
    }

    /// The record part that the `ptwrite` at a run-time address in a mapping writes.
    #[inline]
    pub fn record(&self, placed: PlacedModule, ip: u64) -> Option<RecordPart> {
        self.sidecars[placed.sidecar]
            .places
            .get(&ip.wrapping_sub(placed.bias))
            .copied()
    }

    /// True if some record is written by several `ptwrite`s.
    pub fn has_parts(&self) -> bool {
        self.sidecars
            .iter()
            .any(|s| s.slots.iter().any(|&slots| slots > 1))
    }

    /// Number of slots of the record with this id, in a process with these sidecars.
    pub fn slots(&self, id: u32, used: &BTreeSet<usize>) -> Option<u32> {
        used.iter().find_map(|&number| {
            let s = &self.sidecars[number];
            s.slots.get(id.checked_sub(s.id_first)? as usize).copied()
        })
    }
}

/// The sidecar that is beside an instrumented file, if that file exists and is unchanged since
/// then.
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
