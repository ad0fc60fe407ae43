//===- QuantizationConfig.cpp - Weights by a configuration ----------------===//

#include "QuantizationConfig.h"

#include "ModelReader.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Import/Checkpoint/Known.h"

#include "qwen/Support/Error.h"
#include "qwen/Weights/Forms.h"

#include <algorithm>
#include <set>

using namespace qwen;

/// Whether a tensor needs a form: it is neither floats nor known to have no
/// effect.
static bool needsForm(const TensorsByName::value_type &tensor) {
  return !tensor.second.type && !knownTensorKind(tensor.first);
}

/// Throws Error if no form has read such a tensor.
static void checkAllRead(const TensorsByName &tensors,
                         const WeightSources &sources,
                         const QuantizationConfig &quantization) {
  std::set<std::string_view> used;
  for (const auto &[name, entry] : sources.all())
    used.insert(entry.tensors.begin(), entry.tensors.end());
  const auto left = std::ranges::find_if(tensors, [&](const auto &tensor) {
    return needsForm(tensor) && !used.contains(tensor.first);
  });
  if (left == tensors.end())
    return;
  const StoredTensor &tensor = left->second;
  const ErrorText what =
      part::tensor(tensor.name) + " has dtype " + part::found(tensor.typeName);
  if (isFormMethod(quantization.method))
    throw Error(part::file(tensor.path) + ": " + what +
                ", which is no part of a weight of quant_method " +
                quote(quantization.method));
  const std::string method =
      quantization.method.empty()
          ? ""
          : ".quant_method " + quote(quantization.method);
  throw Error(part::file(quantization.file) + ": " +
              part::subject(quantization.key) + method + " is not supported; " +
              part::needed("the weights of the original model, in F32, F16 or "
                           "BF16, or quant_method " +
                           formMethodList()) +
              ", are needed: " + what);
}

WeightSources qwen::readWeights(const StoredTensors &stored,
                                ModelConfig &model) {
  const QuantizationConfig &quantization = model.quantization;
  const TensorsByName &tensors = stored.tensors();
  if (quantization.file.empty())
    return makeSources(tensors);
  if (std::ranges::none_of(tensors, needsForm)) {
    model.notes.push_back(printable(quantization.name()) +
                          " has no effect: all tensors are floats");
    return makeSources(tensors);
  }
  JsonReads read;
  JsonSource source = JsonSource::ofFile(quantization.file, &read);
  source.keysOf = [&](const std::string &path) {
    return keysInOrder(readJsonText(quantization.file).value_or("{}"), path);
  };
  const JsonValue config(quantization.value, quantization.key, source);
  WeightSources sources = makeSources(tensors, config, quantization.method);
  checkAllRead(tensors, sources, quantization);
  std::vector<std::string> unknown;
  for (const auto &[name, value] : config.unread())
    unknown.push_back(value.name());
  noteUnusedKeys("unknown keys", unknown, model);
  return sources;
}
