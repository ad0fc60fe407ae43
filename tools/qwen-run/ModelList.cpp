//===- ModelList.cpp - The models that a server has -----------------------===//

#include "ModelList.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/SplitName.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::run;
namespace fs = std::filesystem;

static constexpr std::string_view kCompiledEnding = ".qwen",
                                  kCheckpointEnding = ".gguf";

/// The name of a model by its file or folder.
static std::string modelName(const fs::path &path) {
  const std::string file = path.filename().string();
  return file.ends_with(kCompiledEnding)
             ? file.substr(0, file.size() - kCompiledEnding.size())
             : ggufModelName(file);
}

/// Throws Error unless a path, all links followed, lies in `folder`.
static void requireInside(const fs::path &path, const fs::path &folder) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  const fs::path root = fs::canonical(folder, error);
  const auto [end, other] = std::ranges::mismatch(root, real);
  if (error || end != root.end())
    throw Error(part::file(path.string()) + " is a link that leaves " +
                folder.string());
}

ModelSource ListedModel::source() const {
  ModelSource source = findModel(given);
  if (folder.empty())
    return source;
  requireInside(source.path, folder);
  for (const auto &[file, path] : source.files())
    requireInside(path, folder);
  return source;
}

ListedModel qwen::run::listModel(const std::string &given) {
  const ModelSource source = findModel(given);
  return {source.isCompiled ? modelName(source.path) : source.name, given};
}

/// Whether an entry of a folder may be a model. Of a split file, only the first
/// part is.
static bool mayBeModel(const fs::directory_entry &entry) {
  std::error_code ignored;
  const std::string file = entry.path().filename().string();
  if (file.starts_with('.'))
    return false;
  if (entry.is_directory(ignored)) {
    const fs::directory_iterator files(entry.path(), ignored);
    return std::ranges::any_of(files, [](const fs::directory_entry &inner) {
      return inner.path().filename() == "config.json" ||
             inner.path().extension() == kCheckpointEnding;
    });
  }
  // A link that leads nowhere is told as one that leaves the folder.
  if (file.ends_with(kCheckpointEnding))
    return ggufSplitName(file, 0).value_or(file) == file;
  return file.ends_with(kCompiledEnding);
}

std::vector<ListedModel> qwen::run::listModels(
    const std::string &folder,
    const std::function<void(const std::string &line)> &skip) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const auto &entry : fs::directory_iterator(folder, error))
    if (mayBeModel(entry))
      paths.push_back(entry.path());
  if (error)
    throw Error("cannot read the folder " + part::file(folder) + ": " +
                part::found(error.message()));
  // A compiled file comes before the checkpoint of its name.
  std::ranges::sort(paths, {}, [](const fs::path &path) {
    return std::tuple(modelName(path), path.extension() != kCompiledEnding,
                      path.string());
  });
  std::vector<ListedModel> models;
  for (const fs::path &path : paths) {
    ListedModel model = {modelName(path), path.string(), folder};
    try {
      if (!models.empty() && models.back().name == model.name)
        throw Error(part::file(path.string()) + " has the name of " +
                    models.back().given);
      model.source();
      models.push_back(std::move(model));
    } catch (const Error &why) {
      skip("skips a model: " + printable(why.what()));
    }
  }
  return models;
}
