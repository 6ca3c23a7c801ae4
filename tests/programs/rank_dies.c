// A rank of a job without MPI: the last one of three has twice the work, and the one that is named kills itself.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long cells[1 << 14];

__attribute__((noinline)) static long work(int rounds) {
  long sum = 0;
  for (int r = 0; r < rounds; r++)
    for (int i = 0; i < 1 << 14; i++)
      sum += cells[i] ^ r;
  return sum;
}

int main(int argc, char **argv) {
  const char *rank = getenv("PMI_RANK");
  rank = rank ? rank : "0";
  long sum = work(strcmp(rank, "2") ? 20 : 40);
  if (argc > 1 && !strcmp(argv[1], rank))
    raise(SIGKILL);
  printf("%ld\n", sum);
  return 0;
}
