//===- LlText.cpp - Texts within an answer, with grammars -----------------===//

#include "grammar/LlText.h"

#include "grammar/LlGuidance.h"

using namespace qwen;

// Of llguidance/lib.rs.
extern "C" {
QwenTokens *qwen_new_tokens(const uint8_t *bytes, const uint32_t *lengths,
                            size_t count);
void qwen_free_tokens(QwenTokens *tokens);
QwenText *qwen_copy_text(const QwenText *text);
void qwen_free_text(QwenText *text);
int32_t qwen_filter_text(QwenText *text, const QwenTokens *tokens,
                         uint32_t *words, size_t count, QwenMessage message);
int32_t qwen_accept_text(QwenText *text, const uint8_t *token, size_t size,
                         QwenMessage message);
}

Error LlMessage::error() const { return llGuidanceError(text.data()); }

TokenNames LlTokens::names() const {
  // What llguidance begins the names of tokens with that stand for no text.
  constexpr char kMark = '\xff';
  TokenNames names;
  for (size_t i = 0; i < size; ++i) {
    const auto id = static_cast<int32_t>(i);
    const size_t begin = names.bytes.size();
    if (texts->isAdded(id))
      names.bytes += kMark;
    names.bytes += texts->bytes(id);
    names.lengths.push_back(static_cast<uint32_t>(names.bytes.size() - begin));
  }
  return names;
}

static const uint8_t *dataOf(std::string_view bytes) {
  return reinterpret_cast<const uint8_t *>(bytes.data());
}

const QwenTokens *LlTokens::tree() const {
  std::call_once(isMade, [&] {
    const TokenNames all = names();
    made.reset(qwen_new_tokens(dataOf(all.bytes), all.lengths.data(),
                               all.lengths.size()));
  });
  return made.get();
}

void LlTokens::Free::operator()(QwenTokens *tokens) const {
  qwen_free_tokens(tokens);
}

void LlText::Free::operator()(QwenText *text) const { qwen_free_text(text); }

QwenText *LlText::copyOf(const QwenText &text) { return qwen_copy_text(&text); }

void LlText::filter(std::span<uint32_t> allowed) {
  LlMessage message;
  if (now && qwen_filter_text(now.get(), tokens->tree(), allowed.data(),
                              allowed.size(), message.space()) < 0)
    throw message.error();
}

void LlText::accept(int32_t id) {
  if (id == mark) {
    now.reset(copyOf(*first));
    return;
  }
  if (!now)
    return;
  const std::string_view bytes = tokens->bytes(id);
  LlMessage message;
  const int32_t goesOn =
      qwen_accept_text(now.get(), dataOf(bytes), bytes.size(), message.space());
  if (goesOn < 0)
    throw message.error();
  if (goesOn == 0)
    now = nullptr;
}
