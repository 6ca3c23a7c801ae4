//! The table of `--hot`, and the option for `mgz-instrument` under it.

use crate::trace::coverage::shares_of_clock;
use mgz_annotations_schema::coverage::{Coverage, GeneratedFunction};
use mgz_annotations_schema::shell;
use mgz_elf::function_names::{Name, Symbols};
use mgz_elf::library_search::{Search, is_c_library};
use mgz_generated_code::watch::NamedProcesses;
use mgz_perf::clock_sampler::{Samples, UNKNOWN};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The suggestion covers this share of the samples, as far as they can be covered. Source: Chosen.
const SUGGESTED_SAMPLE_SHARE: f64 = 0.9;
/// Rows of the table.
const ROWS: usize = 25;
/// Source: Chosen.
const MAX_SUGGESTED_FUNCTIONS: usize = 60;
/// In place of the file of generated code.
const GENERATED: &str = "[generated code]";
/// Name of generated code that nothing names.
const WITHOUT_NAME: &str = "[without a name]";
/// A smaller share of generated code without names is not reported. Source: Chosen.
const MIN_UNNAMED_SHARE: f64 = 0.01;

/// A function's share.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    samples: u64,
    module: Vec<u8>,
    name: Name,
}

/// Totals of the samples.
pub struct Profile {
    rows: Vec<Row>,
    total: u64,
    lost: u64,
    /// The program itself and the libraries it is linked to that mgz-instrument rewrites unasked,
    /// with their names.
    coverable: BTreeMap<Vec<u8>, Option<String>>,
    /// Generated code, by function.
    generated: Coverage,
}

impl Profile {
    /// Sums up by function.
    pub fn new(samples: Samples, names: &NamedProcesses, program: &Path) -> Profile {
        let (generated, unknown) = generated(&samples, names);
        let mut symbols: BTreeMap<Vec<u8>, Symbols> = BTreeMap::new();
        let mut sums: BTreeMap<(Vec<u8>, Name), u64> = BTreeMap::new();
        let mut total = 0;
        for ((path, offset), n) in samples.places {
            let table = symbols
                .entry(path.clone())
                .or_insert_with(|| match path.first() {
                    Some(b'/') => Symbols::read(Path::new(OsStr::from_bytes(&path))),
                    _ => Symbols::default(),
                });
            *sums.entry((path, table.name(offset))).or_default() += n;
            total += n;
        }
        let mut rows: Vec<Row> = sums
            .into_iter()
            .map(|((module, name), samples)| Row {
                samples,
                module,
                name,
            })
            .collect();
        let rows_of_no_file = rows_of_no_file(&generated, unknown);
        total += rows_of_no_file.iter().map(|row| row.samples).sum::<u64>();
        rows.extend(rows_of_no_file);
        rows.sort_by_key(|row| std::cmp::Reverse(row.samples));
        Profile {
            rows,
            total,
            lost: samples.lost,
            coverable: coverable(program),
            generated,
        }
    }

    /// Functions that together cover [`SUGGESTED_SAMPLE_SHARE`] of the samples, as far as they lie
    /// in the program and its libraries; and the share that they cover.
    fn chosen(&self) -> (Vec<&Row>, f64) {
        let mut covered = 0;
        let mut chosen = Vec::new();
        for row in self
            .rows
            .iter()
            .filter(|r| self.coverable.contains_key(&r.module))
            .take(MAX_SUGGESTED_FUNCTIONS)
        {
            if covered as f64 >= SUGGESTED_SAMPLE_SHARE * self.total as f64 {
                break;
            }
            covered += row.samples;
            chosen.push(row);
        }
        (chosen, covered as f64 / self.total.max(1) as f64)
    }

    /// The options for `mgz-instrument`.
    fn options(&self, chosen: &[&Row]) -> Option<String> {
        if chosen.is_empty() {
            return None;
        }
        let mut names: Vec<String> = Vec::new();
        for row in chosen {
            match row.name.symbols.as_slice() {
                [] => names.push(regex::escape(&row.name.readable)),
                symbols => names.extend(symbols.iter().map(|s| regex::escape(s))),
            }
        }
        names.sort();
        names.dedup();
        let mut libraries: Vec<&str> = chosen
            .iter()
            .filter_map(|r| self.coverable.get(&r.module)?.as_deref())
            .collect();
        libraries.sort_unstable();
        libraries.dedup();
        let mut text = format!(
            "--functions {}",
            shell::quoted(&format!("^({})$", names.join("|")))
        );
        if !libraries.is_empty() {
            let _ = write!(text, " --libs={}", libraries.join(","));
        }
        Some(text)
    }

