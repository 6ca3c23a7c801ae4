//! Readable names of functions.

/// Longest name that is kept, bytes: templates can make names of megabytes.
const LONGEST: usize = 1000;

/// Demangles Rust and C++ names; others stay as they are.
pub fn readable(mangled: &str) -> String {
    let mut name = if let Ok(name) = rustc_demangle::try_demangle(mangled) {
        format!("{name:#}")
    } else if mangled.starts_with("_Z") && mangled.len() < 4 * LONGEST {
        let symbol = cpp_demangle::Symbol::new(mangled).ok();
        symbol
            .and_then(|s| s.demangle().ok())
            .unwrap_or_else(|| mangled.to_owned())
    } else {
        mangled.to_owned()
    };
    if name.len() > LONGEST {
        let end = (0..=LONGEST)
            .rev()
            .find(|&i| name.is_char_boundary(i))
            .unwrap_or(0);
        name.truncate(end);
        name.push('…');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::readable;

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
