/* Layouts of structures: split, hot and cold, reordered, packed, smaller, interleaved. */
#include "pairs.h"

enum { PARTICLES = 1 << 19, RECORDS = 1 << 19, ROWS = 1 << 18, WORDS = 1 << 22 };

/* One field of each particle in order (a structure of arrays after it). */
struct particle { double x, y, z, vx, vy, vz, mass, charge; };

NOINLINE static double sum_mass(const struct particle *particles) {
    double sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += particles[i].mass;
    return sum;
}

NOINLINE static double sum_array(const double *mass) {
    double sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += mass[i];
    return sum;
}

static double field(int after, long rounds) {
    struct particle *particles = take(PARTICLES * sizeof *particles);
    double *mass = take(PARTICLES * sizeof *mass), sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        mass[i] = particles[i].mass = i % 100;
    for (long r = 0; r < rounds; r++)
        sum += after ? sum_array(mass) : sum_mass(particles);
    return sum;
}

/* Positions of mesh vertices at random corners: twelve bytes of twenty. */
struct vertex { float co[3]; int16_t normal[3]; uint8_t flag, weight; };

NOINLINE static double corners_of_vertices(const struct vertex *vertices, const uint32_t *corners) {
    double sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        sum += vertices[corners[i]].co[i % 3];
    return sum;
}

NOINLINE static double corners_of_positions(float (*positions)[3], const uint32_t *corners) {
    double sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        sum += positions[corners[i]][i % 3];
    return sum;
}

static double mesh(int after, long rounds) {
    uint32_t *corners = take(WORDS * sizeof *corners);
    struct vertex *vertices = take(PARTICLES * sizeof *vertices);
    float(*positions)[3] = take(PARTICLES * sizeof *positions);
    double sum = 0;
    for (uint32_t i = 0; i < PARTICLES * 3; i++)
        positions[i / 3][i % 3] = vertices[i / 3].co[i % 3] = (float)(i % 1000);
    for (uint32_t i = 0; i < WORDS; i++)
        corners[i] = (uint32_t)below(PARTICLES);
    for (long r = 0; r < rounds; r++)
        sum += after ? corners_of_positions(positions, corners) : corners_of_vertices(vertices, corners);
    return sum;
}

/* One field of structures at random. */
NOINLINE static double pick_mass(const struct particle *particles, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += particles[order[i]].mass;
    return sum;
}

NOINLINE static double pick_array(const double *mass, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += mass[order[i]];
    return sum;
}

static double picked(int after, long rounds) {
    struct particle *particles = take(PARTICLES * sizeof *particles);
    double *mass = take(PARTICLES * sizeof *mass), sum = 0;
    uint32_t *order = shuffled(PARTICLES);
    for (uint32_t i = 0; i < PARTICLES; i++)
        mass[i] = particles[i].mass = i % 100;
    for (long r = 0; r < rounds; r++)
        sum += after ? pick_array(mass, order) : pick_mass(particles, order);
    return sum;
}

/* Transaction numbers of processes, scanned for a snapshot: dense after it. */
enum { PROCESSES = 4096 };
struct process { char lock[64]; uint32_t xid; char rest[700]; };

NOINLINE static uint64_t snapshot(const struct process *processes, uint32_t limit) {
    uint64_t seen = 0;
    for (uint32_t i = 0; i < PROCESSES; i++)
        if (processes[i].xid < limit)
            seen += processes[i].xid;
    return seen;
}

NOINLINE static uint64_t snapshot_dense(const uint32_t *xids, uint32_t limit) {
    uint64_t seen = 0;
    for (uint32_t i = 0; i < PROCESSES; i++)
        if (xids[i] < limit)
            seen += xids[i];
    return seen;
}

static double snapshots(int after, long rounds) {
    struct process *processes = take(PROCESSES * sizeof *processes);
    uint32_t *xids = take(PROCESSES * sizeof *xids);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < PROCESSES; i++)
        xids[i] = processes[i].xid = (uint32_t)below(1000);
    for (long r = 0; r < rounds; r++)
        seen += after ? snapshot_dense(xids, r % 1000) : snapshot(processes, r % 1000);
    return (double)seen;
}

/* Entities of which three fields are hot. */
struct entity { float x, y; char name[80]; float dx; char rest[36]; };
struct hot_entity { float x, y, dx; };

NOINLINE static double near_entities(const struct entity *entities, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct entity *e = &entities[order[i]];
        sum += e->x * e->dx + e->y;
    }
    return sum;
}

NOINLINE static double near_hot(const struct hot_entity *entities, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct hot_entity *e = &entities[order[i]];
        sum += e->x * e->dx + e->y;
    }
    return sum;
}

