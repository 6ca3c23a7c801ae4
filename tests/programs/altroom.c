// How many bytes of an alternate stack handlers take, by what they do: the lowest byte that has changed. Each line
// is a name and that number. Loads go on while signals come, so that they find windows and clones.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define SIZE 65536
static uint64_t table[4096];
static volatile uint64_t sum, count;
static __thread sigjmp_buf back;
static __thread unsigned char *stack;
static void plain(int s) { count += s; }
static void info(int s, siginfo_t *i, void *c) { count += s + i->si_signo + (c != 0); }
static void jumps(int s) { count += s; siglongjmp(back, 1); }
static void nested(int s) { count += s; raise(SIGUSR2); }
static void masks(int s) { sigset_t m; count += s; sigemptyset(&m); sigprocmask(SIG_BLOCK, &m, &m); }
static void acts(int s) { struct sigaction a; count += s; sigaction(SIGHUP, 0, &a); }
static char empty[64];
static char *const words[] = {"empty", 0};
static void forks(int s) { count += s; pid_t p = fork(); if (!p) _exit(0); waitpid(p, 0, 0); }
static void spawns(int s) { count += s; pid_t p = vfork(); if (!p) { execve("/bin/true", words, environ); _exit(9); } waitpid(p, 0, 0); }
static void executes(int s) { count += s; execve(empty, words, environ); }
static uint64_t work(uint64_t s, int n) { uint64_t h = 0; for (int i = 0; i < n; i++) { s = s * 6364136223846793005u + 1442695040888963407u; h += table[s >> 52]; } return h; }
static void handle(int signal, void (*f)(int), int flags) { struct sigaction a = {0}; a.sa_handler = f; a.sa_flags = SA_ONSTACK | flags; sigaction(signal, &a, 0); }
static size_t used(void) { size_t i = 0; while (i < SIZE && stack[i] == 0xa5) i++; memset(stack, 0xa5, SIZE); return SIZE - i; }
static void tell(const char *thread, const char *what, size_t bytes) { printf("%s-%s %zu\n", thread, what, bytes); }
static void comes(void) { sum += work(count, 1000); raise(SIGUSR1); sum += work(count, 1000); }
static void *all(void *name) {
    stack = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t st = {.ss_sp = stack, .ss_size = SIZE}; sigaltstack(&st, 0); used();
    handle(SIGUSR2, plain, 0);
    handle(SIGUSR1, plain, 0); comes(); used(); comes(); tell(name, "plain", used());
    handle(SIGUSR1, (void (*)(int))info, SA_SIGINFO); comes(); tell(name, "info", used());
    handle(SIGUSR1, nested, SA_NODEFER); comes(); used(); comes(); tell(name, "nested", used());
    handle(SIGUSR1, masks, 0); comes(); used(); comes(); tell(name, "masks", used());
    handle(SIGUSR1, acts, 0); comes(); used(); comes(); tell(name, "acts", used());
    handle(SIGUSR1, forks, 0); comes(); used(); comes(); tell(name, "forks", used());
    handle(SIGUSR1, spawns, 0); comes(); used(); comes(); tell(name, "spawns", used());
    handle(SIGUSR1, executes, 0); comes(); used(); comes(); tell(name, "executes", used());
    handle(SIGUSR1, jumps, 0);
    for (int i = 0; i < 40; i++) { if (!sigsetjmp(back, 1)) comes(); if (i == 0) used(); }
    tell(name, "jumps", used());
    handle(SIGSEGV, jumps, SA_NODEFER);
    for (int i = 0; i < 40; i++) if (!sigsetjmp(back, 1)) { sum += work(i, 1000); sum += *(volatile int *)(uintptr_t)(i * 8 + 8); }
    tell(name, "faults", used());
    handle(SIGALRM, plain, SA_RESTART);
    struct itimerval it = {{0, 500}, {0, 500}}, none = {{0, 0}, {0, 0}}; setitimer(ITIMER_REAL, &it, 0);
    uint64_t before = count; while (count < before + 14 * 40) sum += work(count, 100000);
    setitimer(ITIMER_REAL, &none, 0); tell(name, "alarms", used());
    stack_t old; sigaltstack(0, &old); printf("%s-stack %d %d %d\n", (char *)name, old.ss_sp == stack, old.ss_size == SIZE, old.ss_flags);
    return 0;
}
int main(void) {
    for (int i = 0; i < 4096; i++) table[i] = i * 2654435761u;
    // A program that the kernel looks at and refuses.
    strcpy(empty, "./empty.XXXXXX"); int fd = mkstemp(empty); fchmod(fd, 0755); close(fd);
    all("first");
    // The process's alarms are the second thread's.
    sigset_t m; sigemptyset(&m); sigaddset(&m, SIGALRM);
    pthread_t t; pthread_create(&t, 0, all, "second"); sigprocmask(SIG_BLOCK, &m, 0); pthread_join(t, 0); sigprocmask(SIG_UNBLOCK, &m, 0);
    fflush(stdout); pid_t p = fork(); if (!p) { all("child"); fflush(stdout); _exit(0); } waitpid(p, 0, 0);
    unlink(empty);
    return 0;
}
