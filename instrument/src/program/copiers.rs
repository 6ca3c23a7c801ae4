//! Imported functions that copy memory, or fill it.

use crate::program::imports::Imports;
use crate::util::fast_hash::FastMap;

/// A function that writes as many bytes as its third argument specifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copier {
    /// `memcpy`: it reads as many bytes.
    Copies,
    /// `memset`.
    Fills,
}

/// Linkage-table entries and words of the global offset table of such functions.
pub fn imported(imports: &Imports) -> FastMap<u64, Copier> {
    let all = imports.slots.iter().chain(&imports.stubs);
    all.filter_map(|(&at, name)| Some((at, by_name(name)?)))
        .collect()
}

fn by_name(name: &str) -> Option<Copier> {
    match name.split('@').next().unwrap_or(name) {
        "memcpy" | "memmove" | "mempcpy" | "__memcpy_chk" | "__memmove_chk" | "__mempcpy_chk" => {
            Some(Copier::Copies)
        }
        "memset" | "__memset_chk" => Some(Copier::Fills),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_name_and_version() {
        assert_eq!(by_name("memcpy@GLIBC_2.14"), Some(Copier::Copies));
        assert_eq!(by_name("__memset_chk"), Some(Copier::Fills));
        for name in ["memcmp", "strlen", "memccpy", "wmemcpy"] {
            assert_eq!(by_name(name), None, "{name}");
        }
    }
}
