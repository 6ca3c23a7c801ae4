//! Names of code that is generated at run time.
//!
//! A just-in-time compiler writes code into memory that belongs to no file. Compilers that want to
//! be profiled describe this code in one of three ways:
//!
//! - a *perf map* ([`perf_map`]): a text file `/tmp/perf-PID.map`, one line for each function. It
//!   has no times. If ranges overlap, the last line counts;
//! - a *jitdump file* ([`jitdump`]): a binary file that the process has mapped. Each record has a
//!   time, so a reused address has the name that was valid at the time of the sample;
//! - *GDB's interface* ([`gdb_interface`]): a list of ELF files in the process's memory, which is
//!   read while the process lives.
//!
//! The readers take bytes and are pure. [`watch`] finds files and memory of processes. [`naming`]
//! finds the function at an address and time. An address that no source covers has no name.

pub mod address_paint;
pub mod gdb_interface;
pub mod jitdump;
pub mod names_of_v8;
pub mod naming;
pub mod perf_map;
pub mod process_files;
pub mod runtimes;
pub mod watch;

/// Source of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameSource {
    /// `/tmp/perf-PID.map`.
    #[default]
    PerfMap,
    /// GDB's interface.
    Gdb,
    /// `jit-PID.dump`.
    Jitdump,
}

impl NameSource {
    /// The source's name in traces.
    pub fn name(self) -> &'static str {
        match self {
            NameSource::PerfMap => "perf map",
            NameSource::Gdb => "GDB interface",
            NameSource::Jitdump => "jitdump",
        }
    }
}

/// A function that a compiler has generated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GeneratedName {
    /// Name of the function.
    pub function: String,
    /// Kind of its code by the compiler (`optimized`); empty if unknown.
    pub tier: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Source of the name.
    pub source: NameSource,
}

impl GeneratedName {
    /// Parses a name in the compiler's format.
    pub fn of_text(text: &str, source: NameSource) -> GeneratedName {
        let text = text.trim();
        let mut name = names_of_v8::parse(text).unwrap_or_else(|| GeneratedName {
            function: text.to_owned(),
            ..GeneratedName::default()
        });
        name.source = source;
        name
    }
}

/// A range of addresses that was one function for some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedBlock {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// CLOCK_MONOTONIC at its start, ns; 0 if unknown.
    pub begin_ns: u64,
    /// CLOCK_MONOTONIC at its end, ns; `u64::MAX` if it did not end or the end is unknown.
    pub end_ns: u64,
    /// The function.
    pub name: GeneratedName,
}
