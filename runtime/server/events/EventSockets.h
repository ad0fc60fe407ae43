//===- EventSockets.h - Carries batches of events ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_EVENTS_EVENTSOCKETS_H
#define QWEN_RUNTIME_SERVER_EVENTS_EVENTSOCKETS_H

#include <cstdint>
#include <optional>
#include <string>

namespace qwen::server {

/// Asks for the batches from a number on.
struct ReplayRequest {
  /// Names the connection.
  std::string client;
  uint64_t first;
};

/// One thread calls all functions but `wake`. None throws but std::bad_alloc:
/// what a slow listener does not take is dropped.
class EventSockets {
public:
  virtual ~EventSockets() = default;

  /// Sends a batch to all that listen.
  virtual void publish(uint64_t number, const std::string &batch) = 0;
  /// Sends a batch, or the end of them, to one that asked.
  virtual void reply(const std::string &client, uint64_t number,
                     const std::string &batch) = 0;
  virtual void endReply(const std::string &client) = 0;
  /// Waits for a request, or returns nothing after a `wake`.
  virtual std::optional<ReplayRequest> wait() = 0;
  /// Any thread may call it, before a `wait` too.
  virtual void wake() noexcept = 0;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_EVENTS_EVENTSOCKETS_H
