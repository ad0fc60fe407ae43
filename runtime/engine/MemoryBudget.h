//===- MemoryBudget.h - Memory that engines share ---------------*- C++ -*-===//
//
// Engines take leases of what they will use at most, so that all together stay
// within the memory of the process: a full KV cache is an error, but a full
// control group kills the process.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_MEMORYBUDGET_H
#define QWEN_RUNTIME_ENGINE_MEMORYBUDGET_H

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace qwen {

/// What an engine takes memory for.
enum class MemoryUse : uint8_t {
  /// Code, tables and buffers of the process for a model.
  Process,
  /// The arena and the rows of a call.
  Calls,
  /// Fixed state of sequences.
  Sequences,
  /// Further states of sequences that step back.
  Steps,
  /// Pages of the KV cache.
  Pages,
  /// Copies of fixed state.
  Snapshots,
  /// Mapped weights. The system can take back the memory beyond the least.
  Weights,
  /// Pages and snapshots that a store has not written yet.
  Store,
};

/// The words of errors for the values of MemoryUse.
inline constexpr std::array<std::string_view, 8> kMemoryUseWords = {
    "process",
    "calls",
    "states of sequences",
    "states to step back to",
    "the KV cache",
    "snapshots",
    "locked weights",
    "what waits for the disk"};

/// Memory that an engine asks for.
struct MemoryNeed {
  MemoryUse use;
  /// The bytes that are of use, and those without which nothing runs.
  uint64_t bytes, least;
  /// A lease is a multiple of it, as `bytes` and `least` are.
  uint64_t unit = 1;
  /// The part of the spare memory, 1 / divisor, that it may take.
  uint64_t divisor = 1;
  /// Whether it may take the memory of mapped weights beyond their least.
  bool displacesWeights = false;
};

class MemoryBudget;

/// Memory of a budget, which the destructor gives back.
class MemoryLease {
public:
  MemoryLease() = default;
  MemoryLease(MemoryLease &&other) noexcept { *this = std::move(other); }
  MemoryLease &operator=(MemoryLease &&other) noexcept;
  ~MemoryLease();

  /// The bytes for a use.
  uint64_t bytes(MemoryUse use) const {
    return granted[static_cast<size_t>(use)];
  }
  /// The bytes for all uses.
  uint64_t bytes() const;

private:
  friend class MemoryBudget;
  std::shared_ptr<MemoryBudget> budget;
  std::array<uint64_t, kMemoryUseWords.size()> granted = {};
  /// Bytes of weights beyond their least.
  uint64_t reclaimable = 0;
};

/// Bytes that a process may use. All threads may call all functions. Lives in a
/// shared_ptr, which each lease holds.
class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
public:
  /// Allows the memory limit of the control group, else the memory of the
  /// machine. Tests set `root`, a prefix of "/sys" and "/proc".
  explicit MemoryBudget(const std::string &root = "");

  /// Allows `bytes`, if that is less. Errors call them `name`. Leases stay.
  void limitTo(uint64_t bytes, const std::string &name);

  /// Makes engines count all weights, which then displace no others, and leave
  /// room for further engines: for models that are loaded on demand. Comes
  /// before all leases.
  void countWeights() { isForMany = true; }
  bool countsWeights() const { return isForMany; }

  /// Gives each need its least, then the needs in their order more of what is
  /// left. Throws Error(NoMemory), which lists the uses of `name`, if there is
  /// less than the least of all. No lease changes later, so leases together may
  /// exceed the limit by weights, which the system takes back.
  MemoryLease take(const std::string &name, std::span<const MemoryNeed> needs);

  /// Bytes that no lease has.
  uint64_t free() const;
  /// What the budget allows, for errors: "its control group allows 9 bytes".
  std::string describe() const;

private:
  friend class MemoryLease;
  void giveBack(const MemoryLease &lease);
  // With the mutex held.
  uint64_t without(uint64_t bytes) const {
    return limit - std::min(limit, bytes);
  }
  std::string describeLimit() const;

  /// What the control group or the machine allows.
  uint64_t machineLimit;
  std::string machineSource;
  bool isForMany = false;
  /// Guards all below it.
  mutable std::mutex mutex;
  uint64_t limit;
  std::string source;
  uint64_t taken = 0, reclaimable = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_MEMORYBUDGET_H
