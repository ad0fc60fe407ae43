//===- Workers.h - Threads that parse requests ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_WORKERS_H
#define QWEN_RUNTIME_SERVER_HTTP_WORKERS_H

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <thread>
#include <vector>

namespace qwen::server {

/// Threads that run what is posted to their context. They start here, and not
/// with the first request: a server without threads would look like one that
/// answers.
class Workers {
public:
  /// Throws Error if the system gives too few threads.
  explicit Workers(size_t count);
  /// Waits for what has been posted.
  ~Workers();
  Workers(const Workers &) = delete;
  Workers &operator=(const Workers &) = delete;

  boost::asio::io_context &context() { return io; }

private:
  void join();

  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  std::vector<std::thread> threads;
};

/// Runs a context until it has no work or is stopped. What a handler throws
/// ends that handler alone: memory that lacks for one request lacks for no
/// other.
void runAll(boost::asio::io_context &io) noexcept;

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_WORKERS_H
