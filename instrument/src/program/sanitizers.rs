//! Programs that a sanitizer watches (AddressSanitizer, ThreadSanitizer, MemorySanitizer,
//! LeakSanitizer, UndefinedBehaviorSanitizer and others of gcc and clang).
//!
//! Code that a compiler adds to such a program is ordinary code. The runtime is not: it starts
//! before everything else, makes hidden threads, stops all others to search for leaks, and wraps
//! hundreds of functions of the C library. So functions of a runtime that is linked into the
//! program stay unchanged. They are recognized only by their names. Also, reports show return
//! addresses, which must be the original's to have lines. So calls are translated as for `burst`,
//! for all modes.

use crate::program::imports::Imports;
use crate::program::{Input, Program};
use crate::util::fast_hash::FastSet;
use crate::x86::flow::direct_target;
use crate::x86::insn::{Insn, InsnId};
use iced_x86::FlowControl;
use mgz_elf::image::{Elf, dt};
use mgz_elf::{Refusal, symbols};
use object::elf;

/// Relation of a file to a sanitizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sanitizer {
    /// True if its runtime is part of the file.
    pub linked_in: bool,
    /// True if the runtime watches the file's code, wherever the runtime is.
    pub watches: bool,
    /// True if the runtime replaces the allocator.
    pub allocates: bool,
}

/// Prefixes of the names of the runtimes' shared libraries.
const LIBRARIES: [&str; 8] = [
    "libasan.so",
    "libtsan.so",
    "libmsan.so",
    "liblsan.so",
    "libubsan.so",
    "libhwasan.so",
    "libclang_rt.",
    "libscudo.so",
];

/// Functions by which a runtime starts.
const STARTS: [&[u8]; 6] = [
    b"__asan_init",
    b"__tsan_init",
    b"__msan_init",
    b"__lsan_init",
    b"__hwasan_init",
    b"__dfsan_init",
];

/// Name prefixes of functions that compilers call, and of wrappers of the C library's functions.
const PREFIXES: [&str; 12] = [
    "__asan_",
    "__tsan_",
    "__msan_",
    "__lsan_",
    "__ubsan_",
    "__hwasan_",
    "__dfsan_",
    "__sanitizer_",
    "__interceptor_",
    "___interceptor_",
    "__interception_",
    "__sancov_",
];

/// Namespaces of the runtimes, as in mangled names.
const NAMESPACES: [&str; 11] = [
    "11__sanitizer",
    "6__asan",
    "6__tsan",
    "6__msan",
    "6__lsan",
    "7__ubsan",
    "8__hwasan",
    "7__dfsan",
    "14__interception",
    "8__sancov",
    "17asan_thread_start",
];

/// Texts in all runtimes: an option, and the message when the search for leaks fails. They are
/// stored backwards, so that this program does not contain them.
const MARKS: [&[u8]; 2] = [b"htap_rezilobmys_lanretxe", b"langis thguac recarT"];

/// True if a library is a sanitizer's runtime.
pub fn is_runtime_library(name: &str) -> bool {
    LIBRARIES.iter().any(|l| name.starts_with(l)) && !name.starts_with("libclang_rt.builtins")
}

/// True if a function belongs to a sanitizer's runtime.
pub fn is_of_runtime(name: &str) -> bool {
    PREFIXES.iter().any(|p| name.starts_with(p))
        || name.starts_with("_Z") && NAMESPACES.iter().any(|n| name.contains(n))
}

/// True if a function of a runtime makes a report and never returns. (The function that runs `main`
/// does not return either, but it is in most reports, so it does not count.)
fn never_returns(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    let fatal = name.starts_with("__asan_report_") && !name.ends_with("_noabort");
    let aborts = name.starts_with("__ubsan_handle_")
        && (name.ends_with("_abort")
            || ["builtin_unreachable", "missing_return"]
                .iter()
                .any(|end| name.ends_with(end)));
    let starts = name == "__libc_start_main";
    fatal || aborts || starts || name.starts_with("__msan_warning") && name.ends_with("_noreturn")
}

/// Finds such functions: those of the file by their addresses, imported ones by the words and
/// entries through which they are called.
pub fn reports(elf: &Elf, input: &Input) -> FastSet<u64> {
    let imports = Imports::read(elf, input);
    let imported = imports.slots.iter().chain(&imports.stubs);
    let imported = imported.filter(|(_, name)| never_returns(name));
    let own = input.symbols.iter().filter(|s| never_returns(&s.name));
    imported
        .map(|(at, _)| *at)
        .chain(own.map(|s| s.addr))
        .collect()
}

