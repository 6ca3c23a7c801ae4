/* Convolutional layers as matrix products: im2col lays out the patches of an image as columns, gemm multiplies the filters with them.
 *
 * Shapes are those of AlexNet's and ResNet's layers with their channels divided by eight and their images by two or so, so that a run takes a second. AlexNet's
 * N (pixels of an output) falls fast from layer to layer and ends in fully connected layers (N = 1); ResNet's falls
 * slowly while K grows. */
#include "cases.h"

struct layer {
    int filters, channels, size, kernel, step;
};

static const struct layer ALEXNET[] = {
    {12, 3, 111, 11, 4}, {32, 12, 27, 5, 1}, {48, 32, 13, 3, 1}, {48, 48, 13, 3, 1}, {32, 48, 13, 3, 1}, {512, 1152, 1, 1, 1}, {512, 512, 1, 1, 1}, {125, 512, 1, 1, 1},
};
static const struct layer RESNET[] = {
    {8, 3, 112, 7, 2}, {8, 8, 56, 3, 1},  {32, 8, 56, 1, 1},  {8, 32, 56, 1, 1},  {8, 8, 56, 3, 1},   {32, 8, 56, 1, 1},   {16, 32, 28, 1, 1},  {16, 16, 28, 3, 1},
    {64, 16, 28, 1, 1}, {16, 64, 28, 1, 1}, {16, 16, 28, 3, 1}, {64, 16, 28, 1, 1}, {32, 64, 14, 1, 1}, {32, 32, 14, 3, 1}, {128, 32, 14, 1, 1}, {64, 128, 7, 3, 1},
};

static float *A, *B, *C, *image;

/* Rows of B: for each channel and place in the kernel, the pixels that it meets. */
NOINLINE static void im2col(const struct layer *l, int out) {
    int pad = l->kernel / 2;
    for (int c = 0; c < l->channels * l->kernel * l->kernel; c++) {
        int dx = c % l->kernel - pad, dy = c / l->kernel % l->kernel - pad, channel = c / l->kernel / l->kernel;
        for (int y = 0; y < out; y++)
            for (int x = 0; x < out; x++) {
                int row = y * l->step + dy, column = x * l->step + dx;
                int inside = row >= 0 && column >= 0 && row < l->size && column < l->size;
                B[(c * out + y) * out + x] = inside ? image[(channel * l->size + row) * l->size + column] : 0;
            }
    }
}

NOINLINE static void gemm(int M, int N, int K) {
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) {
            float a = A[i * K + k];
            for (int j = 0; j < N; j++)
                C[i * N + j] += a * B[k * N + j];
        }
}

int main(int argc, char **argv) {
    if (argc < 2 || (strcmp(argv[1], "alexnet") && strcmp(argv[1], "resnet")))
        return usage("layers alexnet|resnet [ROUNDS]");
    int alex = argv[1][0] == 'a', rounds = argc > 2 ? atoi(argv[2]) : 1;
    const struct layer *layers = alex ? ALEXNET : RESNET;
    size_t count = alex ? sizeof ALEXNET / sizeof *ALEXNET : sizeof RESNET / sizeof *RESNET;
    size_t a = 0, b = 0, c = 0, pixels = 0;
    for (size_t n = 0; n < count; n++) {
        const struct layer *l = &layers[n];
        size_t out = (size_t)((l->size + l->step - 1) / l->step), k = (size_t)(l->channels * l->kernel * l->kernel);
#define MOST(to, value) to = (value) > to ? (value) : to
        MOST(a, (size_t)l->filters * k);
        MOST(b, k * out * out);
        MOST(c, (size_t)l->filters * out * out);
        MOST(pixels, (size_t)(l->channels * l->size * l->size));
    }
    A = TAKE(float, a), B = TAKE(float, b), C = TAKE(float, c), image = TAKE(float, pixels);
    uint64_t seed = 88675123;
    for (size_t i = 0; i < a; i++)
        A[i] = (float)(next_fraction(&seed) - 0.5);
    for (size_t i = 0; i < pixels; i++)
        image[i] = (float)next_fraction(&seed);
    double sum = 0;
    for (int r = 0; r < rounds; r++)
        for (size_t n = 0; n < count; n++) {
            const struct layer *l = &layers[n];
            int out = (l->size + l->step - 1) / l->step, k = l->channels * l->kernel * l->kernel;
            if (l->kernel > 1)
                im2col(l, out);
            else
                memcpy(B, image, (size_t)(l->channels * l->size * l->size) * sizeof *B);
            memset(C, 0, (size_t)(l->filters * out * out) * sizeof *C);
            gemm(l->filters, out * out, k);
            for (int i = 0; i < l->filters * out * out; i++)
                sum += C[i] > 0 ? C[i] : 0;
        }
    printf("layers %s %.3e\n", argv[1], sum);
    return 0;
}
