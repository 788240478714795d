#include "common/modules/poison.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "common/core/error.h"

namespace shardbench {

namespace {

std::string message_for(const std::string& name) {
  return fmt::format("parameter {} is used while it is resharded; call its layer through the model",
                     name);
}

template <typename Storage>
constexpr bool kReversible = requires(Storage& s) {
  s.clear_data_ptr_access_error_msg_();
};

/// Without a reversible error in LibTorch: one page-sized trap per poisoned storage, inside one
/// unreadable range, and a handler that says which parameter was touched.
class TrapRange {
 public:
  static TrapRange& instance() {
    static TrapRange* range = new TrapRange;  // the handler may run until the process ends
    return *range;
  }

  void* trap_for(const std::string& name) {
    std::lock_guard lock(mutex_);
    const auto [found, fresh] = slots_.try_emplace(name, slots_.size() % kSlots);
    if (fresh) std::strncpy(names_[found->second], name.c_str(), kNameBytes - 1);
    return base_ + found->second * kSlotBytes;
  }

 private:
  static constexpr std::size_t kSlots = 4096;
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 32;  // larger than any tensor read
  static constexpr std::size_t kNameBytes = 128;

  TrapRange() {
    base_ = static_cast<char*>(mmap(nullptr, kSlots * kSlotBytes, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    SHARDBENCH_CHECK(base_ != MAP_FAILED, "no address space for resharded parameters: {}",
                     std::strerror(errno));
    names_ = new char[kSlots][kNameBytes]();
    struct sigaction action = {};
    action.sa_sigaction = &TrapRange::handle;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &previous_);
  }

  static void handle(int signal_number, siginfo_t* info, void*) {
    TrapRange& range = instance();
    const char* address = static_cast<const char*>(info->si_addr);
    if (address >= range.base_ && address < range.base_ + kSlots * kSlotBytes) {
      constexpr char kHead[] = "a parameter is used while it is resharded: ";
      const char* name = range.names_[static_cast<std::size_t>(address - range.base_) / kSlotBytes];
      [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kHead, sizeof(kHead) - 1);
      written = write(STDERR_FILENO, name, std::strlen(name));
      written = write(STDERR_FILENO, "\n", 1);
    }
    sigaction(signal_number, &range.previous_, nullptr);  // who was there before decides
    raise(signal_number);
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::size_t> slots_;
  struct sigaction previous_ = {};
  char* base_ = nullptr;
  char (*names_)[kNameBytes] = nullptr;
};

template <typename Storage>
void poison(Storage& storage, const std::string& name, at::Device device) {
  if constexpr (kReversible<Storage>) {
    storage.set_data_ptr_noswap(at::DataPtr(nullptr, device));
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message_for(name));
  } else {
    storage.set_data_ptr_noswap(at::DataPtr(TrapRange::instance().trap_for(name), device));
  }
}

template <typename Storage>
void heal(Storage& storage, void* data, at::Device device) {
  if constexpr (kReversible<Storage>) storage.clear_data_ptr_access_error_msg_();
  storage.set_data_ptr_noswap(at::DataPtr(data, device));
}

}  // namespace

void poison_storage(const at::Tensor& tensor, const std::string& name) {
  poison(*tensor.storage().unsafeGetStorageImpl(), name, tensor.device());
}

void heal_storage(const at::Tensor& tensor, void* data) {
  heal(*tensor.storage().unsafeGetStorageImpl(), data, tensor.device());
}

}  // namespace shardbench
