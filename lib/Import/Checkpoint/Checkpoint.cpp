//===- Checkpoint.cpp - Folders and files of checkpoints ------------------===//

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "Qwen1.h"

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/Safetensors.h"

using namespace qwen;
namespace fs = std::filesystem;

namespace {
/// A Hugging Face folder.
class FolderCheckpoint final : public Checkpoint {
public:
  FolderCheckpoint(const fs::path &dir, const ModelConfig &model)
      : Checkpoint(dir, model, readGenerationConfig(dir, model),
                   openTensors(dir, model)) {}

  std::string ownName(std::string_view name) const override {
    if (const StoredTensor *tensor = tensors().find(name))
      return tensor->name;
    if (config().architecture == Architecture::Qwen1)
      return qwen1Name(name);
    constexpr std::string_view kModel = "model.";
    return name.starts_with(kModel)
               ? std::string(prefixOf(config())) +
                     std::string(name.substr(kModel.size()))
               : std::string(name);
  }

  std::optional<CheckpointTokenizer> readTokenizer() const override {
    return readTokenizerFiles(path());
  }

private:
  static StoredTensors openTensors(const fs::path &dir,
                                   const ModelConfig &model) {
    StoredTensors tensors = openSafetensors(dir, prefixOf(model));
    return model.architecture == Architecture::Qwen1
               ? nameAsQwen2(std::move(tensors))
               : std::move(tensors);
  }

  /// What the names of the text model's tensors begin with.
  static std::string_view prefixOf(const ModelConfig &model) {
    return infoOf(model.architecture).hasTextConfig ? "model.language_model."
                                                    : "model.";
  }
};
} // namespace

static bool isGguf(const fs::path &path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::unique_ptr<Checkpoint> qwen::openCheckpoint(const fs::path &path) {
  if (isGguf(path))
    return openGguf(path);
  return std::make_unique<FolderCheckpoint>(path, readModelConfig(path));
}

std::string qwen::checkpointName(const fs::path &path) {
  // The path of a folder may end with "." or "/".
  std::error_code error;
  const fs::path full = fs::canonical(path, error);
  if (error || full.filename().empty())
    return "model";
  std::string name = full.filename().string();
  if (!isGguf(path))
    return name;
  if (ggufSplitName(name, 0))
    name.resize(name.size() - std::string_view("-00001-of-00001.gguf").size());
  else if (name.ends_with(".gguf"))
    name.resize(name.size() - std::string_view(".gguf").size());
  return name;
}

uint64_t qwen::weightFileBytes(const fs::path &path) {
  uint64_t bytes = 0;
  std::error_code ignored;
  const auto add = [&](const fs::path &file) {
    if (const uint64_t size = fs::file_size(file, ignored); !ignored)
      bytes += size;
    return !ignored;
  };
  if (isGguf(path)) {
    const std::string file = path.filename().string();
    add(path);
    for (uint64_t i = 1; const auto name = ggufSplitName(file, i); ++i)
      if (!add(path.parent_path() / *name))
        break;
    return bytes;
  }
  for (const auto &entry : fs::directory_iterator(path, ignored))
    if (entry.path().extension() == ".safetensors")
      add(entry.path());
  return bytes;
}
