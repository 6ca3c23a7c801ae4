//! Reader of `measured.parquet`: memory samples of the processor.

use crate::data::frame::{self, Frame};
use crate::input::quietly;
use mgz_annotations_schema::SamplePopulation;
use mgz_annotations_schema::manifest::MEASURED;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Names of an instruction. Empty texts and line 0 are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeasuredCode {
    /// File name of the module.
    pub module: String,
    /// Function.
    pub function: String,
    /// Innermost function, if it was inlined.
    pub inlined: String,
    /// Source file.
    pub file: String,
    /// Line.
    pub line: u32,
}

/// Names of accessed memory. Empty texts are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeasuredObject {
    /// Name.
    pub object: String,
    /// Kind.
    pub kind: String,
    /// File name of a variable's module.
    pub module: String,
}

/// Level that served a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServedBy {
    /// First level.
    L1,
    /// A fill buffer of the first level: the line was being fetched.
    FillBuffer,
    /// Second level.
    L2,
    /// A fill buffer of the second level.
    L2FillBuffer,
    /// Third level.
    L3,
    /// Fourth level, or a cache on the side of the memory.
    L4,
    /// A cache of unknown level.
    SomeCache,
    /// Cache of another core or socket.
    RemoteCache,
    /// Memory of this node, persistent memory included.
    Memory,
    /// Memory of another node, or memory attached by a link.
    RemoteMemory,
    /// A level beyond the level with this number.
    Past(u8),
    /// A device, or memory that is not cached.
    Uncached,
    /// Unknown.
    Unknown,
}

impl ServedBy {
    fn of(text: &str) -> ServedBy {
        match text {
            "L1" => ServedBy::L1,
            "fill buffer" => ServedBy::FillBuffer,
            "L2" => ServedBy::L2,
            "L2 fill buffer" => ServedBy::L2FillBuffer,
            "L3" => ServedBy::L3,
            "L4" | "memory-side cache" => ServedBy::L4,
            "some cache" => ServedBy::SomeCache,
            "remote cache" => ServedBy::RemoteCache,
            "memory" | "persistent memory" => ServedBy::Memory,
            "remote memory" | "CXL memory" => ServedBy::RemoteMemory,
            "past L1" => ServedBy::Past(1),
            "past L2" => ServedBy::Past(2),
            "past L3" => ServedBy::Past(3),
            "device" | "uncached" => ServedBy::Uncached,
            _ => ServedBy::Unknown,
        }
    }

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            ServedBy::L1 => "L1",
            ServedBy::FillBuffer => "fill buffer",
            ServedBy::L2 => "L2",
            ServedBy::L2FillBuffer => "L2 fill buffer",
            ServedBy::L3 => "L3",
            ServedBy::L4 => "L4",
            ServedBy::SomeCache => "some cache",
            ServedBy::RemoteCache => "remote cache",
            ServedBy::Memory => "memory",
            ServedBy::RemoteMemory => "remote memory",
            ServedBy::Past(1) => "past L1",
            ServedBy::Past(2) => "past L2",
            ServedBy::Past(_) => "past L3",
            ServedBy::Uncached => "uncached",
            ServedBy::Unknown => "unknown",
        }
    }

    /// True if a load missed the cache of a level, 1 to 3; `None` if it is unknown. It is also
    /// unknown for a line that another load was fetching.
    pub fn missed(self, level: u8) -> Option<bool> {
        match self {
            ServedBy::L1 => Some(false),
            ServedBy::L2 => Some(level < 2),
            ServedBy::L2FillBuffer => (level == 1).then_some(true),
            ServedBy::L3 => Some(level < 3),
            ServedBy::L4
            | ServedBy::RemoteCache
            | ServedBy::Memory
            | ServedBy::RemoteMemory
            | ServedBy::Uncached => Some(true),
            ServedBy::Past(past) => (level <= past).then_some(true),
            ServedBy::FillBuffer | ServedBy::SomeCache | ServedBy::Unknown => None,
        }
    }
}

