//! Packet traces of gem5 (`MemTraceProbe`, or a `CommMonitor` with one): messages of protocol
//! buffers (`src/proto/packet.proto` there), each after its length.
//!
//! Commands are numbers of an enumeration that gem5 has changed. Reads and writes (1 and 4) have
//! kept their numbers; the others are those of gem5 22.1 and later.

use crate::import::writer::{ImportedAccess, TraceWriter};
use crate::import::{Imported, fill};
use crate::protobuf::{FieldValue, read_fields};
use anyhow::{Context, bail};
use mgz_annotations_schema::leb128;
use std::collections::HashMap;
use std::io::{BufRead, ErrorKind};

/// First bytes of a trace.
pub const GEM5_MAGIC: &[u8] = b"gem5";
/// Length of a message at most, bytes. The header has a name for each requestor. Source: Chosen.
const MAX_MESSAGE_BYTES: u64 = 1 << 24;
/// Commands have smaller numbers.
const COMMANDS: u64 = 64;
/// Flags of requests that are no accesses of an instruction to data: fetches of instructions,
/// requests without an access, prefetches, page walks.
const NO_DATA_ACCESS: u64 = 0x100 | 0x8_0000 | 0x100_0000 | 0x2000_0000;
const NS_PER_S: u128 = 1_000_000_000;

/// A packet's fields, as far as they are used.
#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    tick: Option<u64>,
    command: Option<u64>,
    address: Option<u64>,
    size: Option<u64>,
    flags: u64,
    requestor: Option<u64>,
    ip: u64,
}

impl Packet {
    fn read(message: &[u8]) -> Option<Packet> {
        let mut packet = Packet::default();
        read_fields(message, |field, value| {
            let FieldValue::Number(value) = value else {
                return;
            };
            match field {
                1 => packet.tick = Some(value),
                2 => packet.command = Some(value),
                3 => packet.address = Some(value),
                4 => packet.size = Some(value),
                5 => packet.flags = value,
                6 => packet.requestor = Some(value),
                7 => packet.ip = value,
                _ => {}
            }
        })?;
        Some(packet)
    }
}

/// Effect of a command on data, as (load, store).
fn effect(command: u64) -> (bool, bool) {
    match command {
        // Reads: plain, for ownership, clean, shared, load-locked, the first half of a locked pair.
        1 | 22 | 24 | 25 | 26 | 30 => (true, false),
        // Writes: plain, of a line, store-conditional, the second half of a locked pair.
        4 | 16 | 27 | 32 => (false, true),
        // Swaps.
        34 => (true, true),
        _ => (false, false),
    }
}

/// The first message of a trace.
#[derive(Debug, Default)]
struct Header {
    ticks_per_s: u64,
    /// Names of requestors by number.
    requestors: HashMap<u16, String>,
}

impl Header {
    fn read(message: &[u8]) -> Option<Header> {
        let mut header = Header::default();
        let mut whole = true;
        read_fields(message, |field, value| match (field, value) {
            (3, FieldValue::Number(value)) => header.ticks_per_s = value,
            (4, FieldValue::Bytes(entry)) => {
                let (mut number, mut name) = (0, String::new());
                let read = read_fields(entry, |field, value| match (field, value) {
                    (1, FieldValue::Number(value)) => number = value,
                    (2, FieldValue::Bytes(text)) => name = String::from_utf8_lossy(text).into(),
                    _ => {}
                });
                let number = read.and_then(|()| u16::try_from(number).ok());
                whole &= number.is_some();
                header.requestors.extend(number.map(|n| (n, name)));
            }
            _ => {}
        })?;
        (whole && header.ticks_per_s > 0).then_some(header)
    }
}

/// Reads the next message. `None` at the end of the input; a message that is cut off there counts.
fn next_message<'a>(
    input: &mut dyn BufRead,
    message: &'a mut Vec<u8>,
    found: &mut Imported,
) -> anyhow::Result<Option<&'a [u8]>> {
    let unreadable = "the trace cannot be read";
    let (mut failed, mut got) = (None, 0);
    let length = leb128::decode(u64::BITS, || {
        let mut byte = [0];
        match input.read_exact(&mut byte) {
            Ok(()) => {
                got += 1;
                Some(byte[0])
            }
            Err(error) => {
                failed = Some(error);
                None
            }
        }
    });
    match failed {
        Some(error) if error.kind() == ErrorKind::UnexpectedEof => {
            found.cut += u64::from(got > 0);
            return Ok(None);
        }
        Some(error) => return Err(error).context(unreadable),
        None => {}
    }
    let Some(length) = length.filter(|&l| l <= MAX_MESSAGE_BYTES) else {
        bail!("the trace is damaged: a message is too long");
    };
    message.resize(length as usize, 0);
    if fill(input, message).context(unreadable)? < message.len() {
        found.cut += 1;
        return Ok(None);
    }
    Ok(Some(message))
}

fn thread_of(requestor: u16) -> u32 {
    u32::from(requestor) + 1
}

