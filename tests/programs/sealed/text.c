/* Text: indexes, compression, parsers. */
#include "sealed.h"

static char *text;

/* Words of a made-up language, some of them frequent. */
static void write_text(int size, int words) {
    char (*word)[12] = need(words * sizeof *word);
    for (int i = 0; i < words; i++) {
        int length = 2 + below(8);
        for (int k = 0; k < length; k++)
            word[i][k] = 'a' + skewed(26);
        word[i][length] = 0;
    }
    text = need(size + 16);
    for (int at = 0; at < size;)
        at += sprintf(text + at, "%.*s ", size - at < 12 ? size - at : 12, word[skewed(words)]);
    free(word);
}

/* Suffix array by doubling prefixes, sorted by counting. */
enum { SUFFIXES = 26000 };
static int *suffix, *other, *group, *new_group, *counts;

static void suffix_set_up(void) {
    write_text(SUFFIXES, 900);
    int n = SUFFIXES > 256 ? SUFFIXES : 256;
    suffix = need(n * sizeof(int)), other = need(n * sizeof(int));
    group = need(n * sizeof(int)), new_group = need(n * sizeof(int));
    counts = need((n + 1) * sizeof(int));
}

static void sort_by_group(int groups) {
    memset(counts, 0, (groups + 1) * sizeof *counts);
    for (int i = 0; i < SUFFIXES; i++)
        counts[group[i] + 1]++;
    for (int g = 0; g < groups; g++)
        counts[g + 1] += counts[g];
    for (int i = 0; i < SUFFIXES; i++)
        suffix[counts[group[other[i]]]++] = other[i];
}

static int second(int i, int step) { return i + step < SUFFIXES ? group[i + step] : -1; }

static double suffix_round(void) {
    int groups = 256;
    for (int i = 0; i < SUFFIXES; i++)
        group[i] = (uint8_t)text[i], other[i] = i;
    sort_by_group(groups);
    for (int step = 1; groups < SUFFIXES; step *= 2) {
        int at = 0;
        for (int i = SUFFIXES - step < 0 ? 0 : SUFFIXES - step; i < SUFFIXES; i++)
            other[at++] = i;
        for (int i = 0; i < SUFFIXES; i++)
            if (suffix[i] >= step)
                other[at++] = suffix[i] - step;
        sort_by_group(groups > 256 ? groups : 256);
        groups = 1;
        new_group[suffix[0]] = 0;
        for (int i = 1; i < SUFFIXES; i++) {
            int a = suffix[i - 1], b = suffix[i];
            groups += group[a] != group[b] || second(a, step) != second(b, step);
            new_group[b] = groups - 1;
        }
        int *t = group;
        group = new_group;
        new_group = t;
    }
    return suffix[SUFFIXES / 2];
}

/* Trie with an array of children in each node. */
struct node {
    struct node *children[26];
    int count;
};
enum { TRIE_WORDS = 24000, QUERIES = 60000 };
static struct node *trie;
static char (*queries)[12];

static void trie_set_up(void) {
    trie = calloc(1, sizeof *trie);
    queries = need(TRIE_WORDS * sizeof *queries);
    for (int i = 0; i < TRIE_WORDS; i++) {
        struct node *at = trie;
        int length = 3 + below(7);
        for (int k = 0; k < length; k++) {
            int c = skewed(26);
            queries[i][k] = 'a' + c;
            if (!at->children[c])
                at->children[c] = calloc(1, sizeof *at);
            at = at->children[c];
        }
        queries[i][length] = 0;
        at->count++;
    }
}

static double trie_round(void) {
    double sum = 0;
    for (int i = 0; i < QUERIES; i++) {
        const struct node *at = trie;
        for (const char *c = queries[below(TRIE_WORDS)]; *c && at; c++)
            at = at->children[*c - 'a'];
        sum += at ? at->count : 0;
    }
    return sum;
}

/* Huffman: decoding bit by bit down the tree. */
struct code_node {
    int children[2], symbol;
};
enum { PACKED_TEXT = 120000 };
static struct code_node tree[512];
static int tree_root;
static uint8_t *bits, *decoded;
static int n_bits;

static void put_code(int node, uint64_t code, int length, uint64_t *codes, int *code_lengths) {
    if (tree[node].children[0] < 0) {
        codes[tree[node].symbol] = code, code_lengths[tree[node].symbol] = length;
        return;
    }
    for (int b = 0; b < 2; b++)
        put_code(tree[node].children[b], code * 2 + b, length + 1, codes, code_lengths);
}

