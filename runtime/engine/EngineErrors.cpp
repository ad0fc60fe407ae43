//===- EngineErrors.cpp - Why a call of an engine failed ------------------===//

#include "engine/Engine.h"

#include <algorithm>

using namespace qwen;

std::string Engine::describe(const Failure &failure) const {
  return describe(failure, model.forward());
}

std::string Engine::describe(const Failure &failure,
                             const ProgramInfo &program) const {
  const std::string sequence = "sequence " + std::to_string(failure.sequence);
  const std::string position = "position " + std::to_string(failure.position);
  if (failure.kind == ErrorKind::InvalidToken)
    return "token id " + std::to_string(failure.id) + " of " + sequence +
           " is not in the model's vocabulary of " +
           std::to_string(program.model.vocabSize);
  if (failure.kind == ErrorKind::PastContext)
    return position + " of " + sequence + " is past the context of " +
           std::to_string(model.model.context) +
           " that the model was compiled for";
  if (failure.kind == ErrorKind::Cancelled)
    return sequence + " was cancelled at " + position;
  if (failure.kind == ErrorKind::NoPage)
    return sequence + " has no page for " + position + ": " +
           sequenceState.describeFull();
  return describeNotFinite(sequence + ", " + position, failure.op, program);
}

std::string Engine::describeNotFinite(const std::string &where, uint32_t op,
                                      const ProgramInfo &program) const {
  std::string message =
      "a number is not finite at " + where + ", in " +
      (op < program.ops.size() ? program.ops[op] : "op " + std::to_string(op)) +
      "; the file may be damaged, which qwen-run info --check finds";
  const auto tooSmall =
      std::ranges::find_if(program.caches, [](const CacheInfo &cache) {
        return cache.format && infoOf(*cache.format).overflows;
      });
  if (tooSmall != program.caches.end() && op < program.work.size() &&
      program.work[op].kind == OpKind::Append)
    message += ", or keys or values are too large for " +
               std::string(kvFormatName(*tooSmall->format)) +
               ", which qwen-opt --kv f32 avoids";
  return message;
}