    /// The generated code without names, in a sentence.
    fn without_names(&self) -> Option<String> {
        let share = self.generated.unnamed_share()?;
        (share >= MIN_UNNAMED_SHARE).then(|| {
            format!(
                "generated code without names, {:.0} % of the time: {}",
                100.0 * share,
                self.generated.naming_remedy()
            )
        })
    }

    /// For people.
    pub fn text(&self, program: &Path, wall: Duration) -> String {
        let mut out = format!(
            "mgz-record: {} samples of user CPU time in {:.2} s\n",
            self.total,
            wall.as_secs_f64()
        );
        if self.lost > 0 {
            let _ = writeln!(
                out,
                "mgz-record: {} records of the kernel were lost",
                self.lost
            );
        }
        if self.total == 0 {
            out.push_str("mgz-record: the program used too little CPU time to find its hot functions; give it more work\n");
            return out;
        }
        let _ = writeln!(out, "{:>7}  {:<24}  function", "share", "module");
        for row in self.rows.iter().take(ROWS) {
            let share = 100.0 * row.samples as f64 / self.total as f64;
            let path = String::from_utf8_lossy(&row.module);
            let module = path.rsplit('/').next().unwrap_or_default();
            let _ = writeln!(out, "{share:>6.1}%  {module:<24}  {}", row.name.readable);
        }
        if self.rows.len() > ROWS {
            let rest: u64 = self.rows[ROWS..].iter().map(|r| r.samples).sum();
            let _ = writeln!(
                out,
                "{:>6.1}%  {} more",
                100.0 * rest as f64 / self.total as f64,
                self.rows.len() - ROWS
            );
        }
        if let Some(sentence) = self.without_names() {
            let _ = writeln!(out, "mgz-record: {sentence}");
        }
        let (chosen, share) = self.chosen();
        match self.options(&chosen) {
            Some(options) => {
                let name = program.file_name().unwrap_or_default().to_string_lossy();
                let _ = writeln!(
                    out,
                    "These cover {:.0}% of the samples:\nmgz-instrument {options} -o {} {}",
                    share * 100.0,
                    shell::quoted(&format!("{name}.inst")),
                    shell::quoted(&program.to_string_lossy())
                );
            }
            None => out.push_str("mgz-record: no sample lies in the program or the libraries it is linked to (is it a script, or does it start another program?)\n"),
        }
        out
    }

    /// One line of JSON.
    pub fn json(&self, program: &Path, wall: Duration) -> String {
        let (chosen, share) = self.chosen();
        let rows: Vec<serde_json::Value> = self
            .rows
            .iter()
            .map(|r| {
                serde_json::json!({
                    "share": r.samples as f64 / self.total.max(1) as f64,
                    "samples": r.samples,
                    "module": String::from_utf8_lossy(&r.module),
                    "function": r.name.readable,
                })
            })
            .collect();
        let value = serde_json::json!({
            "program": program.display().to_string(),
            "wall_seconds": wall.as_secs_f64(),
            "samples": self.total,
            "lost": self.lost,
            "functions": rows,
            "generated": {
                "samples": self.generated.generated_samples,
                "functions": self.generated.generated_functions,
                "naming_commands": self.generated.naming_commands,
            },
            "covered": share,
            "options": self.options(&chosen),
        });
        format!("{value}\n")
    }
}

/// Generated code by function, and the number of samples where nothing is known to be mapped.
fn generated(samples: &Samples, names: &NamedProcesses) -> (Coverage, u64) {
    let (shares, functions) = shares_of_clock(samples.shares(&|_| true), names);
    let mut coverage = Coverage {
        time_samples: shares.samples,
        generated_samples: shares.of(""),
        naming_commands: names.commands.iter().map(|c| (*c).to_owned()).collect(),
        ..Coverage::default()
    };
    coverage.set_functions(functions);
    (coverage, shares.unknown)
}

fn with_tier(function: &GeneratedFunction) -> String {
    match function.tier.as_str() {
        "" => function.readable(),
        tier => format!("{} ({tier})", function.readable()),
    }
}

/// Rows of code of no file.
fn rows_of_no_file(generated: &Coverage, unknown: u64) -> Vec<Row> {
    let row = |samples, module: &str, function: String| Row {
        samples,
        module: module.into(),
        name: Name {
            readable: function,
            symbols: Vec::new(),
        },
    };
    let functions = &generated.generated_functions;
    let mut rows: Vec<Row> = (functions.iter())
        .map(|f| row(f.samples, GENERATED, with_tier(f)))
        .collect();
    let named: u64 = functions.iter().map(|f| f.samples).sum();
    let all = generated.generated_samples.unwrap_or(0);
    rows.push(row(
        all.saturating_sub(named),
        GENERATED,
        WITHOUT_NAME.into(),
    ));
    rows.push(row(unknown, UNKNOWN, UNKNOWN.into()));
    rows.retain(|row| row.samples > 0);
    rows
}

