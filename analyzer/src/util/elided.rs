//! Names of functions, short enough to read.

/// Replaces a part of a name that contains a space while names are split at spaces.
const ANONYMOUS: &str = "(anonymous\u{1}namespace)";

/// Names that Python gives to anonymous code.
const OF_PYTHON: [&str; 7] = [
    "<module>",
    "<lambda>",
    "<locals>",
    "<genexpr>",
    "<listcomp>",
    "<setcomp>",
    "<dictcomp>",
];

/// A name without template arguments and parameters: `std::vector<int, …>::at(unsigned long)` is
/// `std::vector<…>::at`. Operators keep their signs.
pub(crate) fn elided(name: &str) -> String {
    // Placeholders in brackets stay whole: code or memory without a name.
    let is_of_python = |part: &str| OF_PYTHON.contains(&part);
    // Methods of Go have their receiver in parentheses: `main.(*Tree).sum`.
    let is_of_go = name.contains(".(*");
    if name.starts_with('[') || is_of_go || name.split(['.', ' ']).any(is_of_python) {
        return name.to_owned();
    }
    // Copies of a function that a compiler made.
    let name = name.split(" [clone ").next().unwrap_or(name);
    let (mut out, mut rest) = rust_type(name).unwrap_or((String::new(), name));
    let (mut angles, mut rounds) = (0u32, 0u32);
    while let Some(c) = rest.chars().next() {
        let depth = angles + rounds;
        if depth == 0
            && rest.starts_with("operator")
            && !out.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            let sign = operator(&rest["operator".len()..]);
            out.push_str(&rest[.."operator".len() + sign]);
            rest = &rest["operator".len() + sign..];
            continue;
        }
        if depth == 0 && rest.starts_with("(anonymous namespace)") {
            out.push_str(ANONYMOUS);
            rest = &rest["(anonymous namespace)".len()..];
            continue;
        }
        match c {
            '<' if rounds == 0 => {
                if angles == 0 && !out.is_empty() && !out.ends_with(['<', ' ', ':']) {
                    out.push_str("<…>");
                } else if angles == 0 {
                    // Rust: `<impl T>::name`.
                    out.push_str("<…>");
                }
                angles += 1;
            }
            '>' if rounds == 0 && angles > 0 => angles -= 1,
            '(' if angles == 0 => rounds += 1,
            ')' if angles == 0 && rounds > 0 => rounds -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    let out = out.trim_end_matches(" const").trim();
    // Return types of templates come before the name.
    let short = out.rsplit_once(' ').map_or(out, |(before, name)| {
        let is_part =
            before.ends_with("operator") || before.ends_with(',') || name.starts_with('[');
        if is_part { out } else { name }
    });
    if short.is_empty() {
        name.to_string()
    } else {
        short.replace('\u{1}', " ")
    }
}

/// Rust: the type that a method's name begins with, `<T as Trait>` or `<T>`, reduced to the last
/// parts of its names, and the rest of the name.
fn rust_type(name: &str) -> Option<(String, &str)> {
    let inner = name.strip_prefix('<')?;
    let mut depth = 1u32;
    let end = inner.char_indices().find_map(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' if !inner[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let rest = &inner[end + 1..];
    let inner = &inner[..end];
    if !rest.starts_with("::") || inner.starts_with("impl ") {
        return None;
    }
    let begin = match inner.rsplit_once(" as ") {
        Some((of, role)) => format!("<{}\u{1}as\u{1}{}>", last_part(of)?, last_part(role)?),
        None => last_part(inner)?,
    };
    Some((begin, rest))
}

/// The last part of a path, without its arguments; none if the text is no path.
fn last_part(path: &str) -> Option<String> {
    let path = path.split('<').next().unwrap_or(path);
    let last = path.rsplit("::").next().unwrap_or(path);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    (!last.is_empty() && last.chars().all(is_name)).then(|| last.to_owned())
}

/// Length in bytes of the operator sign at the begin of a text.
fn operator(text: &str) -> usize {
    const SIGNS: [&str; 16] = [
        "()", "[]", "->*", "->", "<<=", ">>=", "<=>", "<<", ">>", "<=", ">=", "<", ">", "()", "==",
        "!=",
    ];
    SIGNS
        .iter()
        .find(|s| text.starts_with(**s))
        .map_or(0, |s| s.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_arguments() {
        for (long, short) in [
            ("main", "main"),
            ("main.<locals>.<genexpr>", "main.<locals>.<genexpr>"),
            ("<module> train.py:12", "<module> train.py:12"),
            ("pick<module>(int)", "pick<…>"),
            ("main.(*Tree).sum", "main.(*Tree).sum"),
            (
                "std::vector<int, std::allocator<int> >::at(unsigned long) const",
                "std::vector<…>::at",
            ),
            ("int& pick<int>(std::map<int, int>&)", "pick<…>"),
            ("a::operator<(b const&)", "a::operator<"),
            ("x<y>::operator()(int) const", "x<…>::operator()"),
            (
                "(anonymous namespace)::walk(node*)",
                "(anonymous namespace)::walk",
            ),
            (
                "core::slice::<impl [T]>::binary_search",
                "core::slice::<…>::binary_search",
            ),
            ("<u64 as core::fmt::Display>::fmt", "<u64 as Display>::fmt"),
            (
                "<core::hash::sip::Hasher<S> as core::hash::Hasher>::write",
                "<Hasher as Hasher>::write",
            ),
            (
                "<core::ptr::non_null::NonNull<u8>>::read::<u8>",
                "NonNull::read::<…>",
            ),
            ("<[T] as core::fmt::Debug>::fmt", "<…>::fmt"),
            ("[stack of thread 3]", "[stack of thread 3]"),
            (
                "unsigned long part<wide<double>, 8>(double*, double) [clone .constprop.0]",
                "part<…>",
            ),
        ] {
            assert_eq!(elided(long), short);
        }
    }
}
