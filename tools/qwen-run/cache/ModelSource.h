//===- ModelSource.h - What a MODEL names -----------------------*- C++ -*-===//

#ifndef QWEN_RUN_CACHE_MODELSOURCE_H
#define QWEN_RUN_CACHE_MODELSOURCE_H

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qwen::run {

/// What MODEL of a command line names (docs/decisions/0022-one-command.md).
struct ModelSource {
  /// A compiled file, a folder, or a GGUF file.
  std::filesystem::path path;
  bool isCompiled;
  /// The model's own name: the name of its file or folder, or the last part of
  /// its name on Hugging Face.
  std::string name;

  /// All files that a compile may read, with their names in the checkpoint,
  /// sorted; none of a compiled file. Throws Error if there are too many.
  std::vector<std::pair<std::string, std::filesystem::path>> files() const;
  /// Bytes of the files with weights.
  uint64_t weightBytes() const;
};

/// The files below `folder` and in its folders, with their names there, sorted:
/// no hidden ones, and none of compiled models. Throws Error if there are more
/// than some thousands.
std::vector<std::pair<std::string, std::filesystem::path>>
filesBelow(const std::filesystem::path &folder);

/// Whether `given` can be a MODEL: a path that exists, or a name that has a
/// folder in Hugging Face's cache.
bool isModel(const std::string &given);

/// What `given` names. A path that does not exist is a compiled file, whose
/// error the reader knows. Throws Error if it is a folder without a model or
/// with several, or a name that Hugging Face's cache does not have.
ModelSource findModel(const std::string &given);

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_MODELSOURCE_H
