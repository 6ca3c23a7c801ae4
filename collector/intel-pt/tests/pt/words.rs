//! Packets in the text format of the libipt driver, so that both results can be compared line by
//! line.

use mgz_pt::packet::{Fault, Ip, Packet, decode};

fn name(packet: &Packet, newest: bool) -> Option<String> {
    let ip = |name: &str, ip: Ip| match ip {
        Ip::Suppressed => format!("{name} 0 0"),
        Ip::Low16(v) => format!("{name} 1 {v:x}"),
        Ip::Low32(v) => format!("{name} 2 {v:x}"),
        Ip::Signed48(v) => format!("{name} 3 {v:x}"),
        Ip::Low48(v) => format!("{name} 4 {v:x}"),
        Ip::Full(v) => format!("{name} 6 {v:x}"),
    };
    let bit = u8::from;
    Some(match *packet {
        Packet::Pad => "pad".into(),
        Packet::Psb => "psb".into(),
        Packet::PsbEnd => "psbend".into(),
        Packet::TraceStop => "stop".into(),
        Packet::Ovf => "ovf".into(),
        Packet::Fup(v) => ip("fup", v),
        Packet::Tip(v) => ip("tip", v),
        Packet::TipPge(v) => ip("pge", v),
        Packet::TipPgd(v) => ip("pgd", v),
        Packet::Tnt { bits, count, .. } => format!("tnt {count} {bits:x}"),
        Packet::ModeExec(bits) => format!("exec {} {}", bits & 1, bits >> 1 & 1),
        Packet::ModeTsx(bits) => format!("tsx {} {}", bits & 1, bits >> 1 & 1),
        Packet::Pip { cr3, guest } => format!("pip {cr3:x} {}", bit(guest)),
        Packet::Vmcs(base) => format!("vmcs {base:x}"),
        Packet::Cbr(ratio) => format!("cbr {ratio}"),
        Packet::Tsc(tsc) => format!("tsc {tsc:x}"),
        Packet::Tma { ctc, fast } => format!("tma {ctc:x} {fast:x}"),
        Packet::Mtc(ctc) => format!("mtc {ctc:x}"),
        Packet::Cyc(cycles) => format!("cyc {cycles:x}"),
        Packet::Mnt(payload) => format!("mnt {payload:x}"),
        Packet::ExStop { ip } => format!("exstop {}", bit(ip)),
        Packet::Mwait { hints, extensions } => format!("mwait {hints:x} {extensions:x}"),
        // libipt takes bit 3 for the hardware flag; the manual, perf and iptr say bit 7.
        Packet::Pwre {
            state, sub_state, ..
        } => format!("pwre {state} {sub_state}"),
        Packet::Pwrx {
            last,
            deepest,
            reason,
        } => format!(
            "pwrx {last} {deepest} {}",
            reason & 1 | reason >> 1 & 2 | reason >> 1 & 4
        ),
        Packet::Ptw { payload, wide, ip } => format!("ptw {} {payload:x} {}", bit(wide), bit(ip)),
        Packet::Cfe { kind, vector, ip } if newest => format!("cfe {kind} {vector} {}", bit(ip)),
        // libipt keeps five of the six bits.
        Packet::Evd { kind, payload } if newest => format!("evd {} {payload:x}", kind & 0x1f),
        Packet::Trig {
            triggers,
            ip,
            multiple,
            instructions,
        } if newest => {
            format!(
                "trig {triggers} {} {} {}",
                bit(ip),
                bit(multiple),
                instructions.map_or(-1, i32::from)
            )
        }
        // libipt does not support these packets, and reads the following bytes differently.
        Packet::Bbp { .. }
        | Packet::Bip { .. }
        | Packet::Bep { .. }
        | Packet::Cfe { .. }
        | Packet::Evd { .. }
        | Packet::Trig { .. } => return None,
    })
}

/// The packets from the first byte on, a line each as `libipt.c` writes them; `false` after a
/// packet that libipt does not support, since the rest cannot be compared. `newest`: libipt 2.2
/// rather than 2.0.
pub fn packets(bytes: &[u8], newest: bool) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        match decode(&bytes[at..], None) {
            Ok((packet, len)) => {
                let Some(name) = name(&packet, newest) else {
                    return (lines, false);
                };
                lines.push(format!("{at} {len} {name}"));
                at += len;
            }
            Err(mut fault) => {
                let later = matches!(bytes[at..], [0xd9, ..] | [0x02, 0x13 | 0x53, ..]) && !newest;
                // libipt accepts invalid modes.
                let mode =
                    matches!(bytes[at..], [0x99, mode, ..] if mode >> 5 < 2 && mode & 3 == 3);
                if later || mode || matches!(bytes[at..], [0x02, 0x63 | 0x33 | 0xb3, ..]) {
                    return (lines, false);
                }
                // At the end, libipt does not check if the first bytes of a PSB are valid.
                if bytes[at..].starts_with(&[0x02, 0x82]) && bytes.len() - at < 16 {
                    fault = Fault::Cut;
                }
                lines.push(format!(
                    "{at} end {}",
                    if fault == Fault::Cut { "eos" } else { "bad" }
                ));
                return (lines, true);
            }
        }
    }
}
