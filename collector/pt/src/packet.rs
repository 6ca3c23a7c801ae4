//! One packet: its kinds, its bytes, its text.
//!
//! [`decode`] is a pure function of the bytes and of the width of items in the open block of BIPs,
//! if there is one. It allocates nothing and reads nothing beyond the slice. Formats are those of
//! the chapter "Intel Processor Trace" in Intel's Software Developer's Manual.

use std::fmt;

/// Bytes of a PSB packet: eight times `02 82`.
pub const PSB: [u8; 16] = [
    0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
];

/// An instruction pointer in a packet, compressed against the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// The packet has none (it is out of context).
    Suppressed,
    /// Replaces the low 16 bits.
    Low16(u16),
    /// Replaces the low 32 bits.
    Low32(u32),
    /// Replaces the low 48 bits.
    Low48(u64),
    /// 48 bits, to be sign-extended.
    Signed48(u64),
    /// All 64 bits.
    Full(u64),
}

/// Width of the items of a block, from its BBP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockItem {
    /// 4-byte payloads.
    Bytes4,
    /// 8-byte payloads.
    Bytes8,
}

/// A packet of an Intel PT stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Padding.
    Pad,
    /// Stream boundary: decoding can start here; the last IP is 0 from here on.
    Psb,
    /// End of the status packets that follow a PSB.
    PsbEnd,
    /// Taken/not-taken bits of conditional branches, oldest in the highest of `count` bits.
    Tnt {
        /// The bits.
        bits: u64,
        /// Number of bits.
        count: u8,
        /// Eight-byte form.
        long: bool,
    },
    /// Target of an indirect branch.
    Tip(Ip),
    /// Tracing starts or continues at this IP.
    TipPge(Ip),
    /// Tracing stops.
    TipPgd(Ip),
    /// The IP of an event; it belongs to the previous packet if that one requires an IP.
    Fup(Ip),
    /// Execution mode: CS.L, CS.D and the interrupt flag, as bits 0, 1 and 2.
    ModeExec(u8),
    /// Transaction state: bit 0 in a transaction, bit 1 aborted.
    ModeTsx(u8),
    /// Page-table root: CR3, and a flag for a guest.
    Pip {
        /// CR3, low 5 bits zero.
        cr3: u64,
        /// Non-root operation.
        guest: bool,
    },
    /// Base address of the guest's control structure.
    Vmcs(u64),
    /// Time stamp, low 56 bits.
    Tsc(u64),
    /// Relates the crystal's counter to the time stamp.
    Tma {
        /// Low 16 bits of the crystal counter.
        ctc: u16,
        /// TSC ticks since the crystal counter's last tick.
        fast: u16,
    },
    /// Eight bits of the crystal counter.
    Mtc(u8),
    /// Core cycles since the last cycle packet.
    Cyc(u64),
    /// Core to bus ratio.
    Cbr(u8),
    /// Packets were lost.
    Ovf,
    /// Tracing stopped at a filter.
    TraceStop,
    /// A `ptwrite`.
    Ptw {
        /// Operand, zero-extended from 32 bits in the short form.
        payload: u64,
        /// Eight-byte form.
        wide: bool,
        /// A FUP with the instruction's IP follows.
        ip: bool,
    },
    /// Maintenance.
    Mnt(u64),
    /// `mwait` with its hints and extensions.
    Mwait {
        /// EAX bits 7:0.
        hints: u32,
        /// ECX.
        extensions: u32,
    },
    /// Entry into a power state.
    Pwre {
        /// Hardware-initiated.
        hardware: bool,
        /// Requested state.
        state: u8,
        /// Requested sub-state.
        sub_state: u8,
    },
    /// Leaving a power state.
    Pwrx {
        /// Last core state.
        last: u8,
        /// Deepest core state.
        deepest: u8,
        /// Reason for leaving it (bit field).
        reason: u8,
    },
    /// Execution stopped.
    ExStop {
        /// A FUP follows.
        ip: bool,
    },
    /// A block of items begins.
    Bbp {
        /// Kind of the block.
        kind: u8,
        /// Width of its items.
        item: BlockItem,
    },
    /// Item of a block.
    Bip {
        /// Number of the item.
        id: u8,
        /// Value of the item.
        payload: u64,
    },
    /// The block ends.
    Bep {
        /// A FUP follows.
        ip: bool,
    },
    /// Control flow event.
    Cfe {
        /// Kind.
        kind: u8,
        /// Interrupt vector.
        vector: u8,
        /// A FUP follows.
        ip: bool,
    },
    /// Data of a control flow event.
    Evd {
        /// Kind.
        kind: u8,
        /// Value.
        payload: u64,
    },
    /// A trigger fired.
    Trig {
        /// Fired triggers, one bit each.
        triggers: u8,
        /// A FUP follows.
        ip: bool,
        /// Other triggers fired and are not in the packet.
        multiple: bool,
        /// Instructions since the last one, if counted.
        instructions: Option<u16>,
    },
}

