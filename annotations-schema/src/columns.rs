//! Columns on disk: each field of a table is one little-endian array, compressed by zstd.

use crate::abi::{Prelude, SIDECAR_MAGIC, SIDECAR_VERSION};
use crate::sidecar::{Column, Function, Gather, Header, Location, Loop, NO_RECORD, NONE, PtWrite, Record, Region, Sidecar, SidecarError, Site, SiteKind};
use rayon::prelude::*;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

/// Declares a table's row type and its conversion to and from columns.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $( $(#[$fdoc:meta])* $field:ident : $ty:ident, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[$fdoc])* pub $field: $ty, )* }

        impl crate::columns::Row for $name {
            const FIELDS: &'static [(&'static str, &'static str)] = &[ $( (stringify!($field), stringify!($ty)), )* ];
            fn encode(rows: &[Self], field: usize, out: &mut Vec<u8>) {
                let mut at = 0;
                $( if field == at {
                    // Room first: a check of the capacity for each row would take longer than the rest.
                    let before = out.len();
                    out.resize(before + rows.len() * size_of::<$ty>(), 0);
                    for (row, to) in rows.iter().zip(out[before..].chunks_exact_mut(size_of::<$ty>())) {
                        to.copy_from_slice(&row.$field.to_le_bytes());
                    }
                    return;
                } at += 1; )*
                let _ = at;
            }
            fn decode(rows: &mut [Self], field: usize, bytes: &[u8]) {
                let mut at = 0;
                $( if field == at {
                    for (row, chunk) in rows.iter_mut().zip(bytes.chunks_exact(size_of::<$ty>())) {
                        row.$field = <$ty>::from_le_bytes(chunk.try_into().expect("chunks_exact gives this length"));
                    }
                    return;
                } at += 1; )*
                let _ = at;
            }
        }
    };
}
pub(crate) use table;

/// A table row that can be taken apart into columns.
pub(crate) trait Row: Default + Clone {
    /// Names and types of the fields.
    const FIELDS: &'static [(&'static str, &'static str)];
    /// Appends one field of all rows.
    fn encode(rows: &[Self], field: usize, out: &mut Vec<u8>);
    /// Sets one field of all rows.
    fn decode(rows: &mut [Self], field: usize, bytes: &[u8]);
}

fn width(kind: &str) -> Option<usize> {
    Some(match kind {
        "u8" => 1,
        "u32" => 4,
        "u64" | "i64" => 8,
        _ => return None,
    })
}

/// Columns that were added since the version's first files: where one is missing, its fields are zero.
const ADDED: [(&str, &str); 1] = [("sites", "in_loop")];

/// Upper bound for the raw size of one column: guards against absurd headers.
const MAX_COLUMN: u64 = 1 << 34;

/// The way of some columns into the file: what stands in the header, and how their bytes are made.
struct Job<'a> {
    names: Vec<[&'static str; 3]>,
    rows: usize,
    /// The bytes of each before compression.
    raw: Box<dyn Fn() -> Vec<Cow<'a, [u8]>> + Sync + 'a>,
    compress: bool,
}

/// The columns of a table whose rows lie in several runs.
fn jobs<'a, R: Row + Sync>(jobs: &mut Vec<Job<'a>>, table: &'static str, runs: &'a [&'a [R]]) {
    let rows: usize = runs.iter().map(|r| r.len()).sum();
    let mut first = 0;
    // Single bytes are made together, others in pairs: rows are many times larger, and going through them takes as long as the rest. (More at a time would
    // take memory that nobody has touched yet.)
    let alike = R::FIELDS.chunk_by(|a, b| a.1 == b.1);
    for fields in alike.flat_map(|fields| fields.chunks(if fields[0].1 == "u8" { fields.len() } else { 2 })) {
        let raw = move || {
            let mut raw: Vec<Vec<u8>> = fields.iter().map(|(_, kind)| Vec::with_capacity(rows * width(kind).unwrap_or(8))).collect();
            runs.iter().for_each(|run| raw.iter_mut().zip(first..).for_each(|(out, field)| R::encode(run, field, out)));
            raw.into_iter().map(Cow::Owned).collect()
        };
        jobs.push(Job { names: fields.iter().map(|&(name, kind)| [table, name, kind]).collect(), rows, raw: Box::new(raw), compress: true });
        first += fields.len();
    }
}

struct Source<'a> {
    body: &'a [u8],
    columns: &'a [Column],
}

