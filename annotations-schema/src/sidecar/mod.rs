//! The annotation sidecar: the meaning of each record and each load of an instrumented file.
//!
//! # From slots to load addresses
//!
//! A record id leads to a [`Record`], and that to its [`Region`]. Once the records of one pass
//! through a region are known, its *sites* (loads, in program order) give the rows: `address =
//! payload(a) + payload(b) * scale + disp`, where `a` and `b` number the records of the region, see
//! [`Site`]. If two records share a slot of the ring ([`Record::slots`]), only
//! [`PAIR_BITS`](mgz_abi::slot::PAIR_BITS) of each payload are known, and the sum is taken modulo
//! 2⁴⁸. Sites that are *implied* (Constant loads folded into a proxy) give no row. Their number is
//! [`Region::implied_const`], and goes to the region's first row.

mod codec;
mod macros;
mod read;
#[cfg(test)]
mod tests;
mod validate;
pub(crate) mod write;

use crate::ProbeFlavour;
use serde::{Deserialize, Serialize};

/// No index.
pub const NONE: u32 = u32::MAX;
/// No record in [`Site::a`] and [`Site::b`].
pub const NO_RECORD: u8 = u8::MAX;

/// Load class: a scalar in the frame or at a fixed global address.
pub const CLASS_CONSTANT: u8 = 0;
/// Load class: the address is affine in a loop induction variable.
pub const CLASS_STRIDED: u8 = 1;
/// Load class: everything else, typically data-dependent.
pub const CLASS_IRREGULAR: u8 = 2;

crate::sidecar::macros::numbered! {
    /// Computation of a site's address from its payloads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    SiteKind {
        /// `payload(a) + payload(b)*scale + disp`; a missing record counts as 0 (so a site with neither
        /// is at the fixed address `bias + disp`, see [`SiteFlags::STATIC`]).
        Plain = 0,
        /// String instruction, possibly repeated: pointer in `a`, count register before in `b` (none:
        /// once), `size` is one element; one row of count × size bytes, none if the count is 0.
        String = 1,
        /// `repe`/`repne` string instruction: as `String`, but record `b + 1`, taken after the
        /// instruction, holds the count register after it; the difference is the number of elements
        /// read.
        StringUntil = 2,
        /// Gather: see [`Gather`]; one row per active lane, `size` is one lane.
        Gather = 3,
        /// `bt`-family with a register bit offset: `a` is the operand's address, `b` the offset
        /// register; the word read is at `a + size * floor(b / (8*size))`, `b` sign-extended from
        /// the operand size.
        BitString = 4,
        /// `xlat`: `a + (b & 0xff)`.
        Xlat = 5,
    }
}

crate::sidecar::macros::numbered! {
    /// Origin of a load's address, as far as data flow inside the function shows it
    /// ([`Site::origin`]). It is used only for texts of reports.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    Origin {
        /// The origin is not known, or is not another load.
        #[default]
        Unknown = 0,
        /// The address comes from the load's own value in the previous iteration, directly or
        /// through other loads: a list. [`Site::origin_site`] is the load where it begins.
        Chain = 1,
        /// As `Chain`, with a choice between several successors: a tree.
        Tree = 2,
        /// Another load's value plus a constant is the address.
        Pointer = 3,
        /// Another load's value is an index in the address.
        Index = 4,
        /// Computed from a key like hashes and random numbers (multiplied, divided, xored).
        /// `origin_site` is the key's load, if there is one.
        Hash = 5,
        /// The address comes from a range that is halved repeatedly.
        Search = 6,
        /// Affine, and the outer loop's step is smaller than the inner one's: a column of a matrix
        /// that is stored by rows.
        Column = 7,
        /// The address comes from a call's result, and nothing more is known.
        Call = 8,
    }
}

