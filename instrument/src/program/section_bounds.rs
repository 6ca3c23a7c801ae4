//! Addresses of the starts and ends of sections.

use crate::program::Input;
use crate::program::imports::Imports;
use crate::program::linkage::entries_around;
use crate::x86::flow::direct_target;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use mgz_elf::Elf;
use mgz_elf::image::{R_IRELATIVE, R_RELATIVE};
use object::elf;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Bounds of a file's code, and facts about functions by name.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Starts: of the file in memory, of its executable segments, of executable sections.
    pub(crate) starts: BTreeSet<u64>,
    /// Ends of the latter two.
    pub(crate) ends: BTreeSet<u64>,
    /// Words that hold a bound, with the bound.
    pub(crate) words: HashMap<u64, u64>,
    /// The range from the first executable byte to the end, which counts as inside.
    pub(crate) around: Range<u64>,
    /// Known functions by the words and entries through which they are called.
    pub(crate) functions: HashMap<u64, KnownFunction>,
    /// A word that holds an end, near one that holds a start or another address before that end.
    pub(crate) table: Option<(u64, Range<u64>)>,
    /// The function that applies a static executable's own relocations ([`relocator`]).
    pub(crate) relocator: Option<u64>,
}

impl Bounds {
    /// Finds the bounds of a file.
    pub fn of(elf: &Elf, input: &Input, imports: &Imports) -> Bounds {
        let code = code_ranges(elf);
        let base = elf
            .loads()
            .next()
            .map(|first| first.vaddr.wrapping_sub(first.offset));
        // An end that is also the start of another section more likely stands for that start.
        let begins = |at: &u64| {
            elf.sections
                .iter()
                .any(|s| s.is_alloc() && s.addr == *at && s.size > 0)
                || elf.loads().any(|s| s.vaddr == *at)
        };
        let around = code
            .iter()
            .map(|r| r.start)
            .min()
            .zip(code.iter().map(|r| r.end).max());
        let mut bounds = Bounds {
            starts: code.iter().map(|r| r.start).chain(base).collect(),
            ends: code
                .iter()
                .map(|r| r.end)
                .filter(|at| !begins(at))
                .collect(),
            around: around.map_or(0..0, |(start, end)| start..end.saturating_add(1)),
            functions: known_functions(elf, input, imports),
            relocator: relocator(elf, input),
            ..Bounds::default()
        };
        bounds.words = bounds.find_words(elf, input);
        bounds.table = bounds.find_table(input);
        bounds
    }

    /// Words of the file that hold bounds, by address.
    fn find_words(&self, elf: &Elf, input: &Input) -> HashMap<u64, u64> {
        let (starts, ends) = (&self.starts, &self.ends);
        let low = starts.first().copied().unwrap_or(0);
        let high = starts.last().copied().max(ends.last().copied());
        let is_bound = |at: u64| {
            (low..=high.unwrap_or(0)).contains(&at) && (starts.contains(&at) || ends.contains(&at))
        };
        if input.pie {
            let relative = elf
                .relocations()
                .into_iter()
                .filter(|r| r.kind == R_RELATIVE);
            relative
                .map(|r| (r.at, r.addend))
                .filter(|w| is_bound(w.1))
                .collect()
        } else {
            let data = input.segments.iter().filter(|s| !s.executable);
            data.flat_map(|s| {
                let skip = (s.vaddr.wrapping_neg() % 8) as usize;
                let words = s.bytes.get(skip..).unwrap_or(&[]).chunks_exact(8);
                words
                    .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
                    .zip((s.vaddr + skip as u64..).step_by(8))
            })
            .filter(|w| is_bound(w.0))
            .map(|(word, at)| (at, word))
            .collect()
        }
    }

    /// See [`Bounds::table`].
    fn find_table(&self, input: &Input) -> Option<(u64, Range<u64>)> {
        self.words
            .iter()
            .filter(|w| self.ends.contains(w.1))
            .filter_map(|(&at, &end)| {
                let around = (at.saturating_sub(MAX_WORD_DISTANCE)
                    ..=at.saturating_add(MAX_WORD_DISTANCE))
                    .step_by(8);
                let others =
                    around.filter_map(|at| self.words.get(&at).copied().or_else(|| input.word(at)));
                let start = others
                    .filter(|&at| at < end && (self.starts.contains(&at) || input.is_code(at)))
                    .min()?;
                Some((at, start..end))
            })
            .min_by_key(|(at, _)| *at)
    }

