/* A shared library: with state, a constructor, and a function that calls back. */
static int table[64];
static int ready;

__attribute__((constructor)) static void start(void) {
    for (int i = 0; i < 64; i++)
        table[i] = (i * 29) % 64;
    ready = 1;
}

long plugin_sum(const int *p, int n, long (*callback)(long)) {
    long s = ready;
    for (int i = 0; i < n; i++)
        s += table[p[i] & 63] + callback(s & 0xff);
    return s;
}