static double hot_cold(int after, long rounds) {
    struct entity *entities = take(ROWS * sizeof *entities);
    struct hot_entity *hot = take(ROWS * sizeof *hot);
    uint32_t *order = shuffled(ROWS);
    double sum = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        hot[i].x = entities[i].x = i % 10;
        hot[i].y = entities[i].y = i % 7;
        hot[i].dx = entities[i].dx = i % 3;
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? near_hot(hot, order) : near_entities(entities, order);
    return sum;
}

/* Sockets whose fields of the fast path are in four lines, or in one. */
struct sock { uint32_t state; char a[76]; uint32_t seq; char b[60]; uint32_t window; char c[60]; uint32_t mss; char d[36]; };
struct fast_sock { uint32_t state, seq, window, mss; char rest[240]; };

NOINLINE static uint64_t receive(const struct sock *socks, const uint32_t *order) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct sock *s = &socks[order[i]];
        sum += s->state ^ s->seq ^ s->window ^ s->mss;
    }
    return sum;
}

NOINLINE static uint64_t receive_fast(const struct fast_sock *socks, const uint32_t *order) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct fast_sock *s = &socks[order[i]];
        sum += s->state ^ s->seq ^ s->window ^ s->mss;
    }
    return sum;
}

static double sockets(int after, long rounds) {
    struct sock *socks = take(ROWS * sizeof *socks);
    struct fast_sock *fast = take(ROWS * sizeof *fast);
    uint32_t *order = shuffled(ROWS);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        fast[i].state = socks[i].state = i;
        fast[i].seq = socks[i].seq = 3 * i;
        fast[i].window = socks[i].window = 5 * i;
        fast[i].mss = socks[i].mss = i % 1500;
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? receive_fast(fast, order) : receive(socks, order);
    return (double)sum;
}

/* A list of devices: the link and the tested field are in two lines, or in one. */
struct device { struct device *next; char a[112]; uint32_t flags; char b[68]; };
struct fast_device { struct fast_device *next; uint32_t flags; char rest[180]; };
enum { DEVICES = 1 << 15 };

NOINLINE static uint64_t count_up(const struct device *devices) {
    uint64_t sum = 0;
    for (const struct device *d = devices; d; d = d->next)
        sum += d->flags;
    return sum;
}

NOINLINE static uint64_t count_fast(const struct fast_device *devices) {
    uint64_t sum = 0;
    for (const struct fast_device *d = devices; d; d = d->next)
        sum += d->flags;
    return sum;
}

static double devices_listed(int after, long rounds) {
    struct device *devices = take(DEVICES * sizeof *devices);
    struct fast_device *fast = take(DEVICES * sizeof *fast);
    uint32_t *order = shuffled(DEVICES);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < DEVICES; i++) {
        devices[i].flags = fast[i].flags = i % 5;
        if (i + 1 < DEVICES) {
            devices[order[i]].next = &devices[order[i + 1]];
            fast[order[i]].next = &fast[order[i + 1]];
        }
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? count_fast(&fast[order[0]]) : count_up(&devices[order[0]]);
    return (double)sum;
}

/* Entries with a hash, a key and a value, of which most of the bytes are padding, or none. */
struct loose { uint64_t key; uint8_t kind; uint64_t value; char unused[40]; };
struct dense { uint64_t key, value; uint8_t kind; } __attribute__((packed));

NOINLINE static uint64_t scan_loose(const struct loose *entries) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += entries[i].key * entries[i].kind + entries[i].value;
    return sum;
}

NOINLINE static uint64_t scan_dense(const struct dense *entries) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += entries[i].key * entries[i].kind + entries[i].value;
    return sum;
}

static double packed(int after, long rounds) {
    struct loose *entries = take(PARTICLES * sizeof *entries);
    struct dense *dense = take(PARTICLES * sizeof *dense);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++) {
        dense[i].key = entries[i].key = i;
        dense[i].kind = entries[i].kind = i % 3;
        dense[i].value = entries[i].value = i % 17;
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? scan_dense(dense) : scan_loose(entries);
    return (double)sum;
}

/* A sparse table of entries, or a dense one that a table of small indices refers to. */
struct slot { uint64_t hash, key, value; };

NOINLINE static uint64_t probe_slots(const struct slot *slots, const uint64_t *keys) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++) {
        uint32_t at = (uint32_t)(keys[i] * 0x9e3779b97f4a7c15u >> 44);
        while (slots[at].hash && slots[at].key != keys[i])
            at = (at + 1) & ((1 << 20) - 1);
        sum += slots[at].hash & 1;
    }
    return sum;
}

