//! The end of a rewrite: layout, output file and sidecar.

use crate::emit::Emitted;
use crate::link::elf_writer;
use crate::link::elf_writer::{Image, NewSymbol, assemble};
use crate::link::frames::CloneFde;
use crate::link::layout::{LayoutInput, Placed, lay_out, place_clones};
use crate::pipeline::prefetched::Prefetch;
use crate::pipeline::rewritten::Rewritten;
use crate::pipeline::settings::Settings;
use crate::program::InstrumentOptions;
use crate::program::sanitizers::Sanitizer;
use crate::report::Report;
use crate::sidecar;
use crate::sidecar::columns::Columns;
use crate::sidecar::{Annotations, Entry, Strings, lines};
use crate::signals::Wrapped;
use crate::unwind::Tables;
use mgz_abi::counters;
use mgz_abi::module_note::{Cover, FLAVOUR_SOFT};
use mgz_abi::phases::Marker;
use mgz_abi::slot::ID_LIMIT;
use mgz_annotations_schema::ProbeFlavour;
use mgz_annotations_schema::sidecar::{Header, Input as InputHeader};
use mgz_elf::Refusal;
use mgz_elf::debug_files::DebugFiles;
use mgz_elf::image::Elf;
use mgz_elf::payload::Payload;
use twox_hash::XxHash3_64;

/// The functions in order, and their clones.
pub struct Functions {
    /// All functions.
    pub entries: Vec<Entry>,
    /// The clones without their code.
    #[allow(clippy::vec_box, reason = "moving them takes longer than finding them")]
    pub clones: Vec<Box<Emitted>>,
    /// Code of each clone.
    pub codes: Vec<Vec<u8>>,
    /// Unwind entries of each clone.
    pub pieces: Vec<Vec<CloneFde>>,
    /// Number of records of each clone.
    pub record_counts: Vec<u32>,
    /// Displacements of each clone.
    pub displacements: Vec<Vec<i32>>,
}

impl Functions {
    /// Room for `count` functions.
    pub fn with_capacity(count: usize) -> Functions {
        Functions {
            entries: Vec::with_capacity(count),
            clones: Vec::with_capacity(count),
            codes: Vec::with_capacity(count),
            pieces: Vec::with_capacity(count),
            record_counts: Vec::with_capacity(count),
            displacements: Vec::with_capacity(count),
        }
    }

    /// The symbols of all clones. `same`: they have the originals' names.
    fn symbols(&self, placed: &Placed, same: bool) -> Vec<NewSymbol<'_>> {
        self.entries
            .iter()
            .filter_map(|e| {
                let n = e.clone?;
                Some(symbol(e, placed.clones[n], self.clones[n].len.into(), same))
            })
            .collect()
    }
}

/// The results of all functions.
pub struct Gathered {
    /// The functions and their clones.
    pub functions: Functions,
    /// Rows of the sidecar.
    pub columns: Columns,
    /// Debug information.
    pub debug: DebugFiles,
    /// Original code under entry jumps that the runtime may have to take back.
    pub covers: Vec<Cover>,
    /// Hash of the input.
    pub hash: u64,
    /// Figures so far.
    pub report: Report,
    /// Outcomes of prefetches.
    pub prefetches: Vec<Prefetch>,
    /// Calls through which handlers are shown original addresses of faults.
    pub wrapped: Option<Wrapped>,
    /// The clones are translated.
    pub translated: bool,
    /// Relation of the file to a sanitizer.
    pub sanitizer: Sanitizer,
    /// Data that the file carries apart from its ELF content.
    pub payload: Option<Payload>,
    /// Markers of phases, by address.
    pub markers: Vec<Marker>,
}

/// The symbol of a function's clone. `same`: it has the original's name, which a sanitizer's
/// reports show.
fn symbol(entry: &Entry, addr: u64, size: u64, same: bool) -> NewSymbol<'_> {
    match entry.name.is_empty() {
        true => NewSymbol {
            name: format!("mgz_{:x}", entry.range.start).into(),
            suffix: "",
            addr,
            size,
        },
        false => NewSymbol {
            name: entry.name.as_str().into(),
            suffix: if same { "" } else { ".mgz" },
            addr,
            size,
        },
    }
}

/// Identity of a file and of the options of its rewrite.
struct Identity {
    /// Hash of the file.
    file: u64,
    /// Hash of file and options.
    run: u64,
}

impl Identity {
    fn of(hash: u64, settings: &Settings) -> Identity {
        Identity {
            file: hash,
            run: XxHash3_64::oneshot_with_seed(hash, settings.options_text.as_bytes()),
        }
    }