impl Source<'_> {
    fn bytes(&self, column: &Column) -> Result<Vec<u8>, SidecarError> {
        let what = || format!("column {}.{}", column.table, column.name);
        let end = column.offset.checked_add(column.bytes).filter(|&e| e <= self.body.len() as u64);
        let Some(end) = end else {
            return Err(SidecarError::Damaged(format!("{} lies beyond the end of the file", what())));
        };
        if column.raw_bytes > MAX_COLUMN {
            return Err(SidecarError::Damaged(format!("{} claims {} bytes", what(), column.raw_bytes)));
        }
        let stored = &self.body[column.offset as usize..end as usize];
        let raw = match column.encoding.as_str() {
            "raw" => stored.to_vec(),
            "zstd" => {
                let mut raw = Vec::new();
                let mut decoder = zstd::stream::Decoder::new(stored).map_err(SidecarError::Io)?;
                std::io::copy(&mut std::io::Read::take(&mut decoder, column.raw_bytes + 1), &mut raw)
                    .map_err(|e| SidecarError::Damaged(format!("{}: {e}", what())))?;
                raw
            }
            other => return Err(SidecarError::Damaged(format!("{} has unknown encoding {other:?}", what()))),
        };
        if raw.len() as u64 != column.raw_bytes {
            return Err(SidecarError::Damaged(format!("{} has the wrong length", what())));
        }
        Ok(raw)
    }

    fn find(&self, table: &str, name: &str) -> Result<&Column, SidecarError> {
        self.columns
            .iter()
            .find(|c| c.table == table && c.name == name)
            .ok_or_else(|| SidecarError::Damaged(format!("column {table}.{name} is missing")))
    }

    fn table<R: Row>(&self, table: &str) -> Result<Vec<R>, SidecarError> {
        let mut rows: Vec<R> = Vec::new();
        for (i, (name, kind)) in R::FIELDS.iter().enumerate() {
            let column = match self.find(table, name) {
                Err(_) if ADDED.contains(&(table, name)) => continue,
                found => found?,
            };
            let size = width(kind).unwrap_or(8) as u64;
            if column.kind != *kind || column.rows.checked_mul(size) != Some(column.raw_bytes) {
                return Err(SidecarError::Damaged(format!("column {table}.{name} does not match its description")));
            }
            let raw = self.bytes(column)?;
            if i == 0 {
                rows.resize(column.rows as usize, R::default());
            } else if rows.len() as u64 != column.rows {
                return Err(SidecarError::Damaged(format!("columns of {table} differ in length")));
            }
            R::decode(&mut rows, i, &raw);
        }
        Ok(rows)
    }
}

/// A sidecar's tables before they are written: runs of rows, which follow each other.
#[derive(Clone, Debug, Default)]
pub struct Content<'a> {
    /// [`Prelude::id`].
    pub id: [u8; 16],
    /// The JSON header; `format`, `version` and `columns` are filled in.
    pub header: Header,
    /// See [`Sidecar::functions`].
    pub functions: Vec<&'a [Function]>,
    /// See [`Sidecar::sites`].
    pub sites: Vec<&'a [Site]>,
    /// See [`Sidecar::regions`].
    pub regions: Vec<&'a [Region]>,
    /// See [`Sidecar::records`].
    pub records: Vec<&'a [Record]>,
    /// See [`Sidecar::ptwrites`].
    pub ptwrites: Vec<&'a [PtWrite]>,
    /// See [`Sidecar::gathers`].
    pub gathers: Vec<&'a [Gather]>,
    /// See [`Sidecar::loops`].
    pub loops: Vec<&'a [Loop]>,
    /// See [`Sidecar::locations`].
    pub locations: Vec<&'a [Location]>,
    /// See [`Sidecar::strings`].
    pub strings: &'a [String],
    /// See [`Sidecar::map`].
    pub map: &'a [u8],
}

/// The bytes of a sidecar, in pieces that follow each other.
#[derive(Clone, Debug)]
pub struct Encoded<'a>(Vec<Cow<'a, [u8]>>);

impl Encoded<'_> {
    /// All of them in a row.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.concat()
    }

    /// Writes the file. One that exists is replaced only once the new one is complete.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".tmp{}", std::process::id()));
        let temporary = std::path::PathBuf::from(name);
        let written = std::fs::File::create(&temporary).and_then(|mut file| self.0.iter().try_for_each(|piece| file.write_all(piece)));
        let done = written.and_then(|()| std::fs::rename(&temporary, path));
        if done.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        done
    }
}

