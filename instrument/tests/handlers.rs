//! Search for programs whose handlers may look at faults: small C programs, each with the expected
//! result for the `pt` flavour.

use mgz_abi::module_note::FLAVOUR_PT;
use mgz_elf::Elf;
use mgz_instrument::discover::scan::discover;
use mgz_instrument::pipeline::analysis_input::analysis_input;
use mgz_instrument::program::InstrumentOptions;
use mgz_instrument::signals::{inspected_faults, wrapped};
use mgz_instrument::unwind::Tables;
use std::process::Command;

const HEAD: &str = "#define _GNU_SOURCE\n#include <signal.h>\n#include <string.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <setjmp.h>\n#include <stdio.h>\n\
    #include <stdint.h>\n#include <ucontext.h>\n#include <sys/mman.h>\n#include <sys/syscall.h>\nvolatile uintptr_t sink;\n\
    #define HANDLER(name, ...) __attribute__((noinline)) void name(int s, siginfo_t *i, void *c) { (void)s; (void)i; (void)c; __VA_ARGS__; }\n";

/// The compiler may inline `install` with constants or not.
const INSTALL: &str = "static void install(int s, void (*h)(int, siginfo_t *, void *), int flags) {\n\
    struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = flags; sigemptyset(&a.sa_mask); sigaction(s, &a, 0); }\n";

