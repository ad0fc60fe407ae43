//===- PendingReply.h - A request whose model is not loaded -----*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PENDINGREPLY_H
#define QWEN_RUNTIME_SERVER_PENDINGREPLY_H

#include "server/http/Message.h"

#include <mutex>

namespace qwen::server {

/// Stands for the reply to a request until its model is loaded. All threads may
/// call all functions.
class PendingReply final : public ReplyStream {
public:
  /// `wake` is called when there is a reply. `framing` is its protocol's.
  PendingReply(HttpRequest request, const Framing &framing, WakeFn wake)
      : framing(framing), wake(std::move(wake)), asked(std::move(request)) {}

  const Framing &framing;
  const WakeFn wake;

  /// The request, once; nothing if it was cancelled meanwhile.
  std::optional<HttpRequest> takeRequest();
  /// Called once. Has no effect on a request that was cancelled.
  void give(Reply reply);

  bool hasStarted() const override;
  std::unique_ptr<Reply> instead() override;
  void cancel() override;
  bool isEvents() const override { return false; }
  /// Nothing ever: the client gets another reply instead.
  Part take() override { return {}; }
  std::optional<ApiError> error() const override { return std::nullopt; }
  std::string summary() const override { return ""; }

private:
  /// Guards all below it.
  mutable std::mutex mutex;
  std::optional<HttpRequest> asked;
  std::unique_ptr<Reply> reply;
  bool isCancelled = false;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PENDINGREPLY_H
