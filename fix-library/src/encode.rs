//! Encodes plans into the library's image.

use crate::Error;
use crate::plan::{ANY_MODULE, Action, Frame, Plan, SitePolicy};
use mgz_fix_runtime::plan_format::{
    self as format, CAPACITY, CHECKED_FROM, Header, MAGIC, NameRecord, SiteRecord, VERSION,
    checksum,
};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;

static C_ONLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmgz_fix.so"));
static WITH_OPERATORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmgz_fix_operators.so"));

/// Maximum number of modules of the library.
const MODULES: usize = 256;

/// The bytes of a shared object with the plan inside.
pub fn shared_object(plan: &Plan) -> Result<Vec<u8>, Error> {
    let operators = plan
        .sites
        .iter()
        .any(|site| own_frames(site).len() < site.frames.len());
    let image = if operators { WITH_OPERATORS } else { C_ONLY };
    let plan = encode(plan)?;
    let range = object::File::parse(image)
        .ok()
        .and_then(|file| file.section_by_name(format::SECTION)?.file_range());
    let Some((start, bytes)) = range else {
        return Err(Error::Image);
    };
    let mut out = image.to_vec();
    let room = out
        .get_mut(start as usize..)
        .and_then(|room| room.get_mut(..plan.len()));
    match room {
        Some(room) if bytes as usize == CAPACITY => room.copy_from_slice(&plan),
        _ => return Err(Error::Image),
    }
    Ok(out)
}

/// The frames without the innermost ones of the C++ library, whose operators this library replaces.
fn own_frames(site: &SitePolicy) -> &[Frame] {
    let is_runtime = |frame: &Frame| {
        ["libstdc++.so", "libc++.so", "libc++abi.so"]
            .iter()
            .any(|name| frame.module.starts_with(name))
    };
    match site.frames.split_first() {
        Some((first, rest)) if !rest.is_empty() && is_runtime(first) => rest,
        _ => &site.frames,
    }
}

/// Numbers of modules and pools.
#[derive(Default)]
struct Numbers {
    modules: BTreeMap<String, u16>,
    /// Pool numbers by the plan's number and true for large pages.
    pools: BTreeMap<(u32, bool), u16>,
    /// Number of pools of padded sites.
    padded: usize,
}

impl Numbers {
    fn module(&mut self, name: &str) -> Result<u16, Error> {
        let next = self.modules.len();
        let known = self.modules.get(name).copied();
        match known {
            Some(number) => Ok(number),
            None if next < MODULES => {
                self.modules.insert(name.to_owned(), next as u16);
                Ok(next as u16)
            }
            None => Err(Error::Large("it has more than 256 modules")),
        }
    }

    fn pools(&self) -> usize {
        self.pools.len() + self.padded
    }

    fn next_pool(&self) -> Result<u16, Error> {
        if self.pools() < format::POOLS {
            Ok(self.pools() as u16)
        } else {
            Err(Error::Large("it has more than 256 pools and padded sites"))
        }
    }

    /// The number of a pool of the plan.
    fn pool(&mut self, id: u32, is_huge: bool) -> Result<u16, Error> {
        let number = match self.pools.get(&(id, is_huge)) {
            Some(&pool) => pool,
            None => self.next_pool()?,
        };
        self.pools.insert((id, is_huge), number);
        Ok(number)
    }

    fn record(&mut self, site: &SitePolicy) -> Result<SiteRecord, Error> {
        let frames = own_frames(site);
        if frames.is_empty() || frames.len() > format::FRAMES {
            return Err(Error::Frames(site.frames.len()));
        }
        let mut record = SiteRecord {
            frames: frames.len() as u8,
            ..SiteRecord::default()
        };
        for (place, frame) in frames.iter().enumerate() {
            record.offsets[place] = frame.offset;
            record.modules[place] = if frame.module == ANY_MODULE {
                if frames.len() > 1 || frame.offset != 0 {
                    return Err(Error::AnySite);
                }
                format::ANY_MODULE
            } else {
                self.module(&frame.module)?
            };
        }
        self.set_action(&mut record, site.action)?;
        Ok(record)
    }