/// (description, source, expected result: `-` no handler may look at a fault, `+` one may, `d` one
/// may, but this is visible only if the C library is another file, `?` it depends on the
/// optimiser).
const CASES: &[(&str, &str, char)] = &[
    (
        "no handlers at all",
        "int main(void) { return (int)sink; }",
        '-',
    ),
    (
        "signal gives the number only",
        "static void h(int s) { sink = s; }\nint main(void) { signal(SIGSEGV, h); return 0; }",
        '-',
    ),
    (
        "flags without SA_SIGINFO",
        "static void h(int s) { sink = s; }\nint main(int argc, char **argv) { struct sigaction a; sigemptyset(&a.sa_mask);\n\
      a.sa_handler = argc > 2 ? h : SIG_DFL; a.sa_flags = SA_RESTART; if (argc > 1) a.sa_flags |= SA_NODEFER; sigaction(atoi(argv[1]), &a, 0); return 0; }",
        '-',
    ),
    (
        "a table of signals",
        "static void h(int s) { sink = s; }\nint main(void) { static const int all[] = {1, 2, 11, 15}; struct sigaction a; memset(&a, 0, sizeof a);\n\
      a.sa_handler = h; for (int i = 0; i < 4; i++) sigaction(all[i], &a, 0); return 0; }",
        '-',
    ),
    (
        "the context of a signal that is no fault",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGPROF, &a, 0); return 0; }",
        '+',
    ),
    (
        "another part of the context of a signal that is no fault",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RSP])\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGPROF, &a, 0); return 0; }",
        '-',
    ),
    (
        "another part of the context of a signal that is no fault, in a function that is called",
        "__attribute__((noinline)) void look(ucontext_t *c) { sink = c->uc_mcontext.gregs[REG_RSP]; c->uc_mcontext.gregs[REG_R15] = 1; }\n\
      HANDLER(h, look(c); sink++)\nint main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGALRM, &a, 0); return 0; }",
        '-',
    ),
    (
        "the context of a signal that is no fault, in a function that is called",
        "__attribute__((noinline)) void look(ucontext_t *c) { sink = c->uc_mcontext.gregs[REG_RIP]; }\nHANDLER(h, look(c); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGALRM, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context of a signal that is no fault, by way of its registers",
        "__attribute__((noinline)) void look(greg_t *r) { sink = r[REG_RIP]; }\nHANDLER(h, look(((ucontext_t *)c)->uc_mcontext.gregs); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGALRM, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context of a signal that is no fault, in an object",
        "struct all { int s; siginfo_t *i; ucontext_t *c; };\n__attribute__((noinline)) void look(struct all *a) { sink = a->c->uc_mcontext.gregs[REG_RIP]; }\n\
      HANDLER(h, struct all a; a.s = s; a.i = i; a.c = c; look(&a); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGALRM, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context of a signal that is no fault is copied",
        "ucontext_t copy;\nHANDLER(h, memcpy(&copy, c, sizeof copy))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGUSR1, &a, 0); return 0; }",
        '+',
    ),
    (
        "two registers of the context of a signal that is no fault are copied",
        "greg_t copy[2];\nHANDLER(h, memcpy(copy, &((ucontext_t *)c)->uc_mcontext.gregs[REG_RSP], sizeof copy))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGUSR1, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context of a signal that is no fault is kept",
        "void *kept;\nHANDLER(h, kept = c)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGUSR1, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context of a signal that is no fault goes to the next handler",
        "void (*volatile next)(int, siginfo_t *, void *);\nHANDLER(h, next(s, i, c))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGUSR1, &a, 0); return 0; }",
        '+',
    ),
    (
        "a signal is raised, while the context still lies in its argument register",
        "HANDLER(h, raise(SIGTERM); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGUSR1, &a, 0); return 0; }",
        '-',
    ),
    (
        "any handler of a signal that is no fault",
        "HANDLER(h, sink = s)\nvoid *handlers[2] = {h, h};\n\
      int main(int argc, char **argv) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = handlers[argc & 1]; a.sa_flags = atoi(argv[0]); sigaction(SIGCHLD, &a, 0); return 0; }",
        'd',
    ),
    (
        "the address of a fault",
        "HANDLER(h, mprotect((void *)((uintptr_t)i->si_addr & -4096), 4096, 3))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '-',
    ),
    (
        "the stack pointer of a fault",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RSP]; _exit(1))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '-',
    ),
    (
        "errno, while the context still lies in its argument register",
        "#include <errno.h>\nHANDLER(h, sink = errno; mprotect((void *)((uintptr_t)i->si_addr & -4096), 4096, 3))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '-',
    ),
    (
        "a jump out",
        "sigjmp_buf b;\nHANDLER(h, siglongjmp(b, 1))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGBUS, &a, 0); return sigsetjmp(b, 1); }",
        '-',
    ),
    (
        "the old action is put back",
        "static void h(int s) { sink = s; }\nint main(void) { struct sigaction a, old; memset(&a, 0, sizeof a); a.sa_handler = h;\n\
      sigaction(SIGSEGV, &a, &old); sink = getpid(); sigaction(SIGSEGV, &old, 0); return 0; }",
        '-',
    ),
    (
        "the old action is kept in a static",
        "static struct sigaction old;\nstatic void h(int s) { sink = s; sigaction(SIGSEGV, &old, 0); }\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = h; sigaction(SIGSEGV, &a, &old); return 0; }",
        '-',
    ),
    (
        "flags of the old action are changed",
        "int main(int argc, char **argv) { struct sigaction a; sigaction(atoi(argv[1]), 0, &a);\n\
      if (argc > 2) a.sa_flags |= SA_RESTART; else a.sa_flags &= ~SA_RESTART; sigaction(atoi(argv[1]), &a, 0); return 0; }",
        '-',
    ),
    (
        "a function that is given the action",
        "__attribute__((noinline)) int put(int s, const struct sigaction *a) { sink++; return sigaction(s, a, 0); }\nstatic void h(int s) { sink = s; }\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = h; return put(SIGSEGV, &a); }",
        '-',
    ),
    (
        "something else is asked for in between",
        "#include <sys/resource.h>\nHANDLER(h, mprotect((void *)((uintptr_t)i->si_addr & -4096), 4096, 3))\n\
      int main(void) { struct rlimit l; struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; getrlimit(RLIMIT_STACK, &l); l.rlim_cur = sink;\n\
      setrlimit(RLIMIT_STACK, &l); sigaction(SIGSEGV, &a, 0); return 0; }",
        '-',
    ),
    (
        "a system call of three arguments whose number is not known",
        "int main(int argc, char **argv) { long r; __asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"((long)argv[0][0]), \"D\"(1), \"S\"(argv), \"d\"(3) : \"rcx\", \"r11\", \"memory\");\n\
      return (int)r; }",
        '-',
    ),
    (
        "system calls of other kinds",
        "int main(void) { long r; __asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(39) : \"rcx\", \"r11\", \"memory\"); return (int)syscall(SYS_gettid) + (int)r; }",
        '-',
    ),
    (
        "the place of a fault",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "a register is repaired",
        "HANDLER(h, ((ucontext_t *)c)->uc_mcontext.gregs[REG_RBX] = 1)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGFPE, &a, 0); return 0; }",
        '+',
    ),
    (
        "the stack pointer is changed",
        "HANDLER(h, ((ucontext_t *)c)->uc_mcontext.gregs[REG_RSP] -= 8)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGFPE, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context is handed on",
        "__attribute__((noinline)) void look(void *c, int n) { sink = ((uintptr_t *)c)[n]; }\nHANDLER(h, look(c, s))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context is kept",
        "void *kept;\nHANDLER(h, kept = c)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGILL, &a, 0); return 0; }",
        '+',
    ),
    (
        "any signal",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      int main(int argc, char **argv) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(atoi(argv[argc - 1]), &a, 0); return 0; }",
        '+',
    ),
    (
        "any flags, any handler",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\nvoid *handlers[2] = {h, h};\n\
      int main(int argc, char **argv) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = handlers[argc & 1]; a.sa_flags = atoi(argv[0]); sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "an action in static memory",
        "static struct sigaction a;\nHANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      __attribute__((noinline)) void fill(void) { a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; }\nint main(void) { fill(); sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "a function that is given a harmful action",
        "__attribute__((noinline)) int put(int x, const struct sigaction *a, int s) { sink = x; return sigaction(s, a, 0); }\n\
      HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; return put(3, &a, SIGSEGV); }",
        '+',
    ),
    (
        "an action that is copied, where others are saved",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\nvoid *(*volatile copy)(void *, const void *, size_t) = memcpy;\n\
      static const struct sigaction from = {.sa_sigaction = h, .sa_flags = SA_SIGINFO};\n__attribute__((noinline)) void save(struct sigaction *p) { sigaction(SIGINT, 0, p); }\n\
      int main(void) { struct sigaction a; save(malloc(sizeof a)); copy(&a, &from, sizeof a); sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "a saved action that is copied over",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\nvoid *(*volatile copy)(void *, const void *, size_t) = memcpy;\n\
      static const struct sigaction from = {.sa_sigaction = h, .sa_flags = SA_SIGINFO};\n\
      int main(void) { struct sigaction a; sigaction(SIGSEGV, 0, &a); copy(&a, &from, sizeof a); sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "an action on the heap, where others are saved",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n__attribute__((noinline)) void save(struct sigaction *p) { sigaction(SIGINT, 0, p); }\n\
      int main(void) { struct sigaction *a = malloc(sizeof *a); save(malloc(sizeof *a)); a->sa_sigaction = h; a->sa_flags = SA_SIGINFO; sigaction(SIGSEGV, a, 0); return 0; }",
        '+',
    ),
    (
        "an action whose address is kept in the frame",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n__attribute__((noinline)) void save(struct sigaction *p) { sigaction(SIGINT, 0, p); }\n\
      int main(void) { static const int all[] = {8, 4, 11}; struct sigaction a, *volatile p = &a; save(malloc(sizeof a)); memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO;\n\
      for (int i = 0; i < 3; i++) sigaction(all[i], p, 0); return 0; }",
        '+',
    ),
    (
        "a saved action outlasts calls",
        "void (*volatile work)(void *);\nstatic void h(int s) { sink = s; }\nint main(void) { struct sigaction a, old; char buffer[4000]; memset(&a, 0, sizeof a); a.sa_handler = h;\n\
      sigaction(SIGSEGV, &a, &old); work(buffer); sigaction(SIGSEGV, &old, 0); return 0; }",
        '-',
    ),
    (
        "saved actions on the heap",
        "int main(void) { struct sigaction *a = malloc(sizeof *a); sigaction(SIGSEGV, 0, a); sink = getpid(); sigaction(SIGSEGV, a, 0); return 0; }",
        '-',
    ),
    (
        "sigaction by pointer",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\nint (*volatile put)(int, const struct sigaction *, struct sigaction *) = sigaction;\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; return put(SIGSEGV, &a, 0); }",
        '+',
    ),
    (
        "a system call of its own",
        "HANDLER(h, sink = 1)\nint main(void) { struct { void *h; long f; void *r; long m; } a = {h, SA_SIGINFO, 0, 0};\n\
      long r; __asm__ volatile(\"xor %%r10d, %%r10d\\n mov $8, %%r10d\\n syscall\" : \"=a\"(r) : \"a\"(13), \"D\"(11), \"S\"(&a), \"d\"(0) : \"rcx\", \"r10\", \"r11\", \"memory\"); return (int)r; }",
        '?',
    ),
    (
        "syscall()",
        "HANDLER(h, sink = 1)\nint main(void) { struct { void *h; long f; void *r; long m; } a = {h, SA_SIGINFO, 0, 0}; return (int)syscall(SYS_rt_sigaction, SIGSEGV, &a, 0, 8); }",
        '+',
    ),
    (
        "an inner function installs",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\nint main(void) { install(SIGSEGV, h, SA_SIGINFO); return 0; }",
        '+',
    ),
    (
        "the loader is asked for sigaction",
        "#include <dlfcn.h>\nHANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO;\n\
      int (*put)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_DEFAULT, \"sigaction\"); return put(SIGSEGV, &a, 0); }",
        '+',
    ),
    (
        "an inner function installs for no fault",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\nint main(void) { install(SIGUSR1, h, SA_SIGINFO); return 0; }",
        '?',
    ),
    (
        "the context is used in a part of the handler that lies elsewhere",
        "__attribute__((cold, noinline)) void tell(uintptr_t a) { sink = a; }\n\
      HANDLER(h, if (__builtin_expect(i->si_code == 77, 0)) { tell(i->si_pid); tell(((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP]); tell(i->si_code); } sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGUSR1, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context of a fault is used in a part of the handler that lies elsewhere",
        "__attribute__((cold, noinline)) void tell(uintptr_t a) { sink = a; }\n\
      HANDLER(h, if (__builtin_expect(i->si_code == 77, 0)) { tell(i->si_code); tell(((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP]); tell(i->si_code); } sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "a pointer leads to who finds the context in its argument register",
        "void (*volatile next)(int, siginfo_t *, void *);\nHANDLER(h, next(0, 0, c))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGUSR1, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context in an object that is given by value",
        "struct all { int s; siginfo_t *i; ucontext_t *c; long more[3]; };\n__attribute__((noinline)) void look(struct all a) { sink = a.c->uc_mcontext.gregs[REG_RIP]; }\n\
      HANDLER(h, struct all a = {s, i, c, {1, 2, 3}}; look(a); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context in an object that is given by value by pointer",
        "struct all { int s; siginfo_t *i; ucontext_t *c; long more[3]; };\nvoid look(struct all a) { sink = a.c->uc_mcontext.gregs[REG_RIP]; }\nvoid (*volatile use)(struct all) = look;\n\
      HANDLER(h, struct all a = {s, i, c, {1, 2, 3}}; use(a); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context in a large object",
        "struct all { long more[40]; ucontext_t *c; };\n__attribute__((noinline)) void look(struct all *a) { sink = a->c->uc_mcontext.gregs[REG_RIP]; }\n\
      HANDLER(h, struct all a; a.more[0] = s; a.c = c; look(&a); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context in an object that another one leads to",
        "struct all { int s; ucontext_t *c; }; struct more { long l; struct all *a; };\n\
      __attribute__((noinline)) void look(struct more *m) { sink = m->a->c->uc_mcontext.gregs[REG_RIP]; }\n\
      HANDLER(h, struct more m; struct all a; a.s = s; a.c = c; m.l = 1; m.a = &a; look(&m); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context in an array",
        "HANDLER(h, void *all[4] = {i, 0, i, i}; all[1] = c; sink = ((ucontext_t *)all[sink & 3])->uc_mcontext.gregs[REG_RIP])\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "the context in an array, at any place",
        "HANDLER(h, void *all[4] = {i, i, i, i}; all[sink & 3] = c; sink = ((ucontext_t *)all[sink & 3])->uc_mcontext.gregs[REG_RIP])\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "an object with the context is copied",
        "struct all { int s; siginfo_t *i; ucontext_t *c; long more[3]; } kept;\n__attribute__((noinline)) void look(void) { sink = kept.c->uc_mcontext.gregs[REG_RIP]; }\n\
      HANDLER(h, struct all a = {s, i, c, {1, 2, 3}}; __asm__ volatile(\"\" : : \"r\"(&a) : \"memory\"); kept = a; look(); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "a large object with the context is copied",
        "struct all { int s; siginfo_t *i; ucontext_t *c; long more[30]; } kept;\n__attribute__((noinline)) void look(void) { sink = kept.c->uc_mcontext.gregs[REG_RIP]; }\n\
      HANDLER(h, struct all a = {s, i, c, {1, 2, 3}}; __asm__ volatile(\"\" : : \"r\"(&a) : \"memory\"); kept = a; look(); sink++)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "the action that was in force gets another handler",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      int main(void) { struct sigaction a; sigaction(SIGSEGV, 0, &a); a.sa_sigaction = h; sigaction(SIGSEGV, &a, 0); return 0; }",
        '+',
    ),
    (
        "where an instruction failed, by the signal's facts",
        "HANDLER(h, sink = (uintptr_t)i->si_addr)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGFPE, &a, 0); return 0; }",
        '+',
    ),
    (
        "other facts of a failed instruction",
        "HANDLER(h, sink = i->si_code)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGFPE, &a, 0); return 0; }",
        '-',
    ),
    (
        "an action that a pointer leads to, where such are put back",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\nstruct all { long l; struct sigaction a, old; } *volatile all;\n\
      __attribute__((noinline)) void fill(struct all *p) { p->a.sa_sigaction = h; p->a.sa_flags = SA_SIGINFO | SA_NODEFER; }\n__attribute__((noinline)) void set(struct all *p) { sigaction(SIGSEGV, &p->a, &p->old); }\n\
      __attribute__((noinline)) void back(struct all *p) { sigaction(SIGSEGV, &p->old, 0); }\n\
      int main(void) { all = malloc(sizeof *all); fill(all); set(all); back(all); return 0; }",
        '+',
    ),
];

