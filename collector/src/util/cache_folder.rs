//! The user's cache folder, whose content can be made again.

use std::path::PathBuf;

/// `$XDG_CACHE_HOME/mgz`, or `~/.cache/mgz`. None if neither variable has an absolute path.
pub fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("mgz"))
}
