//! The plan as bytes in the shared object.
//!
//! The section [`SECTION`] holds [`CAPACITY`] bytes: a [`Header`], one [`NameRecord`] for each module,
//! one [`SiteRecord`] for each site in the order of [`SiteRecord::key`], and the names. All numbers
//! are little-endian. The checksum covers everything behind it.

use core::mem::size_of;

/// Section of the shared object that holds the plan.
pub const SECTION: &str = ".mgz_plan";
/// Bytes of the section.
pub const CAPACITY: usize = 128 << 10;
/// First bytes of a plan.
pub const MAGIC: [u8; 8] = *b"mgz-fix\0";
/// Version of this format.
pub const VERSION: u32 = 1;
/// Maximum number of frames of a site.
pub const FRAMES: usize = 4;
/// Maximum number of pools of a plan.
pub const POOLS: usize = 256;
/// Maximum number of sites of a plan. An index plus one fits into the 15 bits of a table in the
/// process.
pub const SITES: usize = 2048;
/// Module of the site that represents all sites.
pub const ANY_MODULE: u16 = u16::MAX;
/// Bit of [`Header::flags`]: large data of the executable gets large pages.
pub const STATIC_HUGE: u32 = 1;

/// Blocks of a pool are placed together.
pub const POOL: u8 = 1;
/// Large blocks get large pages.
pub const HUGE: u8 = 2;
/// Blocks have separate cache lines.
pub const PAD: u8 = 3;
/// Pages of large blocks are interleaved among the nodes.
pub const INTERLEAVE: u8 = 4;
/// Pages of large blocks go to one node.
pub const BIND: u8 = 5;
/// Blocks of a pool are placed together, on large pages.
pub const HUGE_POOL: u8 = 6;

/// Smallest alignment of [`PAD`]: a cache line.
pub const MIN_PAD: u32 = 64;
/// Largest alignment of [`PAD`].
pub const MAX_PAD: u32 = 64 << 10;

/// Start of a plan.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Length of the plan including this header, bytes.
    pub bytes: u32,
    /// [`checksum`] of the bytes behind this field.
    pub checksum: u64,
    /// Bits: [`STATIC_HUGE`].
    pub flags: u32,
    /// Number of names.
    pub modules: u32,
    /// Number of sites.
    pub sites: u32,
    /// Number of pools, with one for each site of [`PAD`].
    pub pools: u32,
}

/// Start of the checksum's range.
pub const CHECKED_FROM: usize = 24;

/// Location of a module's name in the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NameRecord {
    /// Offset from the plan's start.
    pub at: u32,
    /// Length, bytes.
    pub bytes: u32,
}

/// A site and its policy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteRecord {
    /// Number of frames.
    pub frames: u8,
    /// [`POOL`] to [`HUGE_POOL`].
    pub kind: u8,
    /// The pool of [`POOL`], [`HUGE_POOL`] and [`PAD`].
    pub pool: u16,
    /// Alignment of [`PAD`].
    pub align: u32,
    /// Increment from one block of [`PAD`] to the next of the distance behind a multiple of
    /// `align`, bytes.
    pub offset: u32,
    /// Node of [`BIND`].
    pub node: u32,
    /// Modules of the frames, innermost first.
    pub modules: [u16; FRAMES],
    /// Return addresses as the module's link-time addresses.
    pub offsets: [u64; FRAMES],
}

impl SiteRecord {
    /// The sort key of sites. The site that represents all comes last.
    pub fn key(&self) -> (u16, u64) {
        (self.modules[0], self.offsets[0])
    }

    /// True for the site that represents all sites.
    pub fn is_any(&self) -> bool {
        self.modules[0] == ANY_MODULE
    }

