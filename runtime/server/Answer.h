//===- Answer.h - From a generation to bytes --------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_ANSWER_H
#define QWEN_RUNTIME_SERVER_ANSWER_H

#include "server/Generation.h"

namespace qwen::server {

/// Writes the answer to one request in the form of its protocol, as one body or
/// as events.
class Answer : public ReplyStream {
public:
  /// Called once, before all others.
  virtual void begin(std::shared_ptr<Generation> from,
                     const Framing &protocolFraming);

  bool hasStarted() const final { return generation->hasStarted(); }
  bool isEvents() const final {
    return task().parameters.stream && !generation->isRefused();
  }
  Part take() final;
  std::optional<ApiError> error() const final { return generation->error(); }
  void cancel() final { generation->cancel(); }
  std::string summary() const final;

protected:
  /// The events at the front of a stream. The server sends them before the
  /// prompt has run.
  virtual std::string opening() { return ""; }
  /// The bytes for a delta: its events, or nothing if `finish` gives a body.
  /// By default, it becomes a part of `choices`.
  virtual std::string write(Delta delta);
  /// The last bytes of an answer without an error: events, or the body.
  virtual std::string finish() = 0;
  /// The last bytes of a stream that has failed; by default Framing's.
  virtual std::string fail(const ApiError &error);

  /// An event of the protocol.
  std::string event(std::string_view type, std::string_view data) const {
    return framing->event(type, data);
  }

  const GenerationTask &task() const { return generation->task(); }
  /// The text of `object` with the list `list`, of an element for each choice,
  /// which may take what the choice has, and then the members of `more`. Only
  /// one element is there as an object.
  std::string
  listOf(const nlohmann::ordered_json &object, const char *list,
         const std::function<nlohmann::ordered_json(Delta &)> &element,
         const nlohmann::ordered_json &more);

  std::shared_ptr<Generation> generation;
  const Framing *framing = nullptr;
  /// All deltas of each choice, joined.
  std::vector<Delta> choices;

private:
  bool isOpened = false;
};

/// The text of `object` with another member, a list, which has only begun.
std::string headOf(const nlohmann::ordered_json &object, const char *list);
/// Ends a list of `headOf` with the members of `more`.
std::string tailOf(const nlohmann::ordered_json &more);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ANSWER_H
