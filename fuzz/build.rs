//! Compiles the libipt driver of the collector's tests into the fuzz targets, if libipt-dev is
//! installed.

fn main() {
    let driver = "../collector/intel-pt/tests/pt/libipt.c";
    println!("cargo:rerun-if-changed={driver}");
    println!("cargo:rustc-check-cfg=cfg(libipt)");
    let built = cc::Build::new().file(driver).define("MGZ_LIBRARY", None).define("_GNU_SOURCE", None).cargo_warnings(false).try_compile("mgz_libipt");
    match built {
        Ok(()) => println!("cargo:rustc-cfg=libipt\ncargo:rustc-link-lib=ipt"),
        Err(_) => println!("cargo:warning=libipt-dev is not installed: pt_packets is not compared with libipt"),
    }
}