/// Programs as above whose static executables are judged as well, independent of the C library.
const OF_STATIC: &[(&str, &str, bool)] = &[
    (
        "a child is started",
        "#include <spawn.h>\nextern char **environ;\nint main(void) { pid_t p; char *a[] = {\"true\", 0}; return posix_spawn(&p, \"/bin/true\", 0, 0, a, environ); }",
        false,
    ),
    (
        "a shell is started",
        "int main(void) { return system(\"true\") | !popen(\"true\", \"r\"); }",
        false,
    ),
    (
        "a signal is ignored, or not",
        "int main(int argc, char **argv) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_flags = SA_SIGINFO; a.sa_handler = argc > 1 ? SIG_IGN : SIG_DFL; sigaction(SIGSEGV, &a, 0); return 0; }",
        false,
    ),
    (
        "the default, or a handler that looks",
        "HANDLER(h, sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP])\n\
      int main(int argc, char **argv) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_flags = SA_SIGINFO; if (argc > 1) a.sa_sigaction = h; sigaction(SIGSEGV, &a, 0); return 0; }",
        true,
    ),
    (
        "a handler leaves by a long jump",
        "static sigjmp_buf b; static void h(int s, siginfo_t *i, void *c) { siglongjmp(b, 1); }\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return sigsetjmp(b, 1); }",
        false,
    ),
    (
        "a handler asks where memory failed",
        "HANDLER(h, sink = (uintptr_t)i->si_addr)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); sigaction(SIGBUS, &a, 0); return 0; }",
        false,
    ),
    (
        "a handler asks where an instruction failed",
        "HANDLER(h, sink = (uintptr_t)i->si_addr)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGILL, &a, 0); return 0; }",
        true,
    ),
    (
        "a handler goes on elsewhere",
        "HANDLER(h, ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP] += 2)\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGILL, &a, 0); return 0; }",
        true,
    ),
    (
        "a jump to another stack takes the context along",
        "__attribute__((naked)) void go(void *stack, void *to, void *c) { __asm__(\"mov (%rdi), %rsp; jmp *%rsi\"); }\nstatic void *area[64];\n\
      void look(void *a, void *b, void *c) { sink = ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP]; _exit(0); }\nHANDLER(h, area[0] = area + 60; go(area, look, c))\n\
      int main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = h; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); return 0; }",
        true,
    ),
];