    /// True if an address is a bound, or lies in code.
    pub fn is_near(&self, at: u64) -> bool {
        self.around.contains(&at) || self.starts.first() == Some(&at)
    }

    /// True if an address is a bound.
    pub fn contains(&self, at: u64) -> bool {
        self.starts.contains(&at) || self.ends.contains(&at)
    }

    /// The bound that a word holds.
    pub fn word(&self, at: u64) -> Option<u64> {
        if self.words.is_empty() {
            None
        } else {
            self.words.get(&at).copied()
        }
    }

    /// True if a function called through one of these places may examine the program's segments.
    pub fn leads_to_segments(&self, calls: &[u64]) -> bool {
        !self.functions.is_empty()
            && calls.iter().any(|at| {
                matches!(
                    self.functions.get(at),
                    Some(KnownFunction::Segments | KnownFunction::Auxiliary)
                )
            })
    }
}

/// Ranges of executable segments and of executable sections.
fn code_ranges(elf: &Elf) -> Vec<Range<u64>> {
    let segments = elf.loads().filter(|s| s.flags & elf::PF_X.0 != 0);
    let sections = elf.sections.iter().filter(|s| {
        s.is_alloc() && s.flags & elf::SHF_EXECINSTR.0 != 0 && s.kind == elf::SHT_PROGBITS.0
    });
    segments
        .map(|s| s.vaddr..s.vaddr + s.filesz)
        .chain(
            sections
                .filter(|s| elf.at(s.addr).is_some())
                .map(|s| s.range()),
        )
        .filter(|r| !r.is_empty())
        .collect()
}

/// See [`Bounds::functions`].
fn known_functions(elf: &Elf, input: &Input, imports: &Imports) -> HashMap<u64, KnownFunction> {
    let imported = imports.slots.iter().chain(&imports.stubs);
    let imported = imported.filter_map(|(&at, name)| Some((at, known(name)?)));
    let own = input
        .symbols
        .iter()
        .filter_map(|s| Some((s.addr, known(&s.name)?)));
    // Functions chosen at the program's start are the C library's string and memory functions,
    // which take no functions as arguments.
    let relocations = elf.relocations();
    let chosen = relocations.iter().filter(|r| r.kind == R_IRELATIVE);
    let chosen: BTreeSet<u64> = chosen.map(|r| r.at).collect();
    // (A static executable has no other entries.)
    let is_static = elf.is_static_executable();
    let stubs = [".plt", ".iplt"]
        .into_iter()
        .flat_map(|name| elf.ranges_named(name))
        .flat_map(|range| stubs_of(input, &range, |slot| is_static || chosen.contains(&slot)))
        .map(|at| (at, KnownFunction::Reads(0x3f)));
    stubs.chain(own).chain(imported).collect()
}

/// The first function of a position-independent executable without a loader: its entry point passes
/// it the dynamic section, and it applies the relocations from there. The tables that it reads may
/// be in a segment with the code, and their addresses are sums with values from the kernel, so
/// their ends are unknown.
fn relocator(elf: &Elf, input: &Input) -> Option<u64> {
    const MAX_ENTRY_INSTRUCTIONS: usize = 16;
    if !input.pie || !elf.is_static_executable() {
        return None;
    }
    let dynamic = elf
        .segments
        .iter()
        .find(|s| s.kind == elf::PT_DYNAMIC.0)?
        .vaddr;
    let mut given = false;
    for inst in Decoder::with_ip(
        64,
        input.bytes_at(elf.entry)?,
        elf.entry,
        DecoderOptions::NONE,
    )
    .into_iter()
    .take(MAX_ENTRY_INSTRUCTIONS)
    {
        given |= inst.mnemonic() == Mnemonic::Lea
            && inst.is_ip_rel_memory_operand()
            && inst.ip_rel_memory_address() == dynamic;
        match inst.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call | FlowControl::UnconditionalBranch if given => {
                return direct_target(&inst);
            }
            _ => return None,
        }
    }
    None
}

