use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = "
import time
class Model:
    def step(self):
        print('ready', flush=True)
        time.sleep(
            60)
def train(model):
    model.step()
for size in sorted([3, 1], key=lambda x: train(Model()) or x):
    pass
";

/// Kills its process.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The script, run by an interpreter until it sleeps. `None` if there is no such interpreter.
fn start(python: &str) -> Option<Running> {
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let out = child.stdout.take()?;
    let running = Running(child);
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).ok()?;
    line.starts_with("ready").then_some(running)
}

/// The frames of the first thread, as the runtime notes them.
fn frames(pid: u32, layout: &FrameLayout) -> Vec<PythonFrame> {
    let memory = ProcessMemory(pid);
    let word = |base: u64, offset: u64| memory.word(base + offset).unwrap();
    let byte =
        |base: u64, offset: u64| word(base, offset & !7).to_le_bytes()[(offset & 7) as usize];
    let thread = word(word(layout.interpreters, 0), layout.threads);
    let mut at = word(thread, layout.frame);
    let has = |offset: u64| offset != mgz_abi::python_frames::NO_FIELD;
    if has(layout.held_frame) {
        at = word(at, layout.held_frame);
    }
    let mut out: Vec<PythonFrame> = Vec::new();
    while at != 0 {
        if has(layout.owner) && byte(at, layout.owner) >= FrameLayout::ENTRY_OWNER {
            out.last_mut().unwrap().instruction |= ENTRY_FRAME;
        } else {
            let mut instruction = word(at, layout.instruction);
            if layout.instruction_bytes == 4 {
                instruction &= u64::from(u32::MAX);
            }
            let is_entry = match has(layout.is_entry) {
                true => byte(at, layout.is_entry) != 0,
                false => !has(layout.owner),
            };
            out.push(PythonFrame {
                code: word(at, layout.code) & !FrameLayout::TAG_BITS,
                instruction: instruction | if is_entry { ENTRY_FRAME } else { 0 },
            });
        }
        at = word(at, layout.previous);
    }
    out
}

fn check(python: &str) -> bool {
    let Some(running) = start(python) else {
        return false;
    };
    let pid = running.0.id();
    // `sleep` begins right behind the output.
    std::thread::sleep(Duration::from_millis(200));
    let mut processes = PythonProcesses::default();
    processes.begin(pid);
    let changes = processes.take_changes();
    let [
        RowChange {
            row: 0,
            layout: Some(layout),
            ..
        },
    ] = changes[..]
    else {
        panic!("{python}: {changes:?}");
    };
    let noted = frames(pid, &layout);
    let node = processes.node(pid, &noted);
    let stacks = &processes.stacks;
    let named = |frame: PythonNode| {
        let code = &stacks.codes[frame.code as usize];
        let name = code.name.rsplit('.').next().unwrap().to_owned();
        (name, frame.line, code.file.clone(), frame.is_entry)
    };
    let found: Vec<_> = stacks.outwards(node).map(named).collect();
    let expected = [
        ("step", 6, "<string>"),
        ("train", 9, "<string>"),
        ("<lambda>", 10, "<string>"),
        ("<module>", 10, "<string>"),
    ];
    let places: Vec<_> = (found.iter())
        .map(|(name, line, file, _)| (name.as_str(), *line, file.as_str()))
        .collect();
    assert_eq!(places, expected, "{python}");
    assert!(stacks.is_whole(node), "{python}");
    // `sorted` calls the lambda, and the program begins with the module.
    assert!(found[2].3 && found[3].3, "{python}: {found:?}");
    // The same code gives the same nodes again.
    assert_eq!(processes.node(pid, &noted), node);
    // There is no code at this address.
    let nothing = PythonFrame {
        code: layout.interpreters & !7,
        instruction: 0,
    };
    assert_eq!(processes.node(pid, &[nothing]), NO_FRAME);
    let cut = processes.node(pid, &[noted[0], nothing]);
    assert!(!processes.stacks.is_whole(cut));
    true
}

#[test]
fn frames_of_installed_interpreters_have_names_and_lines() {
    let versions = 9..=14;
    let names = versions.map(|minor| format!("python3.{minor}"));
    let checked: Vec<String> = names
        .chain(["python3".into()])
        .filter(|n| check(n))
        .collect();
    // (Without Python on the machine, nothing is compared.)
    eprintln!("compared with {checked:?}");
}

#[test]
fn programs_without_an_interpreter_have_no_frames() {
    let sleep = Command::new("sleep").arg("60").spawn().unwrap();
    let running = Running(sleep);
    let mut processes = PythonProcesses::default();
    processes.begin(running.0.id());
    assert!(processes.take_changes().is_empty());
    let frame = PythonFrame {
        code: 64,
        instruction: 0,
    };
    assert_eq!(processes.node(running.0.id(), &[frame]), NO_FRAME);
}
