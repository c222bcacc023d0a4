// The part of NCCL's binary interface that is used, as its header has it: the same from version 2.18 on. A build needs
// none of its headers.
#pragma once

#include <climits>
#include <cstddef>

namespace plimsoll::gpu::nccl {

using Comm = void*;

// ncclResult_t
enum Result : int { kSuccess = 0, kInProgress = 7 };
// ncclDataType_t: bytes, which nothing adds up
enum DataType : int { kUint8 = 1 };

// ncclUniqueId, passed by value
struct UniqueId {
  char internal[128];
};

// ncclConfig_t as of 2.18: later versions have more members behind these, and take the size for what is there.
struct Config {
  static constexpr int kUnset = INT_MIN;
  size_t size = sizeof(Config);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 21800;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
};
static_assert(sizeof(Config) == 48 && offsetof(Config, max_ctas) == 28 &&
              offsetof(Config, split_share) == 40);

struct Calls {
  int (*version)(int*) = nullptr;
  int (*unique_id)(UniqueId*) = nullptr;
  int (*init)(Comm*, int ranks, UniqueId, int rank, Config*) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*async_error)(Comm, int* result) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(Comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t count, int type, int peer, Comm, void* stream) = nullptr;
  int (*receive)(void*, size_t count, int type, int peer, Comm, void* stream) = nullptr;
};

}  // namespace plimsoll::gpu::nccl
