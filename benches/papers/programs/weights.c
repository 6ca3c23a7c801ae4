/* Weights of a layer are adjusted, as in training by back propagation: `weights INPUTS OUTPUTS ROUNDS`.
 *
 * The inner loop goes from row to row of the matrix; with -DINTERCHANGED, along a row. Prints seconds of
 * processor time of the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void adjust(float *weight, float *old, const float *delta, const float *input, long inputs, long outputs) {
#ifdef INTERCHANGED
    for (long k = 0; k < inputs; k++)
        for (long j = 0; j < outputs; j++) {
#else
    for (long j = 0; j < outputs; j++)
        for (long k = 0; k < inputs; k++) {
#endif
            float change = 0.3f * delta[j] * input[k] + 0.3f * old[k * outputs + j];
            weight[k * outputs + j] += change;
            old[k * outputs + j] = change;
        }
}

int main(int argc, char **argv) {
    long inputs = argc > 1 ? atol(argv[1]) : 4096, outputs = argc > 2 ? atol(argv[2]) : 500;
    long rounds = argc > 3 ? atol(argv[3]) : 4;
    float *weight = calloc(inputs * outputs, sizeof *weight), *old = calloc(inputs * outputs, sizeof *old);
    float *delta = malloc(outputs * sizeof *delta), *input = malloc(inputs * sizeof *input);
    for (long j = 0; j < outputs; j++)
        delta[j] = (float)(j % 7);
    for (long k = 0; k < inputs; k++)
        input[k] = (float)(k % 5);
    clock_t begin = clock();
    for (long round = 0; round < rounds; round++)
        adjust(weight, old, delta, input, inputs, outputs);
    fprintf(stderr, "%.1f\n", weight[outputs + 3]);
    printf("%.4f\n", (double)(clock() - begin) / CLOCKS_PER_SEC);
    return 0;
}
