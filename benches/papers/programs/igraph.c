/* igraph's Louvain method, page rank or components on a random graph with few hubs: igraph louvain|pagerank|components [SCALE] */
#include <igraph.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    int scale = argc > 2 ? atoi(argv[2]) : 16;
    igraph_t graph;
    igraph_rng_seed(igraph_rng_default(), 7);
    igraph_barabasi_game(&graph, 1 << scale, 1, 8, NULL, 1, 1, 0, IGRAPH_BARABASI_PSUMTREE, NULL);
    if (!strcmp(argv[1], "louvain")) {
        igraph_vector_int_t membership;
        igraph_vector_t modularity;
        igraph_vector_int_init(&membership, 0);
        igraph_vector_init(&modularity, 0);
        igraph_community_multilevel(&graph, NULL, 1, &membership, NULL, &modularity);
        printf("louvain: modularity %.4f\n", VECTOR(modularity)[igraph_vector_size(&modularity) - 1]);
    } else if (!strcmp(argv[1], "pagerank")) {
        igraph_vector_t rank;
        igraph_real_t value;
        igraph_vector_init(&rank, 0);
        igraph_pagerank(&graph, IGRAPH_PAGERANK_ALGO_PRPACK, &rank, &value, igraph_vss_all(), 0, 0.85, NULL, NULL);
        printf("pagerank: %.3g\n", VECTOR(rank)[0]);
    } else {
        igraph_vector_int_t membership;
        igraph_integer_t number;
        igraph_vector_int_init(&membership, 0);
        igraph_connected_components(&graph, &membership, NULL, &number, IGRAPH_WEAK);
        printf("components: %ld\n", (long)number);
    }
    igraph_destroy(&graph);
    return 0;
}
