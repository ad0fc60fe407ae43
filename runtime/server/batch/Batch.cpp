//===- Batch.cpp - Requests without connections ---------------------------===//

#include "server/batch/Batch.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

using namespace qwen;
using namespace qwen::server;

namespace {

/// The numbers of the lines whose answers have changed. Shared with WakeFn,
/// which may be called after the end.
struct Changed {
  std::mutex mutex;
  std::condition_variable any;
  std::vector<uint64_t> lines;
};

class Batch {
public:
  Batch(HttpHandler &handler, const AnswerFn &done)
      : handler(handler), done(done) {}
  ~Batch();
  Batch(const Batch &) = delete;
  Batch &operator=(const Batch &) = delete;

  size_t size() const { return running.size(); }
  void start(BatchLine line);
  /// Waits for progress of any answer, then writes the complete answers.
  void wait() {
    for (uint64_t number : takeChanged())
      finish(number);
  }

private:
  struct Running {
    BatchLine line;
    std::shared_ptr<ReplyStream> stream;
    const Framing &framing;
    /// The reply in place of the stream's, which was cancelled.
    std::optional<Reply> refusal;
  };

  std::vector<uint64_t> takeChanged();
  void finish(uint64_t number);

  HttpHandler &handler;
  const AnswerFn &done;
  const std::shared_ptr<Changed> changed = std::make_shared<Changed>();
  /// By the numbers of their lines.
  std::unordered_map<uint64_t, Running> running;
};

} // namespace

Batch::~Batch() {
  for (auto &[number, each] : running)
    each.stream->cancel();
  // The handler must outlive its requests.
  while (true) {
    std::erase_if(running, [](const auto &each) {
      return each.second.stream->take().isLast;
    });
    if (running.empty())
      return;
    takeChanged();
  }
}

std::vector<uint64_t> Batch::takeChanged() {
  // The handler wakes this thread for each token. A pause, in which its calls
  // cost next to nothing, joins the pauses of a step.
  constexpr std::chrono::milliseconds kPause(1);
  std::unique_lock lock(changed->mutex);
  changed->any.wait(lock, [&] { return !changed->lines.empty(); });
  lock.unlock();
  std::this_thread::sleep_for(kPause);
  lock.lock();
  return std::exchange(changed->lines, {});
}

void Batch::start(BatchLine line) {
  if (!line.error.empty()) {
    done(failureLine(line), true);
    return;
  }
  const uint64_t number = line.number;
  const Framing &framing = handler.framingOf(line.request.path);
  Reply reply =
      handler.handle(std::move(line.request), [changed = changed, number] {
        const std::lock_guard lock(changed->mutex);
        changed->lines.push_back(number);
        changed->any.notify_one();
      });
  if (!reply.stream) {
    done(answerLine(line, reply), isError(reply));
    return;
  }
  std::optional<Reply> refusal;
  if (reply.stream->isEvents()) {
    refusal = framing.error(
        {400, "a batch has no streams: stream must be false", "stream"});
    reply.stream->cancel();
  }
  running.emplace(number, Running{std::move(line), std::move(reply.stream),
                                  framing, std::move(refusal)});
}

void Batch::finish(uint64_t number) {
  const auto found = running.find(number);
  if (found == running.end())
    return;
  std::optional<Reply> reply =
      takeWhole(*found->second.stream, found->second.framing);
  if (!reply)
    return;
  const Running ended = std::move(found->second);
  running.erase(found);
  if (ended.refusal)
    reply = ended.refusal;
  done(answerLine(ended.line, *reply), isError(*reply));
}

void server::answerLines(HttpHandler &handler, size_t most,
                         const std::function<std::optional<BatchLine>()> &next,
                         const AnswerFn &done) {
  Batch batch(handler, done);
  while (std::optional<BatchLine> line = next()) {
    batch.start(*std::move(line));
    while (batch.size() >= most)
      batch.wait();
  }
  while (batch.size() > 0)
    batch.wait();
}
