//! Reading spill files: the complete segments of a file, and their slots.

use crate::spill::*;
use mgz_abi::leb128;

/// A complete segment in a [`SpillFile`].
#[derive(Clone, Copy, Debug)]
pub struct StoredSegment {
    /// Header from the file.
    pub header: SegmentHeader,
    pub(crate) offset: u64,
    bits: u8,
    /// Lengths of the streams, in their order.
    pub(crate) lengths: [u32; 4],
    /// Bytes before the streams.
    header_bytes: usize,
}

impl StoredSegment {
    /// Offset of the first byte behind the segment in its file.
    pub fn end(&self) -> u64 {
        let streams: u64 = self.lengths.iter().map(|&l| u64::from(l)).sum();
        self.offset + self.header_bytes as u64 + streams
    }
}

/// A spill file opened for reading. Segments may be decoded in any order and from several threads.
pub struct SpillFile {
    map: Option<memmap2::Mmap>,
    key: ThreadKey,
    segments: Vec<StoredSegment>,
    truncated: bool,
    bad_tail: Option<u64>,
}

impl SpillFile {
    /// Opens a file and finds its segments. A torn tail is ignored, see [`SpillFile::truncated`].
    pub fn open(path: &Path) -> Result<Self, SpillError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let map = if length == 0 {
            None
        } else {
            // SAFETY: the map is private and read-only; if another process truncated the file
            // meanwhile, an access could fault, as for every program that maps its
            // input.
            Some(unsafe { memmap2::Mmap::map(&file)? })
        };
        Self::index(map)
    }

    fn index(map: Option<memmap2::Mmap>) -> Result<Self, SpillError> {
        let bytes = map.as_deref().unwrap_or(&[]);
        let (key, segments, truncated, bad_tail) = find_segments(bytes)?;
        Ok(SpillFile {
            map,
            key,
            segments,
            truncated,
            bad_tail,
        })
    }

    /// The thread of the file's slots.
    pub fn key(&self) -> ThreadKey {
        self.key
    }

    /// The complete segments, in the order of writing.
    pub fn segments(&self) -> &[StoredSegment] {
        &self.segments
    }

    /// True if the file ends inside a segment, which is then missing in [`SpillFile::segments`].
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Offset at which the file continues with bytes that are not a segment, if it does.
    pub fn bad_tail(&self) -> Option<u64> {
        self.bad_tail
    }

    /// Decodes a segment of this file into `out`, which is cleared first.
    pub fn decode(&self, segment: &StoredSegment, out: &mut Vec<Slot>) -> Result<(), SpillError> {
        decode_segment(self.map.as_deref().unwrap_or(&[]), segment, out)
    }
}

/// Reads a spill file from front to back.
pub struct SpillReader {
    file: SpillFile,
    next: usize,
}

impl SpillReader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, SpillError> {
        Ok(SpillReader {
            file: SpillFile::open(path)?,
            next: 0,
        })
    }

    /// The thread of the file's slots.
    pub fn key(&self) -> ThreadKey {
        self.file.key
    }

    /// Decodes the next segment into `out` (cleared first). `None` at the end, also if the file
    /// ends inside a segment: then [`SpillReader::truncated`] is true.
    #[allow(
        clippy::should_implement_trait,
        reason = "it fills a buffer of the caller's"
    )]
    pub fn next(&mut self, out: &mut Vec<Slot>) -> Result<Option<SegmentHeader>, SpillError> {
        out.clear();
        let Some(segment) = self.file.segments.get(self.next).copied() else {
            return match self.file.bad_tail {
                Some(offset) => Err(SpillError::Damaged {
                    offset,
                    what: "does not begin as a segment does",
                }),
                None => Ok(None),
            };
        };
        self.next += 1;
        self.file.decode(&segment, out)?;
        Ok(Some(segment.header))
    }

    /// True if the file ends inside a segment.
    pub fn truncated(&self) -> bool {
        self.file.truncated
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |b| u32::from_le_bytes(b.try_into().expect("four bytes")))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| {
        u64::from_le_bytes(b.try_into().expect("eight bytes"))
    })
}

pub(crate) type ThreadSegments = (ThreadKey, Vec<StoredSegment>, bool, Option<u64>);

