//! Names that are similar to an unknown one.

/// Longer names are compared by their begin, bytes. Source: Chosen.
const MAX_COMPARED_BYTES: usize = 256;

/// Names, the most similar to `wanted` first, each once. Names that are equally similar keep their
/// order.
pub(crate) fn nearest(wanted: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    let wanted = wanted.to_lowercase();
    all.sort_by_cached_key(|name| std::cmp::Reverse(common(&wanted, &name.to_lowercase())));
    all
}

/// Length of the longest text that two names have in common, bytes.
fn common(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(|name| {
        let bytes = name.as_bytes();
        &bytes[..bytes.len().min(MAX_COMPARED_BYTES)]
    });
    let mut longest = 0;
    // By position in `other`: length of the common text that ends there and at the byte of `one`.
    let mut ends = vec![0; other.len() + 1];
    for &byte in one {
        for at in (0..other.len()).rev() {
            ends[at + 1] = if other[at] == byte { ends[at] + 1 } else { 0 };
            longest = longest.max(ends[at + 1]);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_come_first() {
        let names = ["table", "grid", "particles", "grid"].map(String::from);
        assert_eq!(
            nearest("Particels", names.into_iter()),
            ["particles", "table", "grid"]
        );
        assert_eq!((common("abcd", "xbcx"), common("", "a")), (2, 0));
    }
}