/// Reason why there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end inside the packet.
    Cut,
    /// The bytes are not a valid packet.
    Bad,
}

/// Byte count of a compressed IP by its 3-bit selector.
fn ip(bytes: &[u8]) -> Result<(Ip, usize), Fault> {
    let first = *bytes.first().ok_or(Fault::Cut)?;
    Ok(match first >> 5 {
        0 => (Ip::Suppressed, 1),
        1 => (Ip::Low16(number::<2>(bytes, 1)? as u16), 3),
        2 => (Ip::Low32(number::<4>(bytes, 1)? as u32), 5),
        3 => (Ip::Signed48(number::<6>(bytes, 1)?), 7),
        4 => (Ip::Low48(number::<6>(bytes, 1)?), 7),
        6 => (Ip::Full(number::<8>(bytes, 1)?), 9),
        _ => return Err(Fault::Bad),
    })
}

/// `N` bytes at `at`, little-endian.
#[inline]
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, Fault> {
    let from = bytes.get(at..at + N).ok_or(Fault::Cut)?;
    let mut word = [0u8; 8];
    word[..N].copy_from_slice(from);
    Ok(u64::from_le_bytes(word))
}

/// Splits off the highest set bit (the stop bit).
fn stop_bit(value: u64) -> Option<(u64, u8)> {
    let count = value.checked_ilog2()?;
    Some((value & !(1 << count), count as u8))
}

/// Decodes the packet at the start of `bytes`, and returns it with its length. `block`: the width
/// of BIPs between a BBP and its BEP, where BIPs replace some short TNTs.
#[inline(always)]
pub fn decode(bytes: &[u8], block: Option<BlockItem>) -> Result<(Packet, usize), Fault> {
    // Fast path for packets of `ptwrite` streams, if there are enough bytes.
    if let Some(head) = bytes.first_chunk::<16>() {
        let word = u64::from_le_bytes([
            head[1], head[2], head[3], head[4], head[5], head[6], head[7], head[8],
        ]);
        match head[0] {
            0x02 if head[1] & 0x5f == 0x12 => {
                // Computed without a branch on the width, which is unpredictable.
                let wide = usize::from(head[1] >> 5 & 1);
                let low = u64::from_le_bytes([
                    head[2], head[3], head[4], head[5], head[6], head[7], head[8], head[9],
                ]);
                let payload = low & u64::MAX >> (32 - 32 * wide);
                return Ok((
                    Packet::Ptw {
                        payload,
                        wide: wide == 1,
                        ip: head[1] & 0x80 != 0,
                    },
                    6 + 4 * wide,
                ));
            }
            0x3d => return Ok((Packet::Fup(Ip::Low16(word as u16)), 3)),
            0x5d => return Ok((Packet::Fup(Ip::Low32(word as u32)), 5)),
            0x7d => return Ok((Packet::Fup(Ip::Signed48(word & 0xffff_ffff_ffff)), 7)),
            0x59 => return Ok((Packet::Mtc(word as u8), 2)),
            short if short & 3 == 3 && short & (head[1] & 1) << 2 == 0 => {
                let second = short >> 2 & 1;
                return Ok((
                    Packet::Cyc(u64::from(short >> 3) | u64::from((head[1] >> 1) * second) << 5),
                    1 + usize::from(second),
                ));
            }
            _ => {}
        }
    }
    decode_any(bytes, block)
}