/// Bits of [`Site::flags`].
pub struct SiteFlags;
impl SiteFlags {
    /// A store (with `--stores`).
    pub const STORE: u8 = 1;
    /// A Constant load folded into its region's proxy: no row, counted in `implied_const`.
    pub const IMPLIED: u8 = 2;
    /// The load is not recorded; see [`Site::reason`].
    pub const UNRECORDED: u8 = 4;
    /// `disp` is a link-time address: add the load bias.
    pub const STATIC: u8 = 8;
    /// `stride` is known.
    pub const STRIDE_KNOWN: u8 = 16;
    /// The effective address is truncated to 32 bits (address-size prefix).
    pub const ADDR32: u8 = 32;
    /// The `Gather`'s index is 64-bit (else 32-bit, sign-extended).
    pub const INDEX64: u8 = 64;
    /// Read-modify-write.
    pub const RMW: u8 = 128;
}

/// Reasons why a load is not recorded ([`Site::reason`], with [`SiteFlags::UNRECORDED`]).
pub mod reason {
    /// No reason.
    pub const NONE: u8 = 0;
    /// No register was available for the payload.
    pub const NO_REGISTER: u8 = 1;
    /// The instruction's addressing mode is not supported.
    pub const UNSUPPORTED: u8 = 2;
    /// The segment base was not available.
    pub const SEGMENT: u8 = 3;
    /// The direction flag may be set.
    pub const DIRECTION: u8 = 4;
    /// Names for reports, by number.
    pub const NAMES: [&str; 5] = [
        "",
        "no free register",
        "unsupported instruction",
        "segment base unknown",
        "direction flag may be set",
    ];
}

/// Register number in operand literals: none.
pub const REG_NONE: u8 = 0xff;
/// Register number in operand literals: rip.
pub const REG_RIP: u8 = 0x10;

crate::sidecar::macros::table! {
    /// A load (or, with `--stores`, a store). Index: site id. Sorted by function, then `ip`.
    Site {
        /// Function index.
        function: u32 => Delta,
        /// Region index, or [`NONE`].
        region: u32 => Delta,
        /// Location index, or [`NONE`].
        location: u32 => Delta,
        /// Innermost loop that contains it: index into [`Sidecar::loops`] plus one, 0 if there is
        /// none. In older files without this column, no load is in a loop.
        in_loop: u32 => Varint,
        /// Bytes accessed (for strings and gathers: per element).
        size: u32 => Varint,
        /// Link-time address of the original instruction.
        ip: u64 => Delta,
        /// Link-time address of the instruction's copy in the clone.
        clone_ip: u64 => Delta,
        /// Displacement in the address formula.
        disp: i64 => Varint,
        /// Stride in bytes per iteration of the innermost loop in which the address is affine, with
        /// [`SiteFlags::STRIDE_KNOWN`].
        stride: i64 => Varint,
        /// Displacement literal of the operand.
        op_disp: i64 => Varint,
        /// If the address comes from another load's value: that load's site minus this one, else 0.
        /// In older files without this column and `origin`, the origin is unknown.
        origin_site: i64 => Varint,
        /// `CLASS_*`.
        class: u8 => Plain,
        /// [`SiteKind`] as a number.
        kind: u8 => Plain,
        /// [`SiteFlags`].
        flags: u8 => Plain,
        /// `reason::*`.
        reason: u8 => Plain,
        /// Record number inside the region, or [`NO_RECORD`].
        a: u8 => Plain,
        /// Record number inside the region, or [`NO_RECORD`].
        b: u8 => Plain,
        /// Factor of payload `b`.
        scale: u8 => Plain,
        /// Base register literal of the operand: hardware number, [`REG_RIP`] or [`REG_NONE`].
        op_base: u8 => Plain,
        /// Index register literal (for gathers the vector register's number).
        op_index: u8 => Plain,
        /// Scale literal.
        op_scale: u8 => Plain,
        /// Segment override: 0 none, 1 fs, 2 gs.
        op_seg: u8 => Plain,
        /// [`Origin`] as a number.
        origin: u8 => Plain,
    }
}

crate::sidecar::macros::table! {
    /// A part of a basic block whose records belong together. Index: region.
    Region {
        /// Function index.
        function: u32 => Delta,
        /// First record (module-local number; its id is `id_first` + this).
        first_record: u32 => Delta,
        /// Number of records.
        record_count: u32 => Varint,
        /// First site; the region's sites follow in program order.
        first_site: u32 => Delta,
        /// Number of sites.
        site_count: u32 => Varint,
        /// Constant loads implied by one pass through the whole region.
        implied_const: u32 => Varint,
    }
}

