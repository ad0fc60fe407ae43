//===- JsonFile.cpp - Small files of a checkpoint -------------------------===//

#include "qwen/Import/Checkpoint/JsonFile.h"

#include "CheckpointFile.h"

#include "qwen/Support/Error.h"

#include <system_error>

using namespace qwen;
using nlohmann::json;
namespace fs = std::filesystem;

static constexpr uint64_t kMaxFileBytes = 64 << 20;

void qwen::requireDirectory(const fs::path &dir) {
  std::error_code error;
  if (!isThere(dir))
    throw Error(part::file(dir.string()) + " does not exist: " +
                part::needed("a Hugging Face folder or a GGUF file") +
                " is needed");
  if (!fs::is_directory(dir, error) && !error)
    throw Error(part::file(dir.string()) + " is not a folder: " +
                part::needed("a Hugging Face folder or a GGUF file") +
                " is needed");
  if (!error)
    fs::directory_iterator(dir, error);
  if (error)
    throw Error("cannot read " + part::file(dir.string()) + ": " +
                part::found(error.message()));
}

std::optional<std::string> qwen::readSmallFile(const fs::path &path) {
  const std::optional<CheckpointFile> file = CheckpointFile::open(path);
  if (!file)
    return std::nullopt;
  if (file->size() > kMaxFileBytes)
    throw Error(part::file(path.string()) + " has " +
                part::found(file->size()) + " bytes when at most " +
                part::needed(kMaxFileBytes) + " are expected");
  std::string text(file->size(), '\0');
  file->read(text.data(), text.size());
  return text;
}

std::optional<json> qwen::readJsonObject(const fs::path &path) {
  const std::optional<std::string> text = readSmallFile(path);
  if (!text)
    return std::nullopt;
  return parseJsonObject<json>(*text, part::file(path.string()));
}