impl Content<'_> {
    /// The file's bytes. Columns are independent of each other, and are made on all cores.
    pub fn encode(&self) -> std::io::Result<Encoded<'_>> {
        let text = || {
            let mut text = Vec::new();
            for s in self.strings {
                text.extend(s.bytes().filter(|&b| b != 0));
                text.push(0);
            }
            vec![Cow::Owned(text)]
        };
        let mut all = vec![Job { names: vec![["map", "map", "u8"]], rows: self.map.len(), raw: Box::new(|| vec![Cow::Borrowed(self.map)]), compress: false }];
        jobs(&mut all, "functions", &self.functions);
        jobs(&mut all, "sites", &self.sites);
        jobs(&mut all, "regions", &self.regions);
        jobs(&mut all, "records", &self.records);
        jobs(&mut all, "ptwrites", &self.ptwrites);
        jobs(&mut all, "gathers", &self.gathers);
        jobs(&mut all, "loops", &self.loops);
        jobs(&mut all, "locations", &self.locations);
        all.push(Job { names: vec![["strings", "text", "utf8"]], rows: self.strings.len(), raw: Box::new(text), compress: true });
        let stored = all.par_iter().with_max_len(1).map(|job| {
            let stored = (job.raw)().into_par_iter().with_max_len(1);
            let stored = stored.map(|raw| Ok((raw.len(), if job.compress { Cow::Owned(zstd::bulk::compress(&raw, 1)?) } else { raw })));
            stored.collect::<std::io::Result<Vec<_>>>()
        });
        let stored: Vec<Vec<(usize, Cow<[u8]>)>> = stored.collect::<std::io::Result<_>>()?;
        let mut columns = Vec::with_capacity(all.len());
        let mut pieces = vec![Cow::Borrowed(&[][..])];
        let mut offset = 0;
        let named = all.iter().flat_map(|job| job.names.iter().map(move |name| (job, name)));
        for ((job, name), (raw_bytes, bytes)) in named.zip(stored.into_iter().flatten()) {
            let [table, name, kind] = name.map(str::to_owned);
            let encoding = if job.compress { "zstd" } else { "raw" }.into();
            columns.push(Column { table, name, kind, rows: job.rows as u64, encoding, offset, bytes: bytes.len() as u64, raw_bytes: raw_bytes as u64 });
            offset = (offset + bytes.len() as u64).next_multiple_of(8);
            let padding = bytes.len().next_multiple_of(8) - bytes.len();
            pieces.push(bytes);
            pieces.push(Cow::Borrowed(&[0; 8][..padding]));
        }
        // Nothing is behind the last column.
        pieces.pop();
        let header = Header { format: "mgz-annotations".into(), version: SIDECAR_VERSION, columns, ..self.header.clone() };
        let mut json = serde_json::to_vec(&header)?;
        while !(size_of::<Prelude>() + json.len()).is_multiple_of(8) {
            json.push(b' ');
        }
        let map_offset = (size_of::<Prelude>() + json.len()) as u64 + header.columns[0].offset;
        let mut head = Vec::with_capacity(size_of::<Prelude>() + json.len());
        head.extend_from_slice(&SIDECAR_MAGIC);
        head.extend_from_slice(&SIDECAR_VERSION.to_le_bytes());
        head.extend_from_slice(&self.id);
        head.extend_from_slice(&(json.len() as u64).to_le_bytes());
        head.extend_from_slice(&map_offset.to_le_bytes());
        head.extend_from_slice(&(self.map.len() as u64).to_le_bytes());
        head.extend_from_slice(&json);
        pieces[0] = Cow::Owned(head);
        Ok(Encoded(pieces))
    }
}

