//! Programs whose code is almost entirely in their libraries, without which nothing is recorded.

use serde_json::Value;

/// Prefixes of libraries of languages and the system, which do not count as a program's own.
const RUNTIMES: [&str; 13] = [
    "libc.so",
    "libc.musl",
    "ld-",
    "libm.so",
    "libgcc_s",
    "libstdc++",
    "libc++",
    "libpthread",
    "libdl.so",
    "librt.so",
    "libgfortran",
    "libquadmath",
    "libgomp",
];

/// Libraries that the instrumenter's report lists as left out, if they have more code than the
/// program.
pub fn libraries(report: &Value) -> Vec<String> {
    let left_out = report["libraries"]["left_out"].as_object();
    let others: Vec<(&String, u64)> = (left_out.into_iter().flatten())
        .filter(|(name, _)| !RUNTIMES.iter().any(|r| name.starts_with(r)))
        .map(|(name, size)| (name, size.as_u64().unwrap_or(0)))
        .collect();
    let theirs: u64 = others.iter().map(|o| o.1).sum();
    let own = report["text_bytes"].as_u64().unwrap_or(u64::MAX);
    match theirs > own {
        true => others.into_iter().map(|o| o.0.clone()).collect(),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(own: u64, left_out: Value) -> Vec<String> {
        libraries(&json!({"text_bytes": own, "libraries": {"left_out": left_out}}))
    }

    #[test]
    fn libraries_with_more_code_than_the_program_are_taken_in() {
        let sqlite =
            json!({"libc.so.6": 1_396_089, "libsqlite3.so.0": 977_390, "libz.so.1": 72_931});
        assert_eq!(
            of(180_000, sqlite.clone()),
            ["libsqlite3.so.0", "libz.so.1"]
        );
        assert!(of(2_000_000, sqlite).is_empty());
    }

    #[test]
    fn runtimes_alone_make_no_shell() {
        let all = json!({"ld-linux-x86-64.so.2": 151_729, "libc.so.6": 1_396_089, "libstdc++.so.6": 1_000_000, "libgcc_s.so.1": 90_000, "libm.so.6": 470_000});
        assert!(of(4_748, all).is_empty());
        assert!(libraries(&json!({})).is_empty());
    }
}
