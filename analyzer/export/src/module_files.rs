//! Files of the modules that frames name.

use mgz_analyzer::input::Trace;
use mgz_annotations_schema::sidecar::Sidecar;
use std::collections::BTreeMap;

/// The file of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleFile {
    /// Path: of the original, if the file was instrumented.
    pub path: String,
    /// GNU build id, hex; empty if it is unknown.
    pub build_id: String,
}

/// Files by the file name that frames have as their module.
#[derive(Clone, Debug, Default)]
pub struct ModuleFiles {
    by_name: BTreeMap<String, ModuleFile>,
    /// Names by the path of the file that was loaded.
    names: BTreeMap<String, String>,
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl ModuleFiles {
    /// Reads the instrumented files of a trace.
    pub fn read(trace: &Trace) -> ModuleFiles {
        let mut files = ModuleFiles::default();
        for module in &trace.manifest.modules {
            let header = Sidecar::read_header(&trace.folder.join(&module.sidecar));
            let original = header.map_or_else(|_| String::new(), |(_, header)| header.input.path);
            let path = match original.is_empty() {
                true => module.path.clone(),
                false => original,
            };
            let build_id = module.build_id.clone();
            files.insert(&module.path, ModuleFile { path, build_id });
        }
        files
    }

    /// Adds the file that was loaded from `loaded`. Two files of one name are not told apart: that
    /// name then has no path and no build id.
    fn insert(&mut self, loaded: &str, file: ModuleFile) -> String {
        let name = file_name(&file.path).to_string();
        self.names.insert(loaded.into(), name.clone());
        let known = self
            .by_name
            .entry(name.clone())
            .or_insert_with(|| file.clone());
        if *known != file {
            *known = ModuleFile {
                path: name.clone(),
                build_id: String::new(),
            };
        }
        name
    }

    /// The name of the module that was loaded from a path.
    pub fn name(&mut self, loaded: &str) -> String {
        if let Some(known) = self.names.get(loaded) {
            return known.clone();
        }
        let name = file_name(loaded);
        if self
            .by_name
            .get(name)
            .is_some_and(|file| file.path == loaded)
        {
            return name.into();
        }
        let path = loaded.to_string();
        let build_id = String::new();
        self.insert(loaded, ModuleFile { path, build_id })
    }

    /// File name of a program's original. `path` need not be absolute.
    pub fn original_name(&self, path: &str) -> String {
        let is_it = |loaded: &str| loaded == path || file_name(loaded) == file_name(path);
        let known = self.names.iter().find(|(loaded, _)| is_it(loaded));
        known.map_or_else(|| file_name(path).into(), |(_, name)| name.clone())
    }

    /// The file of a module. Modules without a known file have their name as the path.
    pub fn file(&self, name: &str) -> ModuleFile {
        let unknown = || ModuleFile {
            path: name.into(),
            build_id: String::new(),
        };
        self.by_name.get(name).cloned().unwrap_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, build_id: &str) -> ModuleFile {
        ModuleFile {
            path: path.into(),
            build_id: build_id.into(),
        }
    }

    #[test]
    fn instrumented_files_are_named_as_their_originals() {
        let mut files = ModuleFiles::default();
        files.insert("/cache/1/app.inst", file("/bin/app", "ab"));
        assert_eq!(files.name("/cache/1/app.inst"), "app");
        assert_eq!(files.name("/lib/libc.so.6"), "libc.so.6");
        assert_eq!(files.name("/bin/app"), "app");
        assert_eq!(files.original_name("./app.inst"), "app");
        assert_eq!(files.original_name("/bin/other"), "other");
        assert_eq!(files.file("app"), file("/bin/app", "ab"));
        assert_eq!(files.file("libc.so.6"), file("/lib/libc.so.6", ""));
        assert_eq!(files.file("[unknown]"), file("[unknown]", ""));
    }

    #[test]
    fn files_of_one_name_have_no_build_id() {
        let mut files = ModuleFiles::default();
        files.insert("/a/x.so", file("/a/x.so", "ab"));
        files.insert("/b/x.so", file("/b/x.so", "cd"));
        assert_eq!(files.file("x.so"), file("x.so", ""));
        // The same file at another address is no conflict.
        files.insert("/c/y.so", file("/c/y.so", "ef"));
        files.insert("/c/y.so", file("/c/y.so", "ef"));
        assert_eq!(files.file("y.so"), file("/c/y.so", "ef"));
    }
}
