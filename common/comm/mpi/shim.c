// Compiled once per MPI implementation; SHARDBENCH_MPI_IMPLEMENTATION is its name.
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

// Handles are pointers in one implementation and integers in another; both fit 64 bits.
#define DEFINE_HANDLE(Native, Handle)          \
  static Native native_##Handle(Handle from) { \
    Native to;                                 \
    memcpy(&to, &from, sizeof(to));            \
    return to;                                 \
  }                                            \
  static Handle handle_##Handle(Native from) { \
    Handle to = 0;                             \
    memcpy(&to, &from, sizeof(from));          \
    return to;                                 \
  }
_Static_assert(sizeof(MPI_Comm) <= sizeof(shardbench_mpi_comm), "a handle of at most 64 bits");
_Static_assert(sizeof(MPI_Request) <= sizeof(shardbench_mpi_request),
               "a handle of at most 64 bits");
DEFINE_HANDLE(MPI_Comm, shardbench_mpi_comm)
DEFINE_HANDLE(MPI_Request, shardbench_mpi_request)
#define NATIVE_COMM(comm) native_shardbench_mpi_comm(comm)

static int init(int* joined, int* thread_safe) {
  int provided = MPI_THREAD_SINGLE;
  int code = MPI_Initialized(joined);
  if (code != MPI_SUCCESS) return code;
  code = *joined ? MPI_Query_thread(&provided)
                 : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
  *thread_safe = provided >= MPI_THREAD_SERIALIZED;
  return code;
}

static int finalize(void) { return MPI_Finalize(); }

static void copy_text(const char* text, char* out, int capacity) {
  if (capacity <= 0) return;
  strncpy(out, text, (size_t)capacity - 1);
  out[capacity - 1] = '\0';
}

static int version(char* out, int capacity) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  const int code = MPI_Get_library_version(text, &length);
  copy_text(text, out, capacity);
  return code;
}

static int error_text(int error, char* out, int capacity) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  const int code = MPI_Error_string(error, text, &length);
  copy_text(text, out, capacity);
  return code;
}

static int abort_all(int exit_code) { return MPI_Abort(MPI_COMM_WORLD, exit_code); }

static int comm_open(shardbench_mpi_comm* out) {
  MPI_Comm comm = MPI_COMM_NULL;
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  *out = handle_shardbench_mpi_comm(comm);
  return code;
}

static int comm_close(shardbench_mpi_comm comm) {
  MPI_Comm native = NATIVE_COMM(comm);
  return MPI_Comm_free(&native);
}

static int comm_rank(shardbench_mpi_comm comm, int* rank, int* size) {
  const int code = MPI_Comm_rank(NATIVE_COMM(comm), rank);
  return code != MPI_SUCCESS ? code : MPI_Comm_size(NATIVE_COMM(comm), size);
}

static int comm_max_tag(shardbench_mpi_comm comm, int* max_tag) {
  const int* value = NULL;
  int found = 0;
  const int code = MPI_Comm_get_attr(NATIVE_COMM(comm), MPI_TAG_UB, &value, &found);
  *max_tag = found ? *value : 32767;  // the least that the standard allows
  return code;
}

/// One datatype for a list of ranges, by address.
static int make_type(const shardbench_mpi_range* ranges, int count, MPI_Datatype* out) {
  int* const lengths = malloc((size_t)count * sizeof(*lengths));
  MPI_Aint* const places = malloc((size_t)count * sizeof(*places));
  int code = lengths != NULL && places != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
  for (int i = 0; i < count && code == MPI_SUCCESS; ++i) {
    lengths[i] = (int)ranges[i].bytes;
    code = MPI_Get_address(ranges[i].data, &places[i]);
  }
  if (code == MPI_SUCCESS) {
    code = MPI_Type_create_hindexed(count, lengths, places, MPI_BYTE, out);
  }
  free(lengths);
  free(places);
  return code != MPI_SUCCESS ? code : MPI_Type_commit(out);
}

