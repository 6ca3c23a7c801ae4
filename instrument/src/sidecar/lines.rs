//! Source positions with their inline chains, from DWARF.
//!
//! A look-up costs microseconds and programs have millions of sites, so neighbouring sites share
//! the work (a line-table row covers several instructions), and threads share the sites.

use crate::emit::SidecarRows;
use crate::sidecar::Strings;
use addr2line::gimli;
use addr2line::gimli::{EndianSlice, LittleEndian, SectionId};
use mgz_annotations_schema::sidecar::{Location, NONE};
use mgz_elf::Elf;
use mgz_elf::debug_files::DebugSource;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;

/// One frame: function name, file, line.
type Frame = (String, String, u32);

/// A chain of frames, innermost first.
type Chain = Vec<Frame>;

/// Sites that one task looks up.
const CHUNK: usize = 4096;

/// Content of a debug section, decompressed if needed.
fn section<'a>(elf: &Elf<'a>, id: SectionId) -> Cow<'a, [u8]> {
    use object::{Object, ObjectSection};
    let Some(s) = elf.section(id.name()) else {
        return Cow::Borrowed(&[]);
    };
    if s.flags & object::elf::SHF_COMPRESSED.0 == 0 {
        return Cow::Borrowed(elf.section_bytes(s).unwrap_or(&[]));
    }
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(elf.data).ok();
    let data = file
        .as_ref()
        .and_then(|f| f.section_by_name(id.name()))
        .and_then(|s| s.uncompressed_data().ok());
    data.map_or(Cow::Borrowed(&[]), |d| Cow::Owned(d.into_owned()))
}

/// Fills in `location` of all sites and loops and returns the locations that they refer to.
pub fn locate(
    elf: &Elf,
    source: &DebugSource,
    rows: &mut [&mut SidecarRows],
    strings: &mut Strings,
) -> Vec<Location> {
    let (main, supplementary, whole) = match source {
        DebugSource::Nothing => return Vec::new(),
        DebugSource::Own { whole } => (None, None, *whole),
        DebugSource::Files {
            main,
            supplementary,
        } => (Some(main), supplementary.as_ref(), true),
    };
    let load = |id: SectionId| Ok::<_, gimli::Error>(section(elf, id));
    let Ok(sections) = gimli::DwarfSections::load(load) else {
        return Vec::new();
    };
    let context = || match main {
        Some(main) => addr2line::Loader::new_with_sup(main, supplementary)
            .ok()
            .map(|loader| Context::Files(Box::new(loader))),
        None => {
            addr2line::Context::from_dwarf(sections.borrow(|s| EndianSlice::new(s, LittleEndian)))
                .ok()
                .map(|context| Context::Own(Box::new(context), whole))
        }
    };
    // A loop has the position of its back edge, or otherwise of its head.
    let of_loops = rows
        .iter()
        .flat_map(|r| &r.loops)
        .flat_map(|l| [l.latch, l.header]);
    let ips: Vec<u64> = rows
        .iter()
        .flat_map(|r| &r.sites)
        .map(|s| s.ip)
        .chain(of_loops)
        .collect();
    let chains: Vec<(Vec<Chain>, Vec<u32>)> = ips
        .par_chunks(CHUNK)
        .map_init(context, |context, ips| {
            context.as_ref().map_or_else(
                || (vec![Vec::new()], vec![0; ips.len()]),
                |c| look_up(c, ips),
            )
        })
        .collect();
    let mut table = Table {
        strings,
        locations: Vec::new(),
        numbers: HashMap::new(),
    };
    let mut found = Vec::with_capacity(ips.len());
    for (chains, indices) in chains {
        let numbers: Vec<u32> = chains.iter().map(|c| table.add(c)).collect();
        found.extend(indices.into_iter().map(|index| numbers[index as usize]));
    }
    let (of_sites, of_loops) = found.split_at(rows.iter().map(|r| r.sites.len()).sum());
    rows.iter_mut()
        .flat_map(|r| &mut r.sites)
        .zip(of_sites)
        .for_each(|(site, &location)| site.location = location);
    let named = |location: &u32| {
        table
            .locations
            .get(*location as usize)
            .is_some_and(|l| l.line > 0)
    };
    for (l, places) in rows
        .iter_mut()
        .flat_map(|r| &mut r.loops)
        .zip(of_loops.chunks_exact(2))
    {
        l.location = places.iter().copied().find(named).unwrap_or(places[0]);
    }
    table.locations
}

