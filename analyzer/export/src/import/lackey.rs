//! Traces of `valgrind --tool=lackey --trace-mem=yes`.

use crate::import::Imported;
use crate::import::writer::{ImportedAccess, TraceWriter};
use anyhow::{Context, bail};
use std::io::BufRead;

/// An instruction, load, store or both (`I`, ` L`, ` S`, ` M`): kind, address, size.
pub fn line(text: &[u8]) -> Option<(u8, u64, u32)> {
    let (kind, rest) = match text {
        [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
        [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
        _ => return None,
    };
    let text = std::str::from_utf8(rest).ok()?.trim_end();
    let (address, size) = text.split_once(',')?;
    Some((
        kind,
        u64::from_str_radix(address, 16).ok()?,
        size.parse().ok()?,
    ))
}

/// Reads a trace. Lackey records no threads: all accesses belong to one.
pub fn read_lackey(input: &mut dyn BufRead, out: &mut TraceWriter) -> anyhow::Result<Imported> {
    let mut found = Imported::default();
    let (mut ip, mut time) = (0, 0u64);
    let mut text = Vec::new();
    loop {
        text.clear();
        if input
            .read_until(b'\n', &mut text)
            .context("the trace cannot be read")?
            == 0
        {
            break;
        }
        match line(&text) {
            Some((b'I', address, _)) => (ip, time) = (address, time + 1),
            Some((kind, address, size)) => {
                found.accesses += 1;
                let mut access = ImportedAccess {
                    process: 1,
                    thread: 1,
                    ip,
                    address,
                    size,
                    store: kind == b'S',
                    time,
                };
                out.add(access)?;
                // A modification loads memory, then stores it.
                if kind == b'M' {
                    access.store = true;
                    out.add(access)?;
                }
            }
            None => {
                let text = String::from_utf8_lossy(&text);
                // Valgrind's own lines, `==PID== …`.
                let own = text.strip_prefix("==").and_then(|t| t.split_once("== "));
                match own {
                    Some((_, rest)) => {
                        if let Some(command) = rest.strip_prefix("Command: ") {
                            found.command = command.trim_end().into();
                        }
                    }
                    None => {
                        found.strange +=
                            u64::from(!text.trim().is_empty() && !text.starts_with("=="))
                    }
                }
            }
        }
    }
    if found.accesses == 0 {
        bail!(
            "no access is in it; a trace is what valgrind --tool=lackey --trace-mem=yes --log-file=FILE writes"
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(line(b"I  0401ab70,3\n"), Some((b'I', 0x0401_ab70, 3)));
        assert_eq!(line(b" L 1fff000770,8\n"), Some((b'L', 0x1f_ff00_0770, 8)));
        assert_eq!(line(b" M 1fff000770,16"), Some((b'M', 0x1f_ff00_0770, 16)));
        for bad in [
            &b"==1== I"[..],
            b" L 12",
            b" L xy,8",
            b" Q 12,8",
            b" L 12,-1",
            b"",
        ] {
            assert_eq!(line(bad), None);
        }
    }
}
