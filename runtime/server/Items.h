//===- Items.h - What an answer consists of ---------------------*- C++ -*-===//
//
// An answer is a list of items: texts, reasoning and calls of tools, in the
// order in which the model writes them. Protocols write them in forms of their
// own.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_ITEMS_H
#define QWEN_RUNTIME_SERVER_ITEMS_H

#include "engine/Request.h"
#include "text/AnswerEvent.h"

#include <optional>

namespace qwen::server {

/// A token of a prompt or an answer.
struct TokenRecord {
  int32_t id;
  /// Number of characters of the text before its first one. The tokens of one
  /// character have the same.
  int64_t offset = 0;
  /// Nothing without logprobs, and for the first token of a prompt.
  std::optional<float> logprob = {};
  std::vector<TokenLogprob> top = {};
};

enum class ItemKind : uint8_t {
  /// Text for the user.
  Text,
  Reasoning,
  /// A call of a tool.
  Call,
};

/// A part of an item, or all of it.
struct ItemDelta {
  /// Number of the items of the choice before it.
  size_t item;
  ItemKind kind;
  /// A call's own id and the name of its tool, in its first part only.
  std::string id = {}, name = {};
  /// Text; of a call, its arguments, a JSON object.
  std::string text = {};
  /// Whether the item is complete with this part. A call that is cut or broken
  /// never is.
  bool isWhole = false;
  /// The tokens that begin in this part, and the tokens of marks before it.
  std::vector<TokenRecord> tokens = {};
};

/// Why a choice has ended.
enum class Finish : uint8_t {
  None,
  /// The model or a stop token of the request ended it.
  Stop,
  StopString,
  /// It has as many tokens as it may have, or the context is full.
  Length,
  /// The model ended it, or a stop string did, and it has calls, all of them
  /// whole.
  Calls,
};

/// What a choice has got since its last delta, or all of it.
struct Delta {
  size_t choice;
  std::vector<ItemDelta> items = {};
  /// Tokens behind all items, at the end of the choice.
  std::vector<TokenRecord> tokens = {};
  /// After a part of the prompt has run, with the time since the start.
  std::optional<Progress> progress = {};
  double seconds = 0;
  /// What GenerationTask::keep returned.
  std::vector<float> kept = {};
  /// At the end of the choice.
  Finish finish = Finish::None;
  /// The stop string that ended it, or the stop token; neither for the model's
  /// own tokens. Calls may stand before both.
  std::optional<std::string> stopString = {};
  std::optional<int32_t> stopToken = {};
  /// The score of a beam search, at the end.
  std::optional<double> score = {};

  /// Approximate number of bytes.
  size_t size() const;
  /// Adds the next delta of the choice, except its progress.
  void add(Delta more);
};

/// Makes the items of one choice of its parser's events.
class ItemList {
public:
  /// Adds what an event tells, with the records of its tokens. A text or
  /// reasoning is whole when something else follows or the answer ends.
  void add(const AnswerEvent &event, std::vector<TokenRecord> tokens,
           Delta &delta);

private:
  /// Adds a part of the last item if that is of this kind and goes on, or
  /// begins another one.
  ItemDelta &part(ItemKind kind, Delta &delta);
  ItemDelta &begin(ItemKind kind, Delta &delta);
  void endText(Delta &delta);

  /// Number of items so far.
  size_t count = 0;
  /// The kind of the last item, while it may go on.
  std::optional<ItemKind> open;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ITEMS_H
