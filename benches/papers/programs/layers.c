/* The layers of AlexNet and ResNet-152 on one image, as matrix products: layers alexnet|resnet
 *
 * Shapes are the networks' own, as Darknet has them (images of 227 and 256 pixels, 0.7 and 14.7 G products). A convolution lays
 * the patches out as columns (im2col; not where a patch is one pixel) and multiplies the filters with them; a fully connected layer is a product with one row. Weights are
 * made up, since no load depends on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

static float *weights, *image, *columns, *output;

static float *take(size_t count) {
    float *p = malloc(count * sizeof *p);
    if (!p)
        exit(1);
    for (size_t i = 0; i < count; i++)
        p[i] = ((float)(i % 17) - 7.5f) * 0.01f;
    return p;
}

static void swap(void) {
    float *t = image;
    image = output;
    output = t;
}

NOINLINE static void im2col(const float *from, int channels, int size, int kernel, int step, int pad, int out, float *to) {
    for (int c = 0; c < channels * kernel * kernel; c++) {
        int dx = c % kernel - pad, dy = c / kernel % kernel - pad, channel = c / kernel / kernel;
        for (int y = 0; y < out; y++)
            for (int x = 0; x < out; x++) {
                int row = y * step + dy, column = x * step + dx;
                int inside = row >= 0 && column >= 0 && row < size && column < size;
                to[((size_t)c * out + y) * out + x] = inside ? from[((size_t)channel * size + row) * size + column] : 0;
            }
    }
}

/* C += A B, of M rows, K and N columns. */
NOINLINE static void gemm(int M, int N, int K, const float *A, const float *B, float *C) {
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) {
            float a = A[(size_t)i * K + k];
            for (int j = 0; j < N; j++)
                C[(size_t)i * N + j] += a * B[(size_t)k * N + j];
        }
}

/* C += A B', of one row. */
NOINLINE static void gemm_nt(int N, int K, const float *A, const float *B, float *C) {
    for (int j = 0; j < N; j++) {
        float sum = 0;
        for (int k = 0; k < K; k++)
            sum += A[k] * B[(size_t)j * K + k];
        C[j] += sum;
    }
}

NOINLINE static void maxpool(int channels, int size, int kernel, int step, int out) {
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < out; y++)
            for (int x = 0; x < out; x++) {
                float most = -1e30f;
                for (int dy = 0; dy < kernel && y * step + dy < size; dy++)
                    for (int dx = 0; dx < kernel && x * step + dx < size; dx++) {
                        float v = image[((size_t)c * size + y * step + dy) * size + x * step + dx];
                        most = v > most ? v : most;
                    }
                output[((size_t)c * out + y) * out + x] = most;
            }
}

/* What batch normalization does to each channel, and the activation. */
NOINLINE static void normalize(int channels, int size) {
    for (int c = 0; c < channels; c++) {
        float *one = output + (size_t)c * size, most = 1e-30f;
        for (int i = 0; i < size; i++)
            most = one[i] > most ? one[i] : most;
        for (int i = 0; i < size; i++)
            one[i] = one[i] > 0 ? one[i] / most : 0.1f * one[i] / most;
    }
}

/* Channels and width of what the image is now. */
static int depth, width;

static void convolution(int filters, int kernel, int step, int pad) {
    int out = (width + 2 * pad - kernel) / step + 1, K = depth * kernel * kernel;
    memset(output, 0, (size_t)filters * out * out * sizeof *output);
    if (kernel == 1 && step == 1) {
        gemm(filters, out * out, K, weights, image, output);
    } else {
        im2col(image, depth, width, kernel, step, pad, out, columns);
        gemm(filters, out * out, K, weights, columns, output);
    }
    normalize(filters, out * out);
    swap();
    depth = filters;
    width = out;
}

static void pool(int kernel, int step) {
    int out = (width - kernel) / step + 1;
    if (width % step && kernel == 2)
        out = (width + 1) / step;
    maxpool(depth, width, kernel, step, out);
    swap();
    width = out;
}

NOINLINE static void average(void) {
    for (int c = 0; c < depth; c++) {
        float sum = 0;
        for (int i = 0; i < width * width; i++)
            sum += image[(size_t)c * width * width + i];
        output[c] = sum / (float)(width * width);
    }
    swap();
    width = 1;
}

static void connected(int outputs) {
    int inputs = depth * width * width;
    memset(output, 0, (size_t)outputs * sizeof *output);
    gemm_nt(outputs, inputs, image, weights, output);
    swap();
    depth = outputs;
    width = 1;
}

static void block(int inner, int outer, int step) {
    convolution(inner, 1, 1, 0);
    convolution(inner, 3, step, 1);
    convolution(outer, 1, 1, 0);
}

static void alexnet(void) {
    depth = 3, width = 227;
    convolution(96, 11, 4, 0);
    pool(3, 2);
    convolution(256, 5, 1, 2);
    pool(3, 2);
    convolution(384, 3, 1, 1);
    convolution(384, 3, 1, 1);
    convolution(256, 3, 1, 1);
    pool(3, 2);
    connected(4096);
    connected(4096);
    connected(1000);
}

static void resnet(void) {
    static const int blocks[] = {3, 8, 36, 3};
    depth = 3, width = 256;
    convolution(64, 7, 2, 3);
    pool(2, 2);
    for (int s = 0; s < 4; s++)
        for (int b = 0; b < blocks[s]; b++)
            block(64 << s, 256 << s, s > 0 && b == 0 ? 2 : 1);
    average();
    connected(1000);
}

int main(int argc, char **argv) {
    if (argc != 2 || (strcmp(argv[1], "alexnet") && strcmp(argv[1], "resnet")))
        return 2;
    weights = take((size_t)4096 * 9216);
    columns = take((size_t)64 * 128 * 128 * 9);
    image = take((size_t)256 * 128 * 128);
    output = take((size_t)256 * 128 * 128);
    if (argv[1][0] == 'a')
        alexnet();
    else
        resnet();
    double sum = 0;
    for (int i = 0; i < depth; i++)
        sum += image[i];
    printf("layers %s: %d outputs, sum %g\n", argv[1], depth, sum);
    return 0;
}
