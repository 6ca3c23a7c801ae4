/* Dynamic programming. */
#include "sealed.h"

/* All shortest paths by Floyd and Warshall. */
enum { CITIES = 140, TOWNS = 640, BLOCK = 16 };
static float *far;

static void floyd_set_up(void) {
    far = need(CITIES * CITIES * sizeof *far);
    for (int i = 0; i < CITIES * CITIES; i++)
        far[i] = (float)uniform();
}

static double floyd_round(void) {
    for (int k = 0; k < CITIES; k++)
        for (int i = 0; i < CITIES; i++) {
            float ik = far[i * CITIES + k];
            for (int j = 0; j < CITIES; j++)
                if (ik + far[k * CITIES + j] < far[i * CITIES + j])
                    far[i * CITIES + j] = ik + far[k * CITIES + j];
        }
    return far[CITIES + 2];
}

/* The same in blocks; a round is one diagonal block and all that depends on it. */
static int *paths, diagonal;

static void paths_set_up(void) {
    paths = need((size_t)TOWNS * TOWNS * sizeof *paths);
    for (int i = 0; i < TOWNS * TOWNS; i++)
        paths[i] = 1 + below(1000000);
}

static void relax(int *c, const int *a, const int *b) {
    for (int k = 0; k < BLOCK; k++)
        for (int i = 0; i < BLOCK; i++) {
            int via = a[i * TOWNS + k];
            for (int j = 0; j < BLOCK; j++) {
                int sum = via + b[k * TOWNS + j];
                c[i * TOWNS + j] = sum < c[i * TOWNS + j] ? sum : c[i * TOWNS + j];
            }
        }
}

static int *block_at(int i, int j) { return paths + (size_t)i * BLOCK * TOWNS + j * BLOCK; }

static double paths_round(void) {
    int k = diagonal++ % (TOWNS / BLOCK);
    relax(block_at(k, k), block_at(k, k), block_at(k, k));
    for (int j = 0; j < TOWNS / BLOCK; j++)
        if (j != k) {
            relax(block_at(k, j), block_at(k, k), block_at(k, j));
            relax(block_at(j, k), block_at(j, k), block_at(k, k));
        }
    for (int i = 0; i < TOWNS / BLOCK; i++)
        for (int j = 0; j < TOWNS / BLOCK; j++)
            if (i != k && j != k)
                relax(block_at(i, j), block_at(i, k), block_at(k, j));
    return paths[5];
}

/* Longest common subsequence in one row. */
enum { LONG = 20000, SHORT = 90 };
static uint8_t *word_a, *word_b;
static int *row;

static void lcs_set_up(void) {
    word_a = need(LONG);
    word_b = need(SHORT);
    row = need((LONG + 1) * sizeof *row);
    for (int i = 0; i < LONG; i++)
        word_a[i] = 'a' + below(4);
    for (int i = 0; i < SHORT; i++)
        word_b[i] = 'a' + below(4);
}

static double lcs_round(void) {
    memset(row, 0, (LONG + 1) * sizeof *row);
    for (int i = 0; i < SHORT; i++) {
        int diagonal_value = 0;
        for (int j = 0; j < LONG; j++) {
            int up = row[j + 1], best = up > row[j] ? up : row[j];
            if (word_a[j] == word_b[i])
                best = diagonal_value + 1;
            diagonal_value = up;
            row[j + 1] = best;
        }
    }
    return row[LONG];
}

/* Edit distance with the whole table and the way back; the table is new in each round. */
enum { TEXT_A = 1600, TEXT_B = 700 };

static void edit_set_up(void) {
    word_a = need(TEXT_A);
    word_b = need(TEXT_B);
    for (int i = 0; i < TEXT_A; i++)
        word_a[i] = 'a' + below(6);
    for (int i = 0; i < TEXT_B; i++)
        word_b[i] = 'a' + below(6);
}

static int least(int a, int b, int c) { return a < b ? a < c ? a : c : b < c ? b : c; }

static double edit_round(void) {
    int (*cost)[TEXT_B + 1] = need((TEXT_A + 1) * sizeof *cost);
    for (int j = 0; j <= TEXT_B; j++)
        cost[0][j] = j;
    for (int i = 1; i <= TEXT_A; i++) {
        cost[i][0] = i;
        for (int j = 1; j <= TEXT_B; j++)
            cost[i][j] = least(cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                               cost[i - 1][j - 1] + (word_a[i - 1] != word_b[j - 1]));
    }
    int edits = 0;
    for (int i = TEXT_A, j = TEXT_B; i > 0 && j > 0; edits++) {
        if (cost[i][j] == cost[i - 1][j] + 1)
            i--;
        else if (cost[i][j] == cost[i][j - 1] + 1)
            j--;
        else
            i--, j--;
    }
    free(cost);
    return edits;
}

/* Knapsack: the best value for each capacity. */
enum { ROOM = 160000, THINGS = 12 };
static int64_t *best;
static int weights[THINGS], values[THINGS];

static void sack_set_up(void) {
    best = calloc(ROOM + 1, sizeof *best);
    for (int i = 0; i < THINGS; i++) {
        weights[i] = 100 + below(9000);
        values[i] = 10 + below(1000);
    }
}

static double sack_round(void) {
    memset(best, 0, (ROOM + 1) * sizeof *best);
    for (int i = 0; i < THINGS; i++)
        for (int room = ROOM; room >= weights[i]; room--) {
            int64_t with = best[room - weights[i]] + values[i];
            if (with > best[room])
                best[room] = with;
        }
    return (double)best[ROOM];
}

/* Order of a chain of matrix products: intervals, rows against columns. */
enum { CHAIN = 200 };
static double *chain;
static int sizes[CHAIN + 1];

static void chain_set_up(void) {
    chain = calloc(CHAIN * CHAIN, sizeof *chain);
    for (int i = 0; i <= CHAIN; i++)
        sizes[i] = 1 + below(50);
}

static double chain_round(void) {
    for (int length = 2; length <= CHAIN; length++)
        for (int i = 0, j = length - 1; j < CHAIN; i++, j++) {
            double least_cost = INFINITY;
            for (int k = i; k < j; k++) {
                double c = chain[i * CHAIN + k] + chain[(k + 1) * CHAIN + j] +
                           (double)(sizes[i] * sizes[k + 1] * sizes[j + 1]);
                if (c < least_cost)
                    least_cost = c;
            }
            chain[i * CHAIN + j] = least_cost;
        }
    return chain[CHAIN - 1];
}

static const struct kind kinds[] = {
    {"floyd", floyd_set_up, floyd_round},   {"floyd-blocks", paths_set_up, paths_round},
    {"lcs", lcs_set_up, lcs_round},         {"edit-table", edit_set_up, edit_round},
    {"sack", sack_set_up, sack_round},      {"chain-order", chain_set_up, chain_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
