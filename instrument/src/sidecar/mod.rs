//! Builds the sidecar: functions, sites, regions, records and the address map, with final
//! addresses.

pub mod columns;
pub mod lines;

use crate::emit::{Emitted, state_key as key};
use crate::link::layout::Placed;
use crate::util::fast_hash::FastMap;
use indexmap::IndexSet;
use mgz_abi::address_map::{MapFunction, MapHeader, MapMark, ProbeState};
use mgz_abi::leb128;
use mgz_annotations_schema::sidecar::{Function, Header, NONE};
use mgz_annotations_schema::{Encoded, Sidecar, SidecarError, SidecarParts};
use mgz_elf::demangle;
use rayon::prelude::*;
use std::ops::Range;

/// One function of the input, for the sidecar.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name, empty if unknown.
    pub name: String,
    /// Original bytes.
    pub range: Range<u64>,
    /// Reason why it was left unchanged.
    pub left: Option<String>,
    /// Index of its clone.
    pub clone: Option<usize>,
}

/// A list of distinct strings.
#[derive(Debug, Default)]
pub struct Strings(IndexSet<String>);

impl Strings {
    /// Number of a string; [`NONE`] for the empty one.
    pub fn add(&mut self, text: impl Into<String> + AsRef<str>) -> u32 {
        if text.as_ref().is_empty() {
            return NONE;
        }
        let known = self.0.get_index_of(text.as_ref());
        known.unwrap_or_else(|| self.0.insert_full(text.into()).0) as u32
    }

    /// All strings, by number.
    pub fn into_list(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}

/// The address map's bytes, see [`MapHeader`], in consecutive pieces.
pub fn address_map(clones: &[Box<Emitted>], placed: &Placed) -> Vec<Vec<u8>> {
    let mut numbers: FastMap<u128, u32> = FastMap::from_iter([(key(&ProbeState::IDLE), 0)]);
    let mut states = vec![ProbeState::IDLE];
    let global = |s: &ProbeState| {
        *numbers.entry(key(s)).or_insert_with(|| {
            states.push(*s);
            states.len() as u32 - 1
        })
    };
    // States of all clones, one clone after the other.
    let translations: Vec<u32> = clones.iter().flat_map(|c| &c.states).map(global).collect();
    let tokens: Vec<Tokens> = (0..states.len() as u32).map(Tokens::of).collect();
    let mut rest = &translations[..];
    let mut own = Vec::with_capacity(clones.len());
    for clone in clones {
        let (translation, others) = rest.split_at(clone.states.len());
        own.push(translation);
        rest = others;
    }
    let mut pieces: Vec<Streams> = clones
        .par_chunks(CLONES)
        .zip(own.par_chunks(CLONES))
        .zip(placed.clones.par_chunks(CLONES))
        .map(|((clones, own), places)| Streams::of(clones, own, places, &tokens))
        .collect();
    let mut len = 0u32;
    for piece in &mut pieces {
        piece.functions.iter_mut().for_each(|f| f.stream += len);
        piece.marks.iter_mut().for_each(|m| m.stream += len);
        len += piece.bytes.len() as u32;
    }
    let header = MapHeader {
        functions: clones.len() as u32,
        states: states.len() as u32,
        stream_len: len.into(),
    };
    let mut head = Vec::with_capacity(16 + 16 * (clones.len() + states.len()));
    head.extend_from_slice(&header.functions.to_le_bytes());
    head.extend_from_slice(&header.states.to_le_bytes());
    head.extend_from_slice(&header.stream_len.to_le_bytes());
    let functions = pieces.iter().flat_map(|p| &p.functions);
    functions.for_each(|f| {
        words(
            &mut head,
            [f.clone_start, f.clone_end, f.orig_start, f.stream],
        )
    });
    states
        .iter()
        .for_each(|s| head.extend_from_slice(&s.bytes()));
    let mut marks = Vec::with_capacity(16 * pieces.iter().map(|p| p.marks.len()).sum::<usize>());
    pieces
        .iter()
        .flat_map(|p| &p.marks)
        .for_each(|m| words(&mut marks, [m.clone, m.orig, m.stream, m.state]));
    std::iter::once(head)
        .chain(pieces.into_iter().map(|p| p.bytes))
        .chain([marks])
        .collect()
}

/// Appends a row of the map.
fn words(out: &mut Vec<u8>, row: [u32; 4]) {
    let [a, b, c, d] = row.map(u128::from);
    out.extend_from_slice(&(a | b << 32 | c << 64 | d << 96).to_le_bytes());
}

/// Number of clones whose part of the map is made at a time.
const CLONES: usize = 256;

/// The part of some clones in the address map. Offsets in the stream count from its own first byte.
struct Streams {
    functions: Vec<MapFunction>,
    bytes: Vec<u8>,
    marks: Vec<MapMark>,
}

impl Streams {
    /// `states`: the file's numbers of each clone's states. `tokens`: the tokens of all states.
    fn of(
        clones: &[Box<Emitted>],
        states: &[&[u32]],
        places: &[u64],
        tokens: &[Tokens],
    ) -> Streams {
        let len: usize = clones.iter().map(|c| c.stream.len()).sum();
        let mut all = Streams {
            functions: Vec::with_capacity(clones.len()),
            bytes: Vec::with_capacity(len + len / 8),
            marks: Vec::with_capacity(len / MARK_EVERY),
        };
        for ((clone, states), &at) in clones.iter().zip(states).zip(places) {
            all.functions.push(MapFunction {
                clone_start: at as u32,
                clone_end: at as u32 + clone.len,
                orig_start: clone.range.start as u32,
                stream: all.bytes.len() as u32,
            });
            all.append(&clone.stream, states, tokens);
        }
        all
    }

