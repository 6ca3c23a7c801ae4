//! A decoder of Intel Processor Trace for `ptwrite`: bytes in, (IP, payload, time) out.
//!
//! What makes this hard: a stream can be cut anywhere, packets have no length field, IPs are
//! compressed against the previous one, and the IP of a `ptwrite` is in a separate packet (a FUP)
//! behind it. So a stream can be read only from a PSB on, and after an unreadable packet only from
//! the next PSB on.
//!
//! * [`packet`]: one packet, pure.
//! * [`stream`]: sequences of packets, from PSB to PSB, with an account of every skipped byte.
//! * [`clock`]: time stamps from TSC, TMA, MTC, CYC and CBR packets.
//! * [`ptwrite`]: `ptwrite`s with their IPs.
//!
//! Guarantees: no byte sequence makes anything here panic; nothing is allocated per packet; every
//! byte of the input is in a packet or in a reported gap; a payload never gets the IP of another
//! `ptwrite`. Not supported: branches are not followed (no TNT is interpreted), so code is never
//! needed.

#![forbid(unsafe_code)]

pub mod clock;
pub mod packet;
pub mod ptwrite;
pub mod stream;

pub use crate::clock::{Clock, ClockSettings};
pub use crate::ptwrite::{Loss, Ptwrite, Ptwrites, estimate_unsynchronised};
pub use packet::{Fault, Ip, Packet, decode};
pub use stream::{Gap, GapReason, PacketOrGap, Packets, find_psb};

use std::io;
use std::io::Write;

/// Writes one line per packet: offset, bytes, text; skipped bytes get a line of their own.
///
/// Decoding starts at the first PSB, since before it the boundaries of packets are unknown.
pub fn dump_packets(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    use std::fmt::Write as _;
    let mut hex = String::new();
    for step in Packets::new(bytes) {
        match step {
            PacketOrGap::Packet { at, len, packet } => {
                hex.clear();
                for byte in &bytes[at..at + len] {
                    let _ = write!(hex, "{byte:02x} ");
                }
                writeln!(out, "{at:08x}  {hex:<48}  {packet}")?;
            }
            PacketOrGap::Gap(gap) => writeln!(
                out,
                "{:08x}  {} bytes skipped: {}",
                gap.from,
                gap.to - gap.from,
                gap.reason
            )?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_names_packets_and_gaps() {
        let mut bytes = vec![0x59, 0x01];
        bytes.extend_from_slice(&packet::PSB);
        bytes.extend_from_slice(&[0x02, 0x23, 0x02, 0x12, 0x2a, 0, 0, 0, 0x05]);
        let mut out = Vec::new();
        dump_packets(&bytes, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[0], "00000000  2 bytes skipped: before the first PSB");
        assert!(
            lines[3].starts_with("00000014  02 12 2a 00 00 00 ")
                && lines[3].ends_with("PTW.32 0x2a"),
            "{text}"
        );
        assert_eq!(lines[4], "0000001a  1 bytes skipped: bad packet");
    }
}
