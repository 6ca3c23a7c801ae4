//! Cache hierarchies to predict misses for: the recording machine's, a preset, or one given by the
//! user.

use crate::data::memory_units::LINE_BYTES;
use crate::misses::params;
use mgz_annotations_schema::manifest::Cache;
use mgz_models::util::size::size;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// Data caches of known machines as one core sees them: size, ways, and the number of logical CPUs
/// that share each level.
pub const PRESETS: [(&str, &[(u64, u64, u32)]); 6] = [
    (
        "skylake",
        &[(32 * K, 8, 2), (256 * K, 4, 2), (8 * M, 16, 8)],
    ),
    (
        "skylake-server",
        &[(32 * K, 8, 2), (M, 16, 2), (22 * M, 11, 32)],
    ),
    (
        "icelake-server",
        &[(48 * K, 12, 2), (1280 * K, 20, 2), (48 * M, 12, 64)],
    ),
    (
        "sapphire-rapids",
        &[(48 * K, 12, 2), (2 * M, 16, 2), (105 * M, 15, 112)],
    ),
    ("zen3", &[(32 * K, 8, 2), (512 * K, 8, 2), (32 * M, 16, 16)]),
    ("zen4", &[(32 * K, 8, 2), (M, 8, 2), (32 * M, 16, 16)]),
];

/// Caches assumed if a trace does not record those of its machine.
pub fn typical() -> Vec<Cache> {
    of(&params::COMMON_CACHES)
}

/// The caches for which predictions are possible; common ones if there are none.
pub fn usable(caches: &[Cache]) -> Vec<Cache> {
    let is_usable = |c: &&Cache| c.size >= LINE_BYTES && c.ways > 0 && c.line > 0;
    let usable: Vec<Cache> = caches.iter().filter(is_usable).cloned().collect();
    match usable.is_empty() {
        true => typical(),
        false => usable,
    }
}

fn of(levels: &[(u64, u64, u32)]) -> Vec<Cache> {
    (1..)
        .zip(levels)
        .map(|(level, &(size, ways, shared_by))| Cache {
            level,
            size,
            ways,
            line: LINE_BYTES,
            shared_by,
        })
        .collect()
}

/// The name of a level.
pub fn name(cache: &Cache) -> String {
    format!("L{}", cache.level)
}

/// Parses `L1=32K/8,L2=1M/16,L3=32M/16` (size and ways, first level first; 16 ways if omitted) or
/// the name of a preset.
pub fn parse(text: &str) -> Result<Vec<Cache>, String> {
    if let Some((_, levels)) = PRESETS.iter().find(|p| p.0 == text) {
        return Ok(of(levels));
    }
    let names = PRESETS.map(|p| p.0).join(", ");
    let wrong = |part: &str| {
        format!(
            "{part:?} is no level of caches; write L1=32K/8,L2=1M/16,L3=32M/16 (size/ways), or one of {names}"
        )
    };
    let mut caches: Vec<Cache> = Vec::new();
    for part in text.split(',') {
        let (level, shape) = part.split_once('=').ok_or_else(|| wrong(part))?;
        let level = level
            .trim()
            .strip_prefix(['L', 'l'])
            .and_then(|n| n.parse::<u32>().ok())
            .filter(|n| (1..=9).contains(n))
            .ok_or_else(|| wrong(part))?;
        let (bytes, ways) = shape.split_once('/').unwrap_or((shape, "16"));
        let (bytes, ways) = size(bytes)
            .ok()
            .zip(ways.trim().parse::<u64>().ok())
            .filter(|&(bytes, ways)| bytes >= LINE_BYTES * ways && ways > 0 && bytes < 1 << 40)
            .ok_or_else(|| wrong(part))?;
        if caches
            .last()
            .is_some_and(|c| c.level >= level || c.size >= bytes)
        {
            return Err(format!(
                "{part:?}: levels go up, and each is greater than the one before"
            ));
        }
        caches.push(Cache {
            level,
            size: bytes,
            ways,
            line: LINE_BYTES,
            shared_by: 1,
        });
    }
    Ok(caches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_read_and_mistakes_told() {
        let caches = parse("L1=48K/12,L2=2M/16,L3=30M").unwrap();
        let shapes: Vec<_> = caches.iter().map(|c| (c.level, c.size, c.ways)).collect();
        assert_eq!(
            shapes,
            [(1, 48 << 10, 12), (2, 2 << 20, 16), (3, 30 << 20, 16)]
        );
        assert_eq!(parse("zen4").unwrap().len(), 3);
        for wrong in [
            "",
            "L1",
            "L1=x/8",
            "L2=1M/8,L1=32K/8",
            "L1=2M/8,L2=1M/8",
            "pentium",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
