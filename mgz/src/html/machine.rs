//! Machine code of the lines with the most loads, from the original program.

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
use mgz_annotations_schema::sidecar::{
    CLASS_CONSTANT, CLASS_STRIDED, Header, NONE, Sidecar, Site, SiteFlags, reason,
};
use object::{Object, ObjectSegment};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

/// Maximum number of lines whose code is embedded. Source: Chosen.
const MAX_LINES: usize = 40;
/// Maximum number of code pieces per line, since a function may be inlined in many places. Source:
/// Chosen.
const MAX_PLACES_PER_LINE: usize = 3;
/// Instructions before the first load of a place, and behind the last one. Source: Chosen.
const INSTRUCTIONS_AROUND: usize = 6;
/// Source: Chosen.
const MAX_INSTRUCTIONS_PER_PLACE: usize = 80;
/// Loads that are farther apart belong to different places, bytes. Source: Chosen.
const MAX_DISTANCE_IN_PLACE: u64 = 96;
/// Maximum number of bytes decoded from a function's start. Source: Chosen.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// Larger files are not read for a report.
const FILE_BYTES: u64 = 1 << 30;

/// `ranges`: for each line its pieces of code, with the instructions.
pub fn machine_code(lines: &[Value], manifest: &Value, trace: &Path) -> Value {
    let mut wanted: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let known = |row: &&Value| {
        row["file"].as_str().is_some_and(|f| !f.is_empty()) && row["line"].as_u64() > Some(0)
    };
    for row in lines.iter().filter(known).take(MAX_LINES) {
        if let Some(module) = row["module"].as_str() {
            wanted.entry(module).or_default().push(row);
        }
    }
    let mut ranges = Vec::new();
    let mut done: Vec<&str> = Vec::new();
    for module in manifest["modules"].as_array().into_iter().flatten() {
        let id = module["sidecar_id"].as_str().unwrap_or_default();
        if wanted.is_empty() || done.contains(&id) {
            continue;
        }
        done.push(id);
        // Reading the header is faster than reading the sidecar of a module without such lines.
        let Some(file) = sidecar_file(module, trace) else {
            continue;
        };
        let is_wanted = |header: &Header| wanted.contains_key(&*file_name(header));
        if !Sidecar::read_header(&file).is_ok_and(|(_, header)| is_wanted(&header)) {
            continue;
        }
        let Ok(sidecar) = Sidecar::read(&file) else {
            continue;
        };
        let path = Path::new(&sidecar.header.input.path);
        let Some(rows) = wanted.remove(&*file_name(&sidecar.header)) else {
            continue;
        };
        if let Some(bytes) = original(path, &sidecar)
            && let Ok(elf) = object::File::parse(&*bytes)
        {
            let sites = sidecar.sites.iter().map(|s| (s.ip, s)).collect();
            let places = |row: &&Value| places(row, &sidecar, &elf, &sites);
            ranges.extend(rows.iter().flat_map(places));
        }
    }
    json!({ "ranges": ranges })
}

/// The name of the original file.
fn file_name(header: &Header) -> Cow<'_, str> {
    let path = Path::new(&header.input.path);
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// The sidecar of a module of the trace.
fn sidecar_file(module: &Value, trace: &Path) -> Option<PathBuf> {
    let relative = Path::new(module["sidecar"].as_str()?);
    let is_inside = relative
        .components()
        .all(|c| matches!(c, Component::Normal(_)));
    if relative.as_os_str().is_empty() || !is_inside {
        return None;
    }
    Some(trace.join(relative))
}

/// The bytes of the original file, if it has not changed.
fn original(path: &Path, sidecar: &Sidecar) -> Option<Vec<u8>> {
    let input = &sidecar.header.input;
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() != input.size || meta.len() > FILE_BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let id = file.build_id().ok()?.unwrap_or_default();
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    (hex == input.build_id).then_some(bytes)
}

/// Pieces of code of a line: sites of one function that are near each other, those with the most
/// sites first.
fn places(
    row: &Value,
    sidecar: &Sidecar,
    elf: &object::File<'_>,
    sites: &HashMap<u64, &Site>,
) -> Vec<Value> {
    let (file, line) = (row["file"].as_str().unwrap_or_default(), &row["line"]);
    let number = line.as_u64();
    let is_of_line: Vec<bool> = (sidecar.locations.iter())
        .map(|l| number == Some(l.line.into()) && sidecar.string(l.file) == file)
        .collect();
    let here = |site: &&Site| is_of_line.get(site.location as usize) == Some(&true);
    let mut clusters: Vec<Vec<&Site>> = Vec::new();
    // Sites are in the order of functions and addresses.
    for site in sidecar.sites.iter().filter(here) {
        match clusters.last_mut() {
            Some(last)
                if last.last().is_some_and(|l| {
                    l.function == site.function
                        && site.ip.saturating_sub(l.ip) <= MAX_DISTANCE_IN_PLACE
                }) =>
            {
                last.push(site);
            }
            _ => clusters.push(vec![site]),
        }
    }
    clusters.sort_by_key(|c| std::cmp::Reverse(c.len()));
    clusters
        .iter()
        .take(MAX_PLACES_PER_LINE)
        .filter_map(|cluster| {
            let code = instructions(elf, sidecar, cluster)?;
            let rows: Vec<Value> = code
                .iter()
                .map(|(ip, text)| instruction(*ip, text, sites.get(ip).copied(), sidecar))
                .collect();
            Some(json!({
                "file": file,
                "line": line,
                "function": row["function"],
                "module": row["module"],
                "code": rows,
            }))
        })
        .collect()
}

