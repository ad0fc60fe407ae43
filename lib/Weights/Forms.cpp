//===- Forms.cpp - The forms of weights in checkpoints --------------------===//

#include "qwen/Weights/Forms.h"

#include "qwen/Support/Text.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <array>
#include <set>

using namespace qwen;

namespace {
/// A row of Forms.def.
struct FormInfo {
  std::string_view methods;
  std::vector<std::string_view> suffixes;
  std::unique_ptr<const WeightForm> (*make)(const JsonValue &);
};
} // namespace

static const std::vector<FormInfo> &forms() {
  static const std::vector<FormInfo> all = {
#define QWEN_WEIGHT_FORM(Id, Methods, ...)                                     \
  {Methods, {__VA_ARGS__}, make##Id##Form},
#include "qwen/Weights/Forms.def"
  };
  return all;
}

/// Calls visit(method) for each quant_method of a form.
template <typename Visit>
static void forMethods(const FormInfo &form, Visit visit) {
  std::string_view rest = form.methods;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    visit(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

static bool hasMethod(const FormInfo &form, std::string_view method) {
  bool found = false;
  forMethods(form, [&](std::string_view own) { found |= own == method; });
  return found;
}

std::string_view qwen::moduleOf(const StoredTensor &tensor) {
  const std::string_view name = tensor.name;
  return name.substr(0, std::min(name.rfind('.'), name.size()));
}

bool qwen::isFormMethod(std::string_view method) {
  return std::ranges::any_of(
      forms(), [&](const FormInfo &form) { return hasMethod(form, method); });
}

std::string qwen::formMethodList() {
  std::set<std::string_view> methods;
  for (const FormInfo &form : forms())
    forMethods(form, [&](std::string_view method) { methods.insert(method); });
  return listed(std::vector<std::string>(methods.begin(), methods.end()));
}

/// Matrix `index` of a tensor of several.
static StoredTensor matrixOf(const StoredTensor &tensor, int64_t index) {
  StoredTensor matrix = tensor;
  const auto count = static_cast<size_t>(tensor.shape.front());
  const size_t bytes = tensor.bytes.size() / count;
  matrix.shape.erase(matrix.shape.begin());
  if (matrix.shape.empty())
    matrix.shape.push_back(1);
  matrix.bytes =
      tensor.bytes.subspan(static_cast<size_t>(index) * bytes, bytes);
  return matrix;
}

/// The weight that `tensors` hold, whose first dimensions are matrices if the
/// first tensor has three: the experts of a layer in the same form.
static WeightSourcePtr makeMatrices(const WeightForm &form,
                                    WeightTensors tensors) {
  const StoredTensor &first = *tensors.front();
  if (first.shape.size() != 3 || first.shape[0] < 1)
    return form.make(tensors);
  std::vector<WeightSourcePtr> matrices;
  for (int64_t i = 0; i < first.shape[0]; ++i) {
    std::vector<StoredTensor> parts(tensors.size());
    std::vector<const StoredTensor *> some(tensors.size());
    for (size_t j = 0; j < tensors.size(); ++j) {
      const StoredTensor *tensor = tensors[j];
      if (!tensor)
        continue;
      if (tensor->shape.empty() || tensor->shape[0] != first.shape[0])
        throw Error(describeTensor(*tensor) + " has shape " +
                    part::found(shapeText(tensor->shape)) + " when " +
                    part::needed(std::to_string(first.shape[0]) + " matrices") +
                    " are needed");
      some[j] = &(parts[j] = matrixOf(*tensor, i));
    }
    matrices.push_back(form.make(some));
    if (!matrices.back())
      return nullptr;
  }
  return makeStacked(std::move(matrices));
}

namespace {
/// Makes the weights of tensors, form by form.
class SourceMaker {
public:
  explicit SourceMaker(const TensorsByName &tensors) : tensors(tensors) {}

  void add(const FormInfo &info, const WeightForm &form) {
    for (const auto &[name, tensor] : tensors)
      if (!taken.contains(name)) {
        if (info.suffixes.empty())
          take(name, form.make(std::array{&tensor}), {name});
        else
          takeModule(info, form, name, tensor);
      }
  }

  WeightSources finish() {
    for (const auto &[tensor, suffix] : incomplete)
      if (!taken.contains(tensor->first))
        throw Error(describeTensor(tensor->second) + " has no tensor " +
                    part::needed(quote(std::string(moduleOf(tensor->second)) +
                                       "." + std::string(suffix))) +
                    " beside it, which its form needs");
    return std::move(sources);
  }

private:
  /// Takes the tensors `names` of the model for the weight `name`, if they have
  /// the form: then `source` is not null.
  void take(const std::string &name, WeightSourcePtr source,
            std::vector<std::string> names) {
    if (!source)
      return;
    if (const WeightSources::Entry *other = sources.find(name))
      throw Error(source->name() + " and " +
                  part::found(quote(other->tensors.front())) +
                  " both give the weight " + part::subject(name));
    taken.insert(names.begin(), names.end());
    sources.set(name, {std::move(source), std::move(names)});
  }

  /// Takes the tensors of the module of `tensor`, if that is its first one.
  void takeModule(const FormInfo &info, const WeightForm &form,
                  const std::string &name, const StoredTensor &tensor) {
    const std::string_view first = info.suffixes.front();
    if (!name.ends_with(first) || !std::string_view(name)
                                       .substr(0, name.size() - first.size())
                                       .ends_with('.'))
      return;
    const std::string module = name.substr(0, name.size() - first.size());
    std::vector<const StoredTensor *> some;
    std::vector<std::string> names;
    for (std::string_view suffix : info.suffixes) {
      const bool isOptional = suffix.ends_with('?');
      suffix.remove_suffix(isOptional ? 1 : 0);
      const auto found = tensors.find(module + std::string(suffix));
      const bool isThere =
          found != tensors.end() && !taken.contains(found->first);
      if (!isThere && !isOptional) {
        // Floats are a weight of their own.
        if (!tensor.type)
          incomplete.emplace_back(&*tensors.find(name), suffix);
        return;
      }
      some.push_back(isThere ? &found->second : nullptr);
      if (isThere)
        names.push_back(found->first);
    }
    take(module + "weight", makeMatrices(form, some), std::move(names));
  }

  const TensorsByName &tensors;
  WeightSources sources;
  /// Names of tensors that a weight has.
  std::set<std::string, std::less<>> taken;
  /// First tensors of modules, and a suffix that each lacks.
  std::vector<std::pair<const TensorsByName::value_type *, std::string_view>>
      incomplete;
};
} // namespace

WeightSources qwen::makeSources(const TensorsByName &tensors,
                                const JsonValue &config,
                                std::string_view method) {
  SourceMaker maker(tensors);
  for (const FormInfo &info : forms())
    if (info.methods.empty() || hasMethod(info, method))
      maker.add(info, *info.make(config));
  return maker.finish();
}

WeightSources qwen::makeSources(const TensorsByName &tensors) {
  const nlohmann::json empty = nlohmann::json::object();
  const JsonSource source = {"", ""};
  return makeSources(tensors, {empty, source}, "");
}