/// Known facts about a function by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownFunction {
    /// It reads memory through these arguments (bit n: argument n).
    Reads(u8),
    /// `mprotect`: a program that makes code writable counts as writing it.
    Protects,
    /// `mmap`: a program that replaces code by memory shared with itself counts as writing it.
    Maps,
    /// `dl_iterate_phdr`.
    Segments,
    /// `getauxval`.
    Auxiliary,
    /// It opens the file that an argument names.
    Opens,
    /// `syscall`.
    AnyCall,
    /// `arch_prctl`.
    SetsBases,
    /// `prctl`, which reads nothing of the program's code.
    SetsProcess,
    /// `ptrace`.
    Traces,
    /// It uses only the addresses themselves.
    Harmless,
}

/// Entries of a linkage table that jump through such words.
fn stubs_of(input: &Input, range: &Range<u64>, is_slot: impl Fn(u64) -> bool) -> Vec<u64> {
    let code = input.slice(range).unwrap_or(&[]);
    let distances = code.windows(4).zip(range.start..);
    distances
        .filter(|(distance, at)| {
            let distance = i32::from_le_bytes([distance[0], distance[1], distance[2], distance[3]]);
            is_slot((at + 4).wrapping_add_signed(distance.into()))
        })
        .flat_map(|(_, at)| entries_around(input, at))
        .map(|(start, _)| start)
        .collect()
}

/// Maximum distance between the words of a table, bytes. Source: Chosen.
pub(crate) const MAX_WORD_DISTANCE: u64 = 64;

/// Classifies a function by its name.
pub(crate) fn known(name: &str) -> Option<KnownFunction> {
    let name = name.split('@').next().unwrap_or(name);
    let reads =
        |arguments: &[u8]| Some(KnownFunction::Reads(arguments.iter().map(|n| 1 << n).sum()));
    match name {
        "memcpy" | "memmove" | "mempcpy" | "__memcpy_chk" | "__memmove_chk" | "__mempcpy_chk" => {
            reads(&[1])
        }
        "memcmp" | "bcmp" | "memmem" => reads(&[0, 1, 2]),
        "memchr" | "memrchr" | "rawmemchr" => reads(&[0]),
        "write" | "pwrite" | "pwrite64" | "send" | "sendto" => reads(&[1]),
        "fwrite" | "fwrite_unlocked" => reads(&[0]),
        "crc32" | "crc32_z" | "adler32" | "adler32_z" => reads(&[1]),
        "MD5_Update"
        | "SHA1_Update"
        | "SHA224_Update"
        | "SHA256_Update"
        | "SHA384_Update"
        | "SHA512_Update"
        | "EVP_DigestUpdate"
        | "HMAC_Update"
        | "gcry_md_write"
        | "XXH64_update"
        | "XXH32_update"
        | "XXH3_64bits_update"
        | "XXH3_128bits_update" => reads(&[1]),
        "MD5" | "SHA1" | "SHA224" | "SHA256" | "SHA384" | "SHA512" | "EVP_Digest" | "XXH64"
        | "XXH32" | "XXH3_64bits" | "XXH3_128bits" => reads(&[0]),
        "gcry_md_hash_buffer" => reads(&[2]),
        "HMAC" => reads(&[3]),
        "mprotect" | "pkey_mprotect" => Some(KnownFunction::Protects),
        "mmap" | "mmap64" => Some(KnownFunction::Maps),
        "syscall" => Some(KnownFunction::AnyCall),
        "arch_prctl" | "__arch_prctl" => Some(KnownFunction::SetsBases),
        "prctl" => Some(KnownFunction::SetsProcess),
        "ptrace" => Some(KnownFunction::Traces),
        "dl_iterate_phdr" | "__dl_iterate_phdr" => Some(KnownFunction::Segments),
        "getauxval" | "__getauxval" | "__getauxval2" => Some(KnownFunction::Auxiliary),
        "open" | "open64" | "openat" | "openat64" | "__open_2" | "__open64_2" | "__openat_2"
        | "__openat64_2" | "fopen" | "fopen64" | "freopen" | "freopen64" => {
            Some(KnownFunction::Opens)
        }
        "monstartup" | "__monstartup" | "printf" | "fprintf" | "sprintf" | "snprintf"
        | "dprintf" | "__printf_chk" | "__fprintf_chk" | "__sprintf_chk" | "__snprintf_chk"
        | "__dprintf_chk" | "syslog" | "__syslog_chk" => Some(KnownFunction::Harmless),
        _ => None,
    }
}
