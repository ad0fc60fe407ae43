//===- Workers.cpp - Threads that parse requests --------------------------===//

#include "server/http/Workers.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"

#include <system_error>

using namespace qwen;
using namespace qwen::server;

Workers::Workers(size_t count)
    : io(static_cast<int>(count)), work(io.get_executor()) {
  // The main thread handles signals.
  const SignalsBlocked blocked;
  threads.reserve(count);
  try {
    while (threads.size() < count)
      threads.emplace_back([this] { runAll(io); });
  } catch (const std::system_error &) {
    join();
    throw Error("cannot start the threads that parse requests; the system "
                "limits threads (ulimit -u, pids.max) or memory",
                ErrorKind::NoMemory);
  }
}

Workers::~Workers() { join(); }

void Workers::join() {
  work.reset();
  for (std::thread &thread : threads)
    thread.join();
}

void server::runAll(boost::asio::io_context &io) noexcept {
  while (!io.stopped())
    try {
      io.run();
    } catch (const std::exception &) {
      // The next handler runs.
      continue;
    }
}
