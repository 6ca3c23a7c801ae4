//! Builds the sidecar: functions, sites, regions, records and the address map, with final addresses.

use crate::emit::{Emitted, Rows, state_key as key};
use crate::hash::FastMap;
use crate::layout::Placed;
use crate::names;
use mgz_annotations_schema::abi::{MapFunction, MapHeader, MapMark, ProbeState};
use mgz_annotations_schema::sidecar::{Function, Header, Location, Loop, NONE, PtWrite, Record, Region, Site};
use mgz_annotations_schema::{Content, Encoded, Parts, Runs, Sidecar, SidecarError};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

/// One function of the input, for the sidecar.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name, empty if unknown.
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
    let mut head = Vec::with_capacity(16 + 16 * (functions.len() + states.len()));
    head.extend_from_slice(&header.functions.to_le_bytes());
    head.extend_from_slice(&header.states.to_le_bytes());
    head.extend_from_slice(&header.stream_len.to_le_bytes());
    for f in &functions {
        for word in [f.clone_start, f.clone_end, f.orig_start, f.stream] {
            head.extend_from_slice(&word.to_le_bytes());
        }
    }
    for s in states {
        head.extend_from_slice(&s.bytes());
    }
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
    let in_place = pieces.into_par_iter().zip(clones.par_iter().zip(&translations)).zip(&functions).fold(Vec::new, |mut marks, ((piece, (c, t)), function)| {
        if t.iter().zip(0..).all(|(&to, from)| to == from) {
            piece.copy_from_slice(&c.stream);
        } else {
            let mut at = 0;
            renumber(&c.stream, t, |byte| {
                piece[at] = byte;
                at += 1;
            });
        }
        mark(piece, function, &mut marks);
        marks
    });
    let marks: Vec<Vec<u8>> = in_place.collect();
    marks.iter().for_each(|marks| out.extend_from_slice(marks));
    out
}

/// Appends the marks inside of one function of the map, whose stream is given.
fn mark(stream: &[u8], function: &MapFunction, marks: &mut Vec<u8>) {
    /// Instructions between two marks.
    const EVERY: usize = 32;
    let mut mark = MapMark { clone: function.clone_start, orig: function.orig_start, stream: function.stream, state: 0 };
    let (mut at, mut left) = (0, EVERY);
    while let Some(&byte) = stream.get(at).filter(|_| mark.clone < function.clone_end) {
        at += 1;
        mark.orig += u32::from(byte >> 4);
        mark.clone += u32::from(byte & 15);
        if byte & 15 != 0 {
            left -= 1;
            if left == 0 {
                left = EVERY;
                mark.stream = function.stream + at as u32;
                marks.extend([mark.clone, mark.orig, mark.stream, mark.state].into_iter().flat_map(u32::to_le_bytes));
            }
        } else if byte == 0 {
            let (number, len) = leb128(&stream[at..]);
            mark.state = number;
            at += len;
        }
    }
}

/// The number that some bytes begin with, and how many they are.
fn leb128(bytes: &[u8]) -> (u32, usize) {
    let mut number = 0u32;
    for (i, byte) in bytes.iter().enumerate() {
        number |= u32::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return (number, i + 1);
        }
    }
    (number, bytes.len())
}

/// Tells the bytes of a function's stream, with the file's state numbers.
fn renumber(stream: &[u8], numbers: &[u32], mut put: impl FnMut(u8)) {
    let mut at = 0;
    while let Some(&byte) = stream.get(at) {
        put(byte);
        at += 1;
        if byte == 0 {
            let (number, len) = leb128(&stream[at..]);
            at += len;
            let mut value = numbers.get(number as usize).copied().unwrap_or(0);
            while value >= 0x80 {
                put(value as u8 | 0x80);
                value >>= 7;
            }
            put(value as u8);
        }
    }
}

/// A sidecar but for its file.
#[derive(Debug, Default)]
pub struct Annotations {
    /// Identity.
    pub id: [u8; 16],
    /// The header; the report is still to be put in.
    pub header: Header,
    /// The address map.
    pub map: Vec<u8>,
    /// All other columns.
    pub columns: Encoded,
}