/// As [`decode`], for any packet.
#[inline(never)]
fn decode_any(bytes: &[u8], block: Option<BlockItem>) -> Result<(Packet, usize), Fault> {
    let first = *bytes.first().ok_or(Fault::Cut)?;
    if first & 0x1f == 0x1d {
        return ip(bytes).map(|(ip, len)| (Packet::Fup(ip), len));
    }
    if first == 0x02 {
        return extended(bytes);
    }
    if let Some(item) = block
        && first & 7 == 4
    {
        let id = first >> 3;
        return Ok(match item {
            BlockItem::Bytes4 => (
                Packet::Bip {
                    id,
                    payload: number::<4>(bytes, 1)?,
                },
                5,
            ),
            BlockItem::Bytes8 => (
                Packet::Bip {
                    id,
                    payload: number::<8>(bytes, 1)?,
                },
                9,
            ),
        });
    }
    if first & 1 == 0 {
        return Ok(match stop_bit(u64::from(first >> 1)) {
            None => (Packet::Pad, 1),
            Some((bits, count)) => (
                Packet::Tnt {
                    bits,
                    count,
                    long: false,
                },
                1,
            ),
        });
    }
    if first & 3 == 3 {
        return cycles(bytes);
    }
    match first {
        0x19 => Ok((Packet::Tsc(number::<7>(bytes, 1)?), 8)),
        0x59 => Ok((Packet::Mtc(number::<1>(bytes, 1)? as u8), 2)),
        0x99 => {
            let mode = number::<1>(bytes, 1)? as u8;
            // Both low bits together are invalid: 64-bit code with 32-bit operands, a transaction
            // both running and aborted.
            match (mode >> 5, mode & 3) {
                (0 | 1, 3) => Err(Fault::Bad),
                (0, _) => Ok((Packet::ModeExec(mode & 0x1f), 2)),
                (1, _) => Ok((Packet::ModeTsx(mode & 0x1f), 2)),
                _ => Err(Fault::Bad),
            }
        }
        0xd9 => {
            let flags = number::<1>(bytes, 1)? as u8;
            let triggers = number::<1>(bytes, 2)? as u8;
            let counted = flags & 0x40 != 0;
            let instructions = if counted {
                Some(number::<2>(bytes, 3)? as u16)
            } else {
                None
            };
            let packet = Packet::Trig {
                triggers,
                ip: flags & 0x80 != 0,
                multiple: flags & 0x20 != 0,
                instructions,
            };
            Ok((packet, if counted { 5 } else { 3 }))
        }
        _ => {
            let (ip, len) = match first & 0x1f {
                0x01 | 0x0d | 0x11 => ip(bytes)?,
                _ => return Err(Fault::Bad),
            };
            let packet = match first & 0x1f {
                0x01 => Packet::TipPgd(ip),
                0x0d => Packet::Tip(ip),
                _ => Packet::TipPge(ip),
            };
            Ok((packet, len))
        }
    }
}

