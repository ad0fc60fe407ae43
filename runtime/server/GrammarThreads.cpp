//===- GrammarThreads.cpp - Threads that make grammars --------------------===//

#include "server/GrammarThreads.h"

#include "qwen/Support/Error.h"

#include <string>
#include <system_error>
#include <utility>

using namespace qwen;
using namespace qwen::server;

GrammarThreads::GrammarThreads(size_t count, std::function<void()> onWork)
    : afterWork(std::move(onWork)) {
  try {
    for (size_t i = 0; i < count; ++i)
      threads.emplace_back([this] { work(); });
  } catch (const std::system_error &error) {
    end();
    throw Error("no thread for grammars can be started: " +
                error.code().message());
  }
}

GrammarThreads::~GrammarThreads() { end(); }

void GrammarThreads::end() {
  {
    const std::lock_guard lock(mutex);
    isEnding = true;
    for (std::stop_source &stop : running)
      stop.request_stop();
    for (Job &job : waiting)
      job.stop.request_stop();
  }
  added.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void GrammarThreads::run(std::stop_source stop, Work work) {
  {
    const std::lock_guard lock(mutex);
    if (waiting.size() == kMostWaiting)
      throw Error("the maximum number of requests, " +
                      std::to_string(kMostWaiting) +
                      ", waits for their grammars",
                  ErrorKind::QueueFull);
    waiting.push_back({std::move(stop), std::move(work)});
  }
  added.notify_one();
}

void GrammarThreads::work() {
  std::unique_lock lock(mutex);
  while (true) {
    added.wait(lock, [&] { return isEnding || !waiting.empty(); });
    if (waiting.empty())
      return;
    Job job = std::move(waiting.front());
    waiting.pop_front();
    const auto place = running.insert(running.end(), job.stop);
    lock.unlock();
    job.work();
    afterWork();
    // What the work holds ends without the lock.
    job = {};
    lock.lock();
    running.erase(place);
  }
}
