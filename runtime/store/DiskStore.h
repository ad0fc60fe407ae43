//===- DiskStore.h - Cached prompts on disk ---------------------*- C++ -*-===//
//
// A thread of its own writes pages and snapshots to a folder, behind the steps
// that made them. Any number of processes may use a folder at the same time.
// docs/decisions/0042 has the reasons.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_STORE_DISKSTORE_H
#define QWEN_RUNTIME_STORE_DISKSTORE_H

#include "engine/MemoryBudget.h"
#include "engine/PageStore.h"
#include "store/PromptFolder.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace qwen {

class DiskStore final : public PageStore {
public:
  /// Gets a line without its end. Any thread may call it.
  using LogFn = std::function<void(const std::string &)>;

  /// What may wait to be written: the most, and the least where memory lacks.
  static constexpr uint64_t kMostWaiting = uint64_t{256} << 20,
                            kLeastWaiting = uint64_t{16} << 20;

  /// Opens or makes `folder`, whose files may have `mostBytes` together. Takes
  /// memory of `budget` for what waits. Throws Error if the folder cannot be
  /// used, if memory lacks or if the system gives no thread.
  DiskStore(const std::filesystem::path &folder, uint64_t mostBytes,
            MemoryBudget &budget, LogFn log);
  /// Writes what waits.
  ~DiskStore() override;
  DiskStore(const DiskStore &) = delete;
  DiskStore &operator=(const DiskStore &) = delete;

  PageName nameOf(const PageContent &content) const override;
  bool has(const PageName &name) const override;
  uint64_t statesBehind(const PageName &before) const override;
  void readAhead(const PageName &name) override;
  bool read(const PageName &name, const PageContent &content,
            PageParts parts) override;
  void write(const PageName &name, const PageContent &content,
             std::span<const uint8_t> bytes) override;
  void use(std::span<const PageName> names) override;
  StoreCounts counts(const std::string &artifact) const override;
  StoreSize size() const override;

  /// What roots call an API key: nobody without the folder's key can find out
  /// from it what the API key is.
  std::string nameOfKey(std::string_view apiKey) const;

  /// Waits until all that was given is written, or is not going to be.
  void flush();

private:
  /// Of a name, whose first bytes are as good as random.
  struct NameHash {
    size_t operator()(const PageName &name) const;
  };
  /// What waits to be written.
  struct Waiting {
    PromptFile file;
    std::vector<uint8_t> head, payload;
    /// Those of its artifact.
    StoreCounts *counts = nullptr;
    /// Whether the disk has it; for the writing thread alone.
    bool isOnDisk = false;
  };
  using WaitingRef = std::shared_ptr<Waiting>;

  /// The files that are known.
  class Index;

  void tell(const std::string &line);
  /// A name is not to be found any more.
  void forget(const PageName &name);
  /// The file of a name, or nothing.
  std::optional<PromptFile> fileOf(const PageName &name) const;
  /// Fills the parts from what waits or from a file.
  bool readParts(const PageName &name, const PageContent &content,
                 PageParts parts);

  // The writing thread calls these.

  void work();
  /// Locks the folder for other processes. Returns false if the store ends and
  /// another process does not give it up.
  bool lockFolder();
  /// Writes a batch, and leaves in it what a fault has hindered.
  void writeAllOf(std::vector<WaitingRef> &batch);
  void writeOne(Waiting &item);
  /// Removes an item from what waits, and counts one that is not on disk.
  void finish(const Waiting &item);
  /// Notes the time of files that were used.
  void touch(const std::vector<PageName> &used);
  /// Reads the list of files again, and returns it.
  PromptFolder::Files readFiles();
  /// Removes the least recently used files until there is room. Returns false
  /// if there cannot be any.
  bool makeRoom(uint64_t needed);
  /// Nothing is written any more.
  void stopWriting(const std::string &why);

  PromptFolder folder;
  const uint64_t mostBytes;
  /// For what waits.
  const MemoryLease lease;
  const LogFn log;
  std::atomic<int> linesTold = 0;
  std::atomic<bool> isStopped = false;

  /// Guards all that follows up to the writing thread's.
  mutable std::mutex mutex;
  std::condition_variable changed, idle;
  std::unique_ptr<Index> index;
  /// What waits, in order, and by name up to the end of its writing.
  std::vector<WaitingRef> order;
  std::unordered_map<PageName, WaitingRef, NameHash> waiting;
  uint64_t waitingBytes = 0;
  /// By artifact.
  std::map<std::string, StoreCounts> sums;
  std::vector<PageName> used;
  bool isEnding = false, isWorking = false;

  // The writing thread's.
  timespec lastChange = {};
  std::chrono::steady_clock::time_point lastRead;

  std::thread writer;
};

} // namespace qwen

#endif // QWEN_RUNTIME_STORE_DISKSTORE_H
