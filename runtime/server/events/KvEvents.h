//===- KvEvents.h - Publishes which pages are kept --------------*- C++ -*-===//
//
// The events of vLLM's servers: routers build an index of each server's pages
// of them. docs/decisions/0046 has the form.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_EVENTS_KVEVENTS_H
#define QWEN_RUNTIME_SERVER_EVENTS_KVEVENTS_H

#include "engine/PageEvents.h"
#include "server/events/EventSockets.h"

#include "qwen/ABI/Blocks.h"

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace qwen::server {

/// What a replay can have: as many batches as a replay of vLLM, and no more
/// than `bytes` bytes.
struct ReplayLimits {
  size_t batches = 10'000;
  size_t bytes = size_t{64} << 20;
};

class KvEvents final : public PageEvents {
public:
  /// The first batch says that there are no pages. Throws Error if the system
  /// gives no thread.
  explicit KvEvents(std::unique_ptr<EventSockets> sockets,
                    const ReplayLimits &limits = {});
  /// Publishes what waits.
  ~KvEvents() override;
  KvEvents(const KvEvents &) = delete;
  KvEvents &operator=(const KvEvents &) = delete;

  uint64_t addCache() override;
  void store(uint64_t cache, const StoredPage &page) noexcept override;
  void remove(uint64_t cache, uint64_t serial) noexcept override;

private:
  struct Event {
    /// What the event calls the page, and the page before it or 0.
    uint64_t page, parent;
    bool isStored;
    Identity identity;
    int64_t first;
    std::array<int32_t, kPageTokens> ids;
  };
  struct Batch {
    uint64_t number;
    std::string bytes;
  };

  void add(const Event &event) noexcept;
  void serve();
  /// Publishes the events that wait. Returns false if no others will come.
  bool publishWaiting();
  void publish(std::string batch);
  void replay(const ReplayRequest &request);
  /// MessagePack of events, behind one that takes all pages if `isClear`.
  static std::string encode(std::span<const Event> events, bool isClear);

  const std::unique_ptr<EventSockets> sockets;
  const ReplayLimits limits;
  /// Makes names of pages differ from the names in an earlier process.
  const uint64_t seed;
  /// The thread's own.
  std::deque<Batch> sent;
  size_t sentBytes = 0;
  uint64_t next = 0;
  std::vector<Event> taken;

  std::mutex mutex;
  std::vector<Event> waiting;
  uint64_t caches = 0;
  /// Whether memory lacked for an event, so that no index is right any more.
  bool isClear = true;
  bool ending = false;

  std::thread thread;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_EVENTS_KVEVENTS_H
