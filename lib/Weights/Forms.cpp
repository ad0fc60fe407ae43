//===- Forms.cpp - The forms of weights in checkpoints --------------------===//

#include "qwen/Weights/Forms.h"

#include <algorithm>

using namespace qwen;

namespace {
/// A row of Forms.def.
struct WeightForm {
  std::string_view method;
  std::vector<std::string_view> suffixes;
  WeightSourcePtr (*make)(WeightTensors);
};

/// A tensor and its name in the model.
using NamedTensor = std::pair<const std::string, StoredTensor>;
/// Those of one module that no weight has taken, by their suffixes.
using Module = std::map<std::string_view, const NamedTensor *>;
} // namespace

static const std::vector<WeightForm> &forms() {
  static const std::vector<WeightForm> all = {
#define QWEN_WEIGHT_FORM(Form, Method, ...) {Method, {__VA_ARGS__}, make##Form},
#include "qwen/Weights/Forms.def"
  };
  return all;
}

/// Makes the weight `name` of the tensors of `module` with these suffixes and
/// takes them, if all are there and have the form.
static void take(const WeightForm &form, const std::string &name,
                 std::span<const std::string_view> suffixes, Module &module,
                 WeightSources &sources) {
  std::vector<const StoredTensor *> tensors;
  WeightSources::Entry entry;
  for (std::string_view suffix : suffixes) {
    const auto found = module.find(suffix);
    if (found == module.end())
      return;
    tensors.push_back(&found->second->second);
    entry.tensors.push_back(found->second->first);
  }
  entry.source = form.make(tensors);
  if (!entry.source)
    return;
  for (std::string_view suffix : suffixes)
    module.erase(suffix);
  sources.set(name, std::move(entry));
}

WeightSources qwen::makeSources(
    const std::map<std::string, StoredTensor, std::less<>> &tensors,
    std::string_view method) {
  std::map<std::string_view, Module> modules;
  for (const NamedTensor &tensor : tensors) {
    const std::string_view name = tensor.first;
    const size_t dot = std::min(name.rfind('.'), name.size());
    modules[name.substr(0, dot)][name.substr(std::min(dot + 1, name.size()))] =
        &tensor;
  }
  WeightSources sources;
  for (auto &[name, module] : modules)
    for (const WeightForm &form : forms()) {
      if (!form.method.empty() && form.method != method)
        continue;
      if (!form.suffixes.empty())
        take(form, std::string(name) + ".weight", form.suffixes, module,
             sources);
      else
        for (const auto &[suffix, tensor] : Module(module))
          take(form, tensor->first, {&suffix, 1}, module, sources);
    }
  return sources;
}
