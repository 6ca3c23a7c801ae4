//! Reads sidecars. Nothing in a file is trusted: everything that [`Sidecar::from_bytes`] returns
//! has been checked.

use crate::sidecar::codec::{expand, width};
use crate::sidecar::macros::TableRow;
use crate::sidecar::{
    Function, Gather, Header, Location, Loop, PtWrite, Record, Region, Sidecar, SidecarError, Site,
    StoredColumn,
};
use mgz_abi::module_note::{Prelude, SIDECAR_MAGIC, SIDECAR_VERSION};
use std::path::Path;

/// Columns that were added since the version's first files. If one is missing, its fields are zero.
const ADDED: [(&str, &str); 3] = [
    ("sites", "in_loop"),
    ("sites", "origin_site"),
    ("sites", "origin"),
];

/// Upper bound for the raw size of one column: guards against absurd headers.
const MAX_COLUMN: u64 = 1 << 34;

struct Source<'a> {
    body: &'a [u8],
    columns: &'a [StoredColumn],
}

impl Source<'_> {
    fn bytes(&self, column: &StoredColumn) -> Result<Vec<u8>, SidecarError> {
        let what = || format!("column {}.{}", column.table, column.name);
        let end = column
            .offset
            .checked_add(column.bytes)
            .filter(|&e| e <= self.body.len() as u64);
        let Some(end) = end else {
            return Err(SidecarError::Damaged(format!(
                "{} lies beyond the end of the file",
                what()
            )));
        };
        if column.raw_bytes > MAX_COLUMN {
            return Err(SidecarError::Damaged(format!(
                "{} claims {} bytes",
                what(),
                column.raw_bytes
            )));
        }
        let stored = &self.body[column.offset as usize..end as usize];
        let raw = match column.encoding.as_str() {
            "raw" => stored.to_vec(),
            "zstd" | "varint" | "delta" => {
                let mut raw = Vec::new();
                let mut decoder = zstd::stream::Decoder::new(stored).map_err(SidecarError::Io)?;
                std::io::copy(
                    &mut std::io::Read::take(&mut decoder, column.raw_bytes + 1),
                    &mut raw,
                )
                .map_err(|e| SidecarError::Damaged(format!("{}: {e}", what())))?;
                raw
            }
            other => {
                return Err(SidecarError::Damaged(format!(
                    "{} has unknown encoding {other:?}",
                    what()
                )));
            }
        };
        if raw.len() as u64 != column.raw_bytes {
            return Err(SidecarError::Damaged(format!(
                "{} has the wrong length",
                what()
            )));
        }
        Ok(raw)
    }

    fn find(&self, table: &str, name: &str) -> Result<&StoredColumn, SidecarError> {
        self.columns
            .iter()
            .find(|c| c.table == table && c.name == name)
            .ok_or_else(|| SidecarError::Damaged(format!("column {table}.{name} is missing")))
    }

    fn table<R: TableRow>(&self, table: &str) -> Result<Vec<R>, SidecarError> {
        let mut rows: Vec<R> = Vec::new();
        for (i, (name, kind, _)) in R::FIELDS.iter().enumerate() {
            let column = match self.find(table, name) {
                Err(_) if ADDED.contains(&(table, name)) => continue,
                found => found?,
            };
            let size = width(kind).unwrap_or(8);
            let wrong = || {
                SidecarError::Damaged(format!(
                    "column {table}.{name} does not match its description"
                ))
            };
            if column.kind != *kind {
                return Err(wrong());
            }
            let raw = match column.encoding.as_str() {
                encoding @ ("varint" | "delta") => {
                    expand(&self.bytes(column)?, column.rows, size, encoding == "delta")
                        .ok_or_else(wrong)?
                }
                _ if column.rows.checked_mul(size as u64) != Some(column.raw_bytes) => {
                    return Err(wrong());
                }
                _ => self.bytes(column)?,
            };
            if i == 0 {
                rows.resize(column.rows as usize, R::default());
            } else if rows.len() as u64 != column.rows {
                return Err(SidecarError::Damaged(format!(
                    "columns of {table} differ in length"
                )));
            }
            R::decode(&mut rows, i, &raw);
        }
        Ok(rows)
    }
}