static int transfer(int is_receive, shardbench_mpi_comm comm, int peer, int tag,
                    const shardbench_mpi_range* ranges, int count, shardbench_mpi_request* out) {
  uint64_t total = 0;
  for (int i = 0; i < count; ++i) total += ranges[i].bytes;
  if (total > INT_MAX) return MPI_ERR_COUNT;
  MPI_Datatype type = MPI_BYTE;
  void* data = count == 1 ? ranges[0].data : MPI_BOTTOM;
  int elements = (int)total;
  if (count > 1) {
    const int code = make_type(ranges, count, &type);
    if (code != MPI_SUCCESS) return code;
    elements = 1;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  int code = is_receive ? MPI_Irecv(data, elements, type, peer, tag, NATIVE_COMM(comm), &request)
                        : MPI_Isend(data, elements, type, peer, tag, NATIVE_COMM(comm), &request);
  *out = handle_shardbench_mpi_request(request);
  if (count > 1) {
    const int freed = MPI_Type_free(&type);  // when the message is through
    if (code == MPI_SUCCESS) code = freed;
  }
  return code;
}

static int send_ranges(shardbench_mpi_comm comm, int peer, int tag,
                       const shardbench_mpi_range* ranges, int count, shardbench_mpi_request* out) {
  return transfer(0, comm, peer, tag, ranges, count, out);
}

static int receive_ranges(shardbench_mpi_comm comm, int peer, int tag,
                          const shardbench_mpi_range* ranges, int count,
                          shardbench_mpi_request* out) {
  return transfer(1, comm, peer, tag, ranges, count, out);
}

static int test(shardbench_mpi_request* request, int* complete, uint64_t* bytes) {
  MPI_Request native = native_shardbench_mpi_request(*request);
  MPI_Status status;
  const int code = MPI_Test(&native, complete, bytes == NULL ? MPI_STATUS_IGNORE : &status);
  if (code != MPI_SUCCESS || !*complete) return code;
  *request = handle_shardbench_mpi_request(native);
  if (bytes == NULL) return code;
  int count = 0;
  const int counted = MPI_Get_elements(&status, MPI_BYTE, &count);
  *bytes = count > 0 ? (uint64_t)count : 0;
  return counted;
}

static int probe(shardbench_mpi_comm comm, int peer, int* found, int* tag, uint64_t* bytes) {
  MPI_Status status;
  const int code = MPI_Iprobe(peer, MPI_ANY_TAG, NATIVE_COMM(comm), found, &status);
  if (code != MPI_SUCCESS || !*found) return code;
  *tag = status.MPI_TAG;
  int count = 0;
  const int counted = MPI_Get_elements(&status, MPI_BYTE, &count);
  *bytes = count > 0 ? (uint64_t)count : 0;
  return counted;
}

static int drop(shardbench_mpi_request* request, int is_receive) {
  MPI_Request native = native_shardbench_mpi_request(*request);
  if (is_receive) {
    const int code = MPI_Cancel(&native);
    if (code != MPI_SUCCESS) return code;
  }
  const int code = MPI_Request_free(&native);
  *request = handle_shardbench_mpi_request(native);
  return code;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

__attribute__((visibility("default"))) const shardbench_mpi_api* shardbench_mpi_get_api(void) {
  static const shardbench_mpi_api api = {
      .abi_version = SHARDBENCH_MPI_ABI,
      .implementation = TEXT(SHARDBENCH_MPI_IMPLEMENTATION),
      .init = init,
      .finalize = finalize,
      .version = version,
      .error_text = error_text,
      .abort = abort_all,
      .comm_open = comm_open,
      .comm_close = comm_close,
      .comm_rank = comm_rank,
      .comm_max_tag = comm_max_tag,
      .send = send_ranges,
      .receive = receive_ranges,
      .test = test,
      .probe = probe,
      .drop = drop,
  };
  return &api;
}
