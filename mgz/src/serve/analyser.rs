//! Runs the analysis of a selection, one at a time, and keeps the last results.

use crate::html::{self, HtmlOptions, Part};
use crate::report;
use crate::serve::asked::Asked;
use mgz_annotations_schema::lock::locked;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Source: Chosen.
const MAX_KEPT_RESULTS: usize = 8;
/// Interval at which a running analysis is checked. Source: Chosen.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Number of pages whose last selection is remembered.
const TABS: usize = 64;

/// Result for a selection.
pub struct SelectionReport {
    /// Parts of the report.
    pub parts: Vec<Part>,
    /// These parts as JSON.
    pub body: Vec<u8>,
}

/// Answer to a selection.
pub enum Answer {
    /// The result.
    Found(Arc<SelectionReport>),
    /// Message of `mgz-analyze`.
    Failed(String),
    /// The page has made another selection in the meantime.
    Replaced,
}

#[derive(Default)]
struct Running {
    /// The running process, and the page that it serves.
    child: Option<(Child, String)>,
    /// Number of the last selection of each page.
    last: HashMap<String, u64>,
    count: u64,
}

/// Runs one analysis at a time, and keeps the last results.
pub struct Analyser {
    trace: PathBuf,
    manifest: Value,
    options: HtmlOptions,
    running: Mutex<Running>,
    /// The last results. The lock is held by the running analysis.
    kept: Mutex<Vec<(Asked, Arc<SelectionReport>)>>,
    ended: AtomicBool,
}

impl Analyser {
    /// An analyser for one trace.
    pub fn new(trace: PathBuf, manifest: Value, options: HtmlOptions) -> Analyser {
        Analyser {
            trace,
            manifest,
            options,
            running: Mutex::default(),
            kept: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// Kills the running analysis, and prevents new ones.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some((mut child, _)) = locked(&self.running).child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Analyses a selection of a page.
    pub fn answer(&self, asked: &Asked, tab: &str) -> Answer {
        let number = self.register(tab);
        let mut kept = locked(&self.kept);
        if self.is_replaced(tab, number) {
            return Answer::Replaced;
        }
        if let Some(at) = kept.iter().position(|(of, _)| of == asked) {
            let found = kept.remove(at);
            kept.push(found);
            return Answer::Found(kept[kept.len() - 1].1.clone());
        }
        match self.analysed(asked, tab, number) {
            Ok(found) => {
                let found = Arc::new(found);
                if kept.len() == MAX_KEPT_RESULTS {
                    kept.remove(0);
                }
                kept.push((asked.clone(), found.clone()));
                Answer::Found(found)
            }
            Err(_) if self.is_replaced(tab, number) => Answer::Replaced,
            Err(error) => Answer::Failed(format!("{error:#}")),
        }
    }

    /// Registers a selection of a page, and kills the page's running analysis.
    fn register(&self, tab: &str) -> u64 {
        let mut running = locked(&self.running);
        if running.last.len() >= TABS {
            running.last.clear();
        }
        running.count += 1;
        let number = running.count;
        running.last.insert(tab.to_owned(), number);
        if let Some((child, of)) = &mut running.child
            && of == tab
        {
            let _ = child.kill();
        }
        number
    }

    fn is_replaced(&self, tab: &str, number: u64) -> bool {
        let last = locked(&self.running).last.get(tab).copied();
        self.ended.load(Ordering::SeqCst) || last.is_some_and(|last| last != number)
    }

    fn analysed(&self, asked: &Asked, tab: &str, number: u64) -> anyhow::Result<SelectionReport> {
        let data = tempfile::NamedTempFile::new()?;
        let mut command = report::analysis(&self.trace, &self.options, data.path())?;
        command.args(asked.arguments());
        let mut said = tempfile::tempfile()?;
        command.stdout(Stdio::null()).stderr(said.try_clone()?);
        {
            let mut running = locked(&self.running);
            // A later selection finds the child.
            let is_last = running.last.get(tab).is_none_or(|&last| last == number);
            anyhow::ensure!(is_last && !self.ended.load(Ordering::SeqCst), "replaced");
            running.child = Some((command.spawn()?, tab.to_owned()));
        }
        let status = loop {
            std::thread::sleep(CHECK_INTERVAL);
            let mut running = locked(&self.running);
            let Some((child, _)) = &mut running.child else {
                anyhow::bail!("the server ends");
            };
            if let Some(status) = child.try_wait()? {
                running.child = None;
                break status;
            }
        };
        let analysis = report::read_report_data(&self.trace, data.path());
        if analysis.is_err() || status.code().is_none() {
            anyhow::bail!("{}", errors(&mut said));
        }
        let parts = html::report_parts(&analysis?, &self.manifest, &self.options);
        let all: Map<String, Value> = parts
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        let body = serde_json::to_vec(&all)?;
        Ok(SelectionReport { parts, body })
    }
}

/// Last message of the analysis, without the program's name.
fn errors(said: &mut std::fs::File) -> String {
    use std::io::Seek;
    let mut text = String::new();
    let _ = said.rewind();
    let _ = said.take(1 << 16).read_to_string(&mut text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    match line {
        Some(line) => line.trim_start_matches("mgz-analyze: ").to_owned(),
        None => "mgz-analyze has ended without a result".to_owned(),
    }
}