crate::sidecar::macros::table! {
    /// A record. Index: module-local record number.
    Record {
        /// Region index.
        region: u32 => Delta,
        /// Number of slots of 16 bytes that it takes, in either flavour: 0 if it shares that of the
        /// previous record. In the PT flavour it is written by [`ptwrites`] `ptwrite`s, see
        /// [`PtWrite::part`].
        slots: u32 => Varint,
        /// Soft: link-time clone address of the store of the id. If the second of two records that
        /// share a slot is written elsewhere, it is the address of the first one's payload store.
        /// PT: address of the (first) `ptwrite`.
        clone_ip: u64 => Delta,
        /// Link-time address of the original instruction before which the probe is (or after which,
        /// for the last record of [`SiteKind::StringUntil`]).
        ip: u64 => Delta,
    }
}

crate::sidecar::macros::table! {
    /// The `ptwrite`s of the PT flavour, sorted by `ip`. Empty in the soft flavour.
    PtWrite {
        /// Link-time clone address of the `ptwrite`.
        ip: u64 => Delta,
        /// Module-local record number.
        record: u32 => Delta,
        /// Part of the record: 0 is the payload of its first slot; parts 2k-1 and 2k are the low
        /// and the high eight bytes of its k-th raw slot. They are written in this order.
        part: u32 => Varint,
    }
}

crate::sidecar::macros::table! {
    /// Layout of a gather's lanes in its records. Record [`Site::a`] holds the operand's base
    /// register plus displacement. The records behind it hold the index vector, then the mask
    /// vector, eight bytes each. (If record `a` takes several slots, these bytes are in its raw
    /// slots instead, 16 in each.)
    Gather {
        /// Site id.
        site: u32 => Delta,
        /// Number of lanes.
        lanes: u32 => Varint,
        /// Bytes of one mask element; a lane is active if the element's top bit is set. 0: the mask is a
        /// bit field in the first 8 mask bytes.
        mask_bytes: u32 => Varint,
        /// Bytes of index vector; the mask starts behind it.
        index_bytes: u32 => Varint,
    }
}

crate::sidecar::macros::table! {
    /// A function (one piece of code with its own unwind entry, or one symbol).
    Function {
        /// Name: string index ([`NONE`] if there is no symbol).
        name: u32 => Delta,
        /// Reason why it was not instrumented: string index; [`NONE`] if it is instrumented.
        left: u32 => Varint,
        /// First byte of the original (link-time address).
        start: u64 => Delta,
        /// End (exclusive) of the original.
        end: u64 => Delta,
        /// First byte of the clone; 0 if not instrumented.
        clone_start: u64 => Delta,
        /// End (exclusive) of the clone.
        clone_end: u64 => Delta,
    }
}

crate::sidecar::macros::table! {
    /// A natural loop of the machine code. Index: loop. Loops come before the ones that enclose them.
    Loop {
        /// Function index.
        function: u32 => Delta,
        /// The loop around it, or [`NONE`].
        parent: u32 => Varint,
        /// Location of the branch back to its head (compilers use the line of `for` or `while`), or
        /// [`NONE`].
        location: u32 => Delta,
        /// Link-time address of its head's first instruction.
        header: u64 => Delta,
        /// Link-time address of the last branch back to its head.
        latch: u64 => Delta,
    }
}

crate::sidecar::macros::table! {
    /// A source position, with its inline chain.
    Location {
        /// Function name from the debug information (demangled): string index or [`NONE`].
        function: u32 => Delta,
        /// File: string index or [`NONE`].
        file: u32 => Delta,
        /// Line, 0 if unknown.
        line: u32 => Delta,
        /// Location of the call into which this code was inlined, or [`NONE`].
        inlined_into: u32 => Delta,
    }
}

/// Number of `ptwrite`s that write a record of this many slots: one for the first, two for each
/// further one.
pub const fn ptwrites(slots: u32) -> u32 {
    2 * slots.saturating_sub(1) + 1
}

