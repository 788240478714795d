#define _POSIX_C_SOURCE 200809L
#include "mpi_plain.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

const char* const plain_kind_names[PLAIN_KINDS] = {"all_reduce", "all_gather", "reduce_scatter",
                                                   "broadcast", "reduce"};

static void* allocate(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64 + 64;
  void* const data = aligned_alloc(64, rounded);
  if (data == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  memset(data, 0, rounded);
  return data;
}

plain_buffers plain_allocate(int count) {
  plain_buffers buffers;
  MPI_Comm_rank(MPI_COMM_WORLD, &buffers.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &buffers.size);
  buffers.count = count;
  buffers.counts = allocate((size_t)buffers.size * sizeof(int));
  buffers.offsets = allocate((size_t)buffers.size * sizeof(int));
  const int part = (count + buffers.size - 1) / buffers.size;
  int offset = 0;
  for (int rank = 0; rank < buffers.size; ++rank) {
    const int left = count - offset;
    buffers.counts[rank] = left < part ? left : part;
    buffers.offsets[rank] = offset;
    offset += buffers.counts[rank];
  }
  buffers.full = allocate((size_t)count * sizeof(float));
  buffers.shard = allocate((size_t)part * sizeof(float));
  return buffers;
}

void plain_free(plain_buffers* buffers) {
  free(buffers->counts);
  free(buffers->offsets);
  free(buffers->full);
  free(buffers->shard);
}

void plain_call(int kind, const plain_buffers* b) {
  switch (kind) {
    case 0:
      MPI_Allreduce(MPI_IN_PLACE, b->full, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 1:
      MPI_Allgatherv(b->shard, b->counts[b->rank], MPI_FLOAT, b->full, b->counts, b->offsets,
                     MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case 2:
      MPI_Reduce_scatter(b->full, b->shard, b->counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 3:
      MPI_Bcast(b->full, b->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
      break;
    default:
      MPI_Reduce(b->rank == 0 ? MPI_IN_PLACE : b->full, b->full, b->count, MPI_FLOAT, MPI_SUM, 0,
                 MPI_COMM_WORLD);
  }
}

double plain_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

plain_summary plain_summarise(double* times, int repetitions) {
  MPI_Allreduce(MPI_IN_PLACE, times, repetitions, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(times, (size_t)repetitions, sizeof(*times), compare);
  const plain_summary summary = {times[0], times[repetitions / 2]};
  return summary;
}

int plain_repetitions(size_t bytes) {
  const size_t budget = (size_t)1 << 30;
  const size_t fits = budget / (bytes + 1);
  return fits < 11 ? 11 : fits > 2001 ? 2001 : (int)fits;
}