    fn set_action(&mut self, record: &mut SiteRecord, action: Action) -> Result<(), Error> {
        record.kind = match action {
            Action::Pool(id) => {
                record.pool = self.pool(id, false)?;
                format::POOL
            }
            Action::HugePool(id) => {
                record.pool = self.pool(id, true)?;
                format::HUGE_POOL
            }
            Action::Pad { align, offset } => {
                let aligns = format::MIN_PAD..=format::MAX_PAD;
                if !align.is_power_of_two()
                    || !aligns.contains(&align)
                    || !offset.is_multiple_of(format::MIN_PAD)
                {
                    return Err(Error::Pad { align, offset });
                }
                record.pool = self.next_pool()?;
                self.padded += 1;
                (record.align, record.offset) = (align, offset);
                format::PAD
            }
            Action::HugePages => format::HUGE,
            Action::Interleave => format::INTERLEAVE,
            Action::Bind { node } => {
                record.node = node;
                format::BIND
            }
        };
        Ok(())
    }
}

/// The plan as bytes.
fn encode(plan: &Plan) -> Result<Vec<u8>, Error> {
    if plan.sites.len() > format::SITES {
        return Err(Error::Large("it has more than 2048 sites"));
    }
    let mut numbers = Numbers::default();
    let mut sites = Vec::new();
    for site in &plan.sites {
        sites.push(numbers.record(site)?);
    }
    // A site with outer frames is tried before one without.
    sites.sort_by_key(|site| (site.key(), std::cmp::Reverse(site.frames)));
    check_distinct(&sites, plan)?;

    let mut modules: Vec<(&String, u16)> = numbers.modules.iter().map(|(n, &i)| (n, i)).collect();
    modules.sort_by_key(|&(_, index)| index);
    let tables = size_of::<Header>()
        + modules.len() * size_of::<NameRecord>()
        + sites.len() * size_of::<SiteRecord>();
    let (mut names, mut places) = (Vec::<u8>::new(), Vec::<u8>::new());
    for (name, _) in &modules {
        places.extend(((tables + names.len()) as u32).to_le_bytes());
        places.extend((name.len() as u32).to_le_bytes());
        names.extend(name.as_bytes());
    }

    let flags = if plan.static_huge {
        format::STATIC_HUGE
    } else {
        0
    };
    let counts = [
        flags,
        modules.len() as u32,
        sites.len() as u32,
        numbers.pools() as u32,
    ];
    let mut checked: Vec<u8> = counts
        .iter()
        .flat_map(|count| count.to_le_bytes())
        .collect();
    checked.extend(places);
    sites.iter().for_each(|site| append(site, &mut checked));
    checked.extend(names);

    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(((CHECKED_FROM + checked.len()) as u32).to_le_bytes());
    bytes.extend(checksum(&checked).to_le_bytes());
    bytes.extend(checked);
    if bytes.len() > CAPACITY {
        return Err(Error::Large("its names do not fit"));
    }
    Ok(bytes)
}

fn check_distinct(sites: &[SiteRecord], plan: &Plan) -> Result<(), Error> {
    let place = |site: &SiteRecord| (site.frames, site.modules, site.offsets);
    for pair in sites.windows(2) {
        if place(&pair[0]) == place(&pair[1]) {
            if pair[0].is_any() {
                return Err(Error::AnySite);
            }
            let same = |site: &&SitePolicy| {
                own_frames(site)
                    .first()
                    .is_some_and(|frame| frame.offset == pair[0].offsets[0])
            };
            let frames = plan
                .sites
                .iter()
                .find(same)
                .map(own_frames)
                .unwrap_or_default();
            let text: Vec<String> = frames
                .iter()
                .map(|frame| format!("{}+{:#x}", frame.module, frame.offset))
                .collect();
            return Err(Error::Twice(text.join(" ")));
        }
    }
    Ok(())
}

/// Appends a record as its little-endian fields.
fn append(site: &SiteRecord, out: &mut Vec<u8>) {
    out.extend([site.frames, site.kind]);
    out.extend(site.pool.to_le_bytes());
    for field in [site.align, site.offset, site.node] {
        out.extend(field.to_le_bytes());
    }
    out.extend(site.modules.iter().flat_map(|module| module.to_le_bytes()));
    out.extend(site.offsets.iter().flat_map(|offset| offset.to_le_bytes()));
}

#[cfg(test)]
mod tests;
