//===- ModelList.h - The models that a server has ---------------*- C++ -*-===//

#ifndef QWEN_RUN_MODELLIST_H
#define QWEN_RUN_MODELLIST_H

#include "cache/ModelSource.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace qwen::run {

/// A model by the name that requests give.
struct ListedModel {
  std::string name;
  /// A MODEL of a command line.
  std::string given;
  /// The folder of --models-dir that all its files must lie in; empty for a
  /// MODEL of the command line.
  std::filesystem::path folder = {};

  /// What it names now. Throws Error as findModel does, and if one of its files
  /// lies outside of `folder`.
  ModelSource source() const;
};

/// MODEL of a command line, by the name of its file or folder. Throws Error as
/// findModel does.
ListedModel listModel(const std::string &given);

/// The models in a folder, sorted by their names: compiled files, GGUF files
/// and folders with a checkpoint. `skip` receives a line for each that cannot
/// be one: a link that leaves the folder, or a second one of a name. Throws
/// Error if the folder cannot be read.
std::vector<ListedModel>
listModels(const std::string &folder,
           const std::function<void(const std::string &line)> &skip);

} // namespace qwen::run

#endif // QWEN_RUN_MODELLIST_H
