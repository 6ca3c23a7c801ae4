//! Results of ranks as files.
//!
//! The file: `MGZRANK1`, then zstd of a JSON document, [`Ranks`]. Equal results are equal files.

use crate::ranks::Ranks;
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"MGZRANK1";
/// Maximum size of a document; more is damage. Source: Chosen.
const MAX_DOCUMENT_BYTES: u64 = 1 << 32;

/// Why a result cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct RanksError {
    /// The file.
    pub path: String,
    /// The error and the remedy.
    pub cause: String,
}

fn fail(path: &Path, cause: String) -> RanksError {
    RanksError {
        path: path.display().to_string(),
        cause,
    }
}

/// True if a file is a result, by its first bytes.
pub fn is_result(path: &Path) -> bool {
    let mut magic = [0; 8];
    std::fs::File::open(path).is_ok_and(|mut f| f.read_exact(&mut magic).is_ok())
        && magic[..7] == MAGIC[..7]
}

impl Ranks {
    /// Writes it. An existing file is replaced only after all was written.
    ///
    /// # Errors
    ///
    /// An error of the system.
    pub fn write(&self, path: &Path) -> Result<(), RanksError> {
        // Next to the file, and distinct for each process and host that may write the same one.
        let mut temporary = path.as_os_str().to_owned();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        temporary.push(format!(".{}.{}.tmp", host.trim(), std::process::id()));
        let written = self
            .write_to(Path::new(&temporary))
            .and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written.map_err(|e| {
            fail(
                path,
                format!("cannot be written ({e}); choose another place or make room"),
            )
        })
    }

    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        file.write_all(&self.to_bytes()?)?;
        file.sync_data()
    }

    /// The file's content.
    ///
    /// # Errors
    ///
    /// An error of the compressor.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        let mut out = MAGIC.to_vec();
        let document = serde_json::to_vec(self)?;
        out.extend(zstd::encode_all(&document[..], 3)?);
        Ok(out)
    }

    /// Reads a result.
    pub fn read(path: &Path) -> Result<Ranks, RanksError> {
        let bytes = std::fs::read(path).map_err(|e| fail(path, e.to_string()))?;
        Ranks::of_bytes(&bytes).map_err(|cause| {
            fail(
                path,
                format!("{cause}; give a file that mgz-analyze ranks --partial wrote"),
            )
        })
    }

    /// Reads a file's content.
    ///
    /// # Errors
    ///
    /// A description of the damage.
    pub fn of_bytes(bytes: &[u8]) -> Result<Ranks, String> {
        let rest = match bytes.split_first_chunk::<8>() {
            Some((magic, rest)) if magic == MAGIC => rest,
            Some((magic, _)) if magic[..7] == MAGIC[..7] => {
                return Err("ranks of another version of mgz-analyze".into());
            }
            _ => return Err("not a result of ranks".into()),
        };
        let damaged = |e: &dyn std::fmt::Display| format!("damaged result of ranks ({e})");
        let mut document = Vec::new();
        zstd::Decoder::with_buffer(rest)
            .map_err(|e| damaged(&e))?
            .take(MAX_DOCUMENT_BYTES)
            .read_to_end(&mut document)
            .map_err(|e| damaged(&e))?;
        serde_json::from_slice(&document).map_err(|e| damaged(&e))
    }
}

/// Serializes maps whose keys are not texts as lists of pairs.
pub(crate) mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<
        'de,
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    >(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        let pairs = Vec::<(K, V)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().collect())
    }
}