/// Walks the segment headers. If one is not the begin of a segment, the walk ends and its offset is
/// the last part of the result.
pub(crate) fn find_segments(bytes: &[u8]) -> Result<ThreadSegments, SpillError> {
    if bytes.len() < FILE_HEADER && FILE_MAGIC.starts_with(&bytes[..bytes.len().min(8)]) {
        return Ok((ThreadKey::default(), Vec::new(), true, None));
    }
    if bytes.get(..8) != Some(&FILE_MAGIC[..]) {
        return Err(SpillError::NotASpill);
    }
    if !(MIN_VERSION..=SPILL_VERSION).contains(&u32_at(bytes, 8)) {
        return Err(SpillError::Version {
            found: u32_at(bytes, 8),
        });
    }
    let key = ThreadKey {
        process: u32_at(bytes, 16),
        thread: u32_at(bytes, 20),
    };
    let header_bytes = segment_header(u32_at(bytes, 8));
    let mut at = (u32_at(bytes, 12) as usize).max(FILE_HEADER);
    let mut segments = Vec::new();
    loop {
        let rest = bytes.get(at..).unwrap_or(&[]);
        if rest.is_empty() {
            return Ok((key, segments, at > bytes.len(), None));
        }
        if rest.len() < header_bytes {
            return Ok((key, segments, true, None));
        }
        let bits = rest[6];
        if &rest[..4] != SEGMENT_MAGIC
            || rest[4] > 1
            || !BITS.contains(&bits)
            || u32_at(rest, 8) as usize > MAX_SEGMENT_SLOTS
        {
            // Some file systems leave zeros after an incomplete write.
            let zeros = rest.iter().all(|&b| b == 0);
            return Ok((key, segments, zeros, (!zeros).then_some(at as u64)));
        }
        let lengths = [
            u32_at(rest, 12),
            u32_at(rest, 64),
            u32_at(rest, 16),
            u32_at(rest, 20),
        ];
        let total = header_bytes + lengths.iter().map(|&l| l as usize).sum::<usize>();
        if rest.len() < total {
            return Ok((key, segments, true, None));
        }
        let header = SegmentHeader {
            kind: if rest[4] == 1 {
                SegmentKind::Window
            } else {
                SegmentKind::Full
            },
            cause: rest[5],
            slots: u32_at(rest, 8),
            ring_slots: u32_at(rest, 68),
            first_slot: u64_at(rest, 24),
            begin_ns: u64_at(rest, 32),
            end_ns: u64_at(rest, 40),
            pace: SpeedMeasurement::from_word(u64_at(rest, 56)),
            period: if header_bytes == SEGMENT_HEADER {
                u64_at(rest, 72)
            } else {
                0
            },
        };
        segments.push(StoredSegment {
            header,
            offset: at as u64,
            bits,
            lengths,
            header_bytes,
        });
        at += total;
    }
}

/// Decodes the output of [`EncodedSegment::alone`] into `out`, which is cleared first.
pub fn decode_alone(bytes: &[u8], out: &mut Vec<Slot>) -> Result<SegmentHeader, SpillError> {
    out.clear();
    let (_, segments, ..) = find_segments(bytes)?;
    let segment = segments.first().ok_or(SpillError::Damaged {
        offset: 0,
        what: "is cut off",
    })?;
    decode_segment(bytes, segment, out)?;
    Ok(segment.header)
}

/// The streams of a segment with a correct check value.
struct Streams<'a> {
    control: &'a [u8],
    ids: &'a [u8],
    data: &'a [u8],
    aux: &'a [u8],
}

impl<'a> Streams<'a> {
    /// Splits a segment into streams. The error is the segment's damage.
    fn of(file: &'a [u8], segment: &StoredSegment) -> Result<Streams<'a>, &'static str> {
        let total =
            segment.header_bytes + segment.lengths.iter().map(|&l| l as usize).sum::<usize>();
        let start = segment.offset as usize;
        let bytes = file
            .get(start..)
            .and_then(|rest| rest.get(..total))
            .ok_or("is cut off")?;
        let (header, streams) = bytes.split_at(segment.header_bytes);
        let (control, streams) = streams.split_at(segment.lengths[0] as usize);
        let (ids, streams) = streams.split_at(segment.lengths[1] as usize);
        let (data, aux) = streams.split_at(segment.lengths[2] as usize);
        let mut check = Check::new();
        let mut bare = [0u8; SEGMENT_HEADER];
        let bare = &mut bare[..header.len()];
        bare.copy_from_slice(header);
        bare[48..56].fill(0);
        check.part(bare);
        [control, ids, data, aux]
            .iter()
            .for_each(|stream| check.part(stream));
        if check.value() != u64_at(header, 48) {
            return Err("does not match its check value");
        }
        Ok(Streams {
            control,
            ids,
            data,
            aux,
        })
    }
}

