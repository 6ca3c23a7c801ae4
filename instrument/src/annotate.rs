//! Builds the sidecar: functions, sites, regions, records and the address map, with final addresses.

use crate::emit::{Emitted, Rows, state_key as key};
use crate::hash::FastMap;
use crate::layout::Placed;
use mgz_annotations_schema::{Content, Sidecar, SidecarError};
use mgz_annotations_schema::abi::{MapFunction, MapHeader, ProbeState};
use mgz_annotations_schema::addrmap::AddrMap;
use mgz_annotations_schema::sidecar::{Function, Header, Location, NONE};
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
pub fn address_map(clones: &[Box<Emitted>], placed: &Placed) -> Vec<u8> {
    let mut numbers: FastMap<u128, u32> = FastMap::from_iter([(key(&ProbeState::IDLE), 0)]);
    let mut states = vec![ProbeState::IDLE];
    let mut global = |s: &ProbeState| {
        *numbers.entry(key(s)).or_insert_with(|| {
            states.push(*s);
            states.len() as u32 - 1
        })
    };
    let translations: Vec<Vec<u32>> = clones.iter().map(|c| c.states.iter().map(&mut global).collect()).collect();
    let lens: Vec<usize> = clones
        .par_iter()
        .zip(&translations)
        .map(|(c, t)| {
            // Numbers of one byte before and after leave the length as it is.
            if t.len() <= 0x80 && t.iter().all(|&number| number < 0x80) {
                return c.stream.len();
            }
            let mut len = 0;
            renumber(&c.stream, t, |_| len += 1);
            len
        })
        .collect();
    let mut functions = Vec::with_capacity(clones.len());
    let mut offset = 0u32;
    for ((clone, &at), len) in clones.iter().zip(&placed.clones).zip(&lens) {
        functions.push(MapFunction {
            clone_start: at as u32,
            clone_end: at as u32 + clone.code.len() as u32,
            orig_start: clone.range.start as u32,
            stream: offset,
        });
        offset += *len as u32;
    }
    let header = MapHeader { functions: functions.len() as u32, states: states.len() as u32, stream_len: offset.into() };
    let mut out = Vec::with_capacity(16 + 16 * (functions.len() + states.len()));
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
    let head = out;
    let len = head.len() + offset as usize;
    // Room for the marks (16 bytes for 32 instructions of a byte or more each), in memory that nobody has touched yet.
    let mut out = vec![0; len + offset as usize / 2];
    out.truncate(len);
    let (start, mut rest) = out.split_at_mut(head.len());
    start.copy_from_slice(&head);
    let mut pieces = Vec::with_capacity(clones.len());
    for len in lens {
        let (piece, behind) = rest.split_at_mut(len);
        pieces.push(piece);
        rest = behind;
    }
    pieces.into_par_iter().zip(clones.par_iter().zip(&translations)).for_each(|(piece, (c, t))| {
        if t.iter().zip(0..).all(|(&to, from)| to == from) {
            return piece.copy_from_slice(&c.stream);
        }
        let mut at = 0;
        renumber(&c.stream, t, |byte| {
            piece[at] = byte;
            at += 1;
        });
    });
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

/// Tells the bytes of a function's stream, with the file's state numbers.
fn renumber(stream: &[u8], numbers: &[u32], mut put: impl FnMut(u8)) {
    let mut bytes = stream.iter();
    while let Some(&byte) = bytes.next() {
        put(byte);
        if byte == 0 {
            let mut number = 0u32;
            for (i, b) in bytes.by_ref().enumerate() {
                number |= u32::from(b & 0x7f) << (7 * i);
                if b & 0x80 == 0 {
                    break;
                }
            }
            let mut value = numbers.get(number as usize).copied().unwrap_or(0);
            while value >= 0x80 {
                put(value as u8 | 0x80);
                value >>= 7;
            }
            put(value as u8);
        }
    }
}

/// A sidecar in the making: the rows of each clone lie where its emission put them.
#[derive(Debug, Default)]
pub struct Annotations {
    /// Identity.
    pub id: [u8; 16],
    /// The header; the report is still to be put in.
    pub header: Header,
    /// Functions.
    pub functions: Vec<Function>,
    /// Rows per clone.
    pub rows: Vec<Rows>,
    /// Source positions.
    pub locations: Vec<Location>,
    /// Strings.
    pub strings: Vec<String>,
    /// The address map.
    pub map: Vec<u8>,
}

impl Annotations {
    /// What is to be written.
    pub fn content(&self) -> Content<'_> {
        fn runs<'a, R>(rows: &'a [Rows], of: impl Fn(&'a Rows) -> &'a [R]) -> Vec<&'a [R]> {
            rows.iter().map(of).filter(|run| !run.is_empty()).collect()
        }
        Content {
            id: self.id,
            header: self.header.clone(),
            functions: vec![&self.functions],
            sites: runs(&self.rows, |r| &r.sites),
            regions: runs(&self.rows, |r| &r.regions),
            records: runs(&self.rows, |r| &r.records),
            ptwrites: runs(&self.rows, |r| &r.ptwrites),
            gathers: runs(&self.rows, |r| &r.gathers),
            loops: runs(&self.rows, |r| &r.loops),
            locations: vec![&self.locations],
            strings: &self.strings,
            map: &self.map,
        }
    }

    /// The sidecar as its readers see it.
    pub fn sidecar(&self) -> Result<Sidecar, SidecarError> {
        Sidecar::from_bytes(&self.content().encode()?.to_bytes())
    }
}

