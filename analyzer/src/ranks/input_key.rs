//! Hash of a result's input. A repeated task recognises finished work by it.

use mgz_annotations_schema::manifest::{MANIFEST, SAMPLES_DIR, SPILL_DIR};
use std::path::Path;

/// FNV-1a of 128 bits: short, and the same on every machine.
struct Hash(u128);

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME);
        }
        // The length separates consecutive parts.
        self.0 = (self.0 ^ bytes.len() as u128).wrapping_mul(PRIME);
    }
}

/// The key of a trace for an analysis with these options. It covers the manifest, which has the
/// time of the recording and the counts of each thread, and the names and sizes of the files with
/// rows. Copies of a trace have the same key.
///
/// # Errors
///
/// A sentence about a folder that cannot be read.
pub fn key_of_trace(folder: &Path, options: &str) -> Result<String, String> {
    let fail = |path: &Path, error: std::io::Error| {
        format!(
            "{}: cannot read ({error}); give the folder that mgz-record wrote with -o",
            path.display()
        )
    };
    let mut hash = Hash(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    hash.add(env!("CARGO_PKG_VERSION").as_bytes());
    hash.add(options.as_bytes());
    let manifest = folder.join(MANIFEST);
    hash.add(&std::fs::read(&manifest).map_err(|e| fail(&manifest, e))?);
    for below in [SAMPLES_DIR, SPILL_DIR, ""] {
        let path = folder.join(below);
        let mut files: Vec<(Vec<u8>, u64)> = match std::fs::read_dir(&path) {
            Ok(entries) => entries
                .filter_map(|entry| {
                    let entry = entry.ok()?;
                    let facts = entry.metadata().ok().filter(|m| m.is_file())?;
                    Some((entry.file_name().into_encoded_bytes(), facts.len()))
                })
                .collect(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(fail(&path, e)),
        };
        files.sort();
        for (name, size) in files {
            hash.add(&name);
            hash.add(&size.to_le_bytes());
        }
    }
    Ok(format!("{:032x}", hash.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_by_content_and_options() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, manifest: &str, rows: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir_all(folder.join(SAMPLES_DIR)).unwrap();
            std::fs::write(folder.join(MANIFEST), manifest).unwrap();
            std::fs::write(folder.join(SAMPLES_DIR).join("0.parquet"), rows).unwrap();
            key_of_trace(&folder, "block 64").unwrap()
        };
        let key = make("a", "{}", "rows");
        assert_eq!(key, make("copy", "{}", "rows"));
        assert_ne!(key, make("b", "{ }", "rows"));
        assert_ne!(key, make("c", "{}", "more rows"));
        assert_ne!(
            key,
            key_of_trace(&dir.path().join("a"), "block 128").unwrap()
        );
        assert!(
            key_of_trace(&dir.path().join("none"), "")
                .unwrap_err()
                .contains("none")
        );
    }
}
