//! The single-step reference against hand-computed expectations.

use mgz_tests::events::{EventKind, StepperEvent, WatchedCode};
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

struct Built {
    path: PathBuf,
    buffer: u64,
    code: (u64, u64),
    marks: std::collections::HashMap<String, u64>,
}

fn build(dir: &Path, source: &str) -> Built {
    let text = format!(
        ".intel_syntax noprefix\n.globl _start\n.bss\n.balign 64\nbuf: .zero 4096\n.text\n_start:\n{source}\n\
         mov edi, 7\nmov eax, 231\nsyscall\nend_of_code:\n"
    );
    let (s, path) = (dir.join("a.S"), dir.join("a"));
    std::fs::write(&s, text).unwrap();
    let done = Command::new("gcc")
        .args(["-nostdlib", "-static", "-no-pie", "-o"])
        .arg(&path)
        .arg(&s)
        .status()
        .unwrap();
    assert!(done.success());
    let bytes = std::fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let marks: std::collections::HashMap<String, u64> = file
        .symbols()
        .filter_map(|s| Some((s.name().ok()?.to_owned(), s.address())))
        .collect();
    Built {
        path,
        buffer: marks["buf"],
        code: (marks["_start"], marks["end_of_code"]),
        marks,
    }
}

fn step(dir: &Path, built: &Built, watch: &WatchedCode, status: i32) -> Vec<StepperEvent> {
    let (w, e) = (dir.join("watch"), dir.join("events"));
    std::fs::write(&w, watch.to_text()).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_mgz-stepper"))
        .args([&w, &e, &built.path])
        .arg("--")
        .arg(&built.path)
        .output()
        .unwrap();
    assert_eq!(
        run.status.code(),
        Some(status),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    StepperEvent::read(&e)
        .unwrap()
        .into_iter()
        .filter(|e| e.kind != EventKind::Module)
        .collect()
}

fn loads(source: &str) -> Vec<(i64, u32)> {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), source);
    let watch = WatchedCode {
        path: built.path.clone(),
        ranges: vec![(built.code.0, built.code.1, false)],
        ..WatchedCode::default()
    };
    let events = step(dir.path(), &built, &watch, 7);
    assert!(events.iter().all(|e| e.kind == EventKind::Original));
    events
        .iter()
        .map(|e| (e.value.wrapping_sub(built.buffer) as i64, e.size))
        .collect()
}

#[test]
fn scalar_forms() {
    let seen = loads(
        "lea rbx, buf[rip]\n mov ecx, 3\n\
         mov rax, [rbx+8]\n\
         add dword ptr [rbx+rcx*4+16], 5\n\
         mov word ptr [rbx], 1\n\
         movzx edx, byte ptr [rbx+rcx]\n\
         cmp rdx, buf[rip+40]\n\
         push qword ptr [rbx+64]\n pop rax\n\
         lea rdx, 1f[rip]\n mov [rbx+80], rdx\n call [rbx+80]\n jmp 2f\n1: ret\n2:\n\
         fld tbyte ptr [rbx+96]\n fstp qword ptr [rbx]\n",
    );
    assert_eq!(
        seen,
        [(8, 8), (28, 4), (3, 1), (40, 8), (64, 8), (80, 8), (96, 10)]
    );
}

#[test]
fn a_loop_in_order() {
    let seen =
        loads("lea rbx, buf[rip]\n mov ecx, 4\n3: mov eax, [rbx+rcx*8]\n dec ecx\n jnz 3b\n");
    assert_eq!(seen, [(32, 4), (24, 4), (16, 4), (8, 4)]);
}

#[test]
fn repeated_strings_are_folded() {
    let seen = loads(
        "cld\n lea rsi, buf[rip+100]\n lea rdi, buf[rip+200]\n mov ecx, 10\n rep movsb\n\
         mov ecx, 0\n rep movsq\n\
         lea rsi, buf[rip]\n lea rdi, buf[rip+1000]\n mov byte ptr [rdi+5], 1\n mov ecx, 9\n repe cmpsb\n\
         lea rdi, buf[rip+1000]\n mov ecx, 20\n mov al, 1\n repne scasb\n\
         lea rsi, buf[rip+8]\n lodsd\n\
         mov ecx, 3\n rep stosd\n",
    );
    assert_eq!(seen, [(100, 10), (0, 6), (1000, 6), (1000, 6), (8, 4)]);
}

