//===- ScaleRope.cpp - A checkpoint with more positions -------------------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "ModelReader.h"

#include "qwen/Numerics/Math.h"
#include "qwen/Support/Error.h"

#include <string>

using namespace qwen;

void Checkpoint::scaleRope(const RopeScaling &scaling) {
  const auto refuse = [&](const ErrorText &why) {
    throw Error(part::subject("--rope-scaling") + ": " +
                part::file(where.string()) + " " + why);
  };
  if (model.architecture == Architecture::Qwen1)
    refuse("is a Qwen 1, whose positions YaRN does not scale");
  if (model.yarn)
    refuse("scales its positions itself, by YaRN with the factor " +
           part::found(nlohmann::json(model.yarn->factor).dump()));
  const int64_t positions = scaling.positions.value_or(model.maxPosition);
  const double longer = scaling.factor * static_cast<double>(positions);
  if (!(longer > static_cast<double>(model.maxPosition)) ||
      longer > static_cast<double>(kMaxModelPosition))
    refuse("would have " +
           part::found(std::to_string(static_cast<int64_t>(longer))) +
           " positions when more than " + part::needed(model.maxPosition) +
           ", those without it, and at most " +
           std::to_string(kMaxModelPosition) + " are needed");
  Yarn yarn;
  yarn.factor = scaling.factor;
  yarn.positions = positions;
  yarn.scale = numerics::yarnAttentionFactor(yarn.factor);
  setYarn(model, yarn);
}
