//! The library that places heap blocks: contents, sites, forks, exceptions, and system programs,
//! whose output must not change.

use mgz_fix_library::{ANY_MODULE, Action, EXECUTABLE, Frame, Plan, SitePolicy, shared_object};
use mgz_tests::programs::{self, Variant};
use mgz_tests::tools::{self, LIMIT};
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const OPTIMISED: Variant = Variant::O2;

fn site(frames: &[(&str, u64)], action: Action) -> SitePolicy {
    let frames = frames.iter().map(|&(module, offset)| Frame {
        module: module.to_owned(),
        offset,
    });
    SitePolicy {
        frames: frames.collect(),
        action,
    }
}

fn everything(action: Action) -> Plan {
    Plan {
        sites: vec![site(&[(ANY_MODULE, 0)], action)],
        static_huge: false,
    }
}

fn library(plan: &Plan, dir: &Path) -> PathBuf {
    let path = dir.join("fixed.so");
    std::fs::write(&path, shared_object(plan).unwrap()).unwrap();
    path
}

/// Runs a command with a library preloaded.
fn run(command: &mut Command, library: &Path, input: Option<&[u8]>) -> Output {
    tools::run_with(command.env("LD_PRELOAD", library), input, LIMIT).unwrap()
}

fn build(name: &str, extra: &[&str], dir: &Path) -> Option<PathBuf> {
    std::fs::create_dir_all(dir.join("placed")).unwrap();
    programs::build(&format!("placed/{name}"), OPTIMISED, extra, dir).unwrap()
}

/// The link-time address of a symbol.
fn address(file: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
    found
        .unwrap_or_else(|| panic!("no symbol {name}"))
        .address()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn random_blocks_keep_their_contents() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-fno-builtin", "-D_GNU_SOURCE"];
    let Some(program) = build("blocks", &options, dir.path()) else {
        return;
    };
    let many = if tools::full_matrix() { 20 } else { 1 };
    let (small, large) = (["4", "60000", "200000"], ["3", "3000", "5000000"]);
    for (action, arguments) in [
        (Action::Pool(0), small),
        (Action::HugePool(0), small),
        (
            Action::Pad {
                align: 64,
                offset: 0,
            },
            small,
        ),
        (
            Action::Pad {
                align: 4096,
                offset: 192,
            },
            small,
        ),
        (Action::HugePages, large),
        (Action::Interleave, large),
        (Action::Bind { node: 0 }, large),
    ] {
        let library = library(&everything(action), dir.path());
        let operations = arguments[1].parse::<u32>().unwrap() * many;
        let mut command = Command::new(&program);
        command.args([arguments[0], &operations.to_string(), arguments[2]]);
        let got = run(&mut command, &library, None);
        let stderr = text(&got.stderr);
        assert_eq!(tools::code(&got), 0, "{action:?}: {stderr}");
        assert_eq!(got.stdout, b"ok\n", "{action:?}");
    }
}

/// The addresses that `sites.c` prints, by site.
fn addresses(output: &Output) -> Vec<Vec<u64>> {
    let text = text(&output.stdout);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("state 4"), "{text}");
    let mut sites = vec![Vec::new(); 5];
    for line in lines {
        for (site, word) in sites.iter_mut().zip(line.split_whitespace()) {
            let digits = word.trim_start_matches("0x");
            site.push(u64::from_str_radix(digits, 16).unwrap_or(0));
        }
    }
    sites
}

fn are_together(addresses: &[u64], bytes: u64) -> bool {
    addresses.windows(2).all(|pair| pair[1] == pair[0] + bytes)
}

#[test]
fn blocks_of_chosen_sites_lie_together() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("sites", &[], dir.path()) else {
        return;
    };
    let Some(plugin) = build("plugin", &["-shared", "-fPIC"], dir.path()) else {
        return;
    };
    let wrapped = (EXECUTABLE, address(&program, "site_wrapped"));
    let plan = Plan {
        sites: vec![
            site(&[("sites", address(&program, "site_a"))], Action::Pool(7)),
            site(
                &[wrapped, (EXECUTABLE, address(&program, "site_c"))],
                Action::Pool(9),
            ),
            site(
                &[("plugin", address(&plugin, "site_late"))],
                Action::Pool(3),
            ),
        ],
        static_huge: true,
    };
    let library = library(&plan, dir.path());
    let mut command = Command::new(&program);
    let got = run(command.arg("48").arg(&plugin), &library, None);
    let sites = addresses(&got);
    for (index, together) in [true, false, true, false, true].into_iter().enumerate() {
        assert_eq!(
            are_together(&sites[index], 48),
            together,
            "{index}: {:x?}",
            sites[index]
        );
    }
}

#[test]
fn large_blocks_of_chosen_sites_are_aligned() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("sites", &[], dir.path()) else {
        return;
    };
    let places = |action: Action, name: &str| {
        let plan = Plan {
            sites: vec![site(&[(EXECUTABLE, address(&program, name))], action)],
            static_huge: false,
        };
        let library = library(&plan, dir.path());
        addresses(&run(Command::new(&program).arg("1500000"), &library, None))
    };
    let huge = places(Action::HugePages, "site_a");
    assert!(huge[0].iter().all(|at| at % (2 << 20) == 0), "{huge:x?}");
    assert!(huge[1].iter().all(|at| at % (2 << 20) != 0), "{huge:x?}");
    let padded = places(
        Action::Pad {
            align: 4096,
            offset: 192,
        },
        "site_b",
    );
    let places: Vec<u64> = padded[1].iter().map(|at| at % 4096).collect();
    let expected: Vec<u64> = (1..=8).map(|n| n * 192).collect();
    assert_eq!(places, expected);
}

