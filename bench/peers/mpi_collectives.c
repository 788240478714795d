// mpi_collectives ITERATIONS WARMUP OP:COUNT...: times and checks plain MPI's collectives on COUNT
// floats the way `shardbench collectives` does. Prints "title TEXT" and, for every argument in
// order, "row JSON" with time_us (slowest rank's mean over the iterations) and nwrong.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_plain.h"

// Whole numbers, so that sums are exact.
static float pattern(int index, int rank) { return (float)(index % 13 + rank); }
static float pattern_sum(int index, int size) {
  return (float)(index % 13 * size + size * (size - 1) / 2);
}

static void fill(int kind, const plain_buffers* b) {
  for (int i = 0; i < b->count; ++i) b->full[i] = kind == 1 ? -1.0f : pattern(i, b->rank);
  for (int i = 0; i < b->counts[b->rank]; ++i) {
    b->shard[i] = kind == 1 ? pattern(b->offsets[b->rank] + i, b->rank) : -1.0f;
  }
}

// Wrong elements of this rank's output.
static long wrong_elements(int kind, const plain_buffers* b) {
  long wrong = 0;
  if (kind == 2) {
    for (int i = 0; i < b->counts[b->rank]; ++i) {
      wrong += b->shard[i] != pattern_sum(b->offsets[b->rank] + i, b->size);
    }
    return wrong;
  }
  if (kind == 1) {
    for (int r = 0; r < b->size; ++r) {
      for (int i = b->offsets[r]; i < b->offsets[r] + b->counts[r]; ++i) {
        wrong += b->full[i] != pattern(i, r);
      }
    }
    return wrong;
  }
  if (kind == 4 && b->rank != 0) return 0;
  for (int i = 0; i < b->count; ++i) {
    wrong += b->full[i] != (kind == 3 ? pattern(i, 0) : pattern_sum(i, b->size));
  }
  return wrong;
}

static void measure(int kind, int count, int iterations, int warmup) {
  plain_buffers buffers = plain_allocate(count);
  fill(kind, &buffers);
  MPI_Barrier(MPI_COMM_WORLD);
  plain_call(kind, &buffers);
  long wrong = wrong_elements(kind, &buffers);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  // Zeros stay zeros, however often they are added up.
  memset(buffers.full, 0, (size_t)buffers.count * sizeof(float));
  memset(buffers.shard, 0, (size_t)buffers.counts[buffers.rank] * sizeof(float));
  for (int i = 0; i < warmup; ++i) plain_call(kind, &buffers);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = plain_now_ns();
  for (int i = 0; i < iterations; ++i) plain_call(kind, &buffers);
  double time_us = (plain_now_ns() - start) / 1e3 / iterations;
  MPI_Allreduce(MPI_IN_PLACE, &time_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (buffers.rank == 0) {
    printf("row {\"time_us\": %.4f, \"nwrong\": %ld}\n", time_us, wrong);
    fflush(stdout);
  }
  plain_free(&buffers);
}

// The place of "all_reduce" in "all_reduce:1024" among the kinds; -1 for another name.
static int kind_of(const char* argument) {
  for (int kind = 0; kind < PLAIN_KINDS; ++kind) {
    const size_t length = strlen(plain_kind_names[kind]);
    if (strncmp(argument, plain_kind_names[kind], length) == 0 && argument[length] == ':') {
      return kind;
    }
  }
  return -1;
}

static void print_title(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  for (char* tab = text; (tab = strchr(tab, '\t')) != NULL;) *tab = ' ';
  printf("title %.*s\n", (int)strcspn(text, ",\n\r"), text);
  fflush(stdout);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int iterations = argc > 2 ? atoi(argv[1]) : 0;
  if (iterations < 1) {
    if (rank == 0) fprintf(stderr, "usage: mpi_collectives ITERATIONS WARMUP OP:COUNT...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (rank == 0) print_title();
  for (int i = 3; i < argc; ++i) {
    const int kind = kind_of(argv[i]);
    const int count = kind < 0 ? 0 : atoi(strchr(argv[i], ':') + 1);
    if (count < 1) {
      if (rank == 0) fprintf(stderr, "%s: not OP:COUNT\n", argv[i]);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    measure(kind, count, iterations, atoi(argv[2]));
  }
  MPI_Finalize();
  return 0;
}
