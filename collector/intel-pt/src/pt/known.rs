//! Known errors of kernels and processors with Intel PT, and the releases that fix them.

use std::io;

/// The compared part of a release: `6.12.55-amd64` is (6, 12, 55).
fn numbers(release: &str) -> (u32, u32, u32) {
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

/// Releases of Linux that include a change: all from one on, and those of older series from a patch
/// level on. Distributors' kernels have other patch levels, so their backports are not recognized.
pub struct Since {
    /// Major, minor.
    from: (u32, u32),
    /// Major, minor, number.
    series: &'static [(u32, u32, u32)],
}

impl Since {
    /// True if a release includes the change.
    pub fn includes(&self, release: &str) -> bool {
        let (major, minor, number) = numbers(release);
        (major, minor) >= self.from
            || self
                .series
                .iter()
                .any(|s| (s.0, s.1) == (major, minor) && number >= s.2)
    }
}

/// Address filters match files of overlayfs ("perf/core: Fix address filter match with backing
/// files").
pub const FILTERS_ON_OVERLAYFS: Since = Since {
    from: (6, 18),
    series: &[(6, 17, 5), (6, 12, 55)],
};
/// `f_type` of overlayfs in `statfs`.
pub const OVERLAYFS: i64 = 0x794c_7630;

/// From these releases on, PT uses single-range output if the buffer is contiguous, regardless of
/// its size.
const SINGLE_RANGE: Since = Since {
    from: (5, 5),
    series: &[],
};
/// From these releases on, only for buffers up to 4 KiB ("perf/x86/intel/pt: Fix sampling using
/// single range output").
const NO_SINGLE_RANGE: Since = Since {
    from: (6, 1),
    series: &[(6, 0, 10), (5, 15, 80), (5, 10, 156)],
};
/// "Trace May Contain Incorrect Data When Configured With Single Range Output Larger Than 4KB", by
/// model of family 6.
const ERRATA: [(&str, &[u32]); 3] = [
    ("TGL052", &[0x8c, 0x8d]),
    ("ADL037", &[0x97, 0x9a, 0xbe]),
    ("RPL017", &[0xb7, 0xba, 0xbf]),
];

/// The properties of the machine on which known errors depend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Release of the kernel.
    pub release: String,
    /// Family and model of the processor.
    pub model: Option<(u32, u32)>,
}

impl Known {
    /// The properties from the kernel's release and `/proc/cpuinfo`.
    pub fn new(release: &str, info: &str) -> Known {
        let number = |name: &str| {
            let line = info.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then_some(value)
            });
            line.and_then(|value| value.trim().parse().ok())
        };
        let intel = info.contains("GenuineIntel");
        Known {
            release: release.trim().into(),
            model: number("cpu family").zip(number("model")).filter(|_| intel),
        }
    }

    /// Reads the properties. Unreadable ones count as free of errors.
    pub fn read(read: impl Fn(&str) -> io::Result<String>) -> Known {
        let text = |path| read(path).unwrap_or_default();
        Known::new(&text("/proc/sys/kernel/osrelease"), &text("/proc/cpuinfo"))
    }

    /// A sentence on an erratum that makes PT data wrong here, with the remedy.
    pub fn erratum(&self) -> Option<(String, &'static str)> {
        let (family, model) = self.model?;
        let (name, _) = ERRATA
            .iter()
            .find(|(_, models)| family == 6 && models.contains(&model))?;
        let affected =
            SINGLE_RANGE.includes(&self.release) && !NO_SINGLE_RANGE.includes(&self.release);
        affected.then(|| {
            (
                format!(
                    "by erratum {name} this processor may write wrong PT data to buffers of more than 4 KiB, which Linux {} uses as one range",
                    self.release
                ),
                "use Linux 6.1 or newer, 6.0.10, 5.15.80, 5.10.156, or a distributor's kernel with that fix",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        let since = Since {
            from: (6, 18),
            series: &[(6, 12, 55)],
        };
        for (release, has) in [
            ("6.18.0", true),
            ("6.18-rc1", true),
            ("6.12.55-1-lts", true),
            ("6.12.9", false),
            ("6.2.60", false),
            ("10.0", true),
            ("", false),
            ("nonsense", false),
        ] {
            assert_eq!(since.includes(release), has, "{release}");
        }
    }

    #[test]
    fn processors_are_known_by_family_and_model() {
        let text =
            "vendor_id : GenuineIntel\ncpu family\t: 6\nmodel\t\t: 151\nmodel name\t: 12th Gen\n";
        assert_eq!(Known::new("5.15.0\n", text).model, Some((6, 151)));
        assert!(Known::new("5.15.0", text).erratum().is_some());
        let other = text.replace("GenuineIntel", "AuthenticAMD");
        assert_eq!(Known::new("5.15.0", &other).erratum(), None);
        assert_eq!(Known::new("", ""), Known::default());
    }

    #[test]
    fn an_erratum_is_named_until_the_release_that_repairs_it() {
        let info = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 154\n";
        let (what, remedy) = Known::new("5.15.60-generic", info).erratum().unwrap();
        assert!(what.contains("ADL037") && remedy.contains("5.15.80"));
        assert_eq!(Known::new("6.1.0", info).erratum(), None);
    }
}