/// A sampled load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLoad {
    /// Number of its code.
    pub code: u32,
    /// Number of its object.
    pub object: u32,
    /// Level that served it.
    pub served: ServedBy,
    /// Cycles.
    pub latency: Option<u32>,
    /// True if no level of the TLB had the page.
    pub tlb_miss: Option<bool>,
    /// True if another cache had the modified line.
    pub hitm: Option<bool>,
    /// True if another core, node or socket served it.
    pub remote: Option<bool>,
    /// NUMA node of its memory.
    pub node: Option<u32>,
    /// Number of events that it represents; 0 if unknown.
    pub period: u64,
}

/// All memory samples of a trace.
#[derive(Clone, Debug, Default)]
pub struct MeasuredSamples {
    /// Loads.
    pub loads: Vec<MeasuredLoad>,
    /// Samples that are not loads.
    pub others: u64,
    /// Number of samples by the kind of accesses that were sampled.
    pub drawn: HashMap<SamplePopulation, u64>,
    /// Code, each once.
    pub code: Vec<MeasuredCode>,
    /// Objects, each once.
    pub objects: Vec<MeasuredObject>,
}

/// Reads the samples of a trace. `Ok(None)` if it has none; an error is a sentence for the user.
pub fn read_measured(folder: &Path) -> Result<Option<MeasuredSamples>, String> {
    read_table(folder, samples)
}

/// Reads the table itself: one row per sample.
pub fn read_measured_rows(folder: &Path) -> Result<Option<Frame>, String> {
    read_table(folder, |table| Ok(table.clone()))
}

