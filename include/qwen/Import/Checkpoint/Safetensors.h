//===- Safetensors.h - The tensors of a checkpoint --------------*- C++ -*-===//
//
// Reads *.safetensors files: 8 bytes with the length of a header, the header
// (JSON: dtype, shape and byte range of each tensor), then the bytes. Files are
// mapped, never read into memory.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_SAFETENSORS_H
#define QWEN_IMPORT_CHECKPOINT_SAFETENSORS_H

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Types of stored values. Only unused tensors may have a type of the format
/// that is not supported, Other.
enum class StoredType : uint8_t { F32, F16, BF16, Other };

/// A tensor of a file.
struct StoredTensor {
  std::string name;
  /// Plain name of its file in the checkpoint's folder.
  std::string file;
  StoredType type;
  /// The type as the file spells it: "F32", "BF16", "I64", ...
  std::string typeName;
  /// Outermost dimension first. The product of the dimensions fits in int64_t.
  std::vector<int64_t> shape;
  /// Offset of the first byte from the start of the file.
  uint64_t offset;
  /// The values in the mapping of the file: row-major, little-endian, perhaps
  /// not aligned.
  std::span<const uint8_t> bytes;
};

/// Parses a whole file. `file` names it in the result and `path` in errors.
/// Throws Error if the header is longer than the file or 100 MB (the limit of
/// the reference implementation), if it is not a JSON object of tensors, if a
/// name occurs twice, if a shape has more than 8 dimensions, if a dtype is
/// unknown, if a byte range is outside of the data or does not match dtype and
/// shape, if ranges overlap, or if a byte of the data belongs to no tensor.
std::vector<StoredTensor> parseSafetensors(std::span<const uint8_t> bytes,
                                           const std::string &file,
                                           const std::string &path);

/// The weights of a Hugging Face checkpoint, mapped read-only during the
/// lifetime of this object (or of the object that it is moved to).
class Checkpoint {
public:
  /// Opens `dir`/model.safetensors. If it is missing, opens the files that the
  /// weight_map of `dir`/model.safetensors.index.json names; then every tensor
  /// must be in the file that the index gives, and tensors outside of the index
  /// are ignored. This is the order of transformers. No other file is read.
  /// Throws Error if a folder or file is missing or unreadable, if the name of
  /// a file contains a folder, and like parseSafetensors.
  static Checkpoint open(const std::filesystem::path &dir);

  Checkpoint(Checkpoint &&) noexcept;
  Checkpoint &operator=(Checkpoint &&) noexcept;
  ~Checkpoint();

  const std::filesystem::path &directory() const { return dir; }

  /// All tensors in the order of their names.
  const std::map<std::string, StoredTensor, std::less<>> &tensors() const {
    return byName;
  }

  /// The tensor `name`, or null.
  const StoredTensor *find(std::string_view name) const;

  /// `size` bytes at `offset` of `file`, the terms of a qwen.weight. Throws
  /// Error if the checkpoint has no such file or the file is too short.
  std::span<const uint8_t> bytes(std::string_view file, uint64_t offset,
                                 uint64_t size) const;

private:
  class MappedFile;

  explicit Checkpoint(std::filesystem::path dir);
  std::vector<StoredTensor> map(const std::string &file);

  std::filesystem::path dir;
  std::map<std::string, std::unique_ptr<MappedFile>, std::less<>> files;
  std::map<std::string, StoredTensor, std::less<>> byName;
};

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_SAFETENSORS_H
