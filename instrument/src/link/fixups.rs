//! Resolves references of clones: branch targets, jump tables, record ids, and calls of the
//! replacement of `sigaction`.

use crate::emit;
use crate::emit::{CopiedJumpTable, Emitted, Fixup, FixupKind};
use crate::ir::jump_table::TableForm;
use crate::link::fault_shim;
use crate::link::layout::{LayoutInput, Placed};
use crate::link::segment::{FILLER, OutputSegment, out_of_reach};
use crate::signals::{THROUGH, Wrapped};
use crate::util::range_index::Starts;
use mgz_elf::Refusal;
use mgz_elf::image::Elf;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// ModRM of `call [rip + distance]`.
const CALL_THROUGH: u8 = 0x15;

/// Finds clones of original addresses.
pub struct Resolver<'a> {
    clones: &'a [Box<Emitted>],
    addrs: &'a [u64],
    /// The originals.
    starts: Starts,
    /// Per clone: the position of the original's first byte. Most calls go there, and reading the
    /// clone itself would be a cache miss.
    entries: Vec<Option<u32>>,
    /// Thunks of translated clones, by target and kind of the branch (true for a call).
    pub thunks: BTreeMap<(u64, bool), u64>,
}

impl<'a> Resolver<'a> {
    /// A resolver for the clones at addresses `addrs`; there are no thunks yet.
    pub fn new(clones: &'a [Box<Emitted>], addrs: &'a [u64]) -> Resolver<'a> {
        Resolver {
            clones,
            addrs,
            starts: Starts::of(clones.iter().map(|c| &c.range)),
            entries: clones
                .par_iter()
                .map(|c| c.clone_of(c.range.start))
                .collect(),
            thunks: BTreeMap::new(),
        }
    }

    /// True if the originals of clones cover a whole range.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.starts.covers(range)
    }

    /// Bytes of all thunks.
    pub fn thunk_bytes(&self) -> usize {
        self.thunks.len() * emit::THUNK_BYTES
    }

    /// Address in a clone for an original address.
    pub fn clone_of(&self, address: u64) -> Option<u64> {
        let (i, is_start) = self.starts.find_start(address)?;
        let offset = if is_start {
            self.entries[i]
        } else {
            self.clones[i].clone_of(address)
        };
        offset.map(|offset| self.addrs[i] + u64::from(offset))
    }

    /// Target of a clone's branch to an original address.
    fn branch(&self, address: u64, call: bool) -> u64 {
        self.clone_of(address)
            .or_else(|| self.thunks.get(&(address, call)).copied())
            .unwrap_or(address)
    }

    /// Assigns places from `at` on to thunks for all addresses without clones.
    pub fn place_thunks(&mut self, at: u64) {
        let of_clone = |c: &Emitted| {
            let branches = c.fixups.iter().filter_map(|f| match f.kind {
                FixupKind::Code(target) => Some((target, false)),
                FixupKind::Call(target) => Some((target, true)),
                _ => None,
            });
            let tables = c
                .tables
                .iter()
                .flat_map(|t| &t.targets)
                .map(|&t| (t, false));
            branches
                .chain(tables)
                .filter(|&(target, _)| self.clone_of(target).is_none())
                .collect::<Vec<_>>()
        };
        let wanted: BTreeSet<(u64, bool)> = self
            .clones
            .par_iter()
            .flat_map_iter(|c| of_clone(c))
            .collect();
        self.thunks = wanted
            .into_iter()
            .zip((at..).step_by(emit::THUNK_BYTES))
            .collect();
    }
}

/// Places of the copied jump tables.
pub struct PlacedTables {
    /// Start of all tables.
    pub start: u64,
    /// Places of each clone's tables.
    pub places: Vec<Vec<u64>>,
}

/// Assigns places to the jump tables.
pub fn place_tables(parts: &LayoutInput, segment: &mut OutputSegment) -> PlacedTables {
    let start = segment.align(8);
    let size = |t: &CopiedJumpTable| {
        t.targets.len()
            * if matches!(t.form, TableForm::Absolute8) {
                8
            } else {
                4
            }
    };
    let places = parts.clones.iter().map(|c| {
        // Interpreters jump through one table at many places; one copy serves all of them.
        let mut known: HashMap<(u64, TableForm, usize), u64> = HashMap::new();
        let mut place = |t: &CopiedJumpTable| {
            *known
                .entry((t.original, t.form, t.targets.len()))
                .or_insert_with(|| {
                    let at = segment.align(if matches!(t.form, TableForm::Absolute8) {
                        8
                    } else {
                        4
                    });
                    segment.bytes.resize(segment.bytes.len() + size(t), 0);
                    at
                })
        };
        c.tables.iter().map(&mut place).collect()
    });
    PlacedTables {
        start,
        places: places.collect(),
    }
}

/// The content of a jump table, with the clones' addresses.
pub fn table_bytes(table: &CopiedJumpTable, resolver: &Resolver) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    for &original in &table.targets {
        let target = resolver.branch(original, false);
        match table.form {
            TableForm::Absolute8 => out.extend_from_slice(&target.to_le_bytes()),
            TableForm::Relative { anchor } => {
                let entry = i32::try_from(target.wrapping_sub(anchor) as i64)
                    .map_err(|_| out_of_reach())?;
                out.extend_from_slice(&entry.to_le_bytes());
            }
        }
    }
    Ok(out)
}