/// The known calls of a function to code without a clone. The first list has the instructions to
/// which such calls return. The second has the calls that do not return to the clone by themselves:
/// they never return, or their callee looks at its return address
/// ([`crate::program::shown_returns`]).
pub fn calls(input: &Input, program: &Program, insns: &[Insn]) -> (Vec<InsnId>, Vec<InsnId>) {
    let (mut returned_to, mut quits) = (Vec::new(), Vec::new());
    for (i, insn) in insns.iter().enumerate() {
        let (leaves, place) = match insn.flow {
            FlowControl::Call => {
                let Some(target) = direct_target(&insn.inst) else {
                    continue;
                };
                let is_cloned = program
                    .function_at(target)
                    .is_some_and(|id| program.function(id).left.is_none());
                (!is_cloned, target)
            }
            FlowControl::IndirectCall if insn.inst.is_ip_rel_memory_operand() => {
                (true, insn.inst.ip_rel_memory_address())
            }
            FlowControl::IndirectCall => (true, 0),
            _ => continue,
        };
        let readers = &input.return_readers;
        let is_own = || readers.whole_stack && program.function_at(place).is_some();
        let is_seen = leaves && (readers.places.contains(&place) || is_own());
        let never_returns = input.reports.contains(&place);
        if never_returns || is_seen {
            quits.push(InsnId(i as u32));
        }
        let follows = |next: &Insn| next.ip == insn.next();
        if leaves && !never_returns && insns.get(i + 1).is_some_and(follows) {
            returned_to.push(InsnId(i as u32 + 1));
        }
    }
    (returned_to, quits)
}

impl Sanitizer {
    /// Examines a file whose functions have these names.
    pub fn of<'n>(
        elf: &Elf,
        mut functions: impl Iterator<Item = &'n str>,
    ) -> Result<Sanitizer, Refusal> {
        let needed = elf.dynamic_strings(dt(elf::DT_NEEDED));
        let needs = needed.iter().any(|name| is_runtime_library(name));
        let starts = |name: &[u8]| STARTS.contains(&name);
        // All runtimes have this part.
        let named = functions.any(|name| name.starts_with("_ZN11__sanitizer"));
        let is_library = elf.interpreter().is_none() && !elf.is_static_executable();
        if is_library && symbols::any_exported(elf, starts) {
            return Err(Refusal::declined(
                "a sanitizer's runtime, whose loads are not those of a program; instrument the program that needs it",
            ));
        }
        if named {
            return Ok(Sanitizer {
                linked_in: true,
                watches: true,
                allocates: symbols::any(elf, starts),
            });
        }
        if is_unnamed(elf) {
            return Err(Refusal::declined(
                "a sanitizer's runtime is part of it, but its symbol table is gone, so that runtime and program cannot be distinguished; instrument it before it is stripped, or link the runtime as a shared library (gcc's default, clang -shared-libsan)",
            ));
        }
        let imports = symbols::any_imported(elf, starts);
        let is_checker = |name: &String| name.contains("ubsan");
        Ok(Sanitizer {
            linked_in: false,
            watches: needs || imports,
            allocates: imports
                || needed
                    .iter()
                    .any(|name| is_runtime_library(name) && !is_checker(name)),
        })
    }
}

/// True if a file without a symbol table contains a runtime.
fn is_unnamed(elf: &Elf) -> bool {
    let has_names = elf.sections.iter().any(|s| s.kind == elf::SHT_SYMTAB.0);
    !has_names && MARKS.iter().all(|mark| elf.has(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_runtimes_are_known_by_their_names() {
        for name in [
            "__asan_report_load4",
            "__tsan_func_entry",
            "__interceptor_malloc",
            "_ZN11__sanitizer14internal_cloneEPFiPvES0_iS0_PiS0_S1_",
            "_ZN6__tsan10InitializeEPNS_11ThreadStateE",
            "_ZNK11__sanitizer18ThreadContextBase3fooEv",
            "_ZL11unpoison_tmPvPN11__sanitizer14__sanitizer_tmE",
            "_ZN11__sanitizerL12TracerThreadEPv",
            "_ZN14__interception21InterceptFunctionEPKcPmmm",
        ] {
            assert!(is_of_runtime(name), "{name}");
        }
        for name in [
            "main",
            "malloc",
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "asan_init",
            "tsan.module_ctor",
            "my__asan_helper",
            "",
        ] {
            assert!(!is_of_runtime(name), "{name}");
        }
        for (name, is) in [
            ("libasan.so.8", true),
            ("libclang_rt.tsan-x86_64.so", true),
            ("libubsan.so.1", true),
            ("libclang_rt.builtins-x86_64.so", false),
            ("libassimp.so.5", false),
        ] {
            assert_eq!(is_runtime_library(name), is, "{name}");
        }
    }

    #[test]
    fn this_program_is_not_watched() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&data).unwrap();
        let names = symbols::functions(&elf);
        let found = Sanitizer::of(&elf, names.iter().map(|f| &*f.0)).unwrap();
        assert_eq!(found, Sanitizer::default());
        assert!(!is_unnamed(&elf));
    }
}
