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

/// Types of the stored values that a model's weights may have, and all others
/// of the format, which only tensors that no one uses may have.
enum class StoredType : uint8_t { F32, F16, BF16, Other };

/// A tensor of a file.
struct StoredTensor {
  std::string name;
  /// Plain name of its file in the checkpoint's folder.
  std::string file;
  StoredType type;
  /// The type as the file spells it: "F32", "BF16", "I64", ...
  std::string typeName;
  /// Outermost dimension first. Its product fits in int64_t.
  std::vector<int64_t> shape;
  /// First byte, counted from the start of the file.
  uint64_t offset;
  /// The values, row-major, little-endian, in the mapping of the file. They
  /// need not be aligned.
  std::span<const uint8_t> bytes;
};

/// Parses a whole file. `file` names it in the result and `path` in errors.
/// Throws Error where the header's length is beyond the file or 100 MB (the
/// reference implementation's limit), the header isn't a JSON object of
/// tensors, a name is there twice, a shape has more than 8 dimensions, a dtype
/// is unknown, a byte range is outside the data or doesn't match dtype and
/// shape, ranges overlap, or bytes of the data belong to no tensor (the format
/// allows no holes).
std::vector<StoredTensor> parseSafetensors(std::span<const uint8_t> bytes,
                                           const std::string &file,
                                           const std::string &path);

/// The weights of a Hugging Face directory, mapped read-only for as long as
/// this object (or what it was moved to) lives.
class Checkpoint {
public:
  /// Opens `dir`/model.safetensors, or where there is none the files that the
  /// weight_map of `dir`/model.safetensors.index.json names. This is the order
  /// in which transformers looks; other files are never read. A tensor must be
  /// in the file that the index says, and tensors that the index doesn't name
  /// don't exist. Throws Error for a folder or file that is missing or
  /// unreadable, names of files with a folder in them, and for whatever
  /// parseSafetensors refuses.
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

  /// `size` bytes at `offset` of `file`, as a qwen.weight names them. Throws
  /// Error where the checkpoint has no such file or it ends before.
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
