//! Compiles `runtime/` into the shared object that `mgz-record` carries inside itself.

use freestanding::{freestanding, run, variable};
use std::path::{Path, PathBuf};

mod freestanding;

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let runtime = here.join("runtime");
    let exports = runtime.join("exports.map");
    let abi = here.join("../annotations-schema/abi/src");
    let heap_exports = runtime.join("exports-heap.map");
    for path in [
        runtime.join("src"),
        exports.clone(),
        heap_exports.clone(),
        abi.clone(),
    ] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rerun-if-env-changed=CC");

    // The runtime's only dependency, with the options that it is compiled with itself.
    let abi_library = out.join("libmgz_abi.rlib");
    let mut rustc = freestanding("mgz_abi", "rlib", &abi_library);
    rustc.arg(abi.join("lib.rs"));
    run("compiling the runtime's interface", &mut rustc);

    let archive = out.join("libmgz_runtime.a");
    let mut rustc = freestanding("mgz_runtime", "staticlib", &archive);
    rustc
        .arg("--extern")
        .arg(format!("mgz_abi={}", abi_library.display()))
        .arg(runtime.join("src/lib.rs"));
    run("compiling the runtime", &mut rustc);

    link(&archive, &exports, &out.join("libmgz_runtime.so"), "both");
    // The same with the allocator's functions, for `--heap`.
    // Its symbols get other names for `--heap-hook`, which the older kind of table can be made anew
    // for.
    link(
        &archive,
        &heap_exports,
        &out.join("libmgz_runtime_heap.so"),
        "sysv",
    );
}

fn link(archive: &Path, exports: &Path, output: &Path, hash: &str) {
    let hash = format!("--hash-style={hash}");
    freestanding::link(
        archive,
        exports,
        output,
        "libmgz_runtime.so",
        &["-z,initfirst", &hash],
    );
}
