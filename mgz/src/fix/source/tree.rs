//! A copy of the source tree, in which patches are applied and built.

use crate::fix::source::edit::{Edits, Texts};
use crate::fix::source::params;
use crate::fix::workload;
use crate::signals;
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fs::{File, FileTimes};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;
use tempfile::TempDir;

/// Folders that builds do not need.
const SKIPPED: [&str; 4] = [".git", ".hg", ".svn", ".jj"];
/// Extensions of source files.
const SOURCES: [&str; 12] = [
    "c", "cc", "cpp", "cxx", "c++", "C", "h", "hh", "hpp", "hxx", "inc", "inl",
];

/// The folder of all sources of a program: the common folder of its main files and of the program
/// itself.
pub fn common_folder<'a>(files: impl IntoIterator<Item = &'a Path>) -> Option<PathBuf> {
    let mut common: Option<PathBuf> = None;
    for file in files {
        let folder = file.parent()?.to_path_buf();
        common = Some(match common {
            None => folder,
            Some(mut common) => {
                while !folder.starts_with(&common) {
                    common.pop();
                }
                common
            }
        });
    }
    // The root folder contains everything.
    common.filter(|c| c.components().count() > 2)
}

/// Files of a tree with their sizes and times.
type Stamp = BTreeSet<(PathBuf, u64, Option<SystemTime>)>;

/// A copied tree.
pub struct Tree {
    /// The user's tree.
    root: PathBuf,
    copy: TempDir,
    /// Folder of the build command in the copy.
    folder: PathBuf,
    /// The build command.
    command: String,
    /// Path of the program in the tree.
    program: PathBuf,
    builds: usize,
}

impl Tree {
    /// Copies a tree. `program` must lie in it.
    pub fn copy(root: &Path, program: &Path, command: &str) -> anyhow::Result<Tree> {
        let root = std::fs::canonicalize(root)
            .with_context(|| format!("{}: cannot be read as a tree", root.display()))?;
        let real = std::fs::canonicalize(program)?;
        let Ok(inside) = real.strip_prefix(&root) else {
            bail!(
                "{}: does not lie in the tree {}, so that a build of a copy cannot make it; give a folder with the sources and the program by --tree DIR",
                program.display(),
                root.display()
            );
        };
        let copy = tempfile::Builder::new()
            .prefix("mgz-tree-")
            .tempdir()
            .context("cannot make a temporary folder")?;
        let mut left = params::MAX_TREE_BYTES;
        copy_folder(&root, copy.path(), &mut left)?;
        let here = std::env::current_dir()?;
        let folder = match here.strip_prefix(&root) {
            Ok(inner) => copy.path().join(inner),
            Err(_) => copy.path().to_path_buf(),
        };
        Ok(Tree {
            program: inside.to_path_buf(),
            root,
            folder,
            command: command.to_owned(),
            builds: 0,
            copy,
        })
    }

    /// The user's tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Builds the copy with some edits, and returns a copy of the built program beside the original
    /// one of the build. The inner error is the reason why there is none.
    pub fn build(
        &mut self,
        edits: &Edits,
        texts: &Texts,
    ) -> anyhow::Result<Result<PathBuf, String>> {
        let changed = self.write(edits, texts)?;
        // Runs of the program may write into the user's tree, but the build may not.
        let mut before = BTreeSet::new();
        stamp(&self.root, &self.root, &mut before)?;
        let built = self.run();
        for file in changed {
            let old = texts
                .get(&self.root.join(&file))
                .context("a source is gone")?;
            self.put(&file, old)?;
        }
        self.check_untouched(&before)?;
        let built = built?;
        let program = self.copy.path().join(&self.program);
        match built {
            Err(why) => Ok(Err(why)),
            Ok(()) if !program.is_file() => Ok(Err(format!(
                "the build command has not made {}",
                self.program.display()
            ))),
            Ok(()) => {
                self.builds += 1;
                let name = self.program.file_name().unwrap_or_default();
                let own = format!(".mgz-{}-{}", self.builds, name.to_string_lossy());
                let own = program.with_file_name(own);
                std::fs::rename(&program, &own)
                    .with_context(|| format!("{}: cannot be renamed", program.display()))?;
                Ok(Ok(own))
            }
        }
    }

