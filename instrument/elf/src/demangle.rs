//! Readable names of functions.

/// Longer names are cut: templates can make names of megabytes. Source: Chosen.
const MAX_NAME_BYTES: usize = 1000;

/// Demangles Rust and C++ names, and those of procedures in gfortran's modules; others stay as they
/// are.
pub fn readable(mangled: &str) -> String {
    let mut name = if let Ok(name) = rustc_demangle::try_demangle(mangled) {
        format!("{name:#}")
    } else if mangled.starts_with("_Z") && mangled.len() < 4 * MAX_NAME_BYTES {
        let symbol = cpp_demangle::Symbol::new(mangled).ok();
        symbol
            .and_then(|s| s.demangle().ok())
            .or_else(|| outline(mangled))
            .unwrap_or_else(|| mangled.to_owned())
    } else {
        of_module(mangled).unwrap_or_else(|| mangled.to_owned())
    };
    if name.len() > MAX_NAME_BYTES {
        let end = (0..=MAX_NAME_BYTES)
            .rev()
            .find(|&i| name.is_char_boundary(i))
            .unwrap_or(0);
        name.truncate(end);
        name.push('…');
    }
    name
}

/// `grid::step` of `__grid_MOD_step`.
fn of_module(mangled: &str) -> Option<String> {
    let (module, procedure) = mangled.strip_prefix("__")?.split_once("_MOD_")?;
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && (name.bytes()).all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
    };
    (is_name(module) && is_name(procedure)).then(|| format!("{module}::{procedure}"))
}

/// The first names of a C++ symbol, up to its template arguments: a fallback if the demangler fails
/// on these, as in `std::swap<…>`.
fn outline(mangled: &str) -> Option<String> {
    let mut rest = mangled.strip_prefix("_Z")?;
    rest = rest.strip_prefix('L').unwrap_or(rest);
    if let Some(nested) = rest.strip_prefix('N') {
        rest = nested.trim_start_matches(['r', 'V', 'K', 'R', 'O']);
    }
    let mut names: Vec<&str> = Vec::new();
    let has_arguments = loop {
        if let Some(behind) = rest.strip_prefix("St").filter(|_| names.is_empty()) {
            names.push("std");
            rest = behind;
            continue;
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = match rest[..digits].parse() {
            Ok(length) => length,
            Err(_) => break rest.starts_with('I'),
        };
        let name = rest.get(digits..digits.checked_add(length)?)?;
        names.push(match name.starts_with("_GLOBAL__N") {
            true => "(anonymous namespace)",
            false => name,
        });
        rest = &rest[digits + length..];
    };
    let is_named = names.iter().any(|&name| name != "std");
    is_named.then(|| names.join("::") + if has_arguments { "<…>" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::{outline, readable};

    #[test]
    fn procedures_of_fortran_modules() {
        assert_eq!(readable("__grid_mod_MOD_step"), "grid_mod::step");
        for other in ["__libc_start_main", "__MOD_", "__a_MOD_", "MAIN__"] {
            assert_eq!(readable(other), other);
        }
    }

    #[test]
    fn of_names_beyond_the_demangler_the_first_part_is_told() {
        let swap = "_ZSt4swapIP4NodeENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EESt21is_move_constructibleIS6_ESt18is_move_assignableIS6_EEE5valueEvE4typeERS6_SG_";
        assert!(readable(swap).contains("std::swap<"), "{}", readable(swap));
        assert_eq!(outline(swap).unwrap(), "std::swap<…>");
        assert_eq!(outline("_ZNK3app5Table3getEi").unwrap(), "app::Table::get");
        assert_eq!(
            outline("_ZN12_GLOBAL__N_13runEv").unwrap(),
            "(anonymous namespace)::run"
        );
        for none in [
            "_Z",
            "_ZN",
            "_ZSt",
            "_Z9short",
            "_Z99999999999999999999x",
            "_Zé",
        ] {
            assert_eq!(outline(none), None, "{none}");
        }
    }

    #[test]
    fn names_of_all_languages_are_readable() {
        assert_eq!(readable("main"), "main");
        assert_eq!(readable("_Z3addii"), "add(int, int)");
        assert_eq!(
            readable("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(readable("_RNvC7mycrate3foo"), "mycrate::foo");
        assert_eq!(readable("_Znonsense"), "_Znonsense");
    }
}
