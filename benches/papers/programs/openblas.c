/* The matrix products of AlexNet's convolutions by OpenBLAS, in one thread: openblas alexnet [ignored] */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

void openblas_set_num_threads(int number);

static float *filled(size_t count) {
    float *p = malloc(count * sizeof *p);
    for (size_t i = 0; i < count; i++)
        p[i] = (float)(i % 17) * 0.01f;
    return p;
}

int main(void) {
    static const int shapes[][3] = {{96, 3025, 363}, {256, 729, 2400}, {384, 169, 2304}, {384, 169, 3456}, {256, 169, 3456}};
    openblas_set_num_threads(1);
    double sum = 0;
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            int M = shapes[i][0], N = shapes[i][1], K = shapes[i][2];
            float *A = filled((size_t)M * K), *B = filled((size_t)K * N), *C = filled((size_t)M * N);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, N, K, 1, A, K, B, N, 1, C, N);
            sum += C[M];
            free(A);
            free(B);
            free(C);
        }
    printf("openblas: %g\n", sum);
    return 0;
}
