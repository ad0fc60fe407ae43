//===- ModelReader.cpp - What readers of configurations share -------------===//

#include "ModelReader.h"

#include "qwen/Import/Checkpoint/ModelScope.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;

int64_t qwen::mostOf(int64_t ModelShape::*size) {
  for (const Fact<ModelShape> &fact : kShapeFacts)
    if (fact.member == decltype(fact.member)(size))
      return static_cast<int64_t>(fact.most);
  return 0;
}

std::string
qwen::supportedArchitectures(std::string_view ArchitectureInfo::*name) {
  std::vector<std::string> names;
  for (const ArchitectureInfo &info : kArchitectures) {
    if ((info.*name).empty())
      continue;
    names.emplace_back(info.*name);
    if (!info.models.empty())
      names.back() += " (" + std::string(info.models) + ")";
  }
  return "supported are " + listed(names);
}

void qwen::setYarn(ModelConfig &model, const Yarn &yarn) {
  model.yarn = yarn;
  const double longer = yarn.factor * static_cast<double>(yarn.positions);
  model.maxPosition =
      std::max(model.maxPosition,
               static_cast<int64_t>(
                   std::min(longer, static_cast<double>(kMaxModelPosition))));
}

/// Rejects a K of `tensor` that is not a multiple of a group.
static void checkK(const std::string &path, const char *tensor, int64_t k) {
  if (k % kGroup != 0)
    throw Error(part::file(path) + ": " +
                part::subject("K of " + ModelScope().layer(0) + tensor) +
                " is " + part::found(k) + " when " +
                part::needed("a multiple of " + std::to_string(kGroup)) +
                " is needed");
}

void qwen::checkSizes(const std::string &path, const ModelShape &model) {
  if (model.headDim < 16 || model.headDim > 256 || model.headDim % 8 != 0)
    throw Error(part::file(path) + ": " + part::subject("head_dim") + " is " +
                part::found(model.headDim) + " when " +
                part::needed("a multiple of 8 from 16 to 256") + " is needed");

  checkK(path, "self_attn.q_proj.weight", model.hiddenSize);
  checkK(path, "self_attn.o_proj.weight", model.heads * model.headDim);
  checkK(path, "mlp.down_proj.weight", model.intermediateSize);
}

void qwen::noteUnusedKeys(const std::string &what,
                          const std::vector<std::string> &names,
                          ModelConfig &model) {
  if (names.empty())
    return;
  std::string line;
  for (const std::string &name : names)
    line += (line.empty() ? "" : ", ") + name;
  model.notes.push_back("not used, " + what + ": " + printable(line));
}