NOINLINE static uint64_t probe_hashes(const uint32_t *hashes, const uint64_t *keys) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++) {
        uint32_t at = (uint32_t)(keys[i] * 0x9e3779b97f4a7c15u >> 44);
        while (hashes[at] && hashes[at] != (uint32_t)keys[i])
            at = (at + 1) & ((1 << 20) - 1);
        sum += hashes[at] & 1;
    }
    return sum;
}

static double table(int after, long rounds) {
    struct slot *slots = take((1 << 20) * sizeof *slots);
    uint32_t *hashes = take((1 << 20) * sizeof *hashes);
    uint64_t *keys = take(PARTICLES * sizeof *keys), sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++) {
        keys[i] = 2 * below(1u << 30) + 1;
        uint32_t at = (uint32_t)(keys[i] * 0x9e3779b97f4a7c15u >> 44);
        while (slots[at].hash && slots[at].key != keys[i])
            at = (at + 1) & ((1 << 20) - 1);
        slots[at] = (struct slot){keys[i], keys[i], i};
        hashes[at] = (uint32_t)keys[i];
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? probe_hashes(hashes, keys) : probe_slots(slots, keys);
    return (double)sum;
}

/* Weights as double or as float. */
NOINLINE static double pull_wide(const double *weights, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        sum += weights[order[i]];
    return sum;
}

NOINLINE static double pull_narrow(const float *weights, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        sum += weights[order[i]];
    return sum;
}

static double narrow(int after, long rounds) {
    double *weights = take(PARTICLES * sizeof *weights), sum = 0;
    float *small = take(PARTICLES * sizeof *small);
    uint32_t *order = take(WORDS * sizeof *order);
    for (uint32_t i = 0; i < PARTICLES; i++)
        weights[i] = small[i] = i % 50;
    for (uint32_t i = 0; i < WORDS; i++)
        order[i] = (uint32_t)below(PARTICLES);
    for (long r = 0; r < rounds; r++)
        sum += after ? pull_narrow(small, order) : pull_wide(weights, order);
    return sum;
}

/* Distances as 64-bit numbers or as bytes. */
NOINLINE static uint64_t levels_wide(const uint64_t *levels, const uint32_t *edges) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        sum += levels[edges[i]];
    return sum;
}

NOINLINE static uint64_t levels_narrow(const uint8_t *levels, const uint32_t *edges) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        sum += levels[edges[i]];
    return sum;
}

static double distances(int after, long rounds) {
    uint64_t *levels = take(WORDS * sizeof *levels), sum = 0;
    uint8_t *small = take(WORDS);
    uint32_t *edges = take(WORDS * sizeof *edges);
    for (uint32_t i = 0; i < WORDS; i++) {
        levels[i] = small[i] = i % 9;
        edges[i] = (uint32_t)below(WORDS);
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? levels_narrow(small, edges) : levels_wide(levels, edges);
    return (double)sum;
}

/* Three arrays at one index, or one array of triples. */
struct triple { float x, y, z, w; };

NOINLINE static double pick_three(const float *xs, const float *ys, const float *zs, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += xs[order[i]] + ys[order[i]] * zs[order[i]];
    return sum;
}

NOINLINE static double pick_triples(const struct triple *triples, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < PARTICLES; i++)
        sum += triples[order[i]].x + triples[order[i]].y * triples[order[i]].z;
    return sum;
}

static double joined(int after, long rounds) {
    float *xs = take(4 * PARTICLES * sizeof *xs), *ys = take(4 * PARTICLES * sizeof *ys);
    float *zs = take(4 * PARTICLES * sizeof *zs);
    struct triple *triples = take(4 * PARTICLES * sizeof *triples);
    uint32_t *order = shuffled(4 * PARTICLES);
    double sum = 0;
    for (uint32_t i = 0; i < 4 * PARTICLES; i++) {
        triples[i].x = xs[i] = i % 11;
        triples[i].y = ys[i] = i % 13;
        triples[i].z = zs[i] = i % 5;
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? pick_triples(triples, order) : pick_three(xs, ys, zs, order);
    return sum;
}

static const struct pair pairs[] = {
    {"field", field, 1100},     {"mesh", mesh, 75},
    {"picked", picked, 330},    {"snapshots", snapshots, 300000},
    {"hot_cold", hot_cold, 700}, {"sockets", sockets, 350},
    {"devices", devices_listed, 1000}, {"packed", packed, 1000},
    {"table", table, 150},      {"narrow", narrow, 150},
    {"distances", distances, 40}, {"joined", joined, 120},
};
MAIN(pairs)
