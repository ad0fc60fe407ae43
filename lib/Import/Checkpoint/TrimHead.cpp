//===- TrimHead.cpp - A head of some tokens, for drafts -------------------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "qwen/ABI/Program.h"
#include "qwen/Support/Error.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>

using namespace qwen;

void Checkpoint::trimHead(const std::vector<int32_t> &tokens) {
  model.output.requireLogits(where.string());
  const auto head = std::ranges::find_if(scopes, [&](const ScopedModel &each) {
    return each.scope.tensors == kDraftHeadTensors && each.config(*this);
  });
  const bool isOfHead = head != scopes.end();
  const WeightSources::Entry all =
      weight(model.tied ? ModelScope().embedding() : "lm_head.weight",
             {{model.vocabSize, model.hiddenSize}});
  const std::vector<int64_t> rows(tokens.begin(), tokens.end());
  sources.set((isOfHead ? head->scope : ModelScope()).weight(kTrimmedHead),
              {makeOutputs(all.source, rows), all.tensors});
  if (isOfHead) {
    model.draftTokens = tokens;
    return;
  }
  model.tied = false;
  model.output.kind = OutputKind::Drafts;
  model.output.tokens = tokens;
  model.notes.push_back("logits of " + std::to_string(tokens.size()) +
                        " tokens only; the model is for drafts alone "
                        "(qwen-run --speculate)");
}
