//! Stepped processes, and the files at their addresses.

use super::At;
use super::image::Image;
use crate::events::WatchedCode;
use crate::tracee::Memory;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::Path;

/// An address as a location in a watched file.
#[derive(Clone, Copy)]
pub(crate) struct CodeAddress {
    pub watch: usize,
    pub bias: u64,
    pub clone: bool,
}

/// A row of `/proc/PID/maps`.
pub(crate) struct Mapping {
    start: u64,
    end: u64,
    /// Index of the watch and load bias.
    pub module: Option<(usize, u64)>,
}

/// A stepped process.
pub(crate) struct Process {
    pub memory: Memory,
    pub mappings: Vec<Mapping>,
    pub code: HashMap<u64, Option<At>>,
    /// Watches whose load address was logged.
    pub announced: Vec<usize>,
    /// Original byte under the breakpoint at the entry point.
    pub breakpoint: Option<(u64, u8)>,
    pub stepped: bool,
    /// Addresses of the breakpoints while the process runs without steps, with the overwritten
    /// bytes. `None`: not known yet.
    pub mines: Option<Vec<(u64, Vec<u8>)>>,
    /// True while the breakpoints are in the code.
    pub mined: bool,
    /// The process has one thread and does not share its memory.
    pub alone: bool,
}

impl Process {
    /// A process of which nothing is known yet.
    pub fn new(memory: Memory) -> Process {
        Process {
            memory,
            mappings: Vec::new(),
            code: HashMap::new(),
            announced: Vec::new(),
            breakpoint: None,
            stepped: true,
            mines: None,
            mined: false,
            alone: true,
        }
    }

    /// Sets or removes the breakpoints.
    pub fn mine(&mut self, on: bool) -> Result<()> {
        if self.mined != on {
            for (at, bytes) in self.mines.iter().flatten() {
                let mines = if on { &vec![0xcc; bytes.len()] } else { bytes };
                self.memory.write(*at, mines).context("breakpoints")?;
            }
            self.mined = on;
        }
        Ok(())
    }
}

/// The process of a thread.
pub(crate) fn group_of(tid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    text.lines()
        .find_map(|l| l.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}

/// The parent of a process.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|l| l.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()
}

/// The entry point of the program.
pub(crate) fn entry_point(pid: i32) -> Option<u64> {
    let bytes = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes"));
    bytes
        .chunks_exact(16)
        .find(|pair| word(&pair[..8]) == 9)
        .map(|pair| word(&pair[8..]))
}

/// The location of a process's address, if it is watched.
pub(crate) fn find_watched(
    process: &mut Process,
    program: &Path,
    watches: &[WatchedCode],
    images: &[Image],
    pid: i32,
    ip: u64,
) -> Result<Option<CodeAddress>> {
    let at = |process: &Process| {
        process
            .mappings
            .iter()
            .position(|m| (m.start..m.end).contains(&ip))
    };
    let index = match at(process) {
        Some(i) => i,
        None => {
            process.mappings = mappings(pid, program, watches, images)?;
            match at(process) {
                Some(i) => i,
                None => return Ok(None),
            }
        }
    };
    let Some((watch, bias)) = process.mappings[index].module else {
        return Ok(None);
    };
    let link = ip.wrapping_sub(bias);
    let ranges = &watches[watch].ranges;
    let after = ranges.partition_point(|r| r.0 <= link);
    let inside = after
        .checked_sub(1)
        .map(|i| ranges[i])
        .filter(|r| link < r.1);
    Ok(inside.map(|r| CodeAddress {
        watch,
        bias,
        clone: r.2,
    }))
}

fn mappings(
    pid: i32,
    program: &Path,
    watches: &[WatchedCode],
    images: &[Image],
) -> Result<Vec<Mapping>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut all = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let path = words.nth(2).unwrap_or("");
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let (start, end) = (
            u64::from_str_radix(start, 16)?,
            u64::from_str_radix(end, 16)?,
        );
        let offset = u64::from_str_radix(offset, 16)?;
        // Only code is considered, since pages of two other segments may share one page of the
        // file.
        let code = rights.contains('x');
        let watch = watches.iter().position(|w| {
            code && (path == w.path.to_string_lossy()
                || (path == program.to_string_lossy() && same_file(&w.path, program)))
        });
        let module = watch.and_then(|w| {
            let page = |s: &&(u64, u64, u64)| (s.0 & !0xfff..s.0 + s.1).contains(&offset);
            let segment = images[w].segments.iter().find(page)?;
            Some((
                w,
                start
                    .wrapping_sub(offset)
                    .wrapping_add(segment.0)
                    .wrapping_sub(segment.2),
            ))
        });
        all.push(Mapping { start, end, module });
    }
    Ok(all)
}

fn same_file(a: &Path, b: &Path) -> bool {
    a.canonicalize().is_ok_and(|a| a == b)
}
