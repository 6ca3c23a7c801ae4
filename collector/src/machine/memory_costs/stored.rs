//! The file of measured costs in the user's cache folder. It has one file per host and CPU model.

use mgz_annotations_schema::manifest::Cache;
use mgz_annotations_schema::memory_costs::MemoryCosts;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Version of the measurement. Files of others are measured again.
const VERSION: u32 = 1;

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct StoredCosts {
    version: u32,
    host: String,
    cpu: String,
    caches: Vec<Cache>,
    costs: MemoryCosts,
}

/// A reason why costs are not kept.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Writing failed.
    #[error("{}: cannot be written: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
    /// Conversion to JSON failed.
    #[error("the costs cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// The costs that were kept for this host, CPU model and caches.
pub fn load(folder: &Path, (host, cpu): (&str, &str), caches: &[Cache]) -> Option<MemoryCosts> {
    let text = std::fs::read(file(folder, (host, cpu))).ok()?;
    let stored: StoredCosts = serde_json::from_slice(&text).ok()?;
    let is_same = (stored.version, stored.host.as_str(), stored.cpu.as_str())
        == (VERSION, host, cpu)
        && stored.caches == caches;
    is_same.then_some(stored.costs)
}

/// Keeps the costs of this host, CPU model and caches.
pub fn store(
    folder: &Path,
    (host, cpu): (&str, &str),
    caches: &[Cache],
    costs: &MemoryCosts,
) -> Result<(), StoreError> {
    let path = file(folder, (host, cpu));
    let text = serde_json::to_vec_pretty(&StoredCosts {
        version: VERSION,
        host: host.into(),
        cpu: cpu.into(),
        caches: caches.to_vec(),
        costs: costs.clone(),
    })?;
    // Another run may read it meanwhile.
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&new, text))
        .and_then(|()| std::fs::rename(&new, &path));
    written.map_err(|cause| {
        let _ = std::fs::remove_file(&new);
        StoreError::Write { path, cause }
    })
}

fn file(folder: &Path, (host, cpu): (&str, &str)) -> PathBuf {
    let plain = |text: &str| -> String {
        let good = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        text.chars().map(good).take(60).collect()
    };
    folder.join(format!("memory-{}-{}.json", plain(host), plain(cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_one_machine() {
        let folder = tempfile::tempdir().unwrap();
        let folder = &folder.path().join("mgz");
        let caches = [Cache {
            level: 1,
            size: 1 << 15,
            ..Cache::default()
        }];
        let costs = MemoryCosts {
            huge_pages: "madvise".into(),
            ..MemoryCosts::default()
        };
        let machine = ("host", "CPU @ 2.0 GHz/x");
        assert_eq!(load(folder, machine, &caches), None);
        store(folder, machine, &caches, &costs).unwrap();
        assert_eq!(load(folder, machine, &caches), Some(costs));
        assert_eq!(load(folder, ("other", machine.1), &caches), None);
        assert_eq!(load(folder, ("host", "CPU @ 2.0 GHz-x"), &caches), None);
        assert_eq!(load(folder, machine, &[]), None);
        std::fs::write(file(folder, machine), "{").unwrap();
        assert_eq!(load(folder, machine, &caches), None);
    }
}
