// Sorts numbers, again and again others.
#include <algorithm>
#include <cstdlib>
#include <iterator>
static unsigned numbers[40000];
int main(int argc, char **argv) {
    unsigned at = 1;
    for (int round = argc > 1 ? std::atoi(argv[1]) * 2 : 0; round > 0; round--) {
        for (unsigned &number : numbers)
            number = at = at * 1664525 + 1013904223;
        std::sort(std::begin(numbers), std::end(numbers));
    }
    return numbers[7] == 7;
}
