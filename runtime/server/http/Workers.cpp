//===- Workers.cpp - Threads that parse requests --------------------------===//

#include "server/http/Workers.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"

using namespace qwen;
using namespace qwen::server;

Workers::Workers(size_t count)
    : io(static_cast<int>(count)), work(io.get_executor()) {
  threads.reserve(count);
  try {
    while (threads.size() < count)
      threads.push_back(startThread("parses requests", [this] { runAll(io); }));
  } catch (const Error &) {
    join();
    throw;
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