impl Sidecar {
    fn content(&self) -> Content<'_> {
        Content {
            id: self.id,
            header: self.header.clone(),
            functions: vec![&self.functions],
            sites: vec![&self.sites],
            regions: vec![&self.regions],
            records: vec![&self.records],
            ptwrites: vec![&self.ptwrites],
            gathers: vec![&self.gathers],
            loops: vec![&self.loops],
            locations: vec![&self.locations],
            strings: &self.strings,
            map: &self.map,
        }
    }

    /// The file's bytes. `header.columns` is made here.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        Ok(self.content().encode()?.to_bytes())
    }

    /// Writes the file. A file that exists is replaced only once the new one is complete.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        self.content().encode()?.write(path)
    }

    /// Reads a file and checks every index in it.
    pub fn read(path: &Path) -> Result<Sidecar, SidecarError> {
        let file = std::fs::File::open(path)?;
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Sidecar::from_bytes(&map)
    }

    /// Reads only the prelude and the header: cheap identity check.
    pub fn read_header(path: &Path) -> Result<([u8; 16], Header), SidecarError> {
        let file = std::fs::File::open(path)?;
        // SAFETY: as in `read`.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        split(&map).map(|(id, header, _)| (id, header))
    }

    /// Parses the bytes of a sidecar and checks every index in it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Sidecar, SidecarError> {
        let (id, header, body) = split(bytes)?;
        let columns = header.columns.clone();
        let source = Source { body, columns: &columns };
        let text = source.bytes(source.find("strings", "text")?)?;
        let mut strings: Vec<String> = text.split(|&b| b == 0).map(|s| String::from_utf8_lossy(s).into_owned()).collect();
        strings.pop();
        let sidecar = Sidecar {
            id,
            header,
            functions: source.table::<Function>("functions")?,
            sites: source.table::<Site>("sites")?,
            regions: source.table::<Region>("regions")?,
            records: source.table::<Record>("records")?,
            ptwrites: source.table::<PtWrite>("ptwrites")?,
            gathers: source.table::<Gather>("gathers")?,
            // Files of before there was such a table have none.
            loops: if columns.iter().any(|c| c.table == "loops") { source.table::<Loop>("loops")? } else { Vec::new() },
            locations: source.table::<Location>("locations")?,
            strings,
            map: source.bytes(source.find("map", "map")?)?,
        };
        sidecar.check()?;
        Ok(sidecar)
    }

    /// Checks that all indices lie inside their tables, so that readers may follow them.
    fn check(&self) -> Result<(), SidecarError> {
        let bad = |what: &str, i: usize| Err(SidecarError::Damaged(format!("{what} {i} points outside its table")));
        let within = |index: u32, len: usize| (index as usize) < len;
        let within_or_none = |index: u32, len: usize| index == NONE || (index as usize) < len;
        let range = |first: u32, count: u32, len: usize| u64::from(first) + u64::from(count) <= len as u64;
        for (i, s) in self.sites.iter().enumerate() {
            let fits = within(s.function, self.functions.len())
                && within_or_none(s.region, self.regions.len())
                && within_or_none(s.location, self.locations.len())
                && s.in_loop as usize <= self.loops.len()
                && s.class <= 2
                && SiteKind::from_u8(s.kind).is_some();
            if !fits {
                return bad("site", i);
            }
            if s.region != NONE {
                let records = self.regions[s.region as usize].record_count;
                let inside = |r: u8, extra: u32| r == NO_RECORD || u32::from(r) + extra < records;
                let until = u32::from(s.kind == SiteKind::StringUntil as u8);
                if !inside(s.a, 0) || !inside(s.b, until) {
                    return bad("record of site", i);
                }
            }
        }
        for (i, r) in self.regions.iter().enumerate() {
            if !within(r.function, self.functions.len())
                || !range(r.first_record, r.record_count, self.records.len())
                || !range(r.first_site, r.site_count, self.sites.len())
            {
                return bad("region", i);
            }
        }
        for (i, r) in self.records.iter().enumerate() {
            let Some(region) = self.regions.get(r.region as usize) else {
                return bad("record", i);
            };
            let inside = (i as u64).wrapping_sub(u64::from(region.first_record)) < u64::from(region.record_count);
            let alone = i as u32 == region.first_record;
            if !inside || r.slots == 0 && alone || r.slots as usize > crate::abi::MAX_REGION_SLOTS {
                return bad("record", i);
            }
        }
        self.check_regions()?;
        for (i, p) in self.ptwrites.iter().enumerate() {
            let fits = self.records.get(p.record as usize).is_some_and(|r| p.part < crate::sidecar::ptwrites(r.slots));
            if !fits {
                return bad("ptwrite", i);
            }
        }
        for (i, g) in self.gathers.iter().enumerate() {
            if !within(g.site, self.sites.len()) || g.lanes > 64 || g.mask_bytes > 8 || g.index_bytes > 512 {
                return bad("gather", i);
            }
        }
        for (i, l) in self.loops.iter().enumerate() {
            // The chain must end: a loop is enclosed by a later one only.
            let encloses = l.parent == NONE || (l.parent as usize > i && within(l.parent, self.loops.len()));
            if !within(l.function, self.functions.len()) || !within_or_none(l.location, self.locations.len()) || !encloses {
                return bad("loop", i);
            }
        }
        for (i, l) in self.locations.iter().enumerate() {
            // The chain must end: a location is inlined into an earlier one only.
            if l.inlined_into != NONE && l.inlined_into as usize >= i {
                return bad("location", i);
            }
        }
        Ok(())
    }

    /// Checks that regions have records and sites of their own: none is in two ranges, so that numbers inside a region stay
    /// small and work over all regions is bounded by the tables. The ranges themselves are known to lie in their tables.
    fn check_regions(&self) -> Result<(), SidecarError> {
        let mut records = vec![0u32; self.regions.len()];
        for r in &self.records {
            // Each was found inside the range of the region it names; if the counts agree, no range holds another's.
            records[r.region as usize] += 1;
        }
        let mut sites = vec![0u32; self.regions.len()];
        for (i, s) in self.sites.iter().enumerate().filter(|(_, s)| s.region != NONE) {
            let region = &self.regions[s.region as usize];
            if (i as u64).wrapping_sub(u64::from(region.first_site)) >= u64::from(region.site_count) {
                return Err(SidecarError::Damaged(format!("site {i} is not among those of its region")));
            }
            sites[s.region as usize] += 1;
        }
        for (i, r) in self.regions.iter().enumerate() {
            if (r.record_count, r.site_count) != (records[i], sites[i]) {
                return Err(SidecarError::Damaged(format!("region {i} names records or sites of another one")));
            }
        }
        Ok(())
    }
}

