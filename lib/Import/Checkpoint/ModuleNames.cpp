//===- ModuleNames.cpp - Names of tensors in other layouts ----------------===//

#include "ModuleNames.h"

#include <optional>

using namespace qwen;

/// `name` with the member `from` of its row in `modules` replaced by the member
/// `to`, or nullopt.
static std::optional<std::string> renameIn(std::span<const ModuleName> modules,
                                           std::string_view name,
                                           std::string_view ModuleName::*from,
                                           std::string_view ModuleName::*to) {
  for (const ModuleName &module : modules) {
    const std::string_view own = module.*from;
    if (name.starts_with(own) &&
        (name.size() == own.size() || name[own.size()] == '.'))
      return std::string(module.*to) + std::string(name.substr(own.size()));
  }
  return std::nullopt;
}

std::string ModuleNames::rename(std::string_view name,
                                std::string_view ModuleName::*from,
                                std::string_view ModuleName::*to) const {
  if (!name.starts_with(layer.*from))
    return renameIn(modules, name, from, to).value_or(std::string(name));
  const size_t begin = (layer.*from).size();
  const size_t dot = name.find('.', begin);
  if (dot == name.npos)
    return std::string(name);
  const auto found = renameIn(layerModules, name.substr(dot + 1), from, to);
  if (!found)
    return std::string(name);
  return std::string(layer.*to) +
         std::string(name.substr(begin, dot + 1 - begin)) + *found;
}
