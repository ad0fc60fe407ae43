//===- ModuleNames.h - Names of tensors in other layouts --------*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_MODULENAMES_H
#define QWEN_LIB_IMPORT_CHECKPOINT_MODULENAMES_H

#include <span>
#include <string>
#include <string_view>

namespace qwen {

/// The names of a module or a tensor in the graph and in another layout. The
/// graph has the names of the Hugging Face layout of a Qwen2 or later.
struct ModuleName {
  std::string_view model;
  std::string_view own;
};

/// The names of a layout. The first row with a name counts.
struct ModuleNames {
  /// What is before the number of a layer.
  ModuleName layer;
  /// Modules outside layers.
  std::span<const ModuleName> modules;
  /// Modules of a layer: the parts of their names behind its number.
  std::span<const ModuleName> layerModules;

  /// The other name of the tensor `name`, from `from` to `to`. Returns the name
  /// unchanged if no row has it.
  std::string rename(std::string_view name, std::string_view ModuleName::*from,
                     std::string_view ModuleName::*to) const;
};

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_MODULENAMES_H
