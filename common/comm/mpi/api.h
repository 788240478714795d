// One MPI implementation behind plain C: implementations are not binary compatible, so each gets a
// small library that is compiled against its mpi.h and gives this table. Nothing in here depends on
// mpi.h or on the rest of the program.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Changes whenever the table does.
#define SHARDBENCH_MPI_ABI 2
/// The library's only symbol, of type shardbench_mpi_get_api_fn.
#define SHARDBENCH_MPI_ENTRY "shardbench_mpi_get_api"

/// Handles, by value. A request is gone when it has been tested as complete or freed.
typedef uint64_t shardbench_mpi_comm;
typedef uint64_t shardbench_mpi_request;

typedef struct {
  void* data; /**< only read when sent */
  uint64_t bytes;
} shardbench_mpi_range;

/// Functions return 0 or an MPI error code.
typedef struct {
  uint32_t abi_version; /**< SHARDBENCH_MPI_ABI */
  const char* implementation;

  /** Initialises MPI, or joins what the program has initialised (`joined` = 1). `thread_safe` = 1:
      threads may take turns in calling (MPI_THREAD_SERIALIZED or more). */
  int (*init)(int* joined, int* thread_safe);
  int (*finalize)(void);
  /** The library's own text, with an end. */
  int (*version)(char* out, int capacity);
  int (*error_text)(int code, char* out, int capacity);
  /** Ends all processes. */
  int (*abort)(int exit_code);

  /** A duplicate of the world whose errors return codes. Collective. */
  int (*comm_open)(shardbench_mpi_comm* out);
  int (*comm_close)(shardbench_mpi_comm comm);
  int (*comm_rank)(shardbench_mpi_comm comm, int* rank, int* size);
  /** Largest tag of a message. */
  int (*comm_max_tag)(shardbench_mpi_comm comm, int* max_tag);

  /** One message from or to `count` ranges, together at most INT32_MAX bytes. They stay in use
      until the request is complete; the list itself does not. */
  int (*send)(shardbench_mpi_comm comm, int peer, int tag, const shardbench_mpi_range* ranges,
              int count, shardbench_mpi_request* out);
  int (*receive)(shardbench_mpi_comm comm, int peer, int tag, const shardbench_mpi_range* ranges,
                 int count, shardbench_mpi_request* out);
  /** Never blocks. `bytes`: what a completed receive brought; null: nobody asks. */
  int (*test)(shardbench_mpi_request* request, int* complete, uint64_t* bytes);
  /** The oldest message from `peer` that nobody has asked for yet. Never blocks. */
  int (*probe)(shardbench_mpi_comm comm, int peer, int* found, int* tag, uint64_t* bytes);
  /** Gives up on a pending request; its memory must stay. */
  int (*drop)(shardbench_mpi_request* request, int is_receive);
} shardbench_mpi_api;

typedef const shardbench_mpi_api* (*shardbench_mpi_get_api_fn)(void);

#ifdef __cplusplus
}
#endif