pub(crate) fn decode_segment(
    file: &[u8],
    segment: &StoredSegment,
    out: &mut Vec<Slot>,
) -> Result<(), SpillError> {
    out.clear();
    let damaged = |what| SpillError::Damaged {
        offset: segment.offset,
        what,
    };
    let Streams {
        control,
        mut ids,
        data,
        aux,
    } = Streams::of(file, segment).map_err(damaged)?;
    // The check value is correct, so only a faulty writer can cause errors from here on. Even then
    // there must be no panic and no huge allocation.
    let slots = segment.header.slots as usize;
    if slots.div_ceil(BLOCK) * 8 > control.len() {
        return Err(damaged("has too little control data"));
    }
    out.reserve_exact(slots);
    let mut predictor = Predictor::default();
    predictor.clear(segment.bits);
    let mask = predictor.mask();
    let (entries, nexts) = (
        &mut predictor.entries[..=mask],
        &mut predictor.next[..=mask],
    );
    let (mut previous, mut id) = (0, 0u32);
    let mut words = control
        .chunks_exact(8)
        .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
    let mut at = 0;
    let mut left = slots;
    while left > 0 {
        let block = left.min(BLOCK);
        left -= block;
        let mut bitmap = words
            .next()
            .ok_or_else(|| damaged("has too little control data"))?;
        let mut in_block = block;
        while in_block > 0 {
            let group = in_block.min(GROUP);
            in_block -= group;
            let mut word = 0;
            if bitmap & 1 != 0 {
                word = words
                    .next()
                    .ok_or_else(|| damaged("has too little control data"))?;
            }
            bitmap >>= 1;
            let mut decoded = [Slot::default(); GROUP];
            for slot in &mut decoded[..group] {
                let next = &mut nexts[previous];
                if word & 8 != 0 {
                    *next = take_id(&mut ids, id).ok_or_else(|| damaged("has too few ids"))?;
                }
                id = *next;
                previous = id as usize & mask;
                let entry = &mut entries[previous];
                let code = (word & 7) as usize;
                word >>= 4;
                // The codes are unpredictable for the CPU, so there is no branch.
                let stored = data
                    .get(at..at + 8)
                    .ok_or_else(|| damaged("has too little data"))?;
                let length = LENGTH[code];
                let shift = 64u32.wrapping_sub(8 * u32::from(length)) & 63;
                let stored = ((i64::from_le_bytes(stored.try_into().expect("eight bytes"))
                    << shift)
                    >> shift) as u64;
                at += usize::from(length);
                let predicted = u64::from(code == 0).wrapping_neg();
                let difference = entry.stride & predicted | stored & !predicted;
                *entry = Entry {
                    last: entry.last.wrapping_add(difference),
                    stride: difference,
                };
                *slot = Slot {
                    payload: entry.last,
                    id,
                    aux: 0,
                };
            }
            out.extend_from_slice(&decoded[..group]);
        }
    }
    if at + DATA_PADDING != data.len() || !ids.is_empty() {
        return Err(damaged("has data left over"));
    }
    decode_aux(aux, out).ok_or_else(|| damaged("has wrong aux data"))
}

/// The next id of the stream, if that of the previous slot is `previous`. `None` at the end.
#[inline]
fn take_id(ids: &mut &[u8], previous: u32) -> Option<u32> {
    let (step, rest) = ids.split_first_chunk()?;
    *ids = rest;
    let step = i16::from_le_bytes(*step);
    if step != i16::MIN && step != i16::MAX {
        return Some(previous.wrapping_add(i32::from(step) as u32));
    }
    let (id, rest) = ids.split_first_chunk()?;
    *ids = rest;
    Some(u32::from_le_bytes(*id))
}

/// Decodes the `aux` values into `out`. `None` if the stream is malformed.
fn decode_aux(mut aux: &[u8], out: &mut [Slot]) -> Option<()> {
    let mut at = 0usize;
    while !aux.is_empty() {
        let skip = leb128::decode(u32::BITS, || aux.split_off_first().copied())? as usize;
        let (value, rest) = aux.split_at_checked(4)?;
        aux = rest;
        at = at.checked_add(skip)?;
        out.get_mut(at)?.aux = u32::from_le_bytes(value.try_into().expect("four bytes"));
    }
    Some(())
}
