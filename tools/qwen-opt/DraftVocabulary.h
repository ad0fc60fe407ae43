//===- DraftVocabulary.h - The command line of a draft vocabulary -*- C++
//-*-===//

#ifndef QWEN_OPT_DRAFTVOCABULARY_H
#define QWEN_OPT_DRAFTVOCABULARY_H

#include "CommandTree.h"
#include "qwen/Compiler/Compiler.h"

#include <cstdint>
#include <optional>
#include <string>

namespace qwen {

/// The flags of a head of some tokens, for drafts.
struct DraftFlags {
  /// The number of its tokens; nothing: all.
  std::optional<int64_t> tokens;
  /// The file of the text that chooses them; empty: qwen-opt's own.
  std::string text;
};

void addDraftVocabulary(const Command &command, DraftFlags &flags);

/// Sets the hook that chooses the tokens. Does nothing without flags. Reads the
/// text at once; throws Error if it cannot.
void addDraftHook(const DraftFlags &flags, CompileHooks &hooks);

} // namespace qwen

#endif // QWEN_OPT_DRAFTVOCABULARY_H