static void build_code_tree(void) {
    int alive[512], count[512] = {0}, n = 0, nodes = 0;
    for (int i = 0; i < PACKED_TEXT; i++)
        count[256 + (uint8_t)text[i]]++;
    for (int s = 0; s < 256; s++)
        if (count[256 + s]) {
            tree[nodes] = (struct code_node){{-1, -1}, s};
            count[nodes] = count[256 + s];
            alive[n++] = nodes++;
        }
    while (n > 1) {
        int picked[2];
        for (int p = 0; p < 2; p++) {
            int best = 0;
            for (int i = 1; i < n; i++)
                if (count[alive[i]] < count[alive[best]])
                    best = i;
            picked[p] = alive[best];
            alive[best] = alive[--n];
        }
        tree[nodes] = (struct code_node){{picked[0], picked[1]}, 0};
        count[nodes] = count[picked[0]] + count[picked[1]];
        alive[n++] = nodes++;
    }
    tree_root = alive[0];
}

static void huffman_set_up(void) {
    uint64_t codes[256];
    int lengths[256];
    write_text(PACKED_TEXT, 3000);
    build_code_tree();
    put_code(tree_root, 0, 0, codes, lengths);
    bits = calloc(PACKED_TEXT, 2);
    decoded = need(PACKED_TEXT);
    for (int i = 0; i < PACKED_TEXT; i++) {
        uint8_t c = text[i];
        for (int b = lengths[c] - 1; b >= 0; b--, n_bits++)
            bits[n_bits / 8] |= (codes[c] >> b & 1) << n_bits % 8;
    }
}

static double huffman_round(void) {
    int at = tree_root, n = 0;
    for (int i = 0; i < n_bits; i++) {
        at = tree[at].children[bits[i / 8] >> i % 8 & 1];
        if (tree[at].children[0] < 0) {
            decoded[n++] = tree[at].symbol;
            at = tree_root;
        }
    }
    return decoded[n / 2];
}

/* Longest matches in a window, by chains of equal hashes. */
enum { LZ_TEXT = 80000, LZ_WINDOW = 1 << 15, MATCHED = LZ_TEXT - 300 };
static int *newest, *previous;

static void match_set_up(void) {
    write_text(LZ_TEXT, 20000);
    newest = need(LZ_WINDOW * sizeof *newest);
    previous = need(LZ_WINDOW * sizeof *previous);
}

static int match_length(const char *a, const char *b, int most) {
    int n = 0;
    while (n < most && a[n] == b[n])
        n++;
    return n;
}

static double match_round(void) {
    double saved = 0;
    memset(newest, 0xff, LZ_WINDOW * sizeof *newest);
    for (int at = 0; at < MATCHED; at++) {
        uint32_t hash = ((uint8_t)text[at] << 16 | (uint8_t)text[at + 1] << 8 |
                         (uint8_t)text[at + 2]) * 2654435761u >> 17;
        int best = 2, tries = 16;
        for (int c = newest[hash]; c >= 0 && at - c < LZ_WINDOW && tries--;
             c = previous[c % LZ_WINDOW]) {
            int n = match_length(text + c, text + at, 258);
            best = n > best ? n : best;
        }
        previous[at % LZ_WINDOW] = newest[hash];
        newest[hash] = at;
        saved += best;
    }
    return saved;
}

/* Many keywords at once: a table of states by character. */
enum { DFA_STATES = 4000, DFA_TEXT = 900000 };
static int (*moves)[256], *accepts, n_states = 1, dfa_state;

static void link_failures(void) {
    int *queue = need(DFA_STATES * sizeof(int)), *fail = calloc(DFA_STATES, sizeof(int));
    int from = 0, to = 0;
    for (int c = 0; c < 256; c++)
        if (moves[0][c])
            queue[to++] = moves[0][c];
    while (from < to) {
        int s = queue[from++];
        accepts[s] |= accepts[fail[s]];
        for (int c = 0; c < 256; c++) {
            int next = moves[s][c];
            if (next) {
                fail[next] = moves[fail[s]][c];
                queue[to++] = next;
            } else {
                moves[s][c] = moves[fail[s]][c];
            }
        }
    }
    free(queue);
    free(fail);
}

static void dfa_set_up(void) {
    write_text(DFA_TEXT, 9000);
    moves = calloc(DFA_STATES, sizeof *moves);
    accepts = calloc(DFA_STATES, sizeof *accepts);
    while (n_states < DFA_STATES - 16) {
        int s = 0, from = below(DFA_TEXT - 16), length = 4 + below(7);
        for (int k = 0; k < length; k++) {
            int *next = &moves[s][(uint8_t)text[from + k]];
            if (!*next)
                *next = n_states++;
            s = *next;
        }
        accepts[s] = 1;
    }
    link_failures();
}

static double dfa_round(void) {
    double found = 0;
    int s = dfa_state;
    for (int i = 0; i < DFA_TEXT; i++) {
        s = moves[s][(uint8_t)text[i]];
        found += accepts[s];
    }
    dfa_state = s;
    return found;
}

static const struct kind kinds[] = {
    {"suffix-array", suffix_set_up, suffix_round}, {"trie", trie_set_up, trie_round},
    {"huffman", huffman_set_up, huffman_round},    {"lz-match", match_set_up, match_round},
    {"dfa", dfa_set_up, dfa_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
