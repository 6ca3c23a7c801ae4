//! Libraries that come with an extension module of Python, such as OpenBLAS with NumPy.
//!
//! Installed packages keep them in a folder `NAME.libs` and find them through their own search
//! path. They are instrumented together with the module. If several modules need one, the loader
//! opens the copy of the module that comes first. So the cache keeps one copy of each, with the
//! first module that needed it.

use crate::cache::{self, SourceFile};
use mgz_elf::library_search::{Search, is_c_library};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Suffix of the names of folders with such libraries.
const FOLDER: &str = ".libs";
/// Runtimes in which threads may only wait.
const THREADING: [&str; 3] = ["libgomp", "libomp", "libiomp"];
/// File of a library's entry: the module that has its copy.
const HOLDER: &str = "module";

/// A library.
#[derive(Clone, Debug)]
pub struct PrivateLibrary {
    /// The name by which it is requested.
    pub name: String,
    /// The file.
    pub source: SourceFile,
}

/// The libraries in folders of this kind that a module needs, directly or not.
pub fn private_libraries(module: &Path) -> Vec<PrivateLibrary> {
    let enter = |name: &[u8]| !is_c_library(&String::from_utf8_lossy(name));
    let found = Search::from_environment().closure(module, enter);
    let library = |name: Vec<u8>, path: PathBuf| {
        let name = String::from_utf8(name).ok()?;
        let path = std::fs::canonicalize(path).ok()?;
        let folder = path.parent()?.file_name()?.to_string_lossy();
        let is_private = folder.ends_with(FOLDER)
            && !name.contains(',')
            && !THREADING.iter().any(|begin| name.starts_with(begin));
        let source = SourceFile::of(&path).ok().filter(|_| is_private)?;
        Some(PrivateLibrary { name, source })
    };
    (found.into_iter())
        .filter_map(|found| library(found.name, found.path?))
        .collect()
}

/// The entry that names the module with the copy of a library. `maker`: the instrumenter.
fn holder_entry(folder: &Path, library: &PrivateLibrary, maker: &str) -> PathBuf {
    let of = format!("private library {:?} {maker}", library.source);
    folder.join(cache::key(of.as_bytes(), std::iter::empty::<&OsStr>()))
}

/// True if no other module has a copy of the library.
pub fn is_free(folder: &Path, library: &PrivateLibrary, module: &Path, maker: &str) -> bool {
    let entry = holder_entry(folder, library, maker);
    let holder = std::fs::read(entry.join(HOLDER)).ok();
    !cache::look_up(&entry)
        || holder.is_none_or(|holder| holder == module.as_os_str().as_encoded_bytes())
}

/// Records that a module has the copies of these libraries.
pub fn hold(
    folder: &Path,
    libraries: &[PrivateLibrary],
    module: &Path,
    maker: &str,
) -> anyhow::Result<()> {
    for library in libraries {
        let entry = holder_entry(folder, library, maker);
        if cache::look_up(&entry) {
            continue;
        }
        cache::add_cache_entry(&entry, |new| {
            std::fs::write(new.join(HOLDER), module.as_os_str().as_encoded_bytes())?;
            Ok(vec![library.source.clone()])
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_module_has_the_copy_of_a_library() {
        let cache = tempfile::tempdir().unwrap();
        let file = cache.path().join("libblas.so");
        std::fs::write(&file, b"x").unwrap();
        let library = PrivateLibrary {
            name: "libblas.so".into(),
            source: SourceFile::of(&file).unwrap(),
        };
        let [first, second] = ["/a/first.so", "/a/second.so"].map(Path::new);
        let free = |module| is_free(cache.path(), &library, module, "maker");
        assert!(free(first) && free(second));
        hold(cache.path(), std::slice::from_ref(&library), first, "maker").unwrap();
        assert!(free(first) && !free(second));
        // Another version of the library.
        std::fs::write(&file, b"other").unwrap();
        assert!(free(second));
    }

    #[test]
    fn modules_of_the_system_have_no_private_libraries() {
        let own = std::env::current_exe().unwrap();
        assert!(private_libraries(&own).is_empty());
    }
}