    /// Writes the changed files, and returns their paths in the tree.
    fn write(&self, edits: &Edits, texts: &Texts) -> anyhow::Result<Vec<PathBuf>> {
        let mut changed = Vec::new();
        for file in edits.files() {
            let inside = file.strip_prefix(&self.root).with_context(|| {
                format!(
                    "{}: does not lie in the tree; give --tree DIR",
                    file.display()
                )
            })?;
            let text = texts.get(file).context("a source is gone")?;
            self.put(inside, &edits.apply(file, text))?;
            changed.push(inside.to_path_buf());
        }
        // Dependency files may be missing or name other folders, so everything is compiled.
        touch(self.copy.path(), SystemTime::now())?;
        Ok(changed)
    }

    fn put(&self, inside: &Path, text: &str) -> anyhow::Result<()> {
        let path = self.copy.path().join(inside);
        std::fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))
    }

    /// Runs the build command.
    fn run(&self) -> anyhow::Result<Result<(), String>> {
        let log = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(&self.command)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.reopen()?)
            .stderr(log.reopen()?);
        let ended = signals::wait_in_session(&mut command, None)
            .context("sh cannot be executed for the build command")?;
        workload::stop_if_asked()?;
        if ended.is_some_and(|e| e.status.success()) {
            return Ok(Ok(()));
        }
        let said = std::fs::read(log.path()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().rev().take(params::BUILD_LINES).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        Ok(Err(format!(
            "the build command fails: {}",
            lines.join(" | ")
        )))
    }

    /// Fails if the build has written into the user's tree, because a path in the copy leads there.
    fn check_untouched(&self, before: &Stamp) -> anyhow::Result<()> {
        let mut now = BTreeSet::new();
        stamp(&self.root, &self.root, &mut now)?;
        let Some(changed) = now.symmetric_difference(before).next() else {
            return Ok(());
        };
        bail!(
            "{}: was changed while the copy of its tree was built; let nothing else write there, and let the build command use relative paths, so that it works in a copy",
            self.root.join(&changed.0).display()
        )
    }
}

/// Collects data that shows changes of files.
fn stamp(root: &Path, folder: &Path, found: &mut Stamp) -> anyhow::Result<()> {
    for entry in entries(folder)? {
        let meta = std::fs::symlink_metadata(&entry)?;
        if meta.is_dir() {
            stamp(root, &entry, found)?;
        } else {
            found.insert(fact(root, &entry, &meta));
        }
    }
    Ok(())
}

fn fact(root: &Path, path: &Path, meta: &std::fs::Metadata) -> (PathBuf, u64, Option<SystemTime>) {
    let inside = path.strip_prefix(root).unwrap_or(path);
    (inside.to_path_buf(), meta.len(), meta.modified().ok())
}

/// Paths of a folder that are copied.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("{}: cannot be read", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name();
        if !SKIPPED.contains(&&*name.to_string_lossy()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Sources in a folder and those below it. Unreadable folders have none.
pub fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in entries(&folder).unwrap_or_default() {
            let extension = entry.extension().unwrap_or_default().to_string_lossy();
            match std::fs::symlink_metadata(&entry) {
                Ok(meta) if meta.is_dir() => open.push(entry),
                Ok(meta) if meta.is_file() && SOURCES.contains(&&*extension) => found.push(entry),
                _ => {}
            }
        }
    }
    found
}

/// Copies a folder with the times of its files.
fn copy_folder(from: &Path, to: &Path, left: &mut u64) -> anyhow::Result<()> {
    let mut open = vec![(from.to_path_buf(), to.to_path_buf())];
    while let Some((folder, target)) = open.pop() {
        for entry in entries(&folder)? {
            workload::stop_if_asked()?;
            let cannot = || format!("{}: cannot be copied", entry.display());
            let meta = std::fs::symlink_metadata(&entry).with_context(cannot)?;
            let name = entry.file_name().unwrap_or_default();
            let copy = target.join(name);
            if meta.is_dir() {
                std::fs::create_dir(&copy).with_context(cannot)?;
                open.push((entry, copy));
                continue;
            }
            if meta.is_symlink() {
                let leads = std::fs::read_link(&entry).with_context(cannot)?;
                std::os::unix::fs::symlink(leads, &copy).with_context(cannot)?;
            } else if meta.is_file() {
                let Some(rest) = left.checked_sub(meta.len()) else {
                    bail!(
                        "{}: is a tree of more than 4 GiB; give the folder of the sources by --tree DIR",
                        from.display()
                    );
                };
                *left = rest;
                std::fs::copy(&entry, &copy).with_context(cannot)?;
                // Patches and builds write into the copy.
                let mut rights = meta.permissions();
                rights.set_mode(rights.mode() | 0o200);
                std::fs::set_permissions(&copy, rights).with_context(cannot)?;
                set_time(&copy, meta.modified()?).with_context(cannot)?;
            }
        }
    }
    Ok(())
}