/// Rows of all functions.
pub fn functions(entries: &[Entry], clones: &[Box<Emitted>], placed: &Placed, strings: &mut Strings) -> Vec<Function> {
    let row = |e: &Entry| {
        let (clone_start, clone_end) = e.clone.map_or((0, 0), |clone| (placed.clones[clone], placed.clones[clone] + clones[clone].code.len() as u64));
        Function {
            name: strings.add(&e.name),
            left: e.left.as_ref().map_or(NONE, |why| strings.add(why)),
            start: e.range.start,
            end: e.range.end,
            clone_start,
            clone_end,
        }
    };
    entries.iter().map(row).collect()
}

#[allow(clippy::vec_box, reason = "as they come")]
/// The rows of all clones, with the file's numbers and addresses.
pub fn rows(entries: &[Entry], clones: Vec<Box<Emitted>>, placed: &Placed) -> Vec<Rows> {
    /// Numbers of what is before a clone's own.
    #[derive(Clone, Copy, Default)]
    struct Before {
        function: u32,
        regions: u32,
        sites: u32,
        loops: u32,
    }
    let mut before = vec![Before::default(); clones.len()];
    for (number, e) in entries.iter().enumerate() {
        e.clone.iter().for_each(|&clone| before[clone].function = number as u32);
    }
    let mut next = Before::default();
    for (clone, own) in clones.iter().zip(&mut before) {
        *own = Before { function: own.function, ..next };
        next.regions += clone.rows.regions.len() as u32;
        next.sites += clone.rows.sites.len() as u32;
        next.loops += clone.rows.loops.len() as u32;
    }
    let place = |((clone, before), (&at, &first_record)): ((Box<Emitted>, Before), (&u64, &u32))| {
        let mut rows = clone.rows;
        for r in &mut rows.regions {
            r.function = before.function;
            r.first_record += first_record;
            r.first_site += before.sites;
        }
        for r in &mut rows.records {
            r.region += before.regions;
            r.clone_ip += at;
        }
        for l in &mut rows.loops {
            l.function = before.function;
            l.parent = if l.parent == NONE { NONE } else { before.loops + l.parent };
        }
        for s in &mut rows.sites {
            s.function = before.function;
            s.region += before.regions;
            s.clone_ip += at;
            s.in_loop = if s.in_loop == 0 { 0 } else { before.loops + s.in_loop };
        }
        for p in &mut rows.ptwrites {
            p.ip += at;
            p.record += first_record;
        }
        rows.gathers.iter_mut().for_each(|g| g.site += before.sites);
        rows
    };
    clones.into_par_iter().zip(before).zip(placed.clones.par_iter().zip(&placed.records)).map(place).collect()
}
