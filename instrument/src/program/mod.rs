//! Input of analysis from a file, and facts about the program as a whole.
//!
//! Pass 1 ([`crate::discover`]) finds functions (unwind entries, then symbols, then direct call
//! targets), decodes each once, and collects every inner address that code or data outside of a
//! function's control flow may reach. Pass 2 ([`crate::pipeline`]) turns one function at a time
//! into a `Function`; only its result stays in memory.
//!
//! Guarantees: no panic on any bytes; a function that cannot be analysed is left with a
//! [`LeftReason`].

pub(crate) mod copiers;
pub mod fixed_memory;
pub(crate) mod imports;
pub mod linkage;
pub mod managed_runtime;
pub mod markers;
pub(crate) mod packed;
pub mod sanitizers;
pub mod section_bounds;
pub mod shown_returns;
pub mod syscalls;

use crate::common::prefetch::Request;
use crate::common::skip_reason::LeftReason;
use crate::ir::FunctionId;
use crate::ir::jump_table::Course;
use crate::program::copiers::Copier;
use crate::program::section_bounds::Bounds;
use crate::program::shown_returns::ShownReturns;
use crate::unwind::UnwindRange;
use crate::util::fast_hash::{FastMap, FastSet};
use crate::util::range_index::Starts;
use mgz_abi::phases::Marker;
use std::borrow::Cow;
use std::ops::Range;

/// File-backed bytes of a segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentBytes<'a> {
    /// Link-time address of the first byte.
    pub vaddr: u64,
    /// Content (without the part that is zero-filled at run time).
    pub bytes: &'a [u8],
    /// True if mapped writable (a segment that becomes read-only after relocation counts as
    /// writable).
    pub writable: bool,
    /// True if mapped executable.
    pub executable: bool,
}

/// A function symbol.
#[derive(Clone, Debug)]
pub struct FuncSymbol<'a> {
    /// Name in the symbol table (mangled).
    pub name: Cow<'a, str>,
    /// Link-time address.
    pub addr: u64,
    /// Size in bytes, 0 if unknown.
    pub size: u64,
}

/// Known facts about the registers that an imported function changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    /// It belongs to a library that follows the ABI: callers treat all caller-saved registers as
    /// lost.
    Abi,
    /// The loader binds it at its first call, which changes r10 and r11. Other facts are unknown.
    Lazy,
    /// All facts are unknown.
    Unknown,
}

/// A file as input of analysis: plain values, so that analysis does not access files.
#[derive(Clone, Debug, Default)]
pub struct Input<'a> {
    /// Loaded segments.
    pub segments: Vec<SegmentBytes<'a>>,
    /// Executable sections (segments if there are none), without linkage tables.
    pub exec_ranges: Vec<Range<u64>>,
    /// Unwind entries, sorted by start.
    pub unwind: Vec<UnwindRange>,
    /// Function symbols of both symbol tables.
    pub symbols: Vec<FuncSymbol<'a>>,
    /// Addresses in code of exported symbols without a type: hand-written code or data. Sorted.
    pub labels: Vec<u64>,
    /// Symbols of data in code, sorted; overlapping ones are merged.
    pub objects: Vec<Range<u64>>,
    /// Sorted addresses of 8-byte words that have a dynamic relocation.
    pub relocated: Vec<u64>,
    /// `(address of the word, code address)` of relative relocations that point into `exec_ranges`,
    /// sorted.
    pub relative_targets: Vec<(u64, u64)>,
    /// PLT-like sections.
    pub plt: Vec<Range<u64>>,
    /// `.got` and `.got.plt`.
    pub got: Vec<Range<u64>>,
    /// Code whose functions must stay unchanged, with the reason (e.g. restartable sequences).
    pub excluded: Vec<(Range<u64>, LeftReason)>,
    /// True for position-independent code: addresses are relative to a load bias.
    pub pie: bool,
    /// Addresses that are always called from outside: the entry point, functions that run before
    /// and after the program, and resolvers.
    pub called: Vec<u64>,
    /// Resolvers of indirect functions.
    pub resolvers: Vec<u64>,
    /// Linkage-table entries and words of the global offset table of imported functions that do not
    /// return.
    pub no_return: FastSet<u64>,
    /// Linkage-table entries and words of the global offset table of all imported functions, with
    /// their conventions.
    pub imported: FastMap<u64, Import>,
    /// Linkage-table entries and words of the global offset table of functions that copy.
    pub copiers: FastMap<u64, Copier>,
    /// Bounds of the code ([`crate::discover::self_reads`]).
    pub bounds: Bounds,
    /// True if a sanitizer's runtime is part of the file: its functions are left unchanged
    /// ([`crate::program::sanitizers`]).
    pub has_sanitizer: bool,
    /// True if return addresses may be seen, by a sanitizer that watches the file's code or by
    /// other code ([`crate::program::shown_returns`]). Calls are translated then.
    pub shows_returns: bool,
    /// Readers of return addresses other than a sanitizer.
    pub return_readers: ShownReturns,
    /// The sanitizer's functions that make a report and never return: their addresses in the file,
    /// or the words and entries of imported ones.
    pub reports: FastSet<u64>,
    /// True if system calls that the runtime must observe get hooks ([`crate::program::syscalls`]).
    pub hook_calls: bool,
    /// Markers of phases, by address.
    pub markers: Vec<Marker>,
    /// True if the program's runtime walks stacks by original return addresses
    /// ([`managed_runtime`]).
    pub walks_stacks: bool,
}

