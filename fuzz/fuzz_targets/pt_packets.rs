//! Arbitrary bytes as an Intel PT stream: packets are compared with libipt's, and pairs with those
//! that follow from the packets.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_pt::packet::Packet;
use mgz_pt::ptwrite::LastIp;
use mgz_pt::{Clock, ClockSettings, GapReason, Packets, Ptwrite, Ptwrites, PacketOrGap};
use std::sync::Once;

#[path = "../../collector/intel-pt/tests/pt/words.rs"]
mod words;

static SAID: Once = Once::new();

/// Our lines must equal libipt's, up to the first packet that libipt does not support.
fn compare_packets(bytes: &[u8]) {
    let Some(theirs) = mgz_fuzz::libipt::packets(bytes) else {
        return SAID.call_once(|| eprintln!("SKIPPED: built without libipt-dev, so its reading is not compared"));
    };
    let (ours, known) = words::packets(bytes, false);
    let theirs: Vec<_> = theirs.lines().collect();
    for (our, their) in ours.iter().zip(&theirs) {
        assert_eq!(our, their);
    }
    assert!(!known || ours.len() == theirs.len(), "{} lines, libipt has {}", ours.len(), theirs.len());
}

/// Pairs by the plain rule: a FUP belongs to the PTW before it if there are only timing packets
/// between them.
fn plain_pairs(bytes: &[u8], settings: ClockSettings) -> Vec<Ptwrite> {
    let (mut clock, mut last) = (Clock::new(settings), LastIp::default());
    let mut pending = None;
    let mut out = Vec::new();
    let mut at_end = 0;
    for step in Packets::new(bytes) {
        let (at, len, packet) = match step {
            PacketOrGap::Packet { at, len, packet } => (at, len, packet),
            PacketOrGap::Gap(gap) => {
                pending = None;
                if gap.reason == GapReason::BadPacket {
                    clock = Clock::new(settings);
                }
                continue;
            }
        };
        assert_eq!(at.max(at_end), at, "packets overlap");
        at_end = at + len;
        let time = packet.is_timing();
        clock.update(&packet);
        let before = if time { None } else { pending.take() };
        match packet {
            Packet::Ptw { payload, ip: false, .. } => {
                out.push(Ptwrite { ip: None, payload, tsc: clock.tsc(), start: at, end: at_end });
            }
            Packet::Ptw { payload, .. } => pending = Some((payload, at)),
            Packet::Psb => last = LastIp::default(),
            Packet::Fup(ip) => {
                if let (Some((payload, start)), Some(ip)) = (before, last.update(ip)) {
                    out.push(Ptwrite { ip: Some(ip), payload, tsc: clock.tsc(), start, end: at_end });
                }
            }
            Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) => drop(last.update(ip)),
            _ => {}
        }
    }
    out
}

fuzz_target!(|bytes: &[u8]| {
    compare_packets(bytes);
    // The first byte selects the clock's settings, so that each of its paths is tested.
    let first = bytes.first().copied().unwrap_or(0);
    let settings = ClockSettings {
        tsc_per_ctc: u32::from(first & 3) * 117,
        tsc_per_ctc_divisor: u32::from(first >> 2 & 3),
        mtc_period: first >> 4,
        nominal_ratio: first & 0x1f,
    };
    let mut reader = Ptwrites::new(bytes, settings);
    let pairs: Vec<_> = reader.by_ref().collect();
    assert_eq!(pairs, plain_pairs(bytes, settings));
    let loss = reader.loss();
    assert!(loss.before_psb_bytes + loss.bad_bytes + loss.cut_bytes <= bytes.len() as u64);
    let _ = mgz_pt::estimate_unsynchronised(bytes);
});