    /// Appends the last function's stream, with the file's numbers of its states, and its marks.
    fn append(&mut self, stream: &[u8], states: &[u32], tokens: &[Tokens]) {
        let Some(function) = self.functions.last() else {
            return;
        };
        let mut mark = MapMark {
            clone: function.clone_start,
            orig: function.orig_start,
            stream: 0,
            state: 0,
        };
        let mut left = MARK_EVERY;
        // A capacity check for each byte would take longer than all other work.
        const BUFFER_BYTES: usize = 256;
        let (mut room, mut filled) = ([0; BUFFER_BYTES], 0);
        let mut at = 0;
        while let Some(&byte) = stream.get(at) {
            at += 1;
            if byte == 0 {
                let (number, len) = match stream.get(at) {
                    Some(&number @ 0..=0x7f) => (number.into(), 1),
                    _ => number(&stream[at..]),
                };
                at += len;
                mark.state = states.get(number).copied().unwrap_or(0);
                let state = &tokens[mark.state as usize];
                room[filled..filled + Tokens::MAX_BYTES].copy_from_slice(&state.bytes);
                filled += state.len;
            } else {
                room[filled] = byte;
                filled += 1;
                mark.orig += u32::from(byte >> 4);
                mark.clone += u32::from(byte & 15);
                // (Others are not in the clone.)
                left -= usize::from(byte & 15 != 0);
                if left == 0 {
                    left = MARK_EVERY;
                    self.marks.push(MapMark {
                        stream: (self.bytes.len() + filled) as u32,
                        ..mark
                    });
                }
            }
            if filled > BUFFER_BYTES - Tokens::MAX_BYTES {
                self.bytes.extend_from_slice(&room[..filled]);
                filled = 0;
            }
        }
        self.bytes.extend_from_slice(&room[..filled]);
    }
}

/// Bytes in a stream that set the state from there on: a zero and the state's number in the file as
/// LEB128.
struct Tokens {
    bytes: [u8; Tokens::MAX_BYTES],
    /// Number of bytes in use.
    len: usize,
}

impl Tokens {
    /// A number has at most five bytes.
    const MAX_BYTES: usize = 8;

    fn of(state: u32) -> Tokens {
        let (mut bytes, mut len) = ([0; Tokens::MAX_BYTES], 1);
        leb128::encode(state.into(), |byte| {
            bytes[len] = byte;
            len += 1;
        });
        Tokens { bytes, len }
    }
}

/// The LEB128 number at the start of some bytes, and its length.
fn number(bytes: &[u8]) -> (usize, usize) {
    let mut number = 0;
    for (n, &byte) in bytes.iter().enumerate().take(5) {
        number |= usize::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return (number, n + 1);
        }
    }
    (number, bytes.len().min(5))
}

/// Instructions between two marks.
const MARK_EVERY: usize = 32;

/// A sidecar before it is written.
#[derive(Debug, Default)]
pub struct Annotations {
    /// Identity.
    pub id: [u8; 16],
    /// The header, to which the report is still to be added.
    pub header: Header,
    /// Consecutive pieces of the address map.
    pub map: Vec<Vec<u8>>,
    /// All other columns.
    pub columns: Encoded,
}

impl Annotations {
    /// The parts to be written.
    pub fn parts(&self) -> SidecarParts<'_> {
        SidecarParts {
            id: self.id,
            header: &self.header,
            map: &self.map,
            columns: &self.columns,
        }
    }

    /// The sidecar as its readers see it.
    pub fn sidecar(&self) -> Result<Sidecar, SidecarError> {
        Sidecar::from_bytes(&self.parts().to_bytes()?)
    }
}

/// Rows of all functions.
pub fn functions(
    entries: &[Entry],
    clones: &[Box<Emitted>],
    placed: &Placed,
    strings: &mut Strings,
) -> Vec<Function> {
    let readable: Vec<String> = entries
        .par_iter()
        .map(|e| demangle::readable(&e.name))
        .collect();
    let row = |(e, name): (&Entry, String)| {
        let (clone_start, clone_end) = e.clone.map_or((0, 0), |clone| {
            (
                placed.clones[clone],
                placed.clones[clone] + u64::from(clones[clone].len),
            )
        });
        Function {
            name: strings.add(name),
            left: e.left.as_ref().map_or(NONE, |why| strings.add(&**why)),
            start: e.range.start,
            end: e.range.end,
            clone_start,
            clone_end,
        }
    };
    entries.iter().zip(readable).map(row).collect()
}
