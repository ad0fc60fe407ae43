//===- EmbeddedTexts.h - The calibration text of qwen-opt -------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_EMBEDDEDTEXTS_H
#define QWEN_CALIBRATION_EMBEDDEDTEXTS_H

#include <span>
#include <string_view>
#include <vector>

namespace qwen {

/// A part of the calibration text: calibration/text/<kind>.txt. Documents
/// are separated by <|endoftext|>, turns of a chat by <|im_start|> and
/// <|im_end|>.
struct EmbeddedText {
  std::string_view kind;
  std::string_view text;
};

/// All parts. In Qwen's tokenizer the first, English, has about 12,000 tokens,
/// each other one 5,000.
std::span<const EmbeddedText> embeddedTexts();

/// The texts of all parts.
std::vector<std::string_view> embeddedTextViews();

} // namespace qwen

#endif // QWEN_CALIBRATION_EMBEDDEDTEXTS_H
