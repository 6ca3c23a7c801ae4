// A search tree in an array that grows and is asked.
#include <cstdlib>
struct Node {
    unsigned key;
    int child[2];
};
static Node nodes[30000];
static int used;
static bool insert(unsigned key) {
    int at = 0;
    while (at < used) {
        if (nodes[at].key == key)
            return false;
        int &next = nodes[at].child[nodes[at].key < key];
        if (next == 0) {
            next = used;
            break;
        }
        at = next;
    }
    nodes[used++] = Node{key, {0, 0}};
    return true;
}
int main(int argc, char **argv) {
    unsigned at = 1, grown = 0;
    for (int round = argc > 1 ? std::atoi(argv[1]) * 3 : 0; round > 0; round--) {
        used = 0;
        for (int i = 0; i < 30000; i++) {
            at = at * 1664525 + 1013904223;
            grown += insert(at >> 12);
        }
    }
    return grown == 7;
}
