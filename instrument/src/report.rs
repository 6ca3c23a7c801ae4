//! Results of a rewrite: figures for users and for programs.

use crate::common::skip_reason::LeftReason;
use crate::emit::SidecarRows;
use crate::link::layout::{Placed, Sizes};
use crate::plan::types::ImplicitLoads;
use mgz_annotations_schema::ProbeFlavour;
use mgz_annotations_schema::manifest::NotInstrumented;
use mgz_annotations_schema::sidecar::{
    CLASS_CONSTANT, CLASS_STRIDED, Site, SiteFlags, SiteKind, reason,
};
use mgz_elf::Elf;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// Figures of one file. Serialised as the JSON report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Input path.
    pub input: String,
    /// Output path.
    pub output: String,
    /// Sidecar path.
    pub annotations: String,
    /// `soft` or `pt`.
    pub backend: ProbeFlavour,
    /// Functions.
    pub functions: Functions,
    /// Static loads by class and kind.
    pub loads: LoadTotals,
    /// Implicit stack reads, which are not in `loads`.
    pub implicit: Implicit,
    /// Stores (with `--stores`).
    pub stores: u64,
    /// Static records.
    pub records: u64,
    /// Entry jumps into the clone.
    pub patches: u64,
    /// True if handlers may look at faults. No probe changes a register then. With `pt`, handlers
    /// are shown original addresses through `sigaction` (with `soft`, the runtime always does
    /// that).
    pub shows_faults: bool,
    /// Start of a function or a table by which most of the file's own code is read as data. The
    /// file can only be recorded in `burst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads_code: Option<u64>,
    /// State of threads that the program sets and that only `burst` leaves intact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_only: Option<String>,
    /// Debug information in other files: files that were found, or are missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub debug_files: Vec<String>,
    /// Address where the program opens its own file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_itself: Option<u64>,
    /// Means by which the program may read or change its own memory through the kernel, which needs
    /// `burst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_memory: Option<String>,
    /// Address where it opens the list of its own mappings. Reads at addresses from that list are
    /// not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_maps: Option<u64>,
    /// The path by which the program may search for files beside itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks_beside: Option<String>,
    /// Code that looks at return addresses, so that calls push the original's in every mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shows_returns: Option<String>,
    /// Data that programs search at the end of their file, if the input has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// Executable bytes of the input, without linkage tables.
    pub text_bytes: u64,
    /// Code whose loads are neither recorded nor counted.
    pub not_instrumented: NotInstrumented,
    /// Executable bytes of instrumented functions.
    pub covered_bytes: u64,
    /// Bytes of the input's `.eh_frame`, `.eh_frame_hdr` and exception tables.
    pub old_unwind_bytes: u64,
    /// Bytes of clone code and copied jump tables.
    pub clone_bytes: u64,
    /// Bytes of new unwind and exception tables.
    pub unwind_bytes: u64,
    /// `(clone_bytes + unwind_bytes) / (text_bytes + old_unwind_bytes)`.
    pub growth: f64,
    /// Time spent on this file.
    pub seconds: f64,
    /// Libraries that the program needs (main file only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libraries: Option<Libraries>,
}

/// See [`Report`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Functions {
    /// Functions found.
    pub found: u64,
    /// Functions with a clone.
    pub instrumented: u64,
    /// Instrumented functions whose start has no room for a jump into the clone (or where it would
    /// cover an instruction that handlers look at). If they are called through pointers or from
    /// other files, the first instructions run in the original, or all of them if there is no room
    /// later.
    pub entered_late: u64,
    /// Functions left unchanged.
    pub left: Left,
}

/// See [`Functions`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Left {
    /// Number of functions.
    pub total: u64,
    /// Number of functions by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// See [`Report`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadTotals {
    /// All loads of instrumented functions.
    pub total: u64,
    /// Class Constant.
    pub constant: u64,
    /// Class Strided.
    pub strided: u64,
    /// Class Irregular.
    pub irregular: u64,
    /// Number by kind: plain, string, gather, …
    pub kinds: BTreeMap<&'static str, u64>,
    /// Constant loads that a proxy counts.
    pub implied: u64,
    /// Loads that are not recorded.
    pub unrecorded: Unrecorded,
}

/// See [`LoadTotals`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Unrecorded {
    /// Number of loads.
    pub total: u64,
    /// Number of loads by reason.
    pub reasons: BTreeMap<&'static str, u64>,
}

/// See [`Report`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Implicit {
    /// `pop`, `popf`.
    pub pop: u64,
    /// `ret`.
    pub ret: u64,
    /// `leave`.
    pub leave: u64,
}

/// See [`Report`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Payload {
    /// Its length, bytes.
    pub bytes: u64,
    /// Its offset in the input and in the output.
    pub offset: u64,
    /// Offset of the output's second copy, which reaches to the file's end.
    pub repeated_at: u64,
    /// The section that contains it, unless it comes after the ELF content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
}

