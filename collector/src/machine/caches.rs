//! The data caches of this machine, as the kernel tells them.

use mgz_annotations_schema::manifest::Cache;
use mgz_models::util::size::size;
use mgz_perf::pmu::cpu_list;
use std::path::Path;

/// Data and unified caches of the first processor, first level first; none if the kernel does not
/// report them.
pub fn caches() -> Vec<Cache> {
    of(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

fn of(folder: &Path) -> Vec<Cache> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<Cache> = entries
        .filter(|e| e.file_name().to_string_lossy().starts_with("index"))
        .filter_map(|e| cache(&e.path()))
        .collect();
    found.sort_by_key(|c| (c.level, c.size));
    found.dedup_by_key(|c| c.level);
    found
}

fn cache(folder: &Path) -> Option<Cache> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_string())
    };
    let number = |name: &str| read(name)?.parse::<u64>().ok();
    if read("type")? == "Instruction" {
        return None;
    }
    let size = size(&read("size")?).ok()?;
    let line = number("coherency_line_size").filter(|&l| l > 0)?;
    Some(Cache {
        level: number("level")?.try_into().ok()?,
        size,
        // The kernel reports 0 for fully associative caches.
        ways: number("ways_of_associativity")
            .filter(|&w| w > 0)
            .unwrap_or(size / line),
        line,
        shared_by: read("shared_cpu_list").map_or(1, |list| (cpu_list(&list).len() as u32).max(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_those_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let write = |index: &str, values: [&str; 6]| {
            let at = folder.path().join(index);
            std::fs::create_dir(&at).unwrap();
            let names = [
                "type",
                "level",
                "size",
                "ways_of_associativity",
                "coherency_line_size",
                "shared_cpu_list",
            ];
            for (name, value) in names.iter().zip(values) {
                std::fs::write(at.join(name), format!("{value}\n")).unwrap();
            }
        };
        write("index0", ["Data", "1", "48K", "12", "64", "0,64"]);
        write("index1", ["Instruction", "1", "32K", "8", "64", "0,64"]);
        write(
            "index3",
            ["Unified", "3", "36864K", "0", "64", "0-31,64-95"],
        );
        write("index2", ["Unified", "2", "2M", "16", "64", "0"]);
        let found: Vec<_> = of(folder.path())
            .iter()
            .map(|c| (c.level, c.size, c.ways, c.shared_by))
            .collect();
        assert_eq!(
            found,
            [
                (1, 48 << 10, 12, 2),
                (2, 2 << 20, 16, 1),
                (3, 36 << 20, 589_824, 64)
            ]
        );
        assert!(of(&folder.path().join("none")).is_empty());
    }
}
