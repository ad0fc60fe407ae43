//===- Grammar.cpp - What answers may be like -----------------------------===//

#include "grammar/Grammar.h"

#include "grammar/LlGuidance.h"

#include "qwen/Support/Error.h"

using namespace qwen;

/// Makes a compiler; null without a library.
static constexpr std::unique_ptr<GrammarCompiler> (*kMake)(
    const Tokenizer &, std::span<const int32_t>) =
#ifdef QWEN_LLGUIDANCE
    makeLlGuidance;
#else
    nullptr;
#endif

bool qwen::hasGrammars() { return kMake != nullptr; }

std::unique_ptr<GrammarCompiler>
qwen::makeGrammarCompiler(const Tokenizer &tokenizer,
                          std::span<const int32_t> ends) {
  if constexpr (kMake != nullptr)
    return kMake(tokenizer, ends);
  throw Error("this program was built without llguidance, which grammars need");
}
