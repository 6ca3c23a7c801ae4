//! Parsers of levels of caches and TLBs on the command line.

use mgz_analyzer::commands::size;
use mgz_analyzer::data::memory_units::{LINE_BYTES, PAGE_SHIFT};
use mgz_models::cache::Shape;
use mgz_models::cache::policy::Policy;
use mgz_models::cache::spec::{Inclusion, LevelSpec, check_levels, check_ways};
use mgz_models::cache::tlb::TlbLevel;

/// Log2 of the page sizes for which TLBs are simulated.
pub const PAGES: [u32; 2] = [PAGE_SHIFT, 21];

fn number(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .map_err(|_| format!("{text:?} is not a number"))
}

fn shape(bytes: &str, ways: &str, line: Option<&str>) -> Result<Shape, String> {
    let line = line.map_or(Ok(LINE_BYTES), size)?;
    let shape = Shape::new(size(bytes)?, number(ways)?, line).map_err(|e| e.to_string())?;
    if shape.blocks() > 1 << 28 {
        return Err("more than 256 Mi lines".into());
    }
    Ok(shape)
}

/// A cache from `SIZE:WAYS` or `SIZE:WAYS:LINE`.
pub(crate) fn level(text: &str) -> Result<Shape, String> {
    match text.split(':').collect::<Vec<_>>()[..] {
        [bytes, ways] => shape(bytes, ways, None),
        [bytes, ways, line] => shape(bytes, ways, Some(line)),
        _ => Err("write SIZE:WAYS or SIZE:WAYS:LINE, e.g. 32K:8".into()),
    }
}

/// A level from `SIZE:WAYS`, then the line and words, in any order.
pub fn full_level(text: &str) -> Result<LevelSpec, String> {
    let mut parts = text.split(':');
    let (Some(bytes), Some(ways)) = (parts.next(), parts.next()) else {
        return Err("write SIZE:WAYS, then if need be :LINE and words, e.g. 32K:8:plru".into());
    };
    let (mut line, mut words) = (None, Vec::new());
    for part in parts {
        if line.is_none() && part.starts_with(|c: char| c.is_ascii_digit()) {
            line = Some(part);
        } else {
            words.push(part);
        }
    }
    let mut spec = LevelSpec::from(shape(bytes, ways, line)?);
    let (mut policy, mut inclusion) = (None, None);
    for word in words {
        let kind = Inclusion::ALL.iter().find(|i| i.1 == word).map(|i| i.0);
        let twice = match (Policy::of(word), kind, word) {
            (Some(found), ..) => policy.replace(found).is_some(),
            (_, Some(found), _) => inclusion.replace(found).is_some(),
            (.., "next-line") => std::mem::replace(&mut spec.prefetch.next_line, true),
            (.., "stride") => std::mem::replace(&mut spec.prefetch.stride, true),
            _ => {
                return Err(format!(
                    "{word:?} is not a property of a level; there are lru, fifo, random, plru, rrip, inclusive, exclusive, non-inclusive, next-line, stride"
                ));
            }
        };
        if twice {
            return Err(format!("{word:?}: a level has one property of this kind"));
        }
    }
    spec.policy = policy.unwrap_or_default();
    spec.inclusion = inclusion.unwrap_or_default();
    spec.check()?;
    Ok(spec)
}

/// Refuses levels that form no hierarchy, with a sentence.
pub fn check_hierarchy(levels: &[LevelSpec]) -> Result<(), String> {
    for pair in levels.windows(2) {
        let (front, behind) = (pair[0].shape.size, pair[1].shape.size);
        if front > behind && pair[1].inclusion != Inclusion::Exclusive {
            return Err(format!(
                "a level of {behind} bytes cannot lie behind one of {front} bytes; give the first level first"
            ));
        }
    }
    check_levels(levels)
}

/// A hierarchy from its levels with commas between, each as in `cache --level`, first level first:
/// `32K:8:plru:stride,1M:16:exclusive`.
///
/// # Errors
///
/// A sentence that names the level, or the incompatible levels.
pub fn hierarchy(text: &str) -> Result<Vec<LevelSpec>, String> {
    let level = |part: &str| full_level(part.trim()).map_err(|e| format!("{part:?}: {e}"));
    let levels = text.split(',').map(level).collect::<Result<Vec<_>, _>>()?;
    check_hierarchy(&levels)?;
    Ok(levels)
}