/// Splits a file into identity, header and body.
fn split(bytes: &[u8]) -> Result<([u8; 16], Header, &[u8]), SidecarError> {
    if bytes.get(..4) != Some(&SIDECAR_MAGIC[..]) {
        return Err(SidecarError::NotASidecar);
    }
    let word = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    let cut = || SidecarError::Damaged("it is cut off inside its header".into());
    let version = u32::from_le_bytes(bytes.get(4..8).ok_or_else(cut)?.try_into().expect("four bytes"));
    if version != SIDECAR_VERSION {
        return Err(SidecarError::Version { found: version });
    }
    let id: [u8; 16] = bytes.get(8..24).ok_or_else(cut)?.try_into().expect("sixteen bytes");
    let header_len = word(24).ok_or_else(cut)?;
    let start = size_of::<Prelude>();
    let end = usize::try_from(header_len).ok().and_then(|l| l.checked_add(start)).filter(|&e| e <= bytes.len()).ok_or_else(cut)?;
    let header: Header =
        serde_json::from_slice(&bytes[start..end]).map_err(|e| SidecarError::Damaged(format!("its header is not valid JSON ({e})")))?;
    Ok((id, header, &bytes[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecar::SiteFlags;

    fn small() -> Sidecar {
        Sidecar {
            id: [7; 16],
            header: Header { flavour: "soft".into(), ..Header::default() },
            functions: vec![Function { name: 0, left: NONE, start: 0x1000, end: 0x1100, clone_start: 0x9000, clone_end: 0x9200 }],
            sites: vec![Site { region: 0, location: 1, in_loop: 1, size: 8, ip: 0x1004, kind: 0, class: 2, a: 0, b: NO_RECORD, flags: SiteFlags::RMW, ..Site::default() }],
            regions: vec![Region { record_count: 1, site_count: 1, ..Region::default() }],
            records: vec![Record { slots: 1, ..Record::default() }],
            loops: vec![Loop { parent: 1, location: 1, header: 0x1004, ..Loop::default() }, Loop { parent: NONE, location: NONE, header: 0x1000, ..Loop::default() }],
            locations: vec![
                Location { function: 0, file: 1, line: 3, inlined_into: NONE },
                Location { function: 0, file: 1, line: 4, inlined_into: 0 },
            ],
            strings: vec!["main".into(), "a.c".into()],
            map: vec![1, 2, 3],
            ..Sidecar::default()
        }
    }

    #[test]
    fn a_sidecar_survives_the_round_trip() {
        let before = small();
        let after = Sidecar::from_bytes(&before.to_bytes().unwrap()).unwrap();
        assert_eq!(after.sites, before.sites);
        assert_eq!(after.functions, before.functions);
        assert_eq!(after.regions, before.regions);
        assert_eq!(after.loops, before.loops);
        assert_eq!(after.locations, before.locations);
        assert_eq!(after.strings, before.strings);
        assert_eq!(after.map, before.map);
        assert_eq!(after.id, before.id);
    }

    #[test]
    fn the_prelude_points_at_the_map() {
        let bytes = small().to_bytes().unwrap();
        let offset = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
        assert_eq!(offset % 8, 0);
        assert_eq!(&bytes[offset..offset + 3], &[1, 2, 3]);
    }

    #[test]
    fn a_wild_index_is_refused() {
        let mut wild = small();
        wild.sites[0].function = 5;
        let error = Sidecar::from_bytes(&wild.to_bytes().unwrap()).unwrap_err();
        assert!(matches!(error, SidecarError::Damaged(_)), "{error}");
    }

    #[test]
    fn loops_lead_outwards_and_to_what_there_is() {
        let with = |change: fn(&mut Sidecar)| {
            let mut sidecar = small();
            change(&mut sidecar);
            Sidecar::from_bytes(&sidecar.to_bytes().unwrap())
        };
        assert!(with(|s| s.loops[0].parent = NONE).is_ok());
        for wrong in [
            with(|s| s.sites[0].in_loop = 3),
            with(|s| s.loops[1].parent = 0),
            with(|s| s.loops[0].parent = 2),
            with(|s| s.loops[0].function = 1),
            with(|s| s.loops[0].location = 2),
        ] {
            assert!(matches!(wrong, Err(SidecarError::Damaged(_))));
        }
    }

    #[test]
    fn files_of_before_there_were_loops_are_read() {
        let bytes = small().to_bytes().unwrap();
        let (_, mut header, body) = split(&bytes).unwrap();
        header.columns.retain(|c| c.table != "loops" && c.name != "in_loop");
        let mut json = serde_json::to_vec(&header).unwrap();
        let padded = (size_of::<Prelude>() + json.len()).next_multiple_of(8) - size_of::<Prelude>();
        json.resize(padded, b' ');
        let mut old = bytes[..size_of::<Prelude>()].to_vec();
        old[24..32].copy_from_slice(&(json.len() as u64).to_le_bytes());
        old.extend(json);
        old.extend(body);
        let read = Sidecar::from_bytes(&old).unwrap();
        assert_eq!((read.sites[0].in_loop, read.loops.len()), (0, 0));
        assert_eq!(read.sites[0].ip, small().sites[0].ip);
    }

    #[test]
    fn regions_that_share_records_or_sites_are_refused() {
        // A chain of ranges that overlap by one: each range is short, and each record names the last region that has it.
        let mut chained = small();
        chained.regions = (0..5).map(|i| Region { first_record: 63 * i, record_count: 64, ..Region::default() }).collect();
        chained.records = (0..63 * 5 + 1).map(|i: u32| Record { slots: 1, region: (i.saturating_sub(1) / 63).min(4), ..Record::default() }).collect();
        chained.sites.clear();
        let error = Sidecar::from_bytes(&chained.to_bytes().unwrap()).unwrap_err();
        assert!(error.to_string().contains("region 1 names records or sites of another one"), "{error}");

        let mut shared = small();
        shared.regions.push(Region { first_record: 1, site_count: 1, ..Region::default() });
        let error = Sidecar::from_bytes(&shared.to_bytes().unwrap()).unwrap_err();
        assert!(error.to_string().contains("region 1 names"), "{error}");

        let mut outside = small();
        outside.regions[0].site_count = 0;
        let error = Sidecar::from_bytes(&outside.to_bytes().unwrap()).unwrap_err();
        assert!(error.to_string().contains("site 0 is not among"), "{error}");
    }

    #[test]
    fn a_part_that_its_record_does_not_have_is_refused() {
        let with = |part| Sidecar { ptwrites: vec![PtWrite { ip: 0x9004, record: 0, part }], records: vec![Record { slots: 3, ..Record::default() }], ..small() };
        assert!(Sidecar::from_bytes(&with(4).to_bytes().unwrap()).is_ok());
        assert!(matches!(Sidecar::from_bytes(&with(5).to_bytes().unwrap()), Err(SidecarError::Damaged(_))));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = small().to_bytes().unwrap();
        for len in 0..bytes.len() {
            assert!(Sidecar::from_bytes(&bytes[..len]).is_err(), "{len} of {} bytes were accepted", bytes.len());
        }
    }

    proptest::proptest! {
        #[test]
        fn no_damage_makes_the_reader_panic(at in 0usize..4096, value: u8) {
            let mut bytes = small().to_bytes().unwrap();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Sidecar::from_bytes(&bytes);
        }
    }
}
