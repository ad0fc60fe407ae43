//===- LarkText.h - Pieces of grammars in Lark ------------------*- C++ -*-===//
//
// Texts of llguidance's form of Lark. To write them needs no library.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_LARKTEXT_H
#define QWEN_RUNTIME_TEXT_LARKTEXT_H

#include <span>
#include <string>
#include <string_view>

namespace qwen {

/// Exactly this text, which is UTF-8.
std::string larkString(std::string_view text);

/// A regular expression of texts without any of `words`, and of at least one
/// character unless `mayBeEmpty`. Words begin with "<", have no further "<",
/// and none is the start of another.
std::string larkTextWithout(std::span<const std::string_view> words,
                            bool mayBeEmpty);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_LARKTEXT_H