/// Address and text of the instructions of a piece of code.
fn instructions(
    elf: &object::File<'_>,
    sidecar: &Sidecar,
    cluster: &[&Site],
) -> Option<Vec<(u64, String)>> {
    let (first, last) = (cluster.first()?.ip, cluster.last()?.ip);
    let function = sidecar.functions.get(cluster.first()?.function as usize)?;
    let start = if first.checked_sub(function.start)? <= MAX_FUNCTION_BYTES {
        function.start
    } else {
        first
    };
    let decoded = |start: u64| -> Option<Vec<(u64, String)>> {
        let end = last
            .checked_add(256)?
            .min(function.end.max(last.checked_add(16)?));
        let code = elf.segments().find_map(|segment| {
            // A segment may end before the requested range.
            let held = segment.address().checked_add(segment.file_range().1)?;
            segment
                .data_range(start, end.min(held).checked_sub(start)?)
                .ok()?
        })?;
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut writer = GasFormatter::new();
        let options = writer.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_branch_leading_zeros(false);
        let mut out: Vec<(u64, Instruction)> = Vec::new();
        let mut behind = 0;
        while decoder.can_decode() && behind < INSTRUCTIONS_AROUND {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                break;
            }
            behind += usize::from(instruction.ip() > last);
            out.push((instruction.ip(), instruction));
            let before = out.iter().take_while(|(ip, _)| *ip < first).count();
            if before > 4 * INSTRUCTIONS_AROUND {
                out.drain(..before - INSTRUCTIONS_AROUND);
            }
        }
        let at = out.iter().position(|(ip, _)| *ip == first)?;
        let shown = out
            .into_iter()
            .skip(at.saturating_sub(INSTRUCTIONS_AROUND))
            .take(MAX_INSTRUCTIONS_PER_PLACE);
        let text = |(ip, instruction): (u64, Instruction)| {
            let mut text = String::new();
            writer.format(&instruction, &mut text);
            (ip, text)
        };
        Some(shown.map(text).collect())
    };
    // Data between functions may mislead the decoder: then decode from the load on.
    decoded(start).or_else(|| decoded(first))
}

/// A row of the listing.
fn instruction(ip: u64, text: &str, site: Option<&Site>, sidecar: &Sidecar) -> Value {
    let location = site.filter(|s| s.location != NONE);
    let location = location.and_then(|s| sidecar.locations.get(s.location as usize));
    json!({
        "address": format!("{ip:#x}"),
        "text": text,
        "line": location.map(|l| l.line),
        "file": location.map(|l| sidecar.string(l.file)),
        "class": site.map(class),
    })
}

fn class(site: &Site) -> String {
    let has = |flag: u8| site.flags & flag != 0;
    let name = match site.class {
        CLASS_CONSTANT => "constant",
        CLASS_STRIDED => "strided",
        _ => "irregular",
    };
    let mut text = if has(SiteFlags::STORE) {
        String::from("store")
    } else {
        name.to_string()
    };
    if has(SiteFlags::STRIDE_KNOWN) && site.class == CLASS_STRIDED {
        text += &format!(", {} bytes an iteration", site.stride);
    }
    if has(SiteFlags::IMPLIED) {
        text += ", counted with its neighbours";
    }
    if has(SiteFlags::UNRECORDED) {
        let why = reason::NAMES.get(site.reason as usize).unwrap_or(&"");
        text += ", not recorded";
        if !why.is_empty() {
            text += &format!(": {why}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_files_there_is_no_code() {
        let rows = [json!({"file": "a.c", "line": 3, "module": "a", "function": "f"})];
        let trace = tempfile::tempdir().unwrap();
        for module in [
            json!({}),
            json!({"sidecar": "../x", "sidecar_id": "1"}),
            json!({"sidecar": "x.mgza", "sidecar_id": "2"}),
        ] {
            let found = machine_code(&rows, &json!({ "modules": [module] }), trace.path());
            assert_eq!(found, json!({ "ranges": [] }));
        }
    }
}