impl Input<'_> {
    /// File-backed bytes from `addr` to the end of their segment.
    pub fn bytes_at(&self, addr: u64) -> Option<&[u8]> {
        self.segment_at(addr)
            .map(|s| &s.bytes[(addr - s.vaddr) as usize..])
    }

    /// The segment whose file-backed bytes contain `addr`.
    pub fn segment_at(&self, addr: u64) -> Option<&SegmentBytes<'_>> {
        self.segments
            .iter()
            .find(|s| addr >= s.vaddr && addr - s.vaddr < s.bytes.len() as u64)
    }

    /// The bytes of `range`, if all are in the file.
    pub fn slice(&self, range: &Range<u64>) -> Option<&[u8]> {
        let bytes = self.bytes_at(range.start)?;
        bytes.get(..usize::try_from(range.end.checked_sub(range.start)?).ok()?)
    }

    /// The value of the word at `addr` at the program's start, if known.
    pub fn word(&self, addr: u64) -> Option<u64> {
        match self.pie {
            true => self
                .relative_targets
                .binary_search_by_key(&addr, |t| t.0)
                .ok()
                .map(|i| self.relative_targets[i].1),
            false => Some(u64::from_le_bytes(*self.bytes_at(addr)?.first_chunk()?)),
        }
    }

    /// The part of [`Input::relocated`] that reaches into `range`.
    pub fn relocated_in(&self, range: &Range<u64>) -> &[u64] {
        let from = self
            .relocated
            .partition_point(|&at| at.saturating_add(8) <= range.start);
        let count = self.relocated[from..].partition_point(|&at| at < range.end);
        &self.relocated[from..from + count]
    }

    /// True if `addr` is in one of [`Input::exec_ranges`].
    pub fn is_code(&self, addr: u64) -> bool {
        self.exec_ranges.iter().any(|r| r.contains(&addr))
    }

    /// True if `addr` is in the global offset table.
    pub fn is_got(&self, addr: u64) -> bool {
        self.got.iter().any(|r| r.contains(&addr))
    }

    /// True if `addr` is in a symbol of data in code.
    pub fn is_object(&self, addr: u64) -> bool {
        let next = self.objects.partition_point(|o| o.start <= addr);
        next > 0 && self.objects[next - 1].contains(&addr)
    }

    /// True if `addr` is in a linkage table.
    pub fn is_plt(&self, addr: u64) -> bool {
        self.plt.iter().any(|r| r.contains(&addr))
    }
}

/// Decides from the name (empty if unknown) and the address if a function is to be instrumented.
pub type Select = dyn Fn(&str, u64) -> bool + Sync + Send;

/// Options of the user.
pub struct InstrumentOptions {
    /// `mgz_abi::module_note::FLAVOUR_*`.
    pub flavour: u32,
    /// Record stores as well.
    pub stores: bool,
    /// Record calls of `memcpy` and similar functions.
    pub copies: bool,
    /// Selection of the functions to be instrumented.
    pub select: Box<Select>,
    /// Calls and returns are translated, so that clones can be entered and left anywhere (soft
    /// flavour).
    pub translated: bool,
    /// Regions have one record without payload. It counts the executions of the region (soft
    /// flavour).
    pub counts: bool,
    /// One record per recorded load, nothing shared (for tests).
    pub naive: bool,
    /// Nothing is recorded; these loads are prefetched (PT flavour, since such a file needs no
    /// runtime either).
    pub prefetch: Option<Request>,
}

impl InstrumentOptions {
    /// All functions, loads only, payloads shared.
    pub fn new(flavour: u32) -> InstrumentOptions {
        InstrumentOptions {
            flavour,
            stores: false,
            copies: false,
            select: Box::new(|_, _| true),
            translated: false,
            counts: false,
            naive: false,
            prefetch: None,
        }
    }
}

/// A function after pass 1.
#[derive(Clone, Debug)]
pub struct FunctionInfo {
    /// Its number: index into [`Program::functions`].
    pub id: FunctionId,
    /// Its bytes.
    pub range: Range<u64>,
    /// Symbol name (mangled), empty if unknown.
    pub name: String,
    /// The reason, if the function must not be cloned. Pass 2 may find further reasons.
    pub left: Option<LeftReason>,
    /// True if the range comes from an unwind entry or a sized symbol, so that it is one function
    /// of a compiler.
    pub exact: bool,
    /// Index into [`Input::unwind`].
    pub unwind: Option<u32>,
    /// Facts about addresses strictly inside. Most functions have none.
    inner: Option<Box<Inner>>,
    /// True if code elsewhere that jumps to computed addresses takes an inner address, or the
    /// address of the end.
    pub computed: bool,
    /// Record of pass 1's search for the function's jump tables, which shows the addresses
    /// elsewhere that they enter.
    pub course: Option<Box<Course>>,
}

