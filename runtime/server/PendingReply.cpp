//===- PendingReply.cpp - A request whose model is not loaded -------------===//

#include "server/PendingReply.h"

#include <utility>

using namespace qwen;
using namespace qwen::server;

std::optional<HttpRequest> PendingReply::takeRequest() {
  const std::lock_guard lock(mutex);
  return std::exchange(asked, std::nullopt);
}

void PendingReply::give(Reply given) {
  {
    const std::lock_guard lock(mutex);
    if (isCancelled) {
      if (given.stream)
        given.stream->cancel();
      return;
    }
    reply = std::make_unique<Reply>(std::move(given));
  }
  wake();
}

bool PendingReply::hasStarted() const {
  const std::lock_guard lock(mutex);
  return reply || isCancelled;
}

std::unique_ptr<Reply> PendingReply::instead() {
  const std::lock_guard lock(mutex);
  return std::move(reply);
}

void PendingReply::cancel() {
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(isCancelled, true))
      return;
    // Its body may be large.
    asked.reset();
    if (reply && reply->stream)
      reply->stream->cancel();
    if (!reply)
      reply = std::make_unique<Reply>(
          framing.error({503, "the server cancelled the request"}));
  }
  wake();
}
