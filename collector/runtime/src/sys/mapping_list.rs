//! The text of `/proc/PID/maps` and `smaps`, in which some memory is shown as reserved (`---p`).
//!
//! The ranges stay in the list, so that a search for free addresses finds none there. Mappings that
//! the kernel has merged with the program's are split.

/// Bytes of a line that are examined. Only lines with the path of a file are longer. Source:
/// Chosen.
const MAX_LINE_BYTES: usize = 256;
/// Prefix of the names of the recorder's files.
const NAME: &[u8] = b"/memfd:mgz-";
/// Replaces the permissions.
const RESERVED: &[u8] = b"---p";

/// Filters the text in pieces. `own` returns the first part of an address range that is to be shown
/// as reserved; `out` receives the filtered text.
pub struct MappingList<O, W> {
    own: O,
    out: W,
    line: [u8; MAX_LINE_BYTES],
    length: usize,
    /// The line is too long, and its beginning was already written.
    is_begun: bool,
}

impl<O, W> MappingList<O, W>
where
    O: Fn(usize, usize) -> Option<(usize, usize)>,
    W: FnMut(&[u8]),
{
    /// A filter that has received no text yet.
    pub fn new(own: O, out: W) -> Self {
        MappingList {
            own,
            out,
            line: [0; MAX_LINE_BYTES],
            length: 0,
            is_begun: false,
        }
    }

    /// Filters the next piece of text.
    pub fn take(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.line.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
            if byte == b'\n' {
                self.give_line();
                self.is_begun = false;
            } else if self.length == MAX_LINE_BYTES {
                self.give_line();
                self.is_begun = true;
            }
        }
    }

    /// Writes the rest of the last line.
    pub fn finish(&mut self) {
        self.give_line();
    }

    fn give_line(&mut self) {
        let line = &self.line[..core::mem::take(&mut self.length)];
        let Some((mut start, end, rest)) = parse(line).filter(|_| !self.is_begun) else {
            return (self.out)(line);
        };
        let (permissions, rest) = rest.split_at(RESERVED.len());
        let is_recorders = rest.windows(NAME.len()).any(|w| w == NAME);
        if is_recorders && permissions.contains(&b'w') {
            return give(&mut self.out, start, end, RESERVED, rest);
        }
        while start < end {
            let (from, to) = (self.own)(start, end).unwrap_or((end, end));
            if start < from {
                give(&mut self.out, start, from, permissions, rest);
            }
            if from < to {
                give(&mut self.out, from, to, RESERVED, rest);
            }
            start = to.max(from);
        }
    }
}

/// Both addresses of a line about a mapping, and the rest, from the permissions on.
fn parse(line: &[u8]) -> Option<(usize, usize, &[u8])> {
    let (start, rest) = number(line)?;
    let (end, rest) = number(rest.strip_prefix(b"-")?)?;
    let rest = rest.strip_prefix(b" ")?;
    (rest.len() > RESERVED.len() && start < end).then_some((start, end, rest))
}

/// A hexadecimal number, and the rest of the text.
fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    let digit = |c: &u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    let digits = text.iter().take_while(|c| digit(c)).count();
    if !(1..=16).contains(&digits) {
        return None;
    }
    let value = text[..digits].iter().fold(0, |n: usize, c| {
        let digit = if c.is_ascii_digit() {
            c - b'0'
        } else {
            c - b'a' + 10
        };
        n << 4 | usize::from(digit)
    });
    Some((value, &text[digits..]))
}

/// Writes a line, with its addresses in the kernel's format.
fn give(out: &mut impl FnMut(&[u8]), start: usize, end: usize, permissions: &[u8], rest: &[u8]) {
    let mut text = [0u8; 16];
    out(hex(start, &mut text));
    out(b"-");
    out(hex(end, &mut text));
    out(b" ");
    out(permissions);
    out(rest);
}

/// Formats a number with at least eight hexadecimal digits.
fn hex(number: usize, text: &mut [u8; 16]) -> &[u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (16 - number.leading_zeros() as usize / 4).max(8);
    for (place, digit) in text[..digits].iter_mut().zip((0..digits).rev()) {
        *place = DIGITS[number >> (4 * digit) & 15];
    }
    &text[..digits]
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::String;
    use std::vec::Vec;

    /// The filtered text, checked to be the same for pieces of every length; `own`: the reserved
    /// ranges.
    fn shown(text: &str, own: &[(usize, usize)]) -> String {
        let first = |start: usize, end: usize| {
            let inside = own.iter().filter(|r| r.0 < end && start < r.1);
            inside.map(|r| (r.0.max(start), r.1.min(end))).min()
        };
        let mut all = Vec::new();
        for length in [1, 7, 64, 4096] {
            let mut given = Vec::new();
            let mut list = MappingList::new(first, |part: &[u8]| given.extend_from_slice(part));
            text.as_bytes().chunks(length).for_each(|c| list.take(c));
            list.finish();
            all.push(String::from_utf8(given).unwrap());
        }
        assert!(all.iter().all(|one| *one == all[0]));
        all.remove(0)
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        let long = std::format!(
            "7f0000000000-7f0000001000 rw-p 00000000 08:01 77 /{}\n",
            "x".repeat(700)
        );
        let text = std::format!(
            "00400000-00401000 r-xp 00000000 08:01 12                         /bin/x\n{long}Size:                  4 kB\nVmFlags: rd wr mr\n7ffd7863f000-7ffd78660000 rw-p 00000000 00:00 0                          [stack]\nffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
        );
        assert_eq!(shown(&text, &[]), text);
        assert_eq!(shown("", &[]), "");
        assert_eq!(shown("12-", &[]), "12-");
    }

    #[test]
    fn what_is_the_runtimes_is_reserved() {
        assert_eq!(
            shown(
                "40828000-40855000 rw-p 00000000 00:00 0 \n",
                &[(0x4082_8000, 0x4085_5000)]
            ),
            "40828000-40855000 ---p 00000000 00:00 0 \n"
        );
        assert_eq!(
            shown(
                "401b3000-40828000 rw-s 00000000 00:01 1097      /memfd:mgz-arena (deleted)\n",
                &[]
            ),
            "401b3000-40828000 ---p 00000000 00:01 1097      /memfd:mgz-arena (deleted)\n"
        );
        let code =
            "7f73ef836000-7f73ef83a000 r-xp 00002000 00:01 1098   /memfd:mgz-runtime (deleted)\n";
        assert_eq!(shown(code, &[]), code);
    }

    #[test]
    fn merged_mappings_are_split() {
        assert_eq!(
            shown(
                "00010000-00015000 rw-p 00000000 00:00 0 \n",
                &[(0x1_1000, 0x1_2000), (0x1_4000, 0x2_0000)]
            ),
            "00010000-00011000 rw-p 00000000 00:00 0 \n00011000-00012000 ---p 00000000 00:00 0 \n00012000-00014000 rw-p 00000000 00:00 0 \n00014000-00015000 ---p 00000000 00:00 0 \n"
        );
    }
}
