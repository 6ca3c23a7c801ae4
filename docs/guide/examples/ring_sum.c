/* ring_sum.c: each rank sums an array of its own; the last one has four times the work. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static double sum(const double *values, long count) {
    double total = 0;
    for (int pass = 0; pass < 40; pass++)
        for (long i = 0; i < count; i++)
            total += values[i];
    return total;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long count = (rank + 1 == ranks ? 4L : 1L) << 18;
    double *values = calloc((size_t)count, sizeof *values), mine, all;
    for (long i = 0; i < count; i++)
        values[i] = rank + 1;
    mine = sum(values, count);
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.0f\n", all);
    free(values);
    MPI_Finalize();
    return 0;
}