fn set_time(file: &Path, time: SystemTime) -> std::io::Result<()> {
    // The time of a read-only file can still be set.
    match File::open(file)?.set_times(FileTimes::new().set_modified(time)) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Sets the time of all sources in a folder, so that make and similar tools compile them.
fn touch(folder: &Path, time: SystemTime) -> anyhow::Result<()> {
    for entry in entries(folder)? {
        let meta = std::fs::symlink_metadata(&entry)?;
        let extension = entry.extension().unwrap_or_default().to_string_lossy();
        if meta.is_dir() {
            touch(&entry, time)?;
        } else if meta.is_file() && SOURCES.contains(&&*extension) {
            set_time(&entry, time)
                .with_context(|| format!("{}: its time cannot be set", entry.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::edit::Edit;

    fn edit(root: &Path) -> (Edits, Texts) {
        let file = root.join("src/a.c");
        let text = std::fs::read_to_string(&file).unwrap();
        let edits = Edits::new([Edit {
            file: file.clone(),
            start: 0,
            end: 3,
            text: "new".into(),
        }]);
        (edits.unwrap(), Texts::from([(file, text)]))
    }

    fn tree() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("src")).unwrap();
        std::fs::write(root.join("src/a.c"), "old text").unwrap();
        std::fs::write(root.join("app"), "app").unwrap();
        (dir, root)
    }

    #[test]
    fn builds_see_the_edits_and_the_tree_does_not() {
        let (_dir, root) = tree();
        let (edits, texts) = edit(&root);
        let command = "cp src/a.c app";
        let mut tree = Tree::copy(&root, &root.join("app"), command).unwrap();
        let read = |built: &Path| std::fs::read_to_string(built).unwrap();
        let built = tree.build(&edits, &texts).unwrap().unwrap();
        assert_eq!(read(&built), "new text");
        let again = tree.build(&Edits::default(), &texts).unwrap().unwrap();
        assert_eq!(read(&again), "old text");
        assert_eq!(read(&root.join("src/a.c")), "old text");
        assert_eq!(read(&root.join("app")), "app");
    }

    #[test]
    fn failed_builds_are_told_and_builds_in_the_tree_end_the_command() {
        let (_dir, root) = tree();
        let (edits, texts) = edit(&root);
        let build = |command: &str| {
            let mut tree = Tree::copy(&root, &root.join("app"), command).unwrap();
            tree.build(&edits, &texts)
        };
        let why = build("echo no rule; exit 2").unwrap().unwrap_err();
        assert!(why.contains("no rule"), "{why}");
        let why = build("rm -f app").unwrap().unwrap_err();
        assert!(why.contains("has not made app"), "{why}");
        let command = format!("echo x > {}/app", root.display());
        let error = build(&command).unwrap_err().to_string();
        assert!(error.contains("relative paths"), "{error}");
        let outside = tempfile::NamedTempFile::new().unwrap();
        let error = Tree::copy(&root, outside.path(), "true").err().unwrap();
        assert!(error.to_string().contains("--tree DIR"), "{error}");
    }

    #[test]
    fn the_common_folder_is_not_the_root() {
        let common = |files: &[&str]| common_folder(files.iter().map(|f| Path::new(*f)));
        assert_eq!(
            common(&["/h/u/p/a.c", "/h/u/p/lib/b.c"]),
            Some("/h/u/p".into())
        );
        assert_eq!(common(&["/h/u/p/a.c", "/h/v/b.c"]), None);
        assert_eq!(common(&[]), None);
    }
}
