//===- DraftVocabulary.cpp - The command line of a draft vocabulary -------===//

#include "DraftVocabulary.h"

#include "Calibrate.h"
#include "CommandLine.h"
#include "calibration/EmbeddedTexts.h"
#include "calibration/FrequentTokens.h"
#include "calibration/LoadedPrograms.h"
#include "qwen/Support/Error.h"

using namespace qwen;

void qwen::addDraftVocabulary(const Command &command, DraftFlags &flags) {
  const Option tokens = command.addNumber(
      "--draft-vocabulary", flags.tokens,
      "Let drafts have the N most frequent tokens only, which makes them "
      "cheaper: the draft head's; without a head, or with --no-mtp, the model "
      "is for --speculate alone; default is all tokens",
      1, 1 << 24);
  command
      .addText("--draft-text", flags.text,
               "File with the text whose tokens --draft-vocabulary counts; "
               "default is a text of qwen-opt's own. Tokens that it lacks come "
               "in the order of their ids")
      .needs(tokens);
}

void qwen::addDraftHook(const DraftFlags &flags, CompileHooks &hooks) {
  if (!flags.tokens)
    return;
  hooks.chooseDraftTokens =
      [count = *flags.tokens, file = flags.text,
       text = flags.text.empty() ? "" : readTextFile(flags.text)](
          const QuantizeInput &input) {
        if (!input.tokenizer && !file.empty())
          throw Error(part::subject("--draft-text") +
                      " needs a tokenizer, which the checkpoint lacks");
        int64_t vocab = modelFact(input.module, "vocab_size");
        if (input.tokenizer)
          vocab = std::min<int64_t>(vocab, input.tokenizer->vocabSize);
        if (count > vocab)
          throw Error(part::subject("--draft-vocabulary") + " has " +
                      part::found(count) + " tokens when the model has " +
                      part::needed(vocab));
        const std::vector<std::string_view> texts =
            file.empty() ? embeddedTextViews()
                         : std::vector<std::string_view>{text};
        return frequentTokens(input.tokenizer, texts, vocab, count);
      };
}