impl Annotations {
    /// What is to be written.
    pub fn parts(&self) -> Parts<'_> {
        Parts { id: self.id, header: &self.header, map: &self.map, columns: &self.columns }
    }

    /// The sidecar as its readers see it.
    pub fn sidecar(&self) -> Result<Sidecar, SidecarError> {
        Sidecar::from_bytes(&self.parts().to_bytes()?)
    }
}

/// Rows of all functions.
pub fn functions(entries: &[Entry], clones: &[Box<Emitted>], placed: &Placed, strings: &mut Strings) -> Vec<Function> {
    let readable: Vec<String> = entries.par_iter().map(|e| names::readable(&e.name)).collect();
    let row = |(e, name): (&Entry, String)| {
        let (clone_start, clone_end) = e.clone.map_or((0, 0), |clone| (placed.clones[clone], placed.clones[clone] + clones[clone].code.len() as u64));
        Function {
            name: strings.add(&name),
            left: e.left.as_ref().map_or(NONE, |why| strings.add(why)),
            start: e.range.start,
            end: e.range.end,
            clone_start,
            clone_end,
        }
    };
    entries.iter().zip(readable).map(row).collect()
}

/// Numbers of what is before a clone's own rows, and what its addresses count from.
#[derive(Clone, Copy, Default)]
struct Before {
    function: u32,
    regions: u32,
    sites: u32,
    loops: u32,
    records: u32,
    at: u64,
}

/// The columns of all tables. The rows of clones lie where their emission put them, and get the file's numbers and addresses on the way.
pub fn columns(entries: &[Entry], functions: &[Function], rows: &[Rows], placed: &Placed, locations: &[Location], strings: &[String]) -> std::io::Result<Encoded> {
    let mut before = vec![Before::default(); rows.len()];
    for (number, e) in entries.iter().enumerate() {
        e.clone.iter().for_each(|&clone| before[clone].function = number as u32);
    }
    let mut next = Before::default();
    for ((own, rows), (&at, &records)) in before.iter_mut().zip(rows).zip(placed.clones.iter().zip(&placed.records)) {
        *own = Before { function: own.function, records, at, ..next };
        next.regions += rows.regions.len() as u32;
        next.sites += rows.sites.len() as u32;
        next.loops += rows.loops.len() as u32;
    }
    fn runs<'a, R>(rows: &'a [Rows], before: &'a [Before], of: impl Fn(&'a Rows) -> &'a [R], place: impl Fn(&Before, &mut R) + Sync + 'a) -> Runs<'a, R> {
        Runs::new(rows.iter().map(of).collect(), move |clone, rows| rows.iter_mut().for_each(|row| place(&before[clone], row)))
    }
    let sites = |before: &Before, s: &mut Site| {
        s.function = before.function;
        s.region += before.regions;
        s.clone_ip += before.at;
        s.in_loop = if s.in_loop == 0 { 0 } else { before.loops + s.in_loop };
    };
    let regions = |before: &Before, r: &mut Region| {
        r.function = before.function;
        r.first_record += before.records;
        r.first_site += before.sites;
    };
    let records = |before: &Before, r: &mut Record| {
        r.region += before.regions;
        r.clone_ip += before.at;
    };
    let ptwrites = |before: &Before, p: &mut PtWrite| {
        p.ip += before.at;
        p.record += before.records;
    };
    let loops = |before: &Before, l: &mut Loop| {
        l.function = before.function;
        l.parent = if l.parent == NONE { NONE } else { before.loops + l.parent };
    };
    let content = Content {
        functions: functions.into(),
        sites: runs(rows, &before, |r| &r.sites, sites),
        regions: runs(rows, &before, |r| &r.regions, regions),
        records: runs(rows, &before, |r| &r.records, records),
        ptwrites: runs(rows, &before, |r| &r.ptwrites, ptwrites),
        gathers: runs(rows, &before, |r| &r.gathers, |before, g| g.site += before.sites),
        loops: runs(rows, &before, |r| &r.loops, loops),
        locations: locations.into(),
        strings,
    };
    content.encode()
}
