//! `/proc/PID/maps`, the kernel's list of a process's mappings.
//!
//! This is the recorder's only parser of the list. The runtime, which has no standard library, does
//! not use the list: it gets its modules from the loader. The tests' single-step reference has a
//! parser of its own, so that it shares no code with the tested program.

use std::io;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Permissions, such as `r-xp`.
    pub rights: &'a str,
    /// Offset in the file.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 if there is no file.
    pub inode: u64,
    /// Path, or the kernel's name in brackets; empty for memory without one. Spaces are part of
    /// it.
    pub name: &'a str,
}

impl MapsLine<'_> {
    /// `start-end rights offset device inode name`; `None` if the line is invalid.
    pub fn parse(line: &str) -> Option<MapsLine<'_>> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let hex32 = |text: &str| u32::from_str_radix(text, 16).ok();
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let rights = fields.next()?;
        let offset = hex(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        Some(MapsLine {
            start,
            end,
            rights,
            offset,
            device: (hex32(major)?, hex32(minor)?),
            inode: fields.next()?.parse().ok()?,
            name: fields.next().unwrap_or("").trim_start(),
        })
        .filter(|line| line.start < line.end)
    }

    /// True if the mapping is readable.
    pub fn is_readable(&self) -> bool {
        self.rights.starts_with('r')
    }

    /// True if the mapping is executable.
    pub fn is_executable(&self) -> bool {
        self.rights.as_bytes().get(2) == Some(&b'x')
    }
}

/// All valid lines.
pub fn lines(text: &str) -> impl Iterator<Item = MapsLine<'_>> {
    text.lines().filter_map(MapsLine::parse)
}

/// The list of a process, for [`lines`].
pub fn read_process_maps(pid: u32) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/maps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_odd_names() {
        assert_eq!(
            MapsLine::parse(
                "7f00-7f80 r-xp 00001000 fe:01 42                         /tmp/a name (deleted)",
            ),
            Some(MapsLine {
                start: 0x7f00,
                end: 0x7f80,
                rights: "r-xp",
                offset: 0x1000,
                device: (0xfe, 1),
                inode: 42,
                name: "/tmp/a name (deleted)"
            })
        );
        for bare in ["1-2 rw-p 00000000 00:00 0 ", "1-2 rw-p 0 00:00 0"] {
            assert_eq!(MapsLine::parse(bare).unwrap().name, "", "{bare}");
        }
    }

    #[test]
    fn lines_without_sense_are_left_out() {
        let bad = "\n\
            x\n\
            nonsense\n\
            1-2 r-xp 0\n\
            1-2 r-xp 0 0 0 /a\n\
            1-2 r-xp 0 0:0 z /a\n\
            1-g r-xp 0 0:0 0 /a\n\
            1 r-xp 0 0:0 0 /a\n\
            2-1 r-xp 0 0:0 0 /a\n\
            1-1 r-xp 0 0:0 0 /a\n";
        assert_eq!(lines(bad).collect::<Vec<_>>(), []);
    }

    #[test]
    fn this_process_has_code_and_a_stack() {
        let text = read_process_maps(std::process::id()).unwrap();
        assert_eq!(lines(&text).count(), text.lines().count());
        assert!(lines(&text).any(|l| l.is_executable() && l.is_readable() && l.inode != 0));
        assert!(lines(&text).any(|l| l.name == "[stack]" && !l.is_executable()));
    }
}