/// Packets that begin with `02`.
#[inline]
fn extended(bytes: &[u8]) -> Result<(Packet, usize), Fault> {
    let code = byte(bytes, 1)?;
    Ok(match code {
        _ if code & 0x1f == 0x12 => return ptwrite(bytes, code),
        0x82 => return psb(bytes),
        0x23 => (Packet::PsbEnd, 2),
        0x03 => {
            byte(bytes, 3)?;
            (Packet::Cbr(byte(bytes, 2)?), 4)
        }
        0xa3 => {
            let (bits, count) = stop_bit(number::<6>(bytes, 2)?)
                .filter(|(_, count)| *count > 0)
                .ok_or(Fault::Bad)?;
            let long = true;
            (Packet::Tnt { bits, count, long }, 8)
        }
        0x43 => {
            let value = number::<6>(bytes, 2)?;
            let (cr3, guest) = (value >> 1 << 5, value & 1 == 1);
            (Packet::Pip { cr3, guest }, 8)
        }
        0xc8 => (Packet::Vmcs(number::<5>(bytes, 2)? << 12), 7),
        0x83 => (Packet::TraceStop, 2),
        0xf3 => (Packet::Ovf, 2),
        0x73 => {
            let fast = number::<2>(bytes, 5)? as u16;
            if fast > 0x1ff || byte(bytes, 4)? != 0 {
                return Err(Fault::Bad);
            }
            let ctc = number::<2>(bytes, 2)? as u16;
            (Packet::Tma { ctc, fast }, 7)
        }
        0xc3 => {
            if byte(bytes, 2)? != 0x88 {
                return Err(Fault::Bad);
            }
            (Packet::Mnt(number::<8>(bytes, 3)?), 11)
        }
        0xc2 | 0x22 | 0xa2 | 0x62 | 0xe2 => return power(bytes, code),
        0x63 | 0x33 | 0xb3 | 0x13 | 0x53 => return block_or_event(bytes, code),
        _ => return Err(Fault::Bad),
    })
}

/// One byte at `at`.
#[inline]
fn byte(bytes: &[u8], at: usize) -> Result<u8, Fault> {
    bytes.get(at).copied().ok_or(Fault::Cut)
}

/// Decodes a `ptwrite` of either width.
#[inline]
fn ptwrite(bytes: &[u8], code: u8) -> Result<(Packet, usize), Fault> {
    let ip = code & 0x80 != 0;
    let (payload, wide, length) = match code >> 5 & 3 {
        0 => (number::<4>(bytes, 2)?, false, 6),
        1 => (number::<8>(bytes, 2)?, true, 10),
        _ => return Err(Fault::Bad),
    };
    Ok((Packet::Ptw { payload, wide, ip }, length))
}

/// A PSB, whose bytes are all known.
#[inline]
fn psb(bytes: &[u8]) -> Result<(Packet, usize), Fault> {
    let present = bytes.len().min(PSB.len());
    if bytes[..present] != PSB[..present] {
        return Err(Fault::Bad);
    }
    if present < PSB.len() {
        return Err(Fault::Cut);
    }
    Ok((Packet::Psb, 16))
}

/// Packets about power states and pauses of execution.
#[inline]
fn power(bytes: &[u8], code: u8) -> Result<(Packet, usize), Fault> {
    Ok(match code {
        0xc2 => {
            let value = number::<8>(bytes, 2)?;
            (
                Packet::Mwait {
                    hints: value as u32,
                    extensions: (value >> 32) as u32,
                },
                10,
            )
        }
        0x22 => {
            let value = number::<2>(bytes, 2)?;
            (
                Packet::Pwre {
                    hardware: value >> 7 & 1 == 1,
                    state: (value >> 12 & 0xf) as u8,
                    sub_state: (value >> 8 & 0xf) as u8,
                },
                4,
            )
        }
        0xa2 => {
            let value = number::<5>(bytes, 2)?;
            let nibble = |at: u32| (value >> at & 0xf) as u8;
            (
                Packet::Pwrx {
                    last: nibble(4),
                    deepest: nibble(0),
                    reason: nibble(8),
                },
                7,
            )
        }
        _ => (
            Packet::ExStop {
                ip: code & 0x80 != 0,
            },
            2,
        ),
    })
}