    fn is_valid(&self, header: &Header) -> bool {
        let frames = usize::from(self.frames);
        if frames == 0 || frames > FRAMES {
            return false;
        }
        let known = |module: u16| u32::from(module) < header.modules;
        let places = if self.is_any() {
            frames == 1 && self.offsets[0] == 0
        } else {
            self.modules[..frames].iter().all(|&module| known(module))
        };
        let pooled = u32::from(self.pool) < header.pools;
        let policy = match self.kind {
            POOL | HUGE_POOL => pooled,
            PAD => {
                pooled
                    && self.align.is_power_of_two()
                    && (MIN_PAD..=MAX_PAD).contains(&self.align)
                    && self.offset.is_multiple_of(MIN_PAD)
            }
            HUGE | INTERLEAVE | BIND => true,
            _ => false,
        };
        places && policy
    }
}

/// 64-bit FNV-1a.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A plan that was checked.
#[derive(Clone, Copy, Debug)]
pub struct PlanView<'a> {
    bytes: &'a [u8],
    header: Header,
    names: &'a [NameRecord],
    /// The sites, sorted.
    pub sites: &'a [SiteRecord],
}

/// The records at an offset. `None` if they do not fit or are not aligned.
fn records<T: Record>(bytes: &[u8], at: usize, count: u32) -> Option<(&[T], usize)> {
    let end = (count as usize)
        .checked_mul(size_of::<T>())?
        .checked_add(at)?;
    let part = bytes.get(at..end)?;
    if !part.as_ptr().cast::<T>().is_aligned() {
        return None;
    }
    // SAFETY: the range and the alignment were checked, and any bytes are a record.
    let records = unsafe { core::slice::from_raw_parts(part.as_ptr().cast::<T>(), count as usize) };
    Some((records, end))
}

/// # Safety
/// Any bytes must be a valid value of the type.
unsafe trait Record: Copy {}
// SAFETY: these consist of integers without padding.
unsafe impl Record for Header {}
// SAFETY: as above.
unsafe impl Record for NameRecord {}
// SAFETY: as above.
unsafe impl Record for SiteRecord {}

impl<'a> PlanView<'a> {
    /// Reads a plan, which must begin at a multiple of eight bytes. `None` if anything is wrong
    /// with it.
    pub fn read(section: &'a [u8]) -> Option<PlanView<'a>> {
        let (header, _) = records::<Header>(section, 0, 1)?;
        let header = *header.first()?;
        if header.magic != MAGIC || header.version != VERSION {
            return None;
        }
        let bytes = section.get(..header.bytes as usize)?;
        if checksum(bytes.get(CHECKED_FROM..)?) != header.checksum {
            return None;
        }
        let (names, end) = records::<NameRecord>(bytes, size_of::<Header>(), header.modules)?;
        let (sites, _) = records::<SiteRecord>(bytes, end, header.sites)?;
        let plan = PlanView {
            bytes,
            header,
            names,
            sites,
        };
        let named = names.iter().all(|name| plan.text(name).is_some());
        let sorted = sites.is_sorted_by_key(SiteRecord::key);
        let small = header.modules < u32::from(ANY_MODULE)
            && sites.len() <= SITES
            && header.pools as usize <= POOLS;
        let valid = sites.iter().all(|site| site.is_valid(&header));
        (named && sorted && small && valid).then_some(plan)
    }

    fn text(&self, name: &NameRecord) -> Option<&'a [u8]> {
        let at = name.at as usize;
        self.bytes.get(at..at.checked_add(name.bytes as usize)?)
    }

    /// Number of modules.
    pub fn modules(&self) -> usize {
        self.names.len()
    }

    /// The name of a module; empty: the executable.
    pub fn module(&self, index: usize) -> &'a [u8] {
        let name = self.names.get(index).and_then(|name| self.text(name));
        name.unwrap_or_default()
    }

    /// Number of pools.
    pub fn pools(&self) -> usize {
        self.header.pools as usize
    }

    /// True if large data of the executable gets large pages.
    pub fn static_huge(&self) -> bool {
        self.header.flags & STATIC_HUGE != 0
    }

    /// The first site with this innermost frame.
    pub fn find(&self, module: u16, offset: u64) -> Option<usize> {
        let key = (module, offset);
        let at = self.sites.partition_point(|site| site.key() < key);
        (self.sites.get(at)?.key() == key).then_some(at)
    }
}
