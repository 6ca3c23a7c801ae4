// C++'s operators, with exceptions, and a site with a name.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

extern "C" void *make_new(size_t bytes);
__asm__(".text\n.globl make_new\n.type make_new, @function\nmake_new:\n.cfi_startproc\nsub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\ncall _Znwm@PLT\n.globl site_new\nsite_new: add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n");

struct alignas(256) Wide {
    char data[300];
};

static int failures;
static void no_memory() {
    if (++failures == 2) {
        std::set_new_handler(nullptr);
    }
}

int main() {
    uintptr_t last = 0;
    int together = 0;
    std::vector<void *> blocks;
    for (int i = 0; i < 100; i++) {
        void *block = make_new(48);
        together += reinterpret_cast<uintptr_t>(block) == last + 48;
        last = reinterpret_cast<uintptr_t>(block);
        blocks.push_back(block);
        blocks.push_back(new char[20]);
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        ::operator delete(blocks[i]);
        delete[] static_cast<char *>(blocks[i + 1]);
    }
    std::fprintf(stderr, "%d\n", together);
    std::set_new_handler(no_memory);
    try {
        make_new(SIZE_MAX / 2 - 100);
        return 1;
    } catch (const std::bad_alloc &) {
        std::printf("thrown after %d calls\n", failures);
    }
    if (::operator new(SIZE_MAX / 2 - 100, std::nothrow)) {
        return 2;
    }
    auto wide = std::make_unique<Wide[]>(7);
    if (reinterpret_cast<uintptr_t>(wide.get()) % 256) {
        return 3;
    }
    std::map<std::string, std::vector<int>> table;
    std::vector<std::thread> threads;
    for (int i = 0; i < 1000; i++) {
        table["a long name of some entry " + std::to_string(i)].assign(i % 50, i);
    }
    size_t sums[4] = {};
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&sums, t] {
            std::map<int, std::shared_ptr<int>> own;
            for (int i = 0; i < 3000; i++) {
                own[i * 7919 % 1009] = std::make_shared<int>(i);
            }
            for (auto &entry : own) {
                sums[t] += *entry.second;
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    std::printf("%zu %zu %zu\n", table.size(), sums[0], sums[3]);
    return 0;
}