/// Packets that begin and end blocks, and those of control flow events.
#[inline]
fn block_or_event(bytes: &[u8], code: u8) -> Result<(Packet, usize), Fault> {
    Ok(match code {
        0x63 => {
            let kind = byte(bytes, 2)?;
            let item = if kind & 0x80 != 0 {
                BlockItem::Bytes4
            } else {
                BlockItem::Bytes8
            };
            let kind = kind & 0x1f;
            (Packet::Bbp { kind, item }, 3)
        }
        0x13 => {
            let kind = byte(bytes, 2)?;
            (
                Packet::Cfe {
                    kind: kind & 0x1f,
                    vector: byte(bytes, 3)?,
                    ip: kind & 0x80 != 0,
                },
                4,
            )
        }
        0x53 => (
            Packet::Evd {
                kind: byte(bytes, 2)? & 0x3f,
                payload: number::<8>(bytes, 3)?,
            },
            11,
        ),
        _ => (
            Packet::Bep {
                ip: code & 0x80 != 0,
            },
            2,
        ),
    })
}

/// A cycle packet: 5 bits, then 7 in each further byte that the previous one announces, up to 61
/// bits.
fn cycles(bytes: &[u8]) -> Result<(Packet, usize), Fault> {
    let first = *bytes.first().ok_or(Fault::Cut)?;
    let mut cycles = u64::from(first >> 3);
    let mut more = first & 4 != 0;
    let mut shift = 5;
    let mut len = 1;
    while more {
        let byte = *bytes.get(len).ok_or(Fault::Cut)?;
        let part = u64::from(byte >> 1);
        if shift > 54 {
            return Err(Fault::Bad);
        }
        cycles |= part << shift;
        more = byte & 1 != 0;
        shift += 7;
        len += 1;
    }
    Ok((Packet::Cyc(cycles), len))
}