#[test]
fn vector_state_of_gathers() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        println!("SKIPPED: this CPU has no AVX2");
        return;
    }
    let avx2 = "lea rbx, buf[rip]\n mov dword ptr [rbx+4], 7\n mov dword ptr [rbx+8], -2\n mov dword ptr [rbx+12], 100\n\
                vmovdqu xmm5, [rbx]\n vpcmpeqd xmm6, xmm6, xmm6\n vpsrldq xmm6, xmm6, 4\n\
                vpgatherdd xmm3, [rbx+xmm5*4+256], xmm6\n";
    assert_eq!(loads(avx2), [(0, 16), (256, 4), (284, 4), (248, 4)]);
    if !std::arch::is_x86_feature_detected!("avx512f") {
        println!("SKIPPED: this CPU has no AVX-512");
        return;
    }
    let avx512 = "lea rbx, buf[rip]\n mov qword ptr [rbx+8], 7\n mov qword ptr [rbx+40], 50\n mov qword ptr [rbx+56], -3\n\
                  vmovdqu64 zmm21, [rbx]\n mov eax, 0xa2\n kmovw k3, eax\n\
                  vpgatherqq zmm17{k3}, [rbx+zmm21*8+256]\n";
    assert_eq!(loads(avx512), [(0, 64), (312, 8), (656, 8), (232, 8)]);
}

#[test]
fn a_faulting_load_counts_once_it_succeeds() {
    // A handler for SIGSEGV points rbx (saved at offset 0x80 of the context) at the buffer.
    let dir = tempfile::tempdir().unwrap();
    let built = build(
        dir.path(),
        "lea rax, handler[rip]\n mov buf[rip+2048], rax\n mov dword ptr buf[rip+2056], 0x4000004\n\
         lea rax, restore[rip]\n mov buf[rip+2064], rax\n\
         mov edi, 11\n lea rsi, buf[rip+2048]\n xor edx, edx\n mov r10d, 8\n mov eax, 13\n syscall\n\
         xor ebx, ebx\n faulting: mov rax, [rbx+24]\n mov rax, [rbx+32]\n jmp over\n\
         handler: lea rcx, buf[rip]\n mov [rdx+0x80], rcx\n ret\n restore: mov eax, 15\n syscall\n over:\n",
    );
    let watch = WatchedCode {
        path: built.path.clone(),
        ranges: vec![(built.code.0, built.code.1, false)],
        ..WatchedCode::default()
    };
    let seen: Vec<(EventKind, u64, u64)> = step(dir.path(), &built, &watch, 7)
        .iter()
        .map(|e| (e.kind, e.ip, e.value))
        .collect();
    let at = built.marks["faulting"];
    assert_eq!(
        seen,
        [
            (EventKind::Fault, at, 11),
            (EventKind::Original, at, built.buffer + 24),
            (EventKind::Original, at + 4, built.buffer + 32)
        ]
    );
}

#[test]
fn ptwrite_is_emulated_and_copies_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(
        dir.path(),
        "lea rbx, buf[rip]\n mov eax, 5\n jmp copy\n original: mov rax, [rbx+rax*8+16]\n\
         copy: .byte 0xf3, 0x48, 0x0f, 0xae, 0xe3\n load: mov rax, [rbx+rax*8+48]\n other: mov rax, [rbx]\n",
    );
    let m = &built.marks;
    let watch = WatchedCode {
        path: built.path.clone(),
        ranges: vec![(m["copy"], m["end_of_code"], true)],
        copies: vec![(m["load"], m["original"])],
        original: Some(built.path.clone()),
    };
    let seen: Vec<(EventKind, u64, u64)> = step(dir.path(), &built, &watch, 7)
        .iter()
        .map(|e| (e.kind, e.ip, e.value))
        .collect();
    assert_eq!(
        seen,
        [
            (EventKind::PtWrite, m["copy"], built.buffer),
            // The displacement is that of the original: 16, not 48.
            (EventKind::Clone, m["original"], built.buffer + 40 + 16),
            (EventKind::Unlisted, m["other"], built.buffer),
        ]
    );
}
