//===- CApiUpdates.h - Updates of requests for readers ----------*- C++ -*-===//
//
// What requests of a scheduler without functions are told, from the scheduler's
// thread to the threads that call qwen_scheduler_next.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_CAPIUPDATES_H
#define QWEN_RUNTIME_CAPIUPDATES_H

#include "qwenrt.h"

#include "engine/Request.h"

#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <variant>

namespace qwen::capi {

class UpdateSource;

/// An update, with what it points to.
struct Update {
  std::variant<qwen_token_event, qwen_progress, qwen_beam_answer, qwen_ending>
      data;
  /// Owns what the pointers of `data` point to.
  std::shared_ptr<const void> owner = {};
  std::shared_ptr<UpdateSource> source = {};

  bool isEnd() const { return std::holds_alternative<qwen_ending>(data); }
};

/// The updates of a scheduler's requests. They belong to channels, which
/// readers choose. All threads may call all functions at the same time, except
/// the functions of the scheduler's thread.
class Updates {
public:
  /// At most `mostSources` requests have updates.
  explicit Updates(size_t mostSources) : most(mostSources) {}
  Updates(const Updates &) = delete;
  Updates &operator=(const Updates &) = delete;

  /// A request that will have updates in a channel, with its `user`; `atEnd`:
  /// with its end. Throws Error of the kind QueueFull if the ends of
  /// `mostSources` have not been read.
  std::shared_ptr<UpdateSource> open(int64_t channel, void *user, bool atEnd);
  /// The request has a number. No reader gets an update before.
  void start(UpdateSource &source, RequestId id);
  /// The request could not be submitted.
  void drop(UpdateSource &source);

  /// The functions of a request, on the scheduler's thread.
  void add(const std::shared_ptr<UpdateSource> &source,
           const TokenEvent &event);
  void add(const std::shared_ptr<UpdateSource> &source,
           const Progress &progress);
  void add(const std::shared_ptr<UpdateSource> &source,
           std::span<const BeamTokens> answers);
  void end(const std::shared_ptr<UpdateSource> &source,
           const Ending &ending) noexcept;
  /// Gives readers what has been added. On the scheduler's thread.
  void publish();

  /// What qwen_scheduler_next does; without a timeout, it waits without a
  /// limit. Throws Error of the kind Cancelled.
  size_t next(int64_t channel, std::span<qwen_update> to,
              std::optional<std::chrono::milliseconds> timeout);

  /// No request has updates any more but for those that are open.
  void close();
  /// Readers that wait leave with an error. Returns when all have; none may
  /// come later.
  void release();

private:
  friend class UpdateSource;
  /// A node of the map stays where it is while it has sources or readers.
  struct Channel {
    std::list<Update> updates = {};
    /// Number of requests whose end has not been read, and of readers inside.
    size_t sources = 0, readers = 0;
    std::condition_variable changed = {};

    bool isReadable() const;
  };

  /// Where the next update of a request goes.
  std::list<Update> &placeOf(UpdateSource &source);
  /// Takes what a reader gets.
  std::list<Update> take(Channel &from, size_t capacity);
  void leave(int64_t number);

  const size_t most;
  /// What the present step has added. Of the scheduler's thread.
  std::list<Update> added;

  std::mutex mutex;
  /// What follows is guarded by the mutex.
  std::map<int64_t, Channel> channels;
  size_t sources = 0, readers = 0;
  bool isClosed = false, isReleased = false;
  /// Wakes `release`.
  std::condition_variable left;
};

/// A request that has updates.
class UpdateSource {
public:
  UpdateSource(int64_t channelNumber, Updates::Channel &ofChannel, void *of,
               bool isToldAtEnd)
      : number(channelNumber), channel(&ofChannel), user(of),
        atEnd(isToldAtEnd) {}

private:
  friend class Updates;
  const int64_t number;
  Updates::Channel *const channel;
  void *const user;
  /// Whether its updates appear with its end, and what they are. Of the
  /// scheduler's thread.
  const bool atEnd;
  std::list<Update> kept;
  /// 0 before it has one. Guarded by the mutex of the updates.
  RequestId id = 0;
  /// The place of its end, so that it needs no memory then.
  std::list<Update> end = std::list<Update>(1);
};

} // namespace qwen::capi

#endif // QWEN_RUNTIME_CAPIUPDATES_H
