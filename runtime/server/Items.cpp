//===- Items.cpp - What an answer consists of -----------------------------===//

#include "server/Items.h"

#include "server/http/Message.h"

#include <algorithm>
#include <iterator>
#include <utility>

using namespace qwen;
using namespace qwen::server;

static size_t sizeOf(const std::vector<TokenRecord> &tokens) {
  size_t size = tokens.size() * sizeof(TokenRecord);
  for (const TokenRecord &token : tokens)
    size += token.top.size() * sizeof(TokenLogprob);
  return size;
}

size_t Delta::size() const {
  size_t size = sizeof(Delta) + sizeOf(tokens);
  for (const ItemDelta &part : items)
    size += sizeof(part) + part.name.size() + part.text.size() +
            sizeOf(part.tokens);
  return size;
}

void Delta::add(Delta more) {
  const auto append = [](std::vector<TokenRecord> &to,
                         std::vector<TokenRecord> &from) {
    std::ranges::move(from, std::back_inserter(to));
  };
  for (ItemDelta &part : more.items) {
    if (part.item == items.size()) {
      items.push_back(std::move(part));
      continue;
    }
    ItemDelta &item = items[part.item];
    item.text += part.text;
    item.isWhole |= part.isWhole;
    append(item.tokens, part.tokens);
  }
  append(tokens, more.tokens);
  kept = std::move(more.kept);
  if (more.finish == Finish::None)
    return;
  finish = more.finish;
  stopString = std::move(more.stopString);
  stopToken = more.stopToken;
  score = more.score;
}

ItemDelta &ItemList::begin(ItemKind kind, Delta &delta) {
  endText(delta);
  open = kind;
  return delta.items.emplace_back(ItemDelta{.item = count++, .kind = kind});
}

ItemDelta &ItemList::part(ItemKind kind, Delta &delta) {
  if (open != kind)
    return begin(kind, delta);
  return delta.items.emplace_back(ItemDelta{.item = count - 1, .kind = kind});
}

void ItemList::endText(Delta &delta) {
  if (open && open != ItemKind::Call)
    delta.items.push_back({.item = count - 1, .kind = *open, .isWhole = true});
  open.reset();
}

void ItemList::add(const AnswerEvent &event, std::vector<TokenRecord> tokens,
                   Delta &delta) {
  const auto tell = [&](ItemDelta &to) -> ItemDelta & {
    to.tokens = std::move(tokens);
    return to;
  };
  switch (event.kind) {
  case AnswerEventKind::Text:
    tell(part(ItemKind::Text, delta)).text = event.text;
    return;
  case AnswerEventKind::Reasoning:
    tell(part(ItemKind::Reasoning, delta)).text = event.text;
    return;
  case AnswerEventKind::ToolCallBegin: {
    ItemDelta &call = tell(begin(ItemKind::Call, delta));
    call.id = randomId("");
    call.name = event.text;
    return;
  }
  case AnswerEventKind::ToolCallArguments:
    tell(part(ItemKind::Call, delta)).text = event.text;
    return;
  case AnswerEventKind::ToolCallEnd:
    tell(part(ItemKind::Call, delta)).isWhole = true;
    open.reset();
    return;
  case AnswerEventKind::StopString:
    return;
  case AnswerEventKind::End:
    endText(delta);
    delta.tokens = std::move(tokens);
    return;
  }
}
