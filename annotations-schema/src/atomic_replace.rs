//! Atomic replacement of a file by another.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::io::Result;
use std::path::Path;

/// Renames the file `from` to `to` atomically. An existing file of that name is removed.
///
/// If `to` exists, the two files exchange names first. The reason is that ext4 flushes a file that
/// is renamed over another to the disk before the call returns, to protect a program's only copy of
/// its data. That takes as long as writing the file, and our outputs can be made again.
pub fn replace(from: &Path, to: &Path) -> Result<()> {
    // (A folder must not be moved away.)
    let is_file = std::fs::symlink_metadata(to).is_ok_and(|meta| !meta.is_dir());
    if is_file && renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).is_ok() {
        return std::fs::remove_file(from);
    }
    std::fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, read_to_string, write};

    #[test]
    fn a_file_takes_the_place_of_another_or_of_none_but_not_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for content in ["one", "two"] {
            write(at("new"), content).unwrap();
            replace(&at("new"), &at("out")).unwrap();
            assert_eq!(
                (read_to_string(at("out")).unwrap(), at("new").exists()),
                (content.into(), false)
            );
        }
        // A link is replaced, not its target.
        std::os::unix::fs::symlink("out", at("link")).unwrap();
        write(at("new"), "three").unwrap();
        replace(&at("new"), &at("link")).unwrap();
        assert_eq!(
            (
                read_to_string(at("link")).unwrap(),
                read_to_string(at("out")).unwrap()
            ),
            ("three".into(), "two".into())
        );
        create_dir(at("folder")).unwrap();
        write(at("new"), "four").unwrap();
        assert!(replace(&at("new"), &at("folder")).is_err());
        assert!(at("folder").is_dir() && at("new").is_file());
        assert!(replace(&at("missing"), &at("out")).is_err());
        assert_eq!(read_to_string(at("out")).unwrap(), "two");
    }
}
