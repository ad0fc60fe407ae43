//===- EmbeddedTexts.cpp - The calibration text of qwen-opt ---------------===//

#include "calibration/EmbeddedTexts.h"

#include <cstddef>

using namespace qwen;

// clang-format off
static constexpr unsigned char kEnglish[] = {
#embed "text/english.txt"
};
static constexpr unsigned char kChinese[] = {
#embed "text/chinese.txt"
};
static constexpr unsigned char kCode[] = {
#embed "text/code.txt"
};
static constexpr unsigned char kChat[] = {
#embed "text/chat.txt"
};
static constexpr unsigned char kMathematics[] = {
#embed "text/mathematics.txt"
};
// clang-format on

template <size_t Bytes>
static std::string_view viewOf(const unsigned char (&text)[Bytes]) {
  return {reinterpret_cast<const char *>(text), Bytes};
}

std::span<const EmbeddedText> qwen::embeddedTexts() {
  static const EmbeddedText texts[] = {{"english", viewOf(kEnglish)},
                                       {"chinese", viewOf(kChinese)},
                                       {"code", viewOf(kCode)},
                                       {"chat", viewOf(kChat)},
                                       {"mathematics", viewOf(kMathematics)}};
  return texts;
}

std::vector<std::string_view> qwen::embeddedTextViews() {
  std::vector<std::string_view> texts;
  texts.reserve(embeddedTexts().size());
  for (const EmbeddedText &part : embeddedTexts())
    texts.push_back(part.text);
  return texts;
}