/// The program and the libraries it is linked to, but for those that `mgz-instrument --libs` leaves
/// out.
fn coverable(program: &Path) -> BTreeMap<Vec<u8>, Option<String>> {
    let real = |p: &Path| {
        std::fs::canonicalize(p)
            .unwrap_or_else(|_| p.to_owned())
            .as_os_str()
            .as_bytes()
            .to_vec()
    };
    let mut out = BTreeMap::from([(real(program), None)]);
    let covered = |name: &[u8]| !is_c_library(&String::from_utf8_lossy(name));
    for found in Search::from_environment().closure(program, covered) {
        if let Some(path) = found.path {
            let shown = String::from_utf8_lossy(&found.name).into_owned();
            out.entry(real(&path)).or_insert(Some(shown));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_perf::code_samples::CodeSample;

    fn row(samples: u64, module: &str, symbols: &[&str]) -> Row {
        let readable = symbols
            .first()
            .map_or("[0x1234]".into(), |s| (*s).to_owned());
        Row {
            samples,
            module: module.into(),
            name: Name {
                readable,
                symbols: symbols.iter().map(|s| (*s).to_owned()).collect(),
            },
        }
    }

    #[test]
    fn the_suggestion_covers_nine_tenths_of_what_can_be_covered() {
        let rows = vec![
            row(50, "/a", &["hot", "hot_alias"]),
            row(30, "/libz", &["_ZN1a1bEv.part.0"]),
            row(11, "/a", &[]),
            row(5, "/libc", &["memcpy"]),
            row(4, "/a", &["cold"]),
        ];
        let profile = Profile {
            rows,
            total: 100,
            lost: 0,
            coverable: BTreeMap::from([
                (b"/a".to_vec(), None),
                (b"/libz".to_vec(), Some("libz.so.1".to_owned())),
            ]),
            generated: Coverage::default(),
        };
        let (chosen, share) = profile.chosen();
        assert_eq!((chosen.len(), share), (3, 0.91));
        assert_eq!(
            profile.options(&chosen).unwrap(),
            r"--functions '^(\[0x1234\]|_ZN1a1bEv\.part\.0|hot|hot_alias)$' --libs=libz.so.1"
        );
        let text = profile.text(Path::new("/x/my app"), Duration::from_secs(1));
        assert!(
            text.contains("  50.0%  a                         hot\n"),
            "{text}"
        );
        assert!(text.ends_with("-o 'my app.inst' '/x/my app'\n"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&profile.json(Path::new("a"), Duration::ZERO)).unwrap();
        assert_eq!(json["functions"][1]["share"], 0.3);
    }

    #[test]
    fn generated_code_has_rows_of_its_own() {
        use mgz_generated_code::naming::ProcessCode;
        use mgz_generated_code::{GeneratedBlock, GeneratedName, NameSource};
        let mut samples = Samples::default();
        let places = [
            (0x100, true, 3),
            (0x500, true, 2),
            (0x108, false, 1),
            (0x900, false, 1),
        ];
        for (address, in_mapping, n) in places {
            let path = if in_mapping { "//anon" } else { UNKNOWN };
            *samples.files.entry((7, path.into())).or_default() += n;
            for _ in 0..n {
                samples.unnamed.push(CodeSample {
                    process: 7,
                    address,
                    time_ns: 1,
                    weight: 1,
                    in_mapping,
                });
            }
        }
        samples.places.insert((b"/nowhere".to_vec(), 0x10), 3);
        samples.files.insert((7, b"/nowhere".to_vec()), 3);
        let mut code = ProcessCode::default();
        code.add_source(vec![GeneratedBlock {
            start: 0x100,
            end: 0x200,
            begin_ns: 0,
            end_ns: u64::MAX,
            name: GeneratedName::of_text("JS:*work /app/a.js:3:1", NameSource::PerfMap),
        }]);
        let names = NamedProcesses {
            processes: [(7, code)].into(),
            commands: ["node --perf-basic-prof"].into(),
        };
        let profile = Profile::new(samples, &names, Path::new("/nowhere"));
        assert_eq!(profile.total, 10);
        let rows: Vec<(u64, &str)> = (profile.rows.iter())
            .map(|r| (r.samples, r.name.readable.as_str()))
            .collect();
        assert_eq!(rows[0], (4, "work a.js:3 (optimized)"));
        assert!(
            rows.contains(&(2, WITHOUT_NAME)) && rows.contains(&(1, UNKNOWN)),
            "{rows:?}"
        );
        let text = profile.text(Path::new("/nowhere"), Duration::from_secs(1));
        assert!(
            text.contains("generated code without names, 20 % of the time: `node --perf-basic-prof` names it\n"),
            "{text}"
        );
    }
}
