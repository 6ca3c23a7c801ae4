// Defines functions of the C library itself and counts how often each is asked; the C library's own calls of each
// other do not come here, nor do those of anybody who is not the program. PART 0: all in one, 1: the functions alone
// (a library), 2: the rest.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#define __libc_stack_end other_stack_end
#include <link.h>
#undef __libc_stack_end
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
enum { ACTION, SIGNAL, MASK, THREAD_MASK, STACK, EXECVE, EXECVPE, EXECV, SPAWN, FORK, VFORK, CLONE, MMAP, MUNMAP, MPROTECT, MALLOC, FREE, THREAD, DLOPEN, GETENV, MEMCPY, MEMSET, STRLEN, CLOSE, OPEN, READ, SUSPEND, ITERATE, PRCTL, ALL };
#if PART != 2
int asked[ALL];
// Whoever looks for the loader's variables by name finds these.
struct r_debug _r_debug = {9, (struct link_map *)16, 32, 0, 64};
long __libc_stack_end = 5;
#define NEXT(f) ({ static __typeof__(&f) p; if (!p) p = (__typeof__(&f))dlsym(RTLD_NEXT, #f); p; })
static int (*next_action)(int, const struct sigaction *, struct sigaction *);
int sigaction(int s, const struct sigaction *a, struct sigaction *o) { asked[ACTION]++; if (!next_action) next_action = dlsym(RTLD_NEXT, "__sigaction"); return next_action(s, a, o); }
sighandler_t signal(int s, sighandler_t f) { asked[SIGNAL]++; return NEXT(signal)(s, f); }
int sigprocmask(int h, const sigset_t *s, sigset_t *o) { asked[MASK]++; return NEXT(sigprocmask)(h, s, o); }
int pthread_sigmask(int h, const sigset_t *s, sigset_t *o) { asked[THREAD_MASK]++; return NEXT(pthread_sigmask)(h, s, o); }
int sigaltstack(const stack_t *s, stack_t *o) { asked[STACK]++; return NEXT(sigaltstack)(s, o); }
int sigsuspend(const sigset_t *s) { asked[SUSPEND]++; return NEXT(sigsuspend)(s); }
int execve(const char *f, char *const a[], char *const e[]) { asked[EXECVE]++; printf("execve stands in\n"); fflush(stdout); return NEXT(execve)(f, a, e); }
int execvpe(const char *f, char *const a[], char *const e[]) { asked[EXECVPE]++; printf("execvpe stands in\n"); fflush(stdout); return NEXT(execvpe)(f, a, e); }
int execv(const char *f, char *const a[]) { asked[EXECV]++; printf("execv stands in\n"); fflush(stdout); return NEXT(execv)(f, a); }
int posix_spawn(pid_t *p, const char *f, const posix_spawn_file_actions_t *x, const posix_spawnattr_t *y, char *const a[], char *const e[]) { asked[SPAWN]++; return NEXT(posix_spawn)(p, f, x, y, a, e); }
pid_t fork(void) { asked[FORK]++; return NEXT(fork)(); }
pid_t vfork(void) { asked[VFORK]++; return NEXT(fork)(); }
int clone(int (*f)(void *), void *stack, int flags, void *arg, ...) { asked[CLONE]++; return NEXT(clone)(f, stack, flags, arg, 0, 0, 0); }
void *mmap(void *at, size_t n, int p, int f, int fd, off_t o) { asked[MMAP]++; return (void *)syscall(SYS_mmap, at, n, p, f, fd, o); }
int munmap(void *at, size_t n) { asked[MUNMAP]++; return syscall(SYS_munmap, at, n); }
int mprotect(void *at, size_t n, int p) { asked[MPROTECT]++; return syscall(SYS_mprotect, at, n, p); }
static char heap[1 << 22] __attribute__((aligned(16)));
static size_t heap_used;
static void *take(size_t n) { size_t at = __atomic_fetch_add(&heap_used, (n + 31) & ~15ul, __ATOMIC_RELAXED); *(size_t *)(heap + at) = n; return heap + at + 16; }
void *malloc(size_t n) { asked[MALLOC]++; return take(n); }
void *calloc(size_t n, size_t m) { asked[MALLOC]++; return take(n * m); }
void *realloc(void *p, size_t n) { asked[MALLOC]++; char *q = take(n); for (size_t i = 0; p && i < n && i < *(size_t *)((char *)p - 16); i++) q[i] = ((char *)p)[i]; return q; }
void free(void *p) { asked[FREE]++; (void)p; }
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) { asked[THREAD]++; return NEXT(pthread_create)(t, a, f, x); }
void *dlopen(const char *n, int f) { asked[DLOPEN]++; return NEXT(dlopen)(n, f); }
int dl_iterate_phdr(int (*f)(struct dl_phdr_info *, size_t, void *), void *x) { asked[ITERATE]++; return NEXT(dl_iterate_phdr)(f, x); }
char *getenv(const char *n) { asked[GETENV]++; return NEXT(getenv)(n); }
void *memcpy(void *restrict t, const void *restrict f, size_t n) { asked[MEMCPY]++; for (size_t i = 0; i < n; i++) ((volatile char *)t)[i] = ((const char *)f)[i]; return t; }
void *memset(void *t, int c, size_t n) { asked[MEMSET]++; for (size_t i = 0; i < n; i++) ((volatile char *)t)[i] = c; return t; }
size_t strlen(const char *s) { asked[STRLEN]++; size_t n = 0; while (((const volatile char *)s)[n]) n++; return n; }
int close(int f) { asked[CLOSE]++; return NEXT(close)(f); }
int open(const char *n, int f, ...) { asked[OPEN]++; va_list l; va_start(l, f); int m = va_arg(l, int); va_end(l); return NEXT(open)(n, f, m); }
ssize_t read(int f, void *b, size_t n) { asked[READ]++; return NEXT(read)(f, b, n); }
int prctl(int o, ...) { asked[PRCTL]++; va_list l; va_start(l, o); long a = va_arg(l, long), b = va_arg(l, long), c = va_arg(l, long), d = va_arg(l, long); va_end(l); return NEXT(prctl)(o, a, b, c, d); }
#endif
#if PART != 1
extern int asked[ALL];
static uint64_t table[4096];
static volatile int got;
static void on(int s) { got += s; }
static uint64_t work(uint64_t s, int n) { uint64_t h = 0; for (int i = 0; i < n; i++) { s = s * 6364136223846793005u + 1442695040888963407u; h += table[s >> 52]; } return h; }
static void *thread(void *a) { return (void *)work((uint64_t)a, 1000000); }
static int child_of_clone(void *a) { (void)a; return 3; }
static void counts(const char *when) { printf("%s:", when); for (int i = 0; i < ALL; i++) printf(" %d", asked[i]); printf("\n"); fflush(stdout); }
static void child(int k) {
    char *a[] = {"echo", "executed", 0}; fflush(stdout); pid_t p = fork();
    if (!p) { switch (k) { case 0: execv("/bin/echo", a); break; case 1: execvp("echo", a); break; case 2: execl("/bin/echo", "echo", "executed", (char *)0); break; case 3: execlp("echo", "echo", "executed", (char *)0); break; case 4: execle("/bin/echo", "echo", "executed", (char *)0, environ); break; case 5: execve("/bin/echo", a, environ); break; case 6: execvpe("echo", a, environ); } _exit(9); }
    int st; waitpid(p, &st, 0); printf("%d: %d\n", k, st); fflush(stdout);
}
int main(void) {
    static char out[1 << 16]; setvbuf(stdout, out, _IOFBF, sizeof out);
    for (int i = 0; i < 4096; i++) table[i] = i * 2654435761u;
    uint64_t h = work(1, 5000000); counts("work");
    struct sigaction a = {0}; a.sa_handler = on; sigaction(SIGUSR1, &a, 0); signal(SIGUSR2, on); sigset(SIGHUP, on); siginterrupt(SIGHUP, 1); counts("actions");
    sigset_t m; sigemptyset(&m); sigaddset(&m, SIGUSR1); sigprocmask(SIG_BLOCK, &m, 0); raise(SIGUSR1); raise(SIGUSR2); sigpause(0); sighold(SIGHUP); sigrelse(SIGHUP); printf("got %d\n", got); counts("masks");
    sigfillset(&m); pthread_sigmask(SIG_BLOCK, &m, 0); h += work(h, 1000000); pthread_sigmask(SIG_UNBLOCK, &m, 0); counts("thread masks");
    stack_t st = {.ss_sp = malloc(65536), .ss_size = 65536}; sigaltstack(&st, 0); a.sa_flags = SA_ONSTACK; sigaction(SIGALRM, &a, 0);
    struct itimerval it = {{0, 1000}, {0, 1000}}, none = {{0, 0}, {0, 0}}; int before = got; setitimer(ITIMER_REAL, &it, 0); while (got < before + 14 * 8) h += 0 * work(h, 100000); setitimer(ITIMER_REAL, &none, 0); counts("alarms");
    pthread_t t; void *r; pthread_create(&t, 0, thread, (void *)7); pthread_join(t, &r); h += (uint64_t)r; counts("threads");
    for (int k = 0; k < 7; k++) child(k); counts("children");
    int s; pid_t p = vfork(); if (!p) _exit(4); waitpid(p, &s, 0); printf("vfork %d\n", s); char *stack = malloc(65536); p = clone(child_of_clone, stack + 65536, SIGCHLD, 0); waitpid(p, &s, 0); printf("clone %d\n", s); counts("processes");
    printf("system %d\n", system("exit 3")); FILE *f = popen("echo popen", "r"); char b[32] = ""; if (!fgets(b, 32, f)) b[0] = '?'; pclose(f); printf("%s", b); char *w[] = {"echo", "spawned", 0}; fflush(stdout); posix_spawnp(&p, "echo", 0, 0, w, environ); waitpid(p, &s, 0); counts("spawned");
    void *l = dlopen("libm.so.6", RTLD_NOW); printf("%d %d\n", l != 0, dlsym(l, "sqrt") != 0); h += work(h, 1000000); printf("%d %d\n", getenv("PATH") != 0, prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)); counts("others");
    printf("%016lx\n", h);
    return 0;
}
#endif