/// Reads a trace. Each requestor that the header names becomes a thread.
pub fn read_gem5(input: &mut dyn BufRead, out: &mut TraceWriter) -> anyhow::Result<Imported> {
    let mut found = Imported::default();
    let mut magic = [0; GEM5_MAGIC.len()];
    fill(input, &mut magic).context("the trace cannot be read")?;
    if magic != *GEM5_MAGIC {
        bail!("it does not begin as a packet trace of gem5");
    }
    let mut message = Vec::new();
    let header = next_message(input, &mut message, &mut found)?.and_then(Header::read);
    let Some(header) = header else {
        bail!("the header of the trace is damaged");
    };
    for (&number, name) in &header.requestors {
        out.names.insert((1, thread_of(number)), name.clone());
    }
    let mut time = 0;
    while let Some(message) = next_message(input, &mut message, &mut found)? {
        let Some(packet) = Packet::read(message) else {
            found.strange += 1;
            continue;
        };
        let (Some(tick), Some(command), Some(address), Some(Ok(size))) = (
            packet.tick,
            packet.command.filter(|&c| c < COMMANDS),
            packet.address,
            packet.size.map(u32::try_from),
        ) else {
            found.strange += 1;
            continue;
        };
        let (load, store) = effect(command);
        if packet.flags & NO_DATA_ACCESS != 0 || !(load || store) {
            found.skipped += 1;
            continue;
        }
        let ns = u128::from(tick) * NS_PER_S / u128::from(header.ticks_per_s);
        time = u64::try_from(ns).unwrap_or(u64::MAX).max(time);
        let requestor = packet.requestor.and_then(|r| u16::try_from(r).ok());
        let requestor = requestor.filter(|r| header.requestors.contains_key(r));
        for (_, store) in [(load, false), (store, true)].iter().filter(|e| e.0) {
            found.accesses += 1;
            out.add(ImportedAccess {
                process: 1,
                thread: thread_of(requestor.unwrap_or(0)),
                ip: packet.ip,
                address,
                size,
                store: *store,
                time,
            })?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::Message;

    /// Messages after their lengths, behind the first bytes.
    fn trace(messages: impl IntoIterator<Item = Message>) -> Vec<u8> {
        let mut bytes = GEM5_MAGIC.to_vec();
        for message in messages {
            leb128::encode(message.bytes.len() as u64, |byte| bytes.push(byte));
            bytes.extend(message.bytes);
        }
        bytes
    }

    fn header() -> Message {
        let requestor = |number, name| Message::new().number(1, number).text(2, name);
        Message::new()
            .text(1, "system.monitor")
            .number(3, 1_000_000_000_000)
            .message(4, requestor(5, "cpu0.data"))
            .message(4, requestor(6, "cpu1.data"))
    }

    /// A packet with its command, flags and requestor.
    fn packet(tick: u64, command: u64, flags: u64, requestor: u64) -> Message {
        Message::new()
            .number(1, tick)
            .number(2, command)
            .number(3, 0x1000)
            .number(4, 8)
            .number(5, flags)
            .number(6, requestor)
    }

    fn read(bytes: &[u8]) -> (anyhow::Result<Imported>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let mut out = TraceWriter::new(folder.path()).unwrap();
        let found = read_gem5(&mut &*bytes, &mut out);
        (found, out.finish("program").unwrap())
    }

    #[test]
    fn packets_are_loads_stores_both_or_no_accesses() {
        let packets = [
            header(),
            packet(1000, 1, 0, 5),
            packet(2000, 4, 0x2, 6),
            packet(3000, 34, 0, 5),
            // A fetch of instructions, a response, a write-back.
            packet(4000, 1, 0x100, 5),
            packet(5000, 2, 0, 5),
            packet(6000, 7, 0, 0),
            // No command, and one that no version of gem5 has.
            Message::new().number(1, 7000),
            packet(8000, 99, 0, 5),
        ];
        let bytes = trace(packets);
        let (found, rows) = read(&bytes);
        let expected = Imported {
            accesses: 4,
            skipped: 3,
            strange: 2,
            ..Imported::default()
        };
        assert_eq!((found.unwrap(), rows), (expected.clone(), 4));
        let cut = Imported {
            cut: 1,
            strange: 1,
            ..expected
        };
        assert_eq!(read(&bytes[..bytes.len() - 1]).0.unwrap(), cut);
    }

    #[test]
    fn damage_is_an_error_or_a_count_and_no_panic() {
        let bytes = trace([header(), packet(1000, 1, 0, 5), packet(2000, 34, 0, 77)]);
        for at in 0..bytes.len() {
            let _ = read(&bytes[..at]);
            for bit in [1, 0x80] {
                let mut other = bytes.clone();
                other[at] ^= bit;
                let _ = read(&other);
            }
        }
        for (bytes, word) in [
            (&b"gem4"[..], "does not begin"),
            (b"gem5", "header"),
            (b"gem5\0", "header"),
            (b"gem5\xff\xff\xff\xff\x7f", "too long"),
        ] {
            let error = read(bytes).0.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