/// Fills in the parts of the clones' code that depend on addresses.
pub struct CodeFixups<'a> {
    /// Inputs of the layout.
    pub parts: &'a LayoutInput<'a>,
    /// Places of the clones.
    pub placed: &'a Placed,
    /// Finds the targets of branches.
    pub resolver: &'a Resolver<'a>,
    /// Places of each clone's jump tables.
    pub tables: &'a [Vec<u64>],
    /// End of the clones.
    pub end: u64,
    /// The code of [`fault_shim`].
    pub shown_at: Option<u64>,
}

impl CodeFixups<'_> {
    /// Resolves the fixups of all clones, and adds the filler after each.
    pub fn fill(&self, codes: &mut [Vec<u8>]) -> Result<(), Refusal> {
        codes.par_iter_mut().enumerate().try_for_each(|(i, piece)| {
            let at = self.placed.clones[i];
            for f in self.parts.clones[i].fixups.iter() {
                let value = self.value(i, &f, piece).ok_or_else(out_of_reach)?;
                piece[f.at as usize..f.at as usize + 4].copy_from_slice(&value);
                self.call_shim(at, &f, piece).ok_or_else(out_of_reach)?;
            }
            let next = self.placed.clones.get(i + 1).copied().unwrap_or(self.end);
            piece.resize((next - at) as usize, FILLER);
            Ok(())
        })
    }

    /// The bytes of a fixup in clone number `i`; `None` if something is out of reach.
    fn value(&self, i: usize, f: &Fixup, piece: &[u8]) -> Option<[u8; 4]> {
        let id_first = self.parts.id_first + self.placed.records[i];
        Some(match f.kind {
            FixupKind::RecordId(number) => {
                // The field already shows if two records share the slot.
                let at = f.at as usize;
                let shares =
                    u32::from_le_bytes([piece[at], piece[at + 1], piece[at + 2], piece[at + 3]]);
                (shares | (id_first + number)).to_le_bytes()
            }
            FixupKind::Counter(number) => {
                mgz_abi::counters::displacement(id_first + number)?.to_le_bytes()
            }
            _ => {
                let (clone, at) = (&self.parts.clones[i], self.placed.clones[i]);
                fixup(f, at, self.resolver, &self.tables[i], &clone.tables)?.to_le_bytes()
            }
        })
    }

    /// Turns a call of `sigaction` in the clone at `at` into a direct call of its replacement.
    /// Other fixups change nothing. `None` if the replacement is out of reach.
    fn call_shim(&self, at: u64, f: &Fixup, piece: &mut [u8]) -> Option<()> {
        if let (FixupKind::Original(slot), Some(wrapped), Some(shown)) =
            (f.kind, self.parts.wrapped, self.shown_at)
            && wrapped.slots.contains(&slot)
        {
            // No other instruction refers to the word.
            let through = &mut piece[f.end as usize - THROUGH as usize..f.end as usize];
            let is_call = through[1] == CALL_THROUGH;
            through.copy_from_slice(&direct(at + u64::from(f.end), is_call, shown)?);
        }
        Some(())
    }
}

/// Distance or displacement of a fixup that refers to an address.
fn fixup(
    f: &Fixup,
    clone: u64,
    resolver: &Resolver,
    places: &[u64],
    tables: &[CopiedJumpTable],
) -> Option<i32> {
    let end = clone + u64::from(f.end);
    let value = match f.kind {
        FixupKind::Original(target) => target.wrapping_sub(end) as i64,
        FixupKind::Code(target) => resolver.branch(target, false).wrapping_sub(end) as i64,
        FixupKind::Call(target) => resolver.branch(target, true).wrapping_sub(end) as i64,
        FixupKind::Table { table, disp } => {
            let moved = places
                .get(table as usize)?
                .wrapping_sub(tables.get(table as usize)?.original) as i64;
            moved.checked_add(disp.into())?
        }
        FixupKind::RecordId(_) | FixupKind::Counter(_) => return None,
    };
    i32::try_from(value).ok()
}

/// The original's calls and jumps through the words of `wrapped`, changed to direct ones to the
/// code at `shown`: file offsets and bytes.
pub fn redirected(
    elf: &Elf,
    wrapped: &Wrapped,
    shown: u64,
) -> Result<Vec<(u64, Vec<u8>)>, Refusal> {
    let one = |&(end, is_call): &(u64, bool)| {
        let offset = elf
            .file_offset(end - THROUGH)
            .ok_or_else(|| Refusal::failed("a call of sigaction lies outside of the file"))?;
        Ok((
            offset,
            direct(end, is_call, shown)
                .ok_or_else(out_of_reach)?
                .to_vec(),
        ))
    };
    wrapped.uses.iter().map(one).collect()
}

/// A direct call or jump to the replacement of `sigaction`, for one through a word that ends at
/// `end`. A call must end at the same address, for its return address.
fn direct(end: u64, is_call: bool, shown: u64) -> Option<[u8; THROUGH as usize]> {
    const NOP: u8 = 0x90;
    let [a, b, c, d] = i32::try_from(fault_shim::sigaction(shown).wrapping_sub(end) as i64)
        .ok()?
        .to_le_bytes();
    Some([NOP, if is_call { 0xe8 } else { 0xe9 }, a, b, c, d])
}
