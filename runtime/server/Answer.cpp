//===- Answer.cpp - From a generation to bytes ----------------------------===//

#include "server/Answer.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

void Answer::begin(std::shared_ptr<Generation> from,
                   const Framing &protocolFraming) {
  generation = std::move(from);
  framing = &protocolFraming;
  for (size_t i = 0; i < generation->choices(); ++i)
    choices.push_back({.choice = i});
}

ReplyStream::Part Answer::take() {
  Part part{.text = "", .isLast = generation->isDone()};
  for (Delta &delta : generation->take())
    part.text += write(std::move(delta));
  if (!part.isLast)
    return part;
  const std::optional<ApiError> failure = error();
  if (!failure)
    part.text += finish();
  else if (isEvents())
    part.text += fail(*failure);
  return part;
}

std::string Answer::fail(const ApiError &error) {
  return framing->errorEvent(error);
}

std::string Answer::summary() const {
  const Usage usage = generation->usage();
  return " prompt=" + std::to_string(usage.prompt) +
         " cached=" + std::to_string(usage.cached) +
         " drawn=" + std::to_string(usage.drawn);
}

std::string Answer::write(Delta delta) {
  Delta &all = choices[delta.choice];
  all.text += delta.text;
  all.reasoning += delta.reasoning;
  for (CallDelta &call : delta.calls)
    if (call.index == all.calls.size())
      all.calls.push_back(std::move(call));
    else
      all.calls[call.index].arguments += call.arguments;
  all.kept = std::move(delta.kept);
  std::ranges::move(delta.tokens, std::back_inserter(all.tokens));
  if (!delta.finish.empty()) {
    all.finish = delta.finish;
    all.stopReason = delta.stopReason;
    all.score = delta.score;
  }
  return "";
}

std::string server::headOf(const ordered_json &object, const char *list) {
  std::string text = dump(object);
  text.pop_back();
  return text.append(",\"").append(list).append("\":[");
}

std::string server::tailOf(const ordered_json &more) {
  return more.empty() ? "]}" : "]," + dump(more).substr(1);
}

std::string
Answer::listOf(const ordered_json &object, const char *list,
               const std::function<ordered_json(const Delta &)> &element,
               const ordered_json &more) const {
  std::string text = headOf(object, list);
  for (const Delta &choice : choices)
    text.append(choice.choice ? "," : "").append(dump(element(choice)));
  return text + tailOf(more);
}
