//! Applies a patch to the user's tree, all of it or nothing.

use crate::fix::source::patch_file::{PatchFile, hash};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// New content of a file, and the bytes that it replaces.
struct Change {
    path: PathBuf,
    old: Vec<u8>,
    new: TempPath,
}

/// Applies a patch to the files below `tree`, else to those of the folder that it names. Returns the
/// changed files.
pub fn apply(patch: &Path, tree: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let shown = patch.display();
    let text =
        std::fs::read_to_string(patch).with_context(|| format!("{shown}: cannot be read"))?;
    let read = PatchFile::parse(&text).with_context(|| format!("{shown}: is no patch"))?;
    let root = match tree {
        Some(tree) => std::path::absolute(tree)?,
        None if !read.tree.as_os_str().is_empty() => read.tree.clone(),
        None => bail!("{shown}: does not name its source tree; give it by --tree DIR"),
    };
    let changes = prepare(&read, &root)?;
    let paths = changes.iter().map(|c| c.path.clone()).collect();
    replace(changes)?;
    Ok(paths)
}

/// Checks everything, and writes the new files beside the old ones.
fn prepare(patch: &PatchFile, root: &Path) -> anyhow::Result<Vec<Change>> {
    let mut texts: BTreeMap<PathBuf, (Vec<u8>, String)> = BTreeMap::new();
    let real = std::fs::canonicalize(root)
        .with_context(|| format!("{}: cannot be read as a tree", root.display()))?;
    for (name, hunks) in &patch.files {
        let given = root.join(name);
        let shown = given.display().to_string();
        let path = std::fs::canonicalize(&given)
            .with_context(|| format!("{shown}: cannot be read, so nothing was changed"))?;
        if !path.starts_with(&real) {
            bail!("{shown}: is a link that leads out of the tree, so nothing was changed");
        }
        let old = std::fs::read(&path)
            .with_context(|| format!("{shown}: cannot be read, so nothing was changed"))?;
        let is_other = patch.hashes.get(name).is_some_and(|h| *h != hash(&old));
        if is_other {
            bail!(
                "{shown}: was changed after the patch was made, so nothing was changed; run mgz fix again"
            );
        }
        let text = String::from_utf8(old.clone())
            .with_context(|| format!("{shown}: is no text, so nothing was changed"))?;
        match PatchFile::apply(hunks, &text) {
            Ok(new) => texts.insert(path, (old, new)),
            Err(line) => bail!(
                "{shown}: line {line} is not what the patch expects, so nothing was changed; run mgz fix again"
            ),
        };
    }
    let write = |(path, (old, new)): (PathBuf, (Vec<u8>, String))| -> anyhow::Result<Change> {
        let new = beside(&path, new.as_bytes())?;
        Ok(Change { path, old, new })
    };
    texts.into_iter().map(write).collect()
}

/// A new file in the folder of another one, with its permissions.
fn beside(path: &Path, bytes: &[u8]) -> anyhow::Result<TempPath> {
    let cannot = || {
        format!(
            "{}: cannot be replaced, so nothing was changed",
            path.display()
        )
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = tempfile::Builder::new()
        .prefix(".mgz-fix-")
        .tempfile_in(folder)
        .with_context(cannot)?;
    std::fs::write(new.path(), bytes).with_context(cannot)?;
    let rights = std::fs::metadata(path).with_context(cannot)?.permissions();
    std::fs::set_permissions(new.path(), rights).with_context(cannot)?;
    Ok(new.into_temp_path())
}

/// Renames all new files to their final names. If one fails, the previous ones get their old bytes
/// back.
fn replace(changes: Vec<Change>) -> anyhow::Result<()> {
    for change in &changes {
        if std::fs::read(&change.path).ok().as_ref() != Some(&change.old) {
            bail!(
                "{}: was changed just now, so nothing was changed; run the command again",
                change.path.display()
            );
        }
    }
    let mut done: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for Change { path, old, new } in changes {
        match new.persist(&path) {
            Ok(()) => done.push((path, old)),
            Err(error) => {
                for (path, old) in &done {
                    beside(path, old)?.persist(path).map_err(|e| e.error)?;
                }
                return Err(error.error).with_context(|| {
                    format!(
                        "{}: cannot be replaced, so nothing was changed",
                        path.display()
                    )
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::edit::{Edit, Edits, Texts};
    use crate::fix::source::patch_file;

    /// Two files and a patch of both.
    fn patched() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let mut texts = Texts::new();
        let mut edits = Vec::new();
        for name in ["a.c", "b.c"] {
            let text = format!("one\ntwo {name}\n");
            std::fs::write(root.join(name), &text).unwrap();
            texts.insert(root.join(name), text);
            edits.push(Edit {
                file: root.join(name),
                start: 0,
                end: 3,
                text: "ONE".into(),
            });
        }
        let edits = Edits::new(edits).unwrap();
        let patch = root.join("app.patch");
        std::fs::write(&patch, patch_file::text(&edits, &texts, &root, &[])).unwrap();
        (dir, root)
    }

    fn read(root: &Path) -> [String; 2] {
        ["a.c", "b.c"].map(|n| std::fs::read_to_string(root.join(n)).unwrap())
    }

    #[test]
    fn all_files_are_changed_and_keep_their_rights() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, root) = patched();
        let script = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(root.join("a.c"), script).unwrap();
        let changed = apply(&root.join("app.patch"), None).unwrap();
        assert_eq!(changed, [root.join("a.c"), root.join("b.c")]);
        assert_eq!(read(&root), ["ONE\ntwo a.c\n", "ONE\ntwo b.c\n"]);
        let mode = std::fs::metadata(root.join("a.c")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o750);
        // The second time the files have changed.
        let error = apply(&root.join("app.patch"), None).unwrap_err();
        assert!(error.to_string().contains("was changed after the patch"));
    }

    #[test]
    fn links_that_lead_out_of_the_tree_are_not_followed() {
        let (_dir, root) = patched();
        let (_other, elsewhere) = patched();
        std::fs::remove_file(root.join("a.c")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("a.c"), root.join("a.c")).unwrap();
        let error = apply(&root.join("app.patch"), Some(&root)).unwrap_err();
        assert!(error.to_string().contains("out of the tree"), "{error}");
        assert_eq!(read(&elsewhere), ["one\ntwo a.c\n", "one\ntwo b.c\n"]);
    }

    #[test]
    fn a_changed_file_leaves_all_files_as_they_are() {
        let (_dir, root) = patched();
        std::fs::write(root.join("b.c"), "one\nthree\n").unwrap();
        let before = read(&root);
        let error = apply(&root.join("app.patch"), None).unwrap_err();
        assert!(error.to_string().contains("b.c"), "{error}");
        assert_eq!(read(&root), before);
        // Without hashes, lines are compared.
        let patch = std::fs::read_to_string(root.join("app.patch")).unwrap();
        let bare: String = patch
            .split_inclusive('\n')
            .filter(|l| !l.starts_with('#'))
            .collect();
        std::fs::write(root.join("app.patch"), bare).unwrap();
        let error = apply(&root.join("app.patch"), None).unwrap_err();
        assert!(error.to_string().contains("--tree DIR"), "{error}");
        let error = apply(&root.join("app.patch"), Some(&root)).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
        assert_eq!(read(&root), before);
        let names = std::fs::read_dir(&root).unwrap().count();
        assert_eq!(names, 3, "no file is left behind");
    }
}