impl Packet {
    /// True if the packet contains only time. Such a packet may be between a packet and its FUP.
    pub fn is_timing(&self) -> bool {
        matches!(
            self,
            Packet::Pad
                | Packet::Tsc(_)
                | Packet::Tma { .. }
                | Packet::Mtc(_)
                | Packet::Cyc(_)
                | Packet::Cbr(_)
        )
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Ip::Suppressed => f.write_str("no ip"),
            Ip::Low16(v) => write!(f, "….{v:04x}"),
            Ip::Low32(v) => write!(f, "….{v:08x}"),
            Ip::Low48(v) => write!(f, "….{v:012x}"),
            Ip::Signed48(v) => write!(f, "±{v:012x}"),
            Ip::Full(v) => write!(f, "{v:016x}"),
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_ip = |ip: bool| if ip { " ip" } else { "" };
        match *self {
            Packet::Pad => f.write_str("PAD"),
            Packet::Psb => f.write_str("PSB"),
            Packet::PsbEnd => f.write_str("PSBEND"),
            Packet::Tnt { bits, count, long } => {
                f.write_str(if long { "TNT.64 " } else { "TNT " })?;
                (0..count)
                    .rev()
                    .try_for_each(|at| f.write_str(if bits >> at & 1 == 1 { "T" } else { "N" }))
            }
            Packet::Tip(ip) => write!(f, "TIP {ip}"),
            Packet::TipPge(ip) => write!(f, "TIP.PGE {ip}"),
            Packet::TipPgd(ip) => write!(f, "TIP.PGD {ip}"),
            Packet::Fup(ip) => write!(f, "FUP {ip}"),
            Packet::ModeExec(bits) => write!(f, "MODE.Exec {bits:#x}"),
            Packet::ModeTsx(bits) => write!(f, "MODE.TSX {bits:#x}"),
            Packet::Pip { cr3, guest } => {
                write!(f, "PIP {cr3:#x}{}", if guest { " guest" } else { "" })
            }
            Packet::Vmcs(base) => write!(f, "VMCS {base:#x}"),
            Packet::Tsc(tsc) => write!(f, "TSC {tsc:#x}"),
            Packet::Tma { ctc, fast } => write!(f, "TMA ctc {ctc:#x} fast {fast:#x}"),
            Packet::Mtc(ctc) => write!(f, "MTC {ctc:#x}"),
            Packet::Cyc(cycles) => write!(f, "CYC {cycles}"),
            Packet::Cbr(ratio) => write!(f, "CBR {ratio}"),
            Packet::Ovf => f.write_str("OVF"),
            Packet::TraceStop => f.write_str("TraceStop"),
            Packet::Ptw { payload, wide, ip } => write!(
                f,
                "PTW.{} {payload:#x}{}",
                if wide { 64 } else { 32 },
                with_ip(ip)
            ),
            Packet::Mnt(payload) => write!(f, "MNT {payload:#x}"),
            Packet::Mwait { hints, extensions } => write!(f, "MWAIT {hints:#x} {extensions:#x}"),
            Packet::Pwre {
                hardware,
                state,
                sub_state,
            } => {
                write!(
                    f,
                    "PWRE {state} {sub_state}{}",
                    if hardware { " hardware" } else { "" }
                )
            }
            Packet::Pwrx {
                last,
                deepest,
                reason,
            } => write!(f, "PWRX last {last} deepest {deepest} reason {reason:#x}"),
            Packet::ExStop { ip } => write!(f, "EXSTOP{}", with_ip(ip)),
            Packet::Bbp { kind, item } => write!(
                f,
                "BBP {kind} {} bytes",
                if item == BlockItem::Bytes4 { 4 } else { 8 }
            ),
            Packet::Bip { id, payload } => write!(f, "BIP {id} {payload:#x}"),
            Packet::Bep { ip } => write!(f, "BEP{}", with_ip(ip)),
            Packet::Cfe { kind, vector, ip } => {
                write!(f, "CFE {kind} vector {vector}{}", with_ip(ip))
            }
            Packet::Evd { kind, payload } => write!(f, "EVD {kind} {payload:#x}"),
            Packet::Trig {
                triggers,
                ip,
                multiple,
                instructions,
            } => {
                write!(
                    f,
                    "TRIG {triggers:#04x}{}{}",
                    with_ip(ip),
                    if multiple { " multiple" } else { "" }
                )?;
                instructions.map_or(Ok(()), |count| write!(f, " after {count} instructions"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from the manual's packet tables, with what they mean.
    #[test]
    fn each_packet_kind_is_read_as_the_manual_says() {
        let table: &[(&[u8], Packet)] = &[
            (&[0x00], Packet::Pad),
            (&PSB, Packet::Psb),
            (&[0x02, 0x23], Packet::PsbEnd),
            (
                &[0x06],
                Packet::Tnt {
                    bits: 1,
                    count: 1,
                    long: false,
                },
            ),
            (
                &[0x04],
                Packet::Tnt {
                    bits: 0,
                    count: 1,
                    long: false,
                },
            ),
            (
                &[0b1010_0100],
                Packet::Tnt {
                    bits: 0b01_0010,
                    count: 6,
                    long: false,
                },
            ),
            (
                &[0x02, 0xa3, 0x05, 0, 0, 0, 0, 0x80],
                Packet::Tnt {
                    bits: 5,
                    count: 47,
                    long: true,
                },
            ),
            (&[0x0d], Packet::Tip(Ip::Suppressed)),
            (&[0x2d, 0x34, 0x12], Packet::Tip(Ip::Low16(0x1234))),
            (
                &[0x51, 0x78, 0x56, 0x34, 0x12],
                Packet::TipPge(Ip::Low32(0x1234_5678)),
            ),
            (
                &[0x81, 1, 2, 3, 4, 5, 6],
                Packet::TipPgd(Ip::Low48(0x0605_0403_0201)),
            ),
            (
                &[0x7d, 1, 2, 3, 4, 5, 0x86],
                Packet::Fup(Ip::Signed48(0x8605_0403_0201)),
            ),
            (
                &[0xdd, 1, 2, 3, 4, 5, 6, 7, 8],
                Packet::Fup(Ip::Full(0x0807_0605_0403_0201)),
            ),
            (&[0x99, 0x05], Packet::ModeExec(5)),
            (&[0x99, 0x22], Packet::ModeTsx(2)),
            (
                &[0x02, 0x43, 0x03, 0, 0, 0, 0, 0x01],
                Packet::Pip {
                    cr3: 0x0100_0000_0002 >> 1 << 5,
                    guest: true,
                },
            ),
            (
                &[0x02, 0xc8, 1, 2, 3, 4, 5],
                Packet::Vmcs(0x0000_5040_3020_1000),
            ),
            (
                &[0x19, 1, 2, 3, 4, 5, 6, 7],
                Packet::Tsc(0x07_0605_0403_0201),
            ),
            (
                &[0x02, 0x73, 0x34, 0x12, 0, 0xff, 0x01],
                Packet::Tma {
                    ctc: 0x1234,
                    fast: 0x1ff,
                },
            ),
            (&[0x59, 0xab], Packet::Mtc(0xab)),
            (&[0b1010_1011], Packet::Cyc(0b10101)),
            (
                &[0b0000_1111, 0b0000_0101, 0x02],
                Packet::Cyc(1 | 2 << 5 | 1 << 12),
            ),
            (&[0x02, 0x03, 0x18, 0x00], Packet::Cbr(0x18)),
            (&[0x02, 0xf3], Packet::Ovf),
            (&[0x02, 0x83], Packet::TraceStop),
            (
                &[0x02, 0x12, 1, 2, 3, 0x84],
                Packet::Ptw {
                    payload: 0x8403_0201,
                    wide: false,
                    ip: false,
                },
            ),
            (
                &[0x02, 0xb2, 1, 2, 3, 4, 5, 6, 7, 8],
                Packet::Ptw {
                    payload: 0x0807_0605_0403_0201,
                    wide: true,
                    ip: true,
                },
            ),
            (
                &[0x02, 0xc3, 0x88, 1, 0, 0, 0, 0, 0, 0, 2],
                Packet::Mnt(0x0200_0000_0000_0001),
            ),
            (
                &[0x02, 0xc2, 0x21, 0, 0, 0, 1, 0, 0, 0],
                Packet::Mwait {
                    hints: 0x21,
                    extensions: 1,
                },
            ),
            (
                &[0x02, 0x22, 0x80, 0x32],
                Packet::Pwre {
                    hardware: true,
                    state: 3,
                    sub_state: 2,
                },
            ),
            (
                &[0x02, 0xa2, 0x36, 0x01, 0, 0, 0],
                Packet::Pwrx {
                    last: 3,
                    deepest: 6,
                    reason: 1,
                },
            ),
            (&[0x02, 0x62], Packet::ExStop { ip: false }),
            (&[0x02, 0xe2], Packet::ExStop { ip: true }),
            (
                &[0x02, 0x63, 0x84],
                Packet::Bbp {
                    kind: 4,
                    item: BlockItem::Bytes4,
                },
            ),
            (&[0x02, 0x33], Packet::Bep { ip: false }),
            (&[0x02, 0xb3], Packet::Bep { ip: true }),
            (
                &[0x02, 0x13, 0x81, 0x20],
                Packet::Cfe {
                    kind: 1,
                    vector: 0x20,
                    ip: true,
                },
            ),
            (
                &[0x02, 0x53, 0x01, 1, 0, 0, 0, 0, 0, 0, 0],
                Packet::Evd {
                    kind: 1,
                    payload: 1,
                },
            ),
            (
                &[0xd9, 0xa0, 0x03],
                Packet::Trig {
                    triggers: 3,
                    ip: true,
                    multiple: true,
                    instructions: None,
                },
            ),
            (
                &[0xd9, 0x40, 0x01, 0x34, 0x12],
                Packet::Trig {
                    triggers: 1,
                    ip: false,
                    multiple: false,
                    instructions: Some(0x1234),
                },
            ),
        ];
        for (bytes, packet) in table {
            assert_eq!(
                decode(bytes, None),
                Ok((*packet, bytes.len())),
                "{bytes:02x?}"
            );
            for cut in 0..bytes.len() {
                assert_eq!(
                    decode(&bytes[..cut], None),
                    Err(Fault::Cut),
                    "{cut} bytes of {bytes:02x?}"
                );
            }
            // With any bytes behind it, and by both decoders.
            let followed = [bytes, &[0xffu8; 16][..]].concat();
            assert_eq!(
                decode(&followed, None),
                Ok((*packet, bytes.len())),
                "{bytes:02x?} with more behind"
            );
            assert!(!packet.to_string().is_empty());
        }
    }

    proptest::proptest! {
        #[test]
        fn the_short_way_reads_what_the_long_way_reads(mut bytes in proptest::array::uniform20(proptest::num::u8::ANY), first in proptest::sample::select(vec![0x02u8, 0x3d, 0x5d, 0x7d, 0x59, 0x03, 0x0b, 0xff, 0x00]), second: u8) {
            bytes[0] = first;
            bytes[1] = second;
            for block in [None, Some(BlockItem::Bytes4), Some(BlockItem::Bytes8)] {
                assert_eq!(decode(&bytes, block), decode_any(&bytes, block));
            }
        }
    }

    #[test]
    fn block_items_hide_short_tnts_only_inside_a_block() {
        let bytes = [0x2c, 1, 0, 0, 0, 2, 0, 0, 0];
        assert_eq!(
            decode(&bytes, Some(BlockItem::Bytes4)),
            Ok((Packet::Bip { id: 5, payload: 1 }, 5))
        );
        assert_eq!(
            decode(&bytes, Some(BlockItem::Bytes8)),
            Ok((
                Packet::Bip {
                    id: 5,
                    payload: 0x0000_0002_0000_0001
                },
                9
            ))
        );
        assert!(matches!(
            decode(&bytes, None),
            Ok((Packet::Tnt { count: 4, .. }, 1))
        ));
    }

    #[test]
    fn what_no_packet_looks_like_is_bad() {
        for bytes in [
            &[0x02u8, 0x00][..],
            &[0x02, 0x52, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x02, 0x82, 0x02, 0x83],
            &[0x02, 0xc3, 0x00],
            &[0x02, 0xa3, 0, 0, 0, 0, 0, 0],
            &[0x02, 0xa3, 1, 0, 0, 0, 0, 0],
            &[0x02, 0x73, 0, 0, 1, 0, 0],
            &[0x99, 0x03],
            &[0x99, 0x23],
            &[0x99, 0x40],
            &[0x99, 0x82],
            &[0x99, 0xe1],
            &[0x39, 0],
            &[0x02, 0x72, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x02, 0x73, 0, 0, 0, 0, 2],
            &[0xad, 0, 0],
            &[0xfd, 0, 0],
            &[0x05],
        ] {
            assert_eq!(decode(bytes, None), Err(Fault::Bad), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_cycle_count_beyond_61_bits_is_bad() {
        let mut bytes = vec![0xff; 8];
        bytes.push(0xfe);
        assert_eq!(decode(&bytes, None), Ok((Packet::Cyc((1 << 61) - 1), 9)));
        bytes[8] = 0xff;
        bytes.push(0x00);
        assert_eq!(decode(&bytes, None), Err(Fault::Bad));
    }
}