/// Source in which positions are looked up.
enum Context<'a> {
    /// In the file's own sections. True if these describe functions, false for files and lines
    /// only.
    Own(Box<addr2line::Context<EndianSlice<'a, LittleEndian>>>, bool),
    /// In other files.
    Files(Box<addr2line::Loader>),
}

impl Context<'_> {
    /// The frames at an address, or only the line if functions are unknown.
    fn frames(&self, ip: u64) -> Chain {
        let line = |location: Option<addr2line::Location>| {
            location.map_or_else(Vec::new, |l| {
                vec![(
                    String::new(),
                    l.file.unwrap_or("").to_owned(),
                    l.line.unwrap_or(0),
                )]
            })
        };
        match self {
            Context::Own(context, true) => context
                .find_frames(ip)
                .skip_all_loads()
                .map_or_else(|_| Vec::new(), chain),
            Context::Own(context, false) => line(context.find_location(ip).ok().flatten()),
            Context::Files(loader) => loader
                .find_frames(ip)
                .map(chain)
                .ok()
                .filter(|chain| !chain.is_empty())
                .unwrap_or_else(|| line(loader.find_location(ip).ok().flatten())),
        }
    }
}

/// The distinct chains of some addresses, and for each address the number of its chain.
fn look_up(context: &Context, ips: &[u64]) -> (Vec<Chain>, Vec<u32>) {
    let mut numbers: HashMap<Chain, u32> = HashMap::new();
    let mut chains: Vec<Chain> = Vec::new();
    let mut indices = Vec::with_capacity(ips.len());
    let mut previous = None;
    for &ip in ips {
        if previous != Some(ip) || indices.is_empty() {
            let chain = context.frames(ip);
            let number = *numbers.entry(chain).or_insert_with_key(|c| {
                chains.push(c.clone());
                chains.len() as u32 - 1
            });
            indices.push(number);
        } else if let Some(&last) = indices.last() {
            indices.push(last);
        }
        previous = Some(ip);
    }
    (chains, indices)
}

fn chain<R: gimli::Reader>(mut frames: addr2line::FrameIter<R>) -> Chain {
    let mut chain = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        let name = frame
            .function
            .as_ref()
            .and_then(|f| f.raw_name().ok())
            .map_or_else(String::new, |n| mgz_elf::demangle::readable(&n));
        let (file, line) = frame
            .location
            .map_or(("", 0), |l| (l.file.unwrap_or(""), l.line.unwrap_or(0)));
        if !name.is_empty() || !file.is_empty() {
            chain.push((name, file.to_owned(), line));
        }
    }
    chain
}

/// Locations without repetition.
struct Table<'a> {
    strings: &'a mut Strings,
    locations: Vec<Location>,
    numbers: HashMap<(u32, u32, u32, u32), u32>,
}

impl Table<'_> {
    /// The number of a chain's innermost frame. Outer frames come first in the table.
    fn add(&mut self, chain: &[Frame]) -> u32 {
        let mut outer = NONE;
        for (function, file, line) in chain.iter().rev() {
            let row = Location {
                function: self.strings.add(function),
                file: self.strings.add(file),
                line: *line,
                inlined_into: outer,
            };
            let key = (row.function, row.file, row.line, row.inlined_into);
            outer = *self.numbers.entry(key).or_insert_with(|| {
                self.locations.push(row);
                self.locations.len() as u32 - 1
            });
        }
        outer
    }
}
