//! Owners of source files: the user, or the compiler and the system.

/// Folders of headers and sources of the compiler or the system.
const SYSTEM: [&str; 16] = [
    "/usr/include/",
    "/usr/local/include/",
    "/include/c++/",
    "/usr/lib/",
    "/lib/gcc/",
    "/rustc/",
    // Crates used by the standard library.
    "/rust/deps/",
    "/.rustup/",
    "/.cargo/registry/",
    // Crates from registries, with any CARGO_HOME.
    "/registry/src/",
    "/usr/src/",
    "/opt/intel/",
    // Python's own modules, and installed ones.
    "/lib/python3.",
    "/lib64/python3.",
    "/site-packages/",
    "/dist-packages/",
];

/// True if a source file does not belong to the user.
pub fn is_system(file: &str) -> bool {
    SYSTEM.iter().any(|folder| file.contains(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_a_compiler_is_not_the_users() {
        for file in [
            "/usr/include/c++/12/bits/stl_tree.h",
            "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/core/src/cmp.rs",
            "/rust/deps/hashbrown-0.16.1/src/raw/mod.rs",
            "/home/me/.pyenv/versions/3.11.7/lib/python3.11/json/decoder.py",
            "/home/me/venv/lib/python3.11/site-packages/numpy/core/numeric.py",
            "/usr/local/cargo/registry/src/index.crates.io-1949cf8c6b5b557f/indexmap-2.14.0/src/map.rs",
        ] {
            assert!(is_system(file), "{file}");
        }
        for file in [
            "/home/me/rust/app/src/main.rs",
            "src/lib.rs",
            "/home/me/registry/main.c",
            "/home/me/lib/python/train.py",
            "",
        ] {
            assert!(!is_system(file), "{file}");
        }
    }
}
