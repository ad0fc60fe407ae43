//===- Forms.cpp - The forms of weights in checkpoints --------------------===//

#include "qwen/Weights/Forms.h"

#include "qwen/Support/Text.h"

#include <algorithm>
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

namespace {
/// Makes the weights of tensors, form by form.
class SourceMaker {
public:
  explicit SourceMaker(const TensorsByName &tensors) : tensors(tensors) {}

  void add(const FormInfo &info, const WeightForm &form) {
    for (const auto &[name, tensor] : tensors)
      if (!taken.contains(name)) {
        if (info.suffixes.empty())
          take(form, name, {&tensor}, {name});
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
  /// Makes the weight `name` of `some`, whose names in the model are `names`,
  /// and takes them, if they have the form.
  void take(const WeightForm &form, const std::string &name,
            const std::vector<const StoredTensor *> &some,
            std::vector<std::string> names) {
    WeightSourcePtr source = form.make(some);
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
    take(form, module + "weight", some, std::move(names));
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
