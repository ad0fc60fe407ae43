//===- Fold.cpp - Items as OpenAI's answers have them ---------------------===//

#include "server/protocols/openai/Fold.h"

#include <algorithm>
#include <iterator>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using namespace qwen::server::openai;
using nlohmann::ordered_json;

Folded Fold::take(Delta &delta) {
  Folded folded;
  for (ItemDelta &part : delta.items) {
    std::ranges::move(part.tokens, std::back_inserter(folded.tokens));
    switch (part.kind) {
    case ItemKind::Text:
      folded.text += part.text;
      break;
    case ItemKind::Reasoning:
      folded.reasoning += part.text;
      break;
    case ItemKind::Call:
      // Nothing tells that a call is whole.
      if (part.id.empty() && part.text.empty())
        break;
      if (!part.id.empty())
        folded.calls.push_back({.index = calls++,
                                .id = "call_" + part.id,
                                .name = std::move(part.name)});
      else if (folded.calls.empty())
        folded.calls.push_back({.index = calls - 1});
      folded.calls.back().arguments += part.text;
      break;
    }
  }
  std::ranges::move(delta.tokens, std::back_inserter(folded.tokens));
  delta.items.clear();
  delta.tokens.clear();
  return folded;
}

ordered_json openai::finishReason(const Delta &delta) {
  switch (delta.finish) {
  case Finish::None:
    return nullptr;
  case Finish::Stop:
  case Finish::StopString:
    return "stop";
  case Finish::Length:
    return "length";
  case Finish::Calls:
    return "tool_calls";
  }
  return nullptr;
}

ordered_json openai::stopReason(const Delta &delta) {
  if (delta.stopString)
    return *delta.stopString;
  return delta.stopToken ? ordered_json(*delta.stopToken) : ordered_json();
}