/// Inner addresses of a function that control or data from elsewhere may refer to. Sorted.
#[derive(Clone, Debug, Default)]
pub struct Inner {
    /// Targets of branches by other code.
    pub branched: Vec<u64>,
    /// Targets of calls by other code, and symbols.
    pub called: Vec<u64>,
    /// Targets of jump tables elsewhere.
    pub taken: Vec<u64>,
    /// Addresses that an instruction takes, labels, and targets of code that is not decoded: there
    /// may be code or data.
    pub doubted: Vec<u64>,
    /// `(address of the word, code address)`: data words that look like a pointer here.
    pub words: Vec<(u64, u64)>,
    /// Addresses that control may possibly reach; this is not enough for an entry.
    pub aimed: Vec<u64>,
}

impl Inner {
    const NONE: Inner = Inner {
        branched: Vec::new(),
        called: Vec::new(),
        taken: Vec::new(),
        doubted: Vec::new(),
        words: Vec::new(),
        aimed: Vec::new(),
    };

    /// Sorts all lists.
    fn sort(&mut self) {
        for list in [
            &mut self.branched,
            &mut self.called,
            &mut self.taken,
            &mut self.doubted,
            &mut self.aimed,
        ] {
            list.sort_unstable();
            list.dedup();
        }
        self.words.sort_unstable();
        self.words.dedup();
    }
}

/// All functions of a program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Sorted by address; ranges do not overlap.
    pub functions: Vec<FunctionInfo>,
    /// Start addresses of the functions.
    pub starts: Starts,
    /// The first instruction of each function that uses or sets the gs base.
    pub uses_gs: Vec<u64>,
    /// The first instruction of each function that sets all flags (`popf`).
    pub sets_flags: Vec<u64>,
    /// The first instruction of each function that may change the flags in a handler's context.
    pub changes_context: Vec<u64>,
    /// Sorted addresses in code that something refers to: all outside of functions, and those of
    /// data in functions.
    pub aimed: Vec<u64>,
    /// Data in code: ranges that symbols declare as data, and ranges that code reads by address.
    /// Sorted, without overlaps.
    pub data: Vec<Range<u64>>,
    /// Bytes outside of functions that are neither data nor filler.
    pub stray_bytes: u64,
    /// Start of a function or a table by which most of the code is read as data.
    pub reads_code: Option<u64>,
}

impl FunctionInfo {
    /// A function of which only the exact range is known.
    pub fn new(range: Range<u64>) -> FunctionInfo {
        FunctionInfo {
            id: FunctionId(0),
            range,
            name: String::new(),
            left: None,
            exact: true,
            unwind: None,
            inner: None,
            computed: false,
            course: None,
        }
    }

    /// Facts about inner addresses.
    pub fn inner(&self) -> &Inner {
        static NONE: Inner = Inner::NONE;
        self.inner.as_deref().unwrap_or(&NONE)
    }

    /// Facts about inner addresses, to be extended.
    pub fn inner_mut(&mut self) -> &mut Inner {
        self.inner.get_or_insert_default()
    }

    /// Sorts the known facts. Doubted addresses are left out if they are data.
    pub fn settle(&mut self, is_data: impl Fn(u64) -> bool) {
        if let Some(inner) = &mut self.inner {
            inner.doubted.retain(|&at| !is_data(at));
            inner.sort();
        }
    }

    /// Addresses that control may reach from unknown places, sorted.
    pub fn suspected(&self) -> Vec<u64> {
        let mut all = [&self.inner().taken[..], &self.inner().doubted].concat();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Program {
    /// Ranges of [`Program::data`] in a function, and in the bytes after it that a jump might
    /// cover.
    pub fn data_in(&self, range: &Range<u64>) -> &[Range<u64>] {
        let from = self.data.partition_point(|d| d.end <= range.start);
        let count =
            self.data[from..].partition_point(|d| d.start < range.end + crate::x86::flow::JUMP);
        &self.data[from..from + count]
    }

    /// The function whose range contains `addr`.
    pub fn function_at(&self, addr: u64) -> Option<FunctionId> {
        self.starts.find(addr).map(|found| FunctionId(found as u32))
    }

    /// The function with this number.
    pub fn function(&self, id: FunctionId) -> &FunctionInfo {
        &self.functions[id.0 as usize]
    }
}

/// Parts of the executable ranges outside of functions.
pub(crate) fn uncovered(input: &Input, functions: &[FunctionInfo]) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    for exec in &input.exec_ranges {
        let mut at = exec.start;
        let first = functions.partition_point(|f| f.range.end <= exec.start);
        for f in functions[first..]
            .iter()
            .take_while(|f| f.range.start < exec.end)
        {
            if f.range.start > at {
                gaps.push(at..f.range.start);
            }
            at = at.max(f.range.end);
        }
        if at < exec.end {
            gaps.push(at..exec.end);
        }
    }
    gaps
}
