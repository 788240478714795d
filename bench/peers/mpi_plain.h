// The collectives of plain MPI in fp32, timed the way every program in here times them. No part of
// this belongs to shardbench: it is what shardbench is compared with.
#pragma once

#include <mpi.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PLAIN_KINDS = 5 };
/// all_reduce all_gather reduce_scatter broadcast reduce
extern const char* const plain_kind_names[PLAIN_KINDS];

/// Buffers for a payload of `count` floats; `full` holds all of it, `shard` this rank's part.
typedef struct {
  int rank;
  int size;
  int count;
  int* counts; /**< of each rank's part */
  int* offsets;
  float* full;
  float* shard;
} plain_buffers;

/// Ends the job when there is no memory.
plain_buffers plain_allocate(int count);
void plain_free(plain_buffers* buffers);
/// One blocking call. all_reduce, broadcast and reduce (root 0) work in place.
void plain_call(int kind, const plain_buffers* buffers);

/// Steady clock.
double plain_now_ns(void);

/// Minimum and median over repetitions of the slowest rank's time, on rank 0. Collective; takes
/// `times` apart.
typedef struct {
  double min_ns;
  double median_ns;
} plain_summary;
plain_summary plain_summarise(double* times, int repetitions);
/// How often a payload of so many bytes is repeated.
int plain_repetitions(size_t bytes);

#ifdef __cplusplus
}
#endif