fn read_table<T>(
    folder: &Path,
    of: impl Fn(&Frame) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let path = folder.join(MEASURED);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    quietly(|| frame::read_parquet(file).and_then(|table| of(&table)))
        .and_then(|r| r)
        .map(Some)
        .map_err(|e| {
            format!(
                "{}: damaged ({e}); memory samples are not shown",
                path.display()
            )
        })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Distinct values with numbers.
struct Numbered<T> {
    list: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + std::hash::Hash> Numbered<T> {
    fn new() -> Numbered<T> {
        Numbered {
            list: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn number(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
}

fn samples(table: &Frame) -> Result<MeasuredSamples, String> {
    let texts = |name: &str| frame::texts(table, name);
    let whole = |name: &str| frame::whole(table, name);
    let [module, function, inlined, file] = ["module", "function", "inlined", "file"].map(texts);
    let (module, function, inlined, file) = (module?, function?, inlined?, file?);
    let [object, kind, object_module] = ["object", "object_kind", "object_module"].map(texts);
    let (object, kind, object_module) = (object?, kind?, object_module?);
    let [operation, level, drawn, tlb, snoop] =
        ["operation", "level", "drawn", "tlb", "snoop"].map(texts);
    let (operation, level, drawn, tlb, snoop) = (operation?, level?, drawn?, tlb?, snoop?);
    let [line, latency, node, period] = ["line", "latency", "node", "period"].map(whole);
    let (line, latency, node, period) = (line?, latency?, node?, period?);
    let remote = frame::maybe_flags(table, "remote")?;
    let mut found = MeasuredSamples::default();
    let (mut codes, mut objects) = (Numbered::new(), Numbered::new());
    let own = |text: Option<&str>| text.unwrap_or_default().to_owned();
    for row in 0..operation.len() {
        if operation[row] != Some("load") {
            found.others += 1;
            continue;
        }
        let small = |value: Option<u64>| value.and_then(|v| u32::try_from(v).ok());
        let code = MeasuredCode {
            module: file_name(module[row].unwrap_or_default()).to_owned(),
            function: own(function[row]),
            inlined: own(inlined[row]),
            file: own(file[row]),
            line: small(line[row]).unwrap_or(0),
        };
        let object = MeasuredObject {
            object: own(object[row]),
            kind: own(kind[row]),
            module: own(object_module[row]),
        };
        let population = SamplePopulation::from(drawn[row].unwrap_or_default());
        *found.drawn.entry(population).or_default() += 1;
        found.loads.push(MeasuredLoad {
            code: codes.number(code),
            object: objects.number(object),
            served: ServedBy::of(level[row].unwrap_or_default()),
            latency: small(latency[row]),
            tlb_miss: tlb[row].map(|text| text.ends_with("miss")),
            hitm: snoop[row].map(|text| text == "hitm"),
            remote: remote[row],
            node: small(node[row]),
            period: period[row].unwrap_or(0),
        });
    }
    (found.code, found.objects) = (codes.list, objects.list);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::frame::ColumnKind;
    use serde_json::{Value, json};

    #[test]
    fn a_table_is_read_and_a_damaged_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_measured(dir.path()).unwrap().is_none());
        let path = dir.path().join(MEASURED);
        let made = |columns: &[(&str, ColumnKind, Value)]| {
            let columns = columns.iter().map(|(name, kind, cells)| {
                let cells: Vec<&Value> = cells.as_array().unwrap().iter().collect();
                frame::column(name, *kind, &cells).unwrap()
            });
            let table = frame::frame(columns.collect()).unwrap();
            frame::write_parquet(&table, File::create(&path).unwrap()).unwrap();
        };
        let (text, whole, flag) = (ColumnKind::Text, ColumnKind::Whole, ColumnKind::Flag);
        let all = [
            ("module", text, json!(["/x/a", null, "/x/a"])),
            ("function", text, json!(["f", null, "f"])),
            ("inlined", text, json!([null, null, "g"])),
            ("file", text, json!(["a.c", null, "a.c"])),
            ("line", whole, json!([7, null, 9])),
            ("object", text, json!(["table", null, null])),
            ("object_kind", text, json!(["global", null, null])),
            ("object_module", text, json!(["a", null, null])),
            ("operation", text, json!(["load", "store", "load"])),
            ("level", text, json!(["L3", "L1", "something new"])),
            ("latency", whole, json!([50, null, null])),
            ("tlb", text, json!(["L1 or L2 hit", null, "L2 miss"])),
            ("snoop", text, json!(["hitm", null, null])),
            ("remote", flag, json!([false, null, null])),
            ("node", whole, json!([1, null, null])),
            ("period", whole, json!([100, null, 200])),
            ("drawn", text, json!(["loads", "stores", "loads"])),
        ];
        made(&all);
        let found = read_measured(dir.path()).unwrap().unwrap();
        assert_eq!((found.loads.len(), found.others), (2, 1));
        let [first, second] = found.loads[..] else {
            panic!("two loads");
        };
        assert_eq!(
            (first.served, first.latency, first.tlb_miss, first.hitm),
            (ServedBy::L3, Some(50), Some(false), Some(true))
        );
        assert_eq!(
            (first.remote, first.node, first.period),
            (Some(false), Some(1), 100)
        );
        assert_eq!(
            (second.served, second.tlb_miss, second.hitm, second.remote),
            (ServedBy::Unknown, Some(true), None, None)
        );
        let code = &found.code[first.code as usize];
        assert_eq!((code.module.as_str(), code.line), ("a", 7));
        assert_eq!(found.code[second.code as usize].inlined, "g");
        assert_eq!(found.objects[first.object as usize].object, "table");
        assert_eq!(found.drawn, HashMap::from([(SamplePopulation::Loads, 2)]));
        made(&all[..10]);
        assert!(read_measured(dir.path()).is_err_and(|e| e.contains("damaged")));
        std::fs::write(&path, "text").unwrap();
        assert!(read_measured(dir.path()).is_err_and(|e| e.contains("damaged")));
    }

    #[test]
    fn misses_of_levels_are_known_as_far_as_the_level_tells() {
        let of = |text: &str| [1, 2, 3].map(|level| ServedBy::of(text).missed(level));
        let (hit, miss) = (Some(false), Some(true));
        assert_eq!(of("L1"), [hit; 3]);
        assert_eq!(of("L2"), [miss, hit, hit]);
        assert_eq!(of("L3"), [miss, miss, hit]);
        assert_eq!(of("remote cache"), [miss; 3]);
        assert_eq!(of("persistent memory"), [miss; 3]);
        assert_eq!(of("past L2"), [miss, miss, None]);
        assert_eq!(of("L2 fill buffer"), [miss, None, None]);
        assert_eq!(of("fill buffer"), [None; 3]);
        assert_eq!(of("level of a later release"), [None; 3]);
    }
}