#[test]
fn a_damaged_plan_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("sites", &[], dir.path()) else {
        return;
    };
    let image = shared_object(&everything(Action::Pool(0))).unwrap();
    let section = object::File::parse(&*image).unwrap();
    let section = section.section_by_name(".mgz_plan").unwrap();
    let at = section.file_range().unwrap().0 as usize;
    for byte in [0, 8, 12, 16, 24, 40] {
        let mut damaged = image.clone();
        damaged[at + byte] ^= 4;
        let path = dir.path().join("damaged.so");
        std::fs::write(&path, damaged).unwrap();
        let got = run(&mut Command::new(&program), &path, None);
        assert_eq!(tools::code(&got), 0);
        assert!(text(&got.stdout).starts_with("state 1\n"), "{byte}");
    }
}

#[test]
fn programs_with_own_allocators_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("own_malloc", &["-fno-builtin"], dir.path()) else {
        return;
    };
    let library = library(&everything(Action::Pool(0)), dir.path());
    let got = run(&mut Command::new(&program), &library, None);
    assert_eq!(tools::code(&got), 0);
    assert_eq!(text(&got.stdout), "a b 1\n");
    assert_eq!(text(&got.stderr), "state 2\n");
}

#[test]
fn operators_of_cpp_keep_their_meaning() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("operators", &[], dir.path()) else {
        return;
    };
    let expected = tools::run_limited(&mut Command::new(&program), LIMIT).unwrap();
    assert_eq!(tools::code(&expected), 0);
    let own = (EXECUTABLE, address(&program, "site_new"));
    let one = Plan {
        sites: vec![site(&[("libstdc++.so.6", 0), own], Action::Pool(1))],
        static_huge: false,
    };
    let mut all = one.clone();
    all.sites.push(site(&[(ANY_MODULE, 0)], Action::Pool(1)));
    for (plan, together) in [(one, true), (all, false)] {
        let library = library(&plan, dir.path());
        let got = run(&mut Command::new(&program), &library, None);
        assert_eq!(tools::code(&got), 0, "{}", text(&got.stderr));
        assert_eq!(text(&got.stdout), text(&expected.stdout));
        // Only in a separate pool does each block directly follow the previous one.
        assert_eq!(text(&got.stderr) == "99\n", together);
    }
}

const SQL: &str = "create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i<20000)
  insert into t select i, hex(i*7919)||'x', i*0.37 from n;
create index ib on t(b);
select count(*), sum(c), max(b) from t where b like '3%';
select substr(b,1,2) k, count(*), avg(c) from t group by k order by 2 desc, 1 limit 10;";
const PYTHON: &str = "import json,re,threading,subprocess
d={str(i):[j*i for j in range(5)] for i in range(20000)}
s=json.dumps(d); print(len(s), json.loads(s)==d, sum(map(len,re.findall(r'\\d+',s[:50000]))))
r=[None]*4
def g(i): r[i]=sorted(str(k*i) for k in range(3000))[:5]
ts=[threading.Thread(target=g,args=(i,)) for i in range(4)]
[t.start() for t in ts];[t.join() for t in ts]; print(r)
print(subprocess.run(['echo','x'],capture_output=True).stdout)";
const PERL: &str = "my %h; $h{$_*7919 % 10007} .= qq(x$_) for 1..30000;
print join(q(,), map {qq($_=).length $h{$_}} sort {$a<=>$b} keys %h), qq(\\n);";
const C: &str = "struct n{struct n*l,*r;int k;}; void *calloc(unsigned long,unsigned long);
struct n*ins(struct n*t,int k){ if(!t){t=calloc(1,sizeof*t);t->k=k;return t;}
 if(k<t->k)t->l=ins(t->l,k); else t->r=ins(t->r,k); return t;}";

#[test]
fn programs_of_the_system_are_unchanged() {
    let numbers: String = (1..40000u32)
        .map(|n| format!("{} {n}\n", n.wrapping_mul(7919) % 10007))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let works: [(&str, &[&str], &str); 6] = [
        ("sqlite3", &[], SQL),
        ("python3", &["-c", PYTHON], ""),
        ("perl", &["-e", PERL], ""),
        ("gcc", &["-O2", "-S", "-x", "c", "-o", "-", "-"], C),
        ("sort", &["-n"], &numbers),
        ("sort", &["--parallel=4", "-S", "100K"], &numbers),
    ];
    let actions = [
        Action::Pool(0),
        Action::Pad {
            align: 64,
            offset: 64,
        },
        Action::HugePages,
    ];
    for (program, arguments, input) in works {
        if !tools::have(program) {
            tools::skip(&format!("{program} is not installed"));
            continue;
        }
        let command = || {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .env("PYTHONHASHSEED", "0")
                .env("PERL_HASH_SEED", "0")
                .env("LC_ALL", "C");
            command
        };
        let input = Some(input.as_bytes());
        let expected = tools::run_with(&mut command(), input, LIMIT).unwrap();
        for action in actions {
            let library = library(&everything(action), dir.path());
            let got = run(&mut command(), &library, input);
            assert_eq!(tools::code(&got), tools::code(&expected), "{program}");
            assert!(got.stdout == expected.stdout, "{program} {action:?}");
            assert_eq!(
                text(&got.stderr),
                text(&expected.stderr),
                "{program} {action:?}"
            );
        }
    }
}