/// A level of TLBs, and the page size that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbSpec {
    /// Its shape.
    pub level: TlbLevel,
    /// Log2 of the only page size that it serves; none for all.
    pub page: Option<u32>,
}

/// A level of TLBs from `ENTRIES:WAYS`, then a size of pages and a policy, in any order.
pub(crate) fn tlb_level(text: &str) -> Result<TlbSpec, String> {
    let mut parts = text.split(':');
    let (Some(entries), Some(ways)) = (parts.next(), parts.next()) else {
        return Err("write ENTRIES:WAYS, then if need be :4K or :2M, e.g. 64:4:4K".into());
    };
    let (entries, ways) = (number(entries)?, number(ways)?);
    if ways == 0 || entries == 0 || !entries.is_multiple_of(ways) {
        return Err(format!(
            "{entries} entries do not divide into sets of {ways} ways"
        ));
    }
    if entries > 1 << 28 {
        return Err("more than 256 Mi entries".into());
    }
    let (mut page, mut policy) = (None, None);
    for part in parts {
        match Policy::of(part) {
            Some(found) if policy.is_none() => policy = Some(found),
            None if page.is_none() => {
                let bytes = size(part)?;
                let found = PAGES.iter().find(|&&p| 1 << p == bytes);
                page = Some(*found.ok_or_else(|| format!("pages have 4K or 2M, not {part}"))?);
            }
            _ => return Err(format!("{part:?}: this is given twice")),
        }
    }
    let policy = policy.unwrap_or_default();
    check_ways(policy, ways)?;
    Ok(TlbSpec {
        level: TlbLevel {
            entries,
            ways,
            policy,
        },
        page,
    })
}

/// Names of a level's inclusion policy and of its prefetchers.
pub(crate) fn names(spec: &LevelSpec) -> [String; 3] {
    [
        spec.policy.name().into(),
        spec.inclusion.name().into(),
        spec.prefetch.names(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_refused() {
        let plain = level("32K:8").unwrap();
        assert_eq!((plain.size, plain.ways, plain.line), (32768, 8, 64));
        assert_eq!(level("1M:16:128").unwrap().line, 128);
        for bad in [
            "32K", "32K:0", "x:8", "1000:8", "32K:8:48", "1:2:3:4", "99999G:1",
        ] {
            assert!(level(bad).is_err(), "{bad}");
            assert!(full_level(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_come_in_any_order() {
        assert_eq!(full_level("32K:8").unwrap(), level("32K:8").unwrap().into());
        let spec = full_level("1M:16:exclusive:128:stride:rrip:next-line").unwrap();
        assert_eq!(
            (spec.shape.line, spec.policy, spec.inclusion),
            (128, Policy::Rrip, Inclusion::Exclusive)
        );
        assert!(spec.prefetch.stride && spec.prefetch.next_line);
        for (bad, word) in [
            ("32K:8:mru", "rrip"),
            ("32K:8:lru:fifo", "one property"),
            ("32K:8:stride:stride", "one property"),
            ("32K:8:4", "at least 8"),
            ("48K:12:plru", "power of two"),
        ] {
            let error = full_level(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }

    #[test]
    fn levels_make_a_hierarchy() {
        let levels = hierarchy("32K:8:plru:stride, 1M:16:exclusive").unwrap();
        let one = |text| full_level(text).unwrap();
        assert_eq!(levels, [one("32K:8:plru:stride"), one("1M:16:exclusive")]);
        for (bad, word) in [
            ("", "write SIZE:WAYS"),
            ("32K:8,1M:16:mru", "\"1M:16:mru\""),
            ("1M:16,32K:8", "cannot lie behind"),
            ("32K:8:inclusive", "the first level"),
        ] {
            let error = hierarchy(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
        // A victim cache may be smaller.
        assert!(hierarchy("32K:8,4K:4:exclusive").is_ok());
    }

    #[test]
    fn tlbs_are_for_one_or_both_sizes_of_pages() {
        let both = tlb_level("1536:12").unwrap();
        assert_eq!((both.level.entries, both.page), (1536, None));
        assert_eq!(tlb_level("64:4:4K").unwrap().page, Some(12));
        let large = tlb_level("32:4:plru:2M").unwrap();
        assert_eq!((large.page, large.level.policy), (Some(21), Policy::Plru));
        for bad in [
            "64",
            "64:0",
            "0:4",
            "65:4",
            "64:4:8K",
            "64:4:4K:2M",
            "12:3:plru",
        ] {
            assert!(tlb_level(bad).is_err(), "{bad}");
        }
    }
}
