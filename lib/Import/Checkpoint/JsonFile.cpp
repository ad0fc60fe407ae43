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
    throw Error(dir.string() +
                " does not exist: a Hugging Face folder or a GGUF file is "
                "needed");
  if (!fs::is_directory(dir, error) && !error)
    throw Error(dir.string() +
                " is not a folder: a Hugging Face folder or a GGUF file is "
                "needed");
  if (!error)
    fs::directory_iterator(dir, error);
  if (error)
    throw Error("cannot read " + dir.string() + ": " + error.message());
}

std::optional<std::string> qwen::readSmallFile(const fs::path &path) {
  const std::optional<CheckpointFile> file = CheckpointFile::open(path);
  if (!file)
    return std::nullopt;
  if (file->size() > kMaxFileBytes)
    throw Error(path.string() + " has " + std::to_string(file->size()) +
                " bytes when at most " + std::to_string(kMaxFileBytes) +
                " are expected");
  std::string text(file->size(), '\0');
  file->read(text.data(), text.size());
  return text;
}

std::optional<json> qwen::readJsonObject(const fs::path &path) {
  const std::optional<std::string> text = readSmallFile(path);
  if (!text)
    return std::nullopt;
  return parseJsonObject<json>(*text, path.string());
}
