// Two functions of opposite pace, in two threads: `follow` waits for memory for most of the time and executes three quarters of the loads, `scan` executes a quarter of them in little time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

struct Node {
  Node *next;
  long first;
  long second;
  long pad[5];
};

struct Work {
  Node *head;
  std::vector<long> values;
  long sum = 0;
};

// Three loads for each node.
__attribute__((noinline, noclone)) long follow(const Node *node, long steps) {
  long sum = 0;
  for (long i = 0; i < steps; i++) {
    sum += node->first ^ node->second;
    node = node->next;
  }
  return sum;
}

// One load for each value.
__attribute__((noinline, noclone, optimize("no-tree-vectorize"))) long scan(const std::vector<long> &values) {
  long sum = 0;
  for (long value : values)
    sum = sum * 3 + value;
  return sum;
}

static void run(Work *work, int rounds) {
  for (int r = 0; r < rounds; r++) {
    work->sum += follow(work->head, (long)work->values.size());
    work->sum += scan(work->values);
  }
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 4;
  const size_t nodes = 200'000;
  std::vector<Node> memory(nodes);
  std::vector<unsigned> order(nodes);
  for (size_t i = 0; i < nodes; i++)
    order[i] = (unsigned)i;
  unsigned long seed = 1;
  for (size_t i = nodes - 1; i > 0; i--) {
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    std::swap(order[i], order[(seed >> 33) % (i + 1)]);
  }
  for (size_t i = 0; i < nodes; i++) {
    memory[order[i]].next = &memory[order[(i + 1) % nodes]];
    memory[order[i]].first = (long)i;
  }
  Work works[2];
  std::vector<std::thread> threads;
  for (Work &work : works) {
    work.head = &memory[order[0]];
    work.values.assign(nodes, 1);
    threads.emplace_back(run, &work, rounds);
  }
  for (std::thread &thread : threads)
    thread.join();
  std::printf("%ld\n", works[0].sum + works[1].sum);
}
