// mpi_collectives BYTES...: times plain MPI's collectives on payloads of these sizes. Prints one
// JSON line per collective and size.
#include <stdio.h>
#include <stdlib.h>

#include "mpi_plain.h"

static void measure(int kind, size_t bytes) {
  plain_buffers buffers = plain_allocate((int)(bytes / sizeof(float)));
  const int repetitions = plain_repetitions(bytes);
  double* const times = malloc((size_t)repetitions * sizeof(*times));
  if (times == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int warmup = 0; warmup < 5; ++warmup) plain_call(kind, &buffers);
  for (int i = 0; i < repetitions; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = plain_now_ns();
    plain_call(kind, &buffers);
    times[i] = plain_now_ns() - start;
  }
  const plain_summary summary = plain_summarise(times, repetitions);
  if (buffers.rank == 0) {
    printf(
        "{\"program\": \"plain MPI\", \"kind\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
        "\"repetitions\": %d, \"min_ns\": %.0f, \"median_ns\": %.0f}\n",
        plain_kind_names[kind], buffers.size, bytes, repetitions, summary.min_ns,
        summary.median_ns);
    fflush(stdout);
  }
  free(times);
  plain_free(&buffers);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (int kind = 0; kind < PLAIN_KINDS; ++kind) {
    for (int i = 1; i < argc; ++i) measure(kind, strtoull(argv[i], NULL, 10));
  }
  MPI_Finalize();
  return 0;
}