impl Sidecar {
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

    /// Reads the header and the address map. The tables are empty.
    pub fn read_address_map(path: &Path) -> Result<Sidecar, SidecarError> {
        let file = std::fs::File::open(path)?;
        // SAFETY: as in `read`.
        let bytes = unsafe { memmap2::Mmap::map(&file)? };
        let (id, header, body) = split(&bytes)?;
        let source = Source {
            body,
            columns: &header.columns,
        };
        let map = source.bytes(source.find("map", "map")?)?;
        Ok(Sidecar {
            id,
            map,
            header,
            ..Sidecar::default()
        })
    }

    /// Parses the bytes of a sidecar and checks every index in it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Sidecar, SidecarError> {
        let (id, header, body) = split(bytes)?;
        let columns = header.columns.clone();
        let source = Source {
            body,
            columns: &columns,
        };
        let strings = || -> Result<Vec<String>, SidecarError> {
            let text = source.bytes(source.find("strings", "text")?)?;
            let mut strings: Vec<String> = text
                .split(|&b| b == 0)
                .map(|s| String::from_utf8_lossy(s).into_owned())
                .collect();
            strings.pop();
            Ok(strings)
        };
        let loops = || {
            // Older files do not have this table.
            match columns.iter().any(|c| c.table == "loops") {
                true => source.table::<Loop>("loops"),
                false => Ok(Vec::new()),
            }
        };
        // The table of sites is about as large as all others together.
        let (sites, others) = rayon::join(
            || source.table::<Site>("sites"),
            || -> Result<Sidecar, SidecarError> {
                Ok(Sidecar {
                    functions: source.table::<Function>("functions")?,
                    regions: source.table::<Region>("regions")?,
                    records: source.table::<Record>("records")?,
                    ptwrites: source.table::<PtWrite>("ptwrites")?,
                    gathers: source.table::<Gather>("gathers")?,
                    loops: loops()?,
                    locations: source.table::<Location>("locations")?,
                    strings: strings()?,
                    map: source.bytes(source.find("map", "map")?)?,
                    ..Sidecar::default()
                })
            },
        );
        let sidecar = Sidecar {
            id,
            header,
            sites: sites?,
            ..others?
        };
        sidecar.check()?;
        Ok(sidecar)
    }
}

/// Splits a file into identity, header and body.
pub(crate) fn split(bytes: &[u8]) -> Result<([u8; 16], Header, &[u8]), SidecarError> {
    if bytes.get(..4) != Some(&SIDECAR_MAGIC[..]) {
        return Err(SidecarError::NotASidecar);
    }
    let word = |at: usize| {
        bytes
            .get(at..at + 8)
            .map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
    };
    let cut = || SidecarError::Damaged("it is cut off inside its header".into());
    let version = u32::from_le_bytes(
        bytes
            .get(4..8)
            .ok_or_else(cut)?
            .try_into()
            .expect("four bytes"),
    );
    if version != SIDECAR_VERSION {
        return Err(SidecarError::Version { found: version });
    }
    let id: [u8; 16] = bytes
        .get(8..24)
        .ok_or_else(cut)?
        .try_into()
        .expect("sixteen bytes");
    let header_len = word(24).ok_or_else(cut)?;
    let start = size_of::<Prelude>();
    let end = usize::try_from(header_len)
        .ok()
        .and_then(|l| l.checked_add(start))
        .filter(|&e| e <= bytes.len())
        .ok_or_else(cut)?;
    let header: Header = serde_json::from_slice(&bytes[start..end])
        .map_err(|e| SidecarError::Damaged(format!("its header is not valid JSON ({e})")))?;
    Ok((id, header, &bytes[end..]))
}