/// The finding, and true if handlers are installed only by calls of `sigaction`, so that they can
/// be shown original addresses.
fn finding(compiler: &str, flags: &[&str], source: &str) -> (Option<String>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let (c, out) = (dir.path().join("a.c"), dir.path().join("a"));
    let install = if source.contains("install(") {
        INSTALL
    } else {
        ""
    };
    std::fs::write(&c, format!("{HEAD}{install}{source}\n")).unwrap();
    let done = Command::new(compiler)
        .args(flags)
        .args(["-w", "-o"])
        .arg(&out)
        .arg(&c)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{compiler}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    let data = std::fs::read(&out).unwrap();
    let elf = Elf::parse(&data).unwrap();
    let tables = Tables::read(&elf).unwrap();
    let input = analysis_input(&elf, &tables);
    let program = discover(&input, &InstrumentOptions::new(FLAVOUR_PT));
    let found =
        inspected_faults(&elf, &input, &program).map(|f| format!("{} at {:#x}", f.why, f.at));
    (found, wrapped(&elf, &input, &program).is_some())
}

#[test]
fn handlers_that_may_look_at_faults_are_found() {
    let ways: [&[&str]; 4] = [
        &["-O0", "-fPIE", "-pie"],
        &["-O2", "-fPIE", "-pie"],
        &["-O2", "-fno-pie", "-no-pie"],
        &["-O2", "-fcf-protection=full", "-Wl,-z,now"],
    ];
    check(&ways, |_| true);
}

