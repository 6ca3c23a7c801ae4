//! Builds the sidecar: functions, sites, regions, records and the address map, with final addresses.

use crate::emit::{Emitted, leb128, state_key as key};
use crate::hash::FastMap;
use crate::layout::Placed;
use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::abi::{MapFunction, MapHeader, ProbeState};
use mgz_annotations_schema::addrmap::AddrMap;
use mgz_annotations_schema::sidecar::{Function, Gather, Loop, NONE, PtWrite, Record, Region, Site};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

/// One function of the input, for the sidecar.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Readable name, empty if unknown.
    pub name: String,
    /// Original bytes.
    pub range: Range<u64>,
    /// Why it was left alone.
    pub left: Option<String>,
    /// Index of its clone.
    pub clone: Option<usize>,
}

/// Strings without repetition.
#[derive(Debug, Default)]
pub struct Strings {
    numbers: HashMap<String, u32>,
    list: Vec<String>,
}

impl Strings {
    /// Number of a string; [`NONE`] for the empty one.
    pub fn add(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return NONE;
        }
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.list.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.list.push(text.to_owned());
        number
    }

    /// All strings, by number.
    pub fn into_list(self) -> Vec<String> {
        self.list
    }
}

/// The address map's bytes, see [`MapHeader`].
pub fn address_map(clones: &[Emitted], placed: &Placed) -> Vec<u8> {
    let mut numbers: FastMap<u128, u32> = FastMap::from_iter([(key(&ProbeState::IDLE), 0)]);
    let mut states = vec![ProbeState::IDLE];
    let mut global = |s: &ProbeState| {
        *numbers.entry(key(s)).or_insert_with(|| {
            states.push(*s);
            states.len() as u32 - 1
        })
    };
    let translations: Vec<Vec<u32>> = clones.iter().map(|c| c.states.iter().map(&mut global).collect()).collect();
    let streams: Vec<Vec<u8>> = clones.par_iter().zip(&translations).map(|(c, t)| renumber(&c.stream, t)).collect();
    let mut functions = Vec::with_capacity(clones.len());
    let mut offset = 0u32;
    for ((clone, &at), stream) in clones.iter().zip(&placed.clones).zip(&streams) {
        functions.push(MapFunction {
            clone_start: at as u32,
            clone_end: at as u32 + clone.code.len() as u32,
            orig_start: clone.range.start as u32,
            stream: offset,
        });
        offset += stream.len() as u32;
    }
    let header = MapHeader { functions: functions.len() as u32, states: states.len() as u32, stream_len: offset.into() };
    let mut out = Vec::with_capacity(16 + 16 * (functions.len() + states.len()) + offset as usize);
    out.extend_from_slice(&header.functions.to_le_bytes());
    out.extend_from_slice(&header.states.to_le_bytes());
    out.extend_from_slice(&header.stream_len.to_le_bytes());
    for f in functions {
        for word in [f.clone_start, f.clone_end, f.orig_start, f.stream] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    for s in states {
        out.extend_from_slice(&s.bytes());
    }
    for s in streams {
        out.extend_from_slice(&s);
    }
    let marks = marks(&out, offset as usize);
    out.extend_from_slice(&marks);
    out
}

/// Marks inside the functions of a map that has none yet.
fn marks(map: &[u8], stream_len: usize) -> Vec<u8> {
    /// Instructions between two marks.
    const EVERY: usize = 32;
    let Some(map) = AddrMap::new(map) else { return Vec::new() };
    let of = |function: usize| {
        let mut marks = Vec::new();
        let Some(mut walk) = map.walk(function) else { return marks };
        while walk.by_ref().take(EVERY).count() == EVERY {
            let m = walk.mark(stream_len);
            marks.extend([m.clone, m.orig, m.stream, m.state].into_iter().flat_map(u32::to_le_bytes));
        }
        marks
    };
    let all: Vec<Vec<u8>> = (0..map.len()).into_par_iter().map(of).collect();
    all.concat()
}

/// A function's stream with the file's state numbers.
fn renumber(stream: &[u8], numbers: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len());
    let mut bytes = stream.iter();
    while let Some(&byte) = bytes.next() {
        out.push(byte);
        if byte == 0 {
            let mut number = 0u32;
            for (i, b) in bytes.by_ref().enumerate() {
                number |= u32::from(b & 0x7f) << (7 * i);
                if b & 0x80 == 0 {
                    break;
                }
            }
            leb128(&mut out, numbers.get(number as usize).copied().unwrap_or(0).into());
        }
    }
    out
}

/// Fills the sidecar's tables but for locations.
pub fn tables(entries: &[Entry], clones: &[Emitted], placed: &Placed, strings: &mut Strings) -> Sidecar {
    let mut sidecar = Sidecar::default();
    let mut function_of = vec![0u32; clones.len()];
    for (number, e) in entries.iter().enumerate() {
        let mut row = Function {
            name: strings.add(&e.name),
            left: e.left.as_ref().map_or(NONE, |why| strings.add(why)),
            start: e.range.start,
            end: e.range.end,
            clone_start: 0,
            clone_end: 0,
        };
        if let Some(clone) = e.clone {
            function_of[clone] = number as u32;
            row.clone_start = placed.clones[clone];
            row.clone_end = row.clone_start + clones[clone].code.len() as u64;
        }
        sidecar.functions.push(row);
    }
    for (i, clone) in clones.iter().enumerate() {
        let (function, at) = (function_of[i], placed.clones[i]);
        let (first_record, first_region, first_site) = (placed.records[i], sidecar.regions.len() as u32, sidecar.sites.len() as u32);
        let rows = &clone.rows;
        sidecar.regions.extend(rows.regions.iter().map(|r| Region {
            function,
            first_record: first_record + r.first_record,
            first_site: first_site + r.first_site,
            ..*r
        }));
        sidecar.records.extend(rows.records.iter().map(|r| Record { region: first_region + r.region, clone_ip: at + r.clone_ip, ..*r }));
        let first_loop = sidecar.loops.len() as u32;
        sidecar.loops.extend(rows.loops.iter().map(|l| Loop { function, parent: if l.parent == NONE { NONE } else { first_loop + l.parent }, ..*l }));
        let in_loop = |number: u32| if number == 0 { 0 } else { first_loop + number };
        sidecar.sites.extend(rows.sites.iter().map(|s| Site { function, region: first_region + s.region, clone_ip: at + s.clone_ip, in_loop: in_loop(s.in_loop), ..*s }));
        sidecar.ptwrites.extend(rows.ptwrites.iter().map(|p| PtWrite { ip: at + p.ip, record: first_record + p.record, ..*p }));
        sidecar.gathers.extend(rows.gathers.iter().map(|g| Gather { site: first_site + g.site, ..*g }));
    }
    sidecar.map = address_map(clones, placed);
    sidecar
}
