//! Traces of ChampSim: 64 bytes for each instruction (`input_instr` in its
//! `inc/trace_instruction.h`).

use crate::accesses::champsim;
use crate::import::writer::{ImportedAccess, TraceWriter};
use crate::import::{Imported, fill};
use anyhow::{Context, bail};
use std::io::Read;

/// Instructions after which the trace is checked to be one. Source: Chosen.
const CHECKED_INSTRUCTIONS: u64 = 4096;

fn word(record: &[u8; champsim::RECORD], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// The accesses of an instruction: loads, then stores.
fn accesses(record: &[u8; champsim::RECORD]) -> impl Iterator<Item = (u64, bool)> {
    let words = |from, count| (0..count).map(move |n| word(record, from + 8 * n));
    let loads = words(champsim::SOURCES, champsim::SOURCE_COUNT).map(|a| (a, false));
    let stores = words(champsim::DESTINATIONS, champsim::DESTINATION_COUNT).map(|a| (a, true));
    loads.chain(stores).filter(|a| a.0 != 0)
}

/// Reads a trace. ChampSim's traces have no threads: all accesses belong to one.
pub fn read_champsim(input: &mut dyn Read, out: &mut TraceWriter) -> anyhow::Result<Imported> {
    let mut found = Imported::default();
    let (mut instructions, mut without_ip) = (0u64, 0);
    let mut record = [0; champsim::RECORD];
    loop {
        let got = fill(input, &mut record).context("the trace cannot be read")?;
        let ends = got < record.len();
        found.cut += u64::from(ends && got > 0);
        if (ends || instructions == CHECKED_INSTRUCTIONS)
            && 2 * (found.strange + without_ip) > instructions
        {
            bail!(
                "most of its records are no instructions of 64 bytes as ChampSim reads them; traces of CloudSuite's form are not read"
            );
        }
        if ends {
            return Ok(found);
        }
        instructions += 1;
        // Both are flags.
        if record[champsim::IS_BRANCH] > 1 || record[champsim::BRANCH_TAKEN] > 1 {
            found.strange += 1;
            continue;
        }
        let ip = word(&record, 0);
        without_ip += u64::from(ip == 0);
        for (address, store) in accesses(&record) {
            found.accesses += 1;
            out.add(ImportedAccess {
                process: 1,
                thread: 1,
                ip,
                address,
                // Unknown. At least this byte is accessed.
                size: 1,
                store,
                time: instructions,
            })?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An instruction with its loads and stores.
    fn instruction(ip: u64, loads: &[u64], stores: &[u64]) -> Vec<u8> {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&ip.to_le_bytes());
        for (field, words) in [(16, stores), (32, loads)] {
            for (n, word) in words.iter().enumerate() {
                bytes[field + 8 * n..field + 8 * n + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        bytes.to_vec()
    }

    fn read(bytes: &[u8]) -> (anyhow::Result<Imported>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let mut out = TraceWriter::new(folder.path()).unwrap();
        let found = read_champsim(&mut &*bytes, &mut out);
        (found, out.finish("program").unwrap())
    }

    #[test]
    fn loads_come_before_the_stores_of_their_instruction() {
        let record = instruction(4, &[10, 20, 30, 40], &[50, 60]);
        let list: Vec<_> = accesses(record[..].try_into().unwrap()).collect();
        let stores = [50, 60].map(|a| (a, true));
        assert_eq!(list[..4], [10, 20, 30, 40].map(|a| (a, false)));
        assert_eq!(list[4..], stores);
    }

    #[test]
    fn a_cut_or_strange_record_is_counted() {
        let mut bytes = [
            instruction(4, &[10], &[]),
            instruction(8, &[], &[]),
            instruction(12, &[20], &[30]),
        ]
        .concat();
        let expected = |accesses, cut, strange| Imported {
            accesses,
            cut,
            strange,
            ..Imported::default()
        };
        assert_eq!(read(&bytes).0.unwrap(), expected(3, 0, 0));
        assert_eq!(read(&bytes).1, 3);
        assert_eq!(read(&bytes[..191]).0.unwrap(), expected(1, 1, 0));
        bytes[8] = 2;
        assert_eq!(read(&bytes).0.unwrap(), expected(2, 0, 1));
        assert_eq!(read(&[]).0.unwrap(), expected(0, 0, 0));
    }

    #[test]
    fn other_files_are_refused() {
        let text = b"I  0401ab70,3\n L 1fff000770,8\n".repeat(100);
        // Records of another length: instructions of CloudSuite's form.
        let other: Vec<u8> = (1..5000u64)
            .flat_map(|ip| [instruction(4 * ip, &[], &[]), vec![0; 32]].concat())
            .collect();
        for bytes in [text, other] {
            let error = read(&bytes).0.unwrap_err().to_string();
            assert!(error.contains("no instructions of 64 bytes"), "{error}");
        }
    }
}
