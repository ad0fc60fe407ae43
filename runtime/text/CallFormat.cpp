//===- CallFormat.cpp - How models write calls of tools -------------------===//

#include "text/CallFormat.h"

#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <utility>

using namespace qwen;

static constexpr CallFormat kFormats[] = {
    {"hermes", "{", makeHermesReader, writeHermesRules, hermesTextPlace},
    {"xml", "<function=", makeXmlReader, writeXmlRules, xmlTextPlace},
};

std::span<const CallFormat> qwen::callFormats() { return kFormats; }

const CallFormat *qwen::findCallFormat(std::string_view name) {
  const auto *const found =
      std::ranges::find(kFormats, name, &CallFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

std::string qwen::callFormatNames() {
  std::string list;
  for (const CallFormat &format : kFormats)
    list += (list.empty() ? "" : ", ") + std::string(format.name);
  return list;
}

const Tool *qwen::findTool(const Tools &tools, std::string_view name) {
  const auto found = std::ranges::find(tools, name, &Tool::name);
  return found == tools.end() ? nullptr : &*found;
}

CallReader::Begin qwen::beginsWith(std::string_view text,
                                   std::string_view word) {
  if (text.starts_with(word))
    return CallReader::Begin::Yes;
  return word.starts_with(text) ? CallReader::Begin::Maybe
                                : CallReader::Begin::No;
}

size_t qwen::characterSize(std::string_view text) {
  const auto *const next =
      std::find_if_not(text.begin() + 1, text.end(), continuesCharacter);
  return static_cast<size_t>(next - text.begin());
}

size_t qwen::spaceBefore(std::string_view text) {
  return std::min(text.find_first_not_of(" \t\r\n"), text.size());
}

void qwen::requireObjects(const nlohmann::ordered_json &schema) {
  const auto type = schema.find("type");
  if (type != schema.end() && *type != "object" &&
      !(type->is_array() && std::ranges::count(*type, "object")))
    throw Error("type must be object, not " + type->dump());
}

size_t CallReader::skip(std::string_view text, bool isLast) {
  size_t size = text.find(kCallClose);
  hasEnded = size != std::string_view::npos;
  size = std::min(size, text.size());
  if (const size_t mark = text.rfind('<');
      !hasEnded && !isLast && mark != std::string_view::npos &&
      kCallClose.starts_with(text.substr(mark)))
    size = mark;
  return size;
}

size_t CallReader::push(std::string_view text, bool isLast,
                        AnswerEvents &events) {
  if (!std::exchange(hasBegun, true))
    events.push_back({AnswerEventKind::ToolCallBegin, toolName});
  std::string arguments;
  size_t size = 0;
  while (!broken && !hasEnded) {
    std::string_view part = text.substr(size, kMostHeld);
    const bool isFull = part.size() == kMostHeld;
    // A part has whole characters.
    while (size + part.size() < text.size() &&
           continuesCharacter(text[size + part.size()]))
      part.remove_suffix(1);
    const size_t taken =
        read(part, isLast && size + part.size() == text.size(), arguments);
    size += taken;
    if (taken)
      continue;
    broken |= isFull;
    break;
  }
  if (broken && !hasEnded)
    size += skip(text.substr(size), isLast);
  if (!arguments.empty())
    events.push_back(
        {AnswerEventKind::ToolCallArguments, std::move(arguments)});
  if (isLast && !hasEnded)
    broken = true;
  if (hasEnded && !broken)
    events.push_back({AnswerEventKind::ToolCallEnd});
  return size;
}
