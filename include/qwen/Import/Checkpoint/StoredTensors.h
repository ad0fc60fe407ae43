//===- StoredTensors.h - The tensors of a checkpoint ------------*- C++ -*-===//
//
// Files are mapped, never read into memory.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_STOREDTENSORS_H
#define QWEN_IMPORT_CHECKPOINT_STOREDTENSORS_H

#include "qwen/Weights/StoredTensor.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qwen {

/// The tensors of a checkpoint, mapped read-only during the lifetime of this
/// object (or of the object that it is moved to).
class StoredTensors {
public:
  /// No tensors, of files in the folder `dir`.
  explicit StoredTensors(std::filesystem::path dir);

  StoredTensors(StoredTensors &&) noexcept;
  StoredTensors &operator=(StoredTensors &&) noexcept;
  ~StoredTensors();

  /// Maps `file` of the folder and returns its bytes. Throws Error if it is
  /// missing or unreadable.
  std::span<const uint8_t> map(const std::string &file);
  bool hasMapped(std::string_view file) const { return files.contains(file); }

  /// Adds a tensor of a mapped file under the name that the model gives it.
  /// Returns false if there is one of that name.
  bool add(std::string name, const StoredTensor &tensor);

  /// Adds a line for the user: what of the checkpoint is not used, or is used
  /// otherwise than it may seem.
  void note(std::string line) { lines.push_back(std::move(line)); }
  const std::vector<std::string> &notes() const { return lines; }

  /// Removes all tensors and returns them. Their files stay mapped.
  std::map<std::string, StoredTensor, std::less<>> takeAll() {
    return std::exchange(byName, {});
  }

  const std::filesystem::path &directory() const { return dir; }

  /// All tensors in the order of the model's names.
  const std::map<std::string, StoredTensor, std::less<>> &tensors() const {
    return byName;
  }

  /// The tensor that the model calls `name`, or null.
  const StoredTensor *find(std::string_view name) const;

private:
  class MappedFile;

  std::filesystem::path dir;
  std::map<std::string, std::unique_ptr<MappedFile>, std::less<>> files;
  std::map<std::string, StoredTensor, std::less<>> byName;
  std::vector<std::string> lines;
};

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_STOREDTENSORS_H