/// The JSON header.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// `mgz-annotations`.
    pub format: String,
    /// [`SIDECAR_VERSION`](mgz_abi::module_note::SIDECAR_VERSION).
    pub version: u32,
    /// Name and version of the program that wrote it.
    pub tool: String,
    /// The input file.
    pub input: Input,
    /// Path of the instrumented file.
    pub output: String,
    /// `soft` or `pt`.
    pub flavour: ProbeFlavour,
    /// First record id.
    pub id_first: u32,
    /// Number of record ids.
    pub id_count: u32,
    /// Link-time address minus file offset of the clone (and of the file's first byte). With it, a
    /// mapping's address and file offset give the load bias.
    pub base: u64,
    /// The instrumentation report (see `mgz-instrument --format json`).
    pub report: serde_json::Value,
    /// Columns in the file.
    pub columns: Vec<StoredColumn>,
}

/// The file that was instrumented.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Input {
    /// Path as given.
    pub path: String,
    /// GNU build id, hex; empty if there is none.
    pub build_id: String,
    /// Hash of the bytes (XXH3, 64 bits), hex.
    pub hash: String,
    /// Size in bytes.
    pub size: u64,
}

/// Location of one column in the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredColumn {
    /// Table, e.g. `sites`; `strings` and `map` have one column each.
    pub table: String,
    /// Column name.
    pub name: String,
    /// Element type: `u8`, `u32`, `u64`, `i64`, or `utf8` (consecutive zero-terminated strings).
    pub kind: String,
    /// Number of elements (for `utf8`: of strings).
    pub rows: u64,
    /// `raw`; or `zstd`, in one or more frames; or, compressed in the same way, `varint`: each
    /// element as LEB128 with its sign in the lowest bit (0, -1, 1, -2 become 0, 1, 2, 3), or
    /// `delta`: in the same form, the difference of each to the previous one (0 before the first),
    /// modulo the type's width. (Older files use only the first two.)
    pub encoding: String,
    /// Offset from the end of the header (which is padded to a multiple of 8).
    pub offset: u64,
    /// Stored length in bytes.
    pub bytes: u64,
    /// Length in bytes after decompression.
    pub raw_bytes: u64,
}

/// A sidecar in memory.
#[derive(Clone, Debug, Default)]
pub struct Sidecar {
    /// [`Prelude::id`](mgz_abi::module_note::Prelude::id).
    pub id: [u8; 16],
    /// The JSON header. `columns` is filled in by [`Sidecar::write`].
    pub header: Header,
    /// Functions, sorted by `start`.
    pub functions: Vec<Function>,
    /// Sites.
    pub sites: Vec<Site>,
    /// Regions.
    pub regions: Vec<Region>,
    /// Records.
    pub records: Vec<Record>,
    /// `ptwrite`s.
    pub ptwrites: Vec<PtWrite>,
    /// Gathers, sorted by site.
    pub gathers: Vec<Gather>,
    /// Loops.
    pub loops: Vec<Loop>,
    /// Source locations.
    pub locations: Vec<Location>,
    /// Strings.
    pub strings: Vec<String>,
    /// The address map as bytes, see [`MapHeader`](mgz_abi::address_map::MapHeader).
    pub map: Vec<u8>,
}

/// Errors of a sidecar.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The file could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is not a sidecar.
    #[error("not an mgz sidecar (it does not begin with MGZA)")]
    NotASidecar,
    /// Written by another version.
    #[error(
        "sidecar format version {found} is not supported (this mgz reads version {}); instrument the program again with this mgz",
        mgz_abi::module_note::SIDECAR_VERSION
    )]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// Truncated or damaged.
    #[error("damaged sidecar: {0}; instrument the program again")]
    Damaged(String),
}

impl Sidecar {
    /// The string with this index; empty for [`NONE`] and out-of-range indices.
    pub fn string(&self, index: u32) -> &str {
        self.strings.get(index as usize).map_or("", String::as_str)
    }

    /// Identity in hex, as in the manifest.
    pub fn id_hex(&self) -> String {
        self.id.iter().map(|b| format!("{b:02x}")).collect()
    }
}
