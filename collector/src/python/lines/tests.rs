use super::*;
use std::process::Command;

/// `python3.X dump.py` of 3.9 to 3.13.
const TABLES: &str = include_str!("tables.txt");
const DUMP: &str = include_str!("dump.py");

fn format_of(minor: u32) -> LineFormat {
    match minor {
        ..=9 => LineFormat::Increments,
        10 => LineFormat::Ranges,
        _ => LineFormat::Locations,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Compares each instruction's line with that of CPython; returns the number of instructions.
fn compare(line: &str) -> u32 {
    let fields: Vec<&str> = line.split(';').collect();
    let number = |at: usize| fields[at].parse::<u32>().unwrap();
    let (minor, first_line, code_bytes) = (number(0), number(1), number(2));
    let table = unhex(fields[3]);
    let found = line_ranges(format_of(minor), &table, first_line, code_bytes);
    let mut instructions = 0;
    for range in fields[4].split_whitespace() {
        let (place, line) = range.split_once(':').unwrap();
        let (start, end) = place.split_once('-').unwrap();
        let (start, end): (u32, u32) = (start.parse().unwrap(), end.parse().unwrap());
        for offset in (start..end).step_by(2) {
            let expected: u32 = line.parse().unwrap();
            assert_eq!(
                line_at(&found, offset),
                expected,
                "offset {offset} of {fields:?}"
            );
            instructions += 1;
        }
    }
    assert_eq!(line_at(&found, code_bytes.max(1 << 20)), 0);
    instructions
}

#[test]
fn lines_are_those_of_each_version() {
    let mut versions = std::collections::BTreeSet::new();
    for line in TABLES.lines() {
        assert!(compare(line) > 0, "{line}");
        versions.insert(line.split(';').next().unwrap());
    }
    assert_eq!(versions.len(), 5, "3.9 to 3.13");
}

#[test]
fn lines_of_the_standard_library_are_those_of_the_installed_python() {
    let asked = Command::new("python3").args(["-c", DUMP, "all"]).output();
    let Ok(told) = asked else {
        return;
    };
    if !told.status.success() {
        return;
    }
    let text = String::from_utf8(told.stdout).unwrap();
    let instructions: u32 = text.lines().map(compare).sum();
    assert!(instructions > 10_000, "{instructions}");
}

#[test]
fn damaged_tables_give_no_panic() {
    for table in [
        &[0xff; 40][..],
        &[0xf0, 0x7f, 0x7f],
        &[0x80],
        &[],
        &[0xf0; 9],
    ] {
        for format in [
            LineFormat::Increments,
            LineFormat::Ranges,
            LineFormat::Locations,
        ] {
            for first_line in [0, 1, u32::MAX] {
                let found = line_ranges(format, table, first_line, u32::MAX);
                line_at(&found, 0);
            }
        }
    }
}