    /// The sidecar's identity.
    fn bytes(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.file.to_le_bytes());
        id[8..].copy_from_slice(&self.run.to_le_bytes());
        id
    }

    /// The first record id. All ids of the file stay below the limit.
    fn first_id(
        &self,
        record_counts: &[u32],
        options: &InstrumentOptions,
        settings: &Settings,
    ) -> Result<u32, Refusal> {
        let count: u64 = record_counts.iter().map(|&n| u64::from(n)).sum();
        let limit = if options.counts {
            counters::LIMIT
        } else {
            ID_LIMIT
        };
        let room = u64::from(limit).saturating_sub(count);
        if room == 0 {
            return Err(Refusal::declined("too many records for one file"));
        }
        let chosen = settings
            .id_first
            .map_or(self.run ^ self.file.rotate_left(32), u64::from);
        Ok((chosen % room) as u32)
    }
}

/// Lays the file out, and makes its sidecar in parallel.
pub fn finish<'a, W: Send>(
    elf: &Elf<'a>,
    unwind: &Tables,
    options: &InstrumentOptions,
    settings: &Settings,
    gathered: Gathered,
    begin: impl FnOnce(Image<'a>) -> W + Send,
) -> Result<Rewritten<W>, Refusal> {
    let Gathered {
        mut functions,
        mut columns,
        debug,
        covers,
        hash,
        mut report,
        prefetches,
        wrapped,
        translated,
        sanitizer,
        payload,
        markers,
    } = gathered;
    let identity = Identity::of(hash, settings);
    let id = identity.bytes();
    let id_first = identity.first_id(&functions.record_counts, options, settings)?;
    let codes = std::mem::take(&mut functions.codes);
    let parts = LayoutInput {
        elf,
        unwind,
        clones: &functions.clones,
        covers: &covers,
        pieces: &functions.pieces,
        record_counts: &functions.record_counts,
        displacements: &functions.displacements,
        flavour: options.flavour,
        translated,
        counts: options.counts,
        copies: options.copies,
        sanitizer,
        reads_code: report.reads_code.is_some() || report.opens_memory.is_some(),
        burst_only: report.burst_only.is_some(),
        enters_runtime: options.flavour == FLAVOUR_SOFT && elf.is_static_executable(),
        id_first,
        sidecar_id: id,
        sidecar_path: settings.sidecar_path.clone(),
        search_path: settings.search_path.clone(),
        before_runtime: &settings.before_runtime,
        markers: &markers,
        wrapped: wrapped.as_ref(),
    };
    let (front, placed) = place_clones(&parts)?;
    let file = || {
        let (mut additions, sizes) = lay_out(&parts, front, &placed, codes)?;
        additions.symbols = functions.symbols(&placed, sanitizer.watches);
        additions.payload = payload;
        let image = assemble(elf, additions)?;
        let payload_at = image.payload_at;
        Ok::<_, Refusal>((begin(image), sizes, payload_at))
    };
    let annotate = || {
        let mut strings = Strings::default();
        let entries =
            sidecar::functions(&functions.entries, &functions.clones, &placed, &mut strings);
        let locations = lines::locate(elf, &debug.source, &mut columns.rows(), &mut strings);
        let strings = strings.into_list();
        rayon::join(
            || sidecar::address_map(&functions.clones, &placed),
            || columns.finish(placed.start, &entries, &locations, &strings),
        )
    };
    // Much of either work uses one core.
    let (file, (map, columns)) = rayon::join(file, annotate);
    let (begun, sizes, payload_at) = file?;
    let (columns, counts) =
        columns.map_err(|e| Refusal::failed(format!("annotations cannot be compressed: {e}")))?;
    report.sized(&placed, sizes, counts);
    if let Some((payload, at)) = report.payload.as_mut().zip(payload_at) {
        payload.repeated_at = at;
    }
    let annotations = Annotations {
        id,
        map,
        columns,
        header: Header {
            id_first,
            id_count: placed.record_count,
            ..header(elf, options, settings, hash)?
        },
    };
    Ok(Rewritten {
        begun,
        annotations,
        report,
        prefetches,
        leftovers: Box::new(functions),
    })
}

/// The sidecar's header without the record ids.
fn header(
    elf: &Elf,
    options: &InstrumentOptions,
    settings: &Settings,
    hash: u64,
) -> Result<Header, Refusal> {
    Ok(Header {
        tool: concat!("mgz-instrument ", env!("CARGO_PKG_VERSION")).into(),
        input: InputHeader {
            path: settings.input.clone(),
            build_id: elf.build_id(),
            hash: format!("{hash:016x}"),
            size: elf.data.len() as u64,
        },
        output: settings.output.clone(),
        flavour: ProbeFlavour::of_note(options.flavour),
        base: elf_writer::base(elf)?,
        ..Header::default()
    })
}
