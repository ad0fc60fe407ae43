//===- ModelSource.cpp - What a MODEL names -------------------------------===//

#include "cache/ModelSource.h"

#include "qwen/Support/InputError.h"
#include "qwen/Support/SplitName.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

using namespace qwen;
using namespace qwen::run;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static constexpr char kGgufEnding[] = ".gguf";

static bool isGguf(const fs::path &path) {
  char magic[4] = {};
  std::ifstream stream(path, std::ios::binary);
  return stream.read(magic, sizeof magic) &&
         std::string_view(magic, sizeof magic) == "GGUF";
}

/// Whether both are parts of one split model.
static bool isOneModel(const std::string &one, const std::string &other) {
  const auto first = ggufSplitName(one, 0);
  return first && first == ggufSplitName(other, 0);
}

std::vector<std::pair<std::string, fs::path>>
qwen::run::filesBelow(const fs::path &folder) {
  constexpr size_t kMostFiles = 4096;
  std::vector<std::pair<std::string, fs::path>> files;
  std::error_code ignored;
  const auto add = [&](const fs::path &path, const std::string &name) {
    if (path.filename().string().starts_with('.') ||
        path.extension() == ".qwen" || !fs::is_regular_file(path, ignored))
      return;
    if (files.size() == kMostFiles)
      throw Error(part::file(folder.string()) + " has more than " +
                  part::found(kMostFiles) +
                  " files when a checkpoint has fewer; compile it with "
                  "qwen-opt");
    files.emplace_back(name, path);
  };
  for (const auto &entry : fs::directory_iterator(folder, ignored)) {
    const fs::path &path = entry.path();
    const std::string name = path.filename().string();
    add(path, name);
    // Modules of sentence-transformers have folders of their own.
    if (!name.starts_with('.') && entry.is_directory(ignored))
      for (const auto &inner : fs::directory_iterator(path, ignored))
        add(inner.path(), name + "/" + inner.path().filename().string());
  }
  std::ranges::sort(files);
  return files;
}

std::vector<std::pair<std::string, fs::path>> ModelSource::files() const {
  if (isCompiled)
    return {};
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return filesBelow(path);
  const std::string file = path.filename().string();
  std::vector<std::pair<std::string, fs::path>> files = {{file, path}};
  if (ggufSplitName(file, 0))
    for (const auto &entry :
         fs::directory_iterator(fs::absolute(path).parent_path(), ignored))
      if (const std::string other = entry.path().filename().string();
          other != file && isOneModel(file, other))
        files.emplace_back(other, entry.path());
  std::ranges::sort(files);
  return files;
}

uint64_t ModelSource::weightBytes() const {
  uint64_t bytes = 0;
  for (const auto &[fileName, file] : files()) {
    std::error_code error;
    const uint64_t size = fs::file_size(file, error);
    if (!error && (file == path || fileName.ends_with(kGgufEnding) ||
                   fileName.ends_with(".safetensors")))
      bytes += size;
  }
  return bytes;
}

//===----------------------------------------------------------------------===//
// Hugging Face's cache
//===----------------------------------------------------------------------===//

/// The value of a variable of the environment; empty if it is not set.
static std::string variable(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

/// The first of the places of huggingface_hub that is set.
static fs::path hubFolder() {
  if (std::string hub = variable("HF_HUB_CACHE"); !hub.empty())
    return hub;
  if (const std::string home = variable("HF_HOME"); !home.empty())
    return fs::path(home) / "hub";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface" / "hub";
  return fs::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
}

/// Whether `given` has the form of a name on Hugging Face, OWNER/NAME, and not
/// the form of a file.
static bool isHubName(const std::string &given) {
  const size_t slash = given.find('/');
  if (slash == 0 || slash == given.npos || slash + 1 == given.size() ||
      given.find('/', slash + 1) != given.npos || given.front() == '.' ||
      given.ends_with(".qwen") || given.ends_with(kGgufEnding))
    return false;
  return std::ranges::all_of(given, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

/// The folder of all revisions of OWNER/NAME.
static fs::path hubModel(std::string name) {
  return hubFolder() / ("models--" + name.replace(name.find('/'), 1, "--"));
}

/// The revision that "main" names, or the only one.
static fs::path hubSnapshot(const std::string &given) {
  const fs::path folder = hubModel(given), snapshots = folder / "snapshots";
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw Error(quote(given) + " is neither a file nor a folder, and " +
                part::file(folder.string()) + " is missing; `hf download " +
                printable(given) + "` gets it");
  const fs::path reference = folder / "refs" / "main";
  std::string revision;
  std::ifstream(reference) >> revision;
  if (!revision.empty()) {
    if (revision.find('/') != revision.npos ||
        !fs::is_directory(snapshots / revision, ignored))
      throw Error(part::file(reference.string()) + " names the snapshot " +
                  part::found(quote(revision)) +
                  ", which is missing; `hf "
                  "download " +
                  printable(given) + "` gets it");
    return snapshots / revision;
  }
  std::vector<fs::path> found;
  for (const auto &entry : fs::directory_iterator(snapshots, ignored))
    if (entry.is_directory(ignored))
      found.push_back(entry.path());
  if (found.size() != 1)
    throw Error(part::file(folder.string()) + " has no refs/main and " +
                part::found(found.size()) + " snapshots when " +
                part::needed("one") + " is needed; name the folder of one");
  return found.front();
}

//===----------------------------------------------------------------------===//
// Models
//===----------------------------------------------------------------------===//

/// The model in `folder`: the folder, or its one GGUF model.
static fs::path modelIn(const fs::path &folder) {
  std::error_code error;
  if (fs::exists(folder / "config.json", error))
    return folder;
  std::vector<std::string> models;
  for (const auto &entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kGgufEnding)
      models.push_back(entry.path().filename().string());
  std::ranges::sort(models);
  // The first of a split model stands for all.
  const auto others = std::ranges::unique(models, isOneModel);
  models.erase(others.begin(), others.end());
  if (models.empty())
    throw Error(part::file(folder.string()) +
                " has no config.json and no GGUF file: the folder of a Hugging "
                "Face checkpoint is needed");
  if (models.size() == 1)
    return folder / models.front();
  std::string names;
  for (const std::string &name : models)
    names += (names.empty() ? "" : ", ") + name;
  throw Error(part::file(folder.string()) + " has several models, " +
              part::found(names) +
              "; name one: " + (folder / models.front()).string());
}

/// The name of a model's folder or file, without the ending of a GGUF file.
static std::string nameOf(const fs::path &path) {
  fs::path full = fs::absolute(path).lexically_normal();
  if (full.filename().empty())
    full = full.parent_path();
  return ggufModelName(full.filename().string());
}

bool qwen::run::isModel(const std::string &given) {
  std::error_code ignored;
  return fs::exists(given, ignored) ||
         (isHubName(given) && fs::is_directory(hubModel(given), ignored));
}

ModelSource qwen::run::findModel(const std::string &given) try {
  std::error_code ignored;
  const fs::file_status status = fs::status(given, ignored);
  if (fs::is_directory(status)) {
    const fs::path path = modelIn(given);
    return {path, false, nameOf(path)};
  }
  if (fs::exists(status) || !isHubName(given)) {
    const bool gguf = fs::is_regular_file(status) && isGguf(given);
    return {given, !gguf, nameOf(given)};
  }
  const fs::path path = modelIn(hubSnapshot(given));
  return {path, false, given.substr(given.find('/') + 1)};
} catch (...) {
  throwInputError();
}
