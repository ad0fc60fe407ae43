//===- DraftHead.h - The program of a draft head ----------------*- C++ -*-===//
//
// A draft head (multi-token prediction) guesses the token behind the next one.
// Its program reads the row of `forward` behind the final norm and the next
// token, and gives logits and a row of its own, from which it goes on.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_DRAFTHEAD_H
#define QWEN_ABI_DRAFTHEAD_H

#include <string_view>

namespace qwen {

/// The name of its program, and what the names of its weights begin with.
inline constexpr std::string_view kDraftHeadName = "mtp",
                                  kDraftHeadTensors = "mtp.";

/// The rows that it reads and gives, and that `forward` gives: f32
/// [hidden size], behind a final norm. `forward` gives one for each token, and
/// the head for each wanted token.
inline constexpr std::string_view kHiddenRowsName = "hidden";

} // namespace qwen

#endif // QWEN_ABI_DRAFTHEAD_H
