// Linked data of C++ in pools, and records behind indices.
#include "pairs.h"
#include <algorithm>
#include <forward_list>
#include <memory>
#include <vector>

namespace {

constexpr uint32_t COUNT = 1 << 18;

// Messages of an inbox whose nodes lie at random, or in its order.
struct Message {
    uint64_t id;
    uint32_t size, sender;
};

NOINLINE uint64_t sum_inbox(const std::forward_list<Message> &inbox) {
    uint64_t sum = 0;
    for (const Message &message : inbox)
        sum += message.size;
    return sum;
}

double inbox(int after, long rounds) {
    std::forward_list<Message> inbox;
    for (uint32_t i = COUNT; i-- > 0;)
        inbox.push_front({i, i % 100, 0});
    // The nodes were taken from the last to the first, so a walk goes down in memory.
    std::unique_ptr<uint32_t, decltype(&free)> order(shuffled(COUNT), free);
    uint32_t at = 0;
    for (Message &message : inbox) {
        message.id = after ? at : order.get()[at];
        at++;
    }
    inbox.sort([](const Message &a, const Message &b) { return a.id < b.id; });
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += sum_inbox(inbox);
    return (double)sum;
}

// A scene with children and siblings, in random places or in the order of its drawing.
struct SceneNode {
    SceneNode *child, *sibling;
    float place[9];
    uint32_t triangles;
};

NOINLINE uint64_t draw(const SceneNode *node) {
    uint64_t triangles = 0;
    for (; node; node = node->sibling)
        triangles += node->triangles + (node->child ? draw(node->child) : 0);
    return triangles;
}

double scene(int after, long rounds) {
    constexpr uint32_t CHILDREN = 8;
    std::vector<SceneNode> pool(COUNT);
    std::unique_ptr<uint32_t, decltype(&free)> order(shuffled(COUNT), free);
    auto place = [&](uint32_t i) { return &pool[after ? i : order.get()[i]]; };
    // Numbers in the order of drawing: each group begins with its parent.
    for (uint32_t i = 0; i < COUNT; i++) {
        SceneNode *node = place(i);
        node->triangles = i % 12;
        node->child = i % CHILDREN == 0 && i + 1 < COUNT ? place(i + 1) : nullptr;
        uint32_t next = i % CHILDREN == 0 ? i + CHILDREN : i + 1;
        bool is_last = i % CHILDREN == CHILDREN - 1 || next >= COUNT;
        node->sibling = is_last ? nullptr : place(next);
    }
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += draw(place(0));
    return (double)sum;
}

// Orders of customers that are looked up as they come, or by customer.
struct Account {
    double balance;
    char name[40];
};

NOINLINE double book(std::vector<Account> &accounts, const std::vector<uint32_t> &customers) {
    double sum = 0;
    for (uint32_t customer : customers)
        sum += accounts[customer].balance += 1;
    return sum;
}

double bookings(int after, long rounds) {
    std::vector<Account> accounts(2 * COUNT);
    std::vector<uint32_t> customers(2 * COUNT);
    for (uint32_t &customer : customers)
        customer = (uint32_t)below(2 * COUNT);
    if (after)
        std::sort(customers.begin(), customers.end());
    double sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += book(accounts, customers);
    return sum;
}

const pair PAIRS[] = {
    {"inbox", inbox, 40},
    {"scene", scene, 200},
    {"bookings", bookings, 400},
};

} // namespace

MAIN(PAIRS)
