/* Exceptions that leave signal handlers, on the stack that was interrupted and on an alternate one, and threads that are cancelled while they wait: in both cases objects of the
   interrupted frames are destroyed, so unwinders have to find their way past the handler's caller. */
#include "mix.h"
#include <atomic>
#include <csignal>
#include <pthread.h>
#include <semaphore.h>
#include <stdexcept>
#include <unistd.h>

static volatile int data[64];
static std::atomic<int> destroyed;

struct Counted {
    int n;
    explicit Counted(int n) : n(n) {}
    ~Counted() { destroyed += data[n & 63] + 1; }
};

struct Thrown {
    int signal, sum;
};

static void throws(int signal) {
    int sum = 0;
    for (int i = 0; i < 64; i += 3)
        sum += data[i];
    throw Thrown{signal, sum};
}

/* By pointers whose type does not promise that nothing is thrown. */
static int (*volatile send)(int) = reinterpret_cast<int (*)(int)>(raise);

__attribute__((noinline)) static int down(int depth, int signal) {
    Counted counted(depth);
    if (depth == 0)
        return send(signal);
    return down(depth - 1, signal) + data[depth & 63];
}

static void handlers(bool alternate) {
    static char stack[1 << 16];
    stack_t s = {};
    s.ss_sp = stack;
    s.ss_size = sizeof stack;
    s.ss_flags = alternate ? 0 : SS_DISABLE;
    sigaltstack(&s, nullptr);
    struct sigaction action = {};
    action.sa_handler = throws;
    action.sa_flags = SA_NODEFER | (alternate ? SA_ONSTACK : 0);
    sigaction(SIGUSR1, &action, nullptr);
    sigaction(SIGUSR2, &action, nullptr);
    for (int i = 0; i < 12; i++) {
        try {
            down(i, i % 2 ? SIGUSR1 : SIGUSR2);
            mix(666);
        } catch (const Thrown &t) {
            mix(uint64_t(t.signal) * 1000 + t.sum + destroyed);
        }
    }
}

static sem_t ready;

__attribute__((noinline)) static int waits(int depth) {
    Counted counted(depth);
    if (depth == 0) {
        sem_post(&ready);
        for (;;)
            pause();
    }
    return waits(depth - 1) + data[depth & 63];
}

static void *thread(void *p) {
    Counted counted(1);
    waits(*static_cast<int *>(p));
    return nullptr;
}

int main() {
    uint32_t state = 5;
    for (int i = 0; i < 64; i++)
        data[i] = int(next_random(&state) % 100);
    handlers(false);
    handlers(true);
    sem_init(&ready, 0, 0);
    for (int i = 0; i < 6; i++) {
        pthread_t t;
        void *back;
        if (pthread_create(&t, nullptr, thread, &i))
            return 1;
        sem_wait(&ready);
        pthread_cancel(t);
        pthread_join(t, &back);
        mix(uint64_t(back == PTHREAD_CANCELED) + destroyed);
    }
    report("escapes");
    return 0;
}