/// Code that reaches the C library only through registers.
#[test]
fn calls_that_are_not_seen_count() {
    let source = CASES
        .iter()
        .find(|case| case.0 == "the place of a fault")
        .unwrap()
        .1;
    for flags in [
        ["-O0", "-mcmodel=large", "-fPIE", "-pie"],
        ["-O2", "-mcmodel=large", "-fPIE", "-pie"],
    ] {
        let (found, shown) = finding("gcc", &flags, source);
        assert!(found.is_some() && !shown, "{flags:?}: {found:?} {shown}");
    }
}

/// The file contains the C library with `sigaction`, and copies of actions are calls of a function
/// of the file.
#[test]
fn so_they_are_in_static_executables() {
    check(
        &[&["-O2", "-static"], &["-O0", "-static-pie"]],
        |expected| expected == '+',
    );
}

/// The files contain one of two C libraries, with their own use of handlers to start children, and
/// their code that installs the program's handlers.
#[test]
fn static_executables_of_both_c_libraries() {
    let mut wrong = Vec::new();
    for (compiler, flags) in [
        ("gcc", ["-O2", "-static"]),
        ("gcc", ["-O1", "-static-pie"]),
        ("clang", ["-O2", "-static"]),
        ("musl-gcc", ["-O2", "-static"]),
    ] {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("SKIPPED: {compiler} is not installed");
            continue;
        }
        for (what, source, expected) in OF_STATIC {
            let (found, _) = finding(compiler, &flags, source);
            if found.is_some() != *expected {
                wrong.push(format!("{what} ({compiler} {flags:?}): {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The file contains the C library's `profil`; a handler of the program is distinguished from it.
#[test]
fn profilers_of_static_executables_are_told_apart() {
    let source = |what: &str| CASES.iter().find(|case| case.0 == what).unwrap().1;
    for (what, expected) in [
        ("no handlers at all", false),
        (
            "a signal is raised, while the context still lies in its argument register",
            false,
        ),
        (
            "another part of the context of a signal that is no fault",
            false,
        ),
        ("the context of a signal that is no fault", true),
    ] {
        for flags in [
            ["-O2", "-static", "-pthread"],
            ["-O2", "-static-pie", "-pthread"],
        ] {
            let (found, _) = finding("gcc", &flags, source(what));
            assert_eq!(found.is_some(), expected, "{what}, {flags:?}: {found:?}");
        }
    }
}

fn check(ways: &[&[&str]], asked: impl Fn(char) -> bool) {
    let mut wrong = Vec::new();
    for compiler in ["gcc", "clang"] {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("SKIPPED: {compiler} is not installed");
            continue;
        }
        for flags in ways {
            for (what, source, expected) in CASES.iter().filter(|case| asked(case.2)) {
                let is_static = flags.iter().any(|f| f.starts_with("-static"));
                if is_static && source.contains("dlsym") {
                    // A static executable that calls `dlsym` would load another C library.
                    continue;
                }
                let (found, shown) = finding(compiler, flags, source);
                // In these sources, handlers are also installed without the library's function.
                let by_other_means = source.contains("syscall")
                    || source.contains("= sigaction;")
                    || source.contains("dlsym");
                if found.is_some() && shown != (!is_static && !by_other_means) {
                    wrong.push(format!(
                        "{what} ({compiler} {flags:?}): {}",
                        if shown { "shown" } else { "not shown" }
                    ));
                }
                let is_fine = match expected {
                    '?' => true,
                    _ => found.is_some() == matches!(expected, '+' | 'd'),
                };
                if !is_fine {
                    wrong.push(format!("{what} ({compiler} {flags:?}): {found:?}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
