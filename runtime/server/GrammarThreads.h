//===- GrammarThreads.h - Threads that make grammars ------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_GRAMMARTHREADS_H
#define QWEN_RUNTIME_SERVER_GRAMMARTHREADS_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace qwen::server {

/// Threads that make the grammars of requests and do nothing else, so that
/// grammars delay only requests with a grammar. All threads may call `run`.
class GrammarThreads {
public:
  /// Maximum number of grammars that are made at the same time, and that wait.
  static constexpr size_t kThreads = 2, kMostWaiting = 256;

  /// Makes a grammar, which ends soon after a request to stop. Must not throw.
  using Work = std::function<void()>;

  /// `onWork` is called by a thread after each work, and must not throw.
  /// Throws Error if the system has no thread for it.
  explicit GrammarThreads(
      size_t threads = kThreads, std::function<void()> onWork = [] {});
  /// Requests all work to stop, and waits for its end.
  ~GrammarThreads();
  GrammarThreads(const GrammarThreads &) = delete;
  GrammarThreads &operator=(const GrammarThreads &) = delete;

  /// Does the work once, when a thread is free. Throws Error of the kind
  /// QueueFull if kMostWaiting wait.
  void run(std::stop_source stop, Work work);

private:
  struct Job {
    std::stop_source stop;
    Work work;
  };

  void work();
  /// Ends the threads.
  void end();

  const std::function<void()> afterWork;
  std::mutex mutex;
  std::condition_variable added;
  std::deque<Job> waiting;
  /// What stops the work that runs.
  std::list<std::stop_source> running;
  bool isEnding = false;
  std::vector<std::thread> threads;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_GRAMMARTHREADS_H