/// Libraries of the program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Libraries {
    /// Reports of the libraries that were instrumented.
    pub instrumented: Vec<Report>,
    /// Libraries that were left out: name and bytes of code.
    pub left_out: BTreeMap<String, u64>,
    /// Reasons why requested libraries could not be instrumented.
    pub declined: BTreeMap<String, String>,
    /// Libraries that are needed but were not found.
    pub missing: Vec<String>,
    /// Bytes of code in libraries that were left out.
    pub left_out_text_bytes: u64,
    /// Share of the program's code (libraries included) that is in instrumented files, percent.
    pub instrumented_text_pct: f64,
}

fn kind_name(kind: u8) -> &'static str {
    match SiteKind::from_u8(kind) {
        Some(SiteKind::Plain) => "plain",
        Some(SiteKind::String | SiteKind::StringUntil) => "string",
        Some(SiteKind::Gather) => "gather",
        Some(SiteKind::BitString) => "bit_string",
        Some(SiteKind::Xlat) => "xlat",
        None => "other",
    }
}

impl Report {
    /// A report with the figures of the input.
    pub fn new(elf: &Elf, flavour: u32) -> Report {
        let named = |name: &str| elf.section(name).map_or(0, |s| s.size);
        // A damaged section header may have any size.
        let unwinding = [".eh_frame", ".eh_frame_hdr", ".gcc_except_table"]
            .iter()
            .map(|n| named(n).min(elf.data.len() as u64))
            .sum();
        Report {
            backend: ProbeFlavour::of_note(flavour),
            text_bytes: elf.code_ranges().iter().map(|r| r.end - r.start).sum(),
            old_unwind_bytes: unwinding,
            ..Report::default()
        }
    }

    /// Counts a function with a clone.
    pub fn cloned(&mut self, range: &Range<u64>, implicit: ImplicitLoads) {
        self.functions.found += 1;
        self.functions.instrumented += 1;
        self.covered_bytes += range.end - range.start;
        self.implicit.pop += implicit.pops;
        self.implicit.ret += implicit.rets;
        self.implicit.leave += implicit.leaves;
    }

    /// Counts a function that was left unchanged.
    pub fn left(&mut self, reason: &str, range: &Range<u64>) {
        self.functions.found += 1;
        self.functions.left.total += 1;
        if reason == LeftReason::NotSelected.to_string() {
            self.not_instrumented.not_selected += 1;
        } else {
            self.not_instrumented.functions += 1;
            self.not_instrumented.function_bytes += range.end - range.start;
        }
        *self
            .functions
            .left
            .reasons
            .entry(reason.to_owned())
            .or_default() += 1;
    }

    /// Adds the figures of the layout and the sidecar.
    pub fn sized(&mut self, placed: &Placed, sizes: Sizes, counts: SiteCounts) {
        self.patches = sizes.patches;
        self.clone_bytes = sizes.clone_bytes;
        self.unwind_bytes = sizes.unwind_bytes;
        self.growth = (self.clone_bytes + self.unwind_bytes) as f64
            / (self.text_bytes + self.old_unwind_bytes).max(1) as f64;
        self.records = placed.record_count.into();
        let loads = &mut self.loads;
        for (number, &count) in counts.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let [class, kind, flags, why] = SiteCounts::key(number);
            if flags & SiteFlags::STORE != 0 {
                self.stores += count;
                continue;
            }
            loads.total += count;
            match class {
                CLASS_CONSTANT => loads.constant += count,
                CLASS_STRIDED => loads.strided += count,
                _ => loads.irregular += count,
            }
            *loads.kinds.entry(kind_name(kind)).or_default() += count;
            loads.implied += if flags & SiteFlags::IMPLIED != 0 {
                count
            } else {
                0
            };
            if flags & SiteFlags::UNRECORDED != 0 {
                loads.unrecorded.total += count;
                *loads
                    .unrecorded
                    .reasons
                    .entry(
                        reason::NAMES
                            .get(usize::from(why))
                            .copied()
                            .unwrap_or("other"),
                    )
                    .or_default() += count;
            }
        }
    }
}

/// Numbers of sites by class, kind, flags and reason, of which there are fewer than eight each.
pub struct SiteCounts(Vec<u64>);

impl Default for SiteCounts {
    fn default() -> SiteCounts {
        SiteCounts(vec![0; 1 << 12])
    }
}

impl SiteCounts {
    /// Counts the sites of some functions.
    pub fn of(rows: &[SidecarRows]) -> SiteCounts {
        let mut counts = SiteCounts::default();
        rows.iter()
            .flat_map(|r| &r.sites)
            .for_each(|site| counts.0[SiteCounts::number(site)] += 1);
        counts
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &SiteCounts) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(count, other)| *count += other);
    }

    /// Index of a site's count.
    fn number(site: &Site) -> usize {
        const {
            assert!(SiteFlags::STORE | SiteFlags::IMPLIED | SiteFlags::UNRECORDED == 7);
            assert!(SiteKind::ALL.len() <= 8 && reason::NAMES.len() <= 8);
        }
        [site.class, site.kind, site.flags, site.reason]
            .iter()
            .fold(0, |number, &part| number << 3 | usize::from(part & 7))
    }

    /// Class, kind, flags and reason of the sites counted at an index.
    fn key(number: usize) -> [u8; 4] {
        [9, 6, 3, 0].map(|shift| (number >> shift & 7) as u8)
    }
}
