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
  if (isEvents() && !std::exchange(isOpened, true))
    part.text = opening();
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
  const size_t choice = delta.choice;
  choices[choice].add(std::move(delta));
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

std::string Answer::listOf(const ordered_json &object, const char *list,
                           const std::function<ordered_json(Delta &)> &element,
                           const ordered_json &more) {
  std::string text = headOf(object, list);
  const char *between = "";
  for (Delta &choice : choices)
    text.append(std::exchange(between, ",")).append(dump(element(choice)));
  return text + tailOf(more);
}
