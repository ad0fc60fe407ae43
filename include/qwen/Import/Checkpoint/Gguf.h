//===- Gguf.h - Reader of GGUF files ----------------------------*- C++ -*-===//
//
// A GGUF file has the numbers of its tensors and keys, the keys with their
// values, the tensors' names, types, shapes and places, then the bytes. All
// numbers are little-endian.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_GGUF_H
#define QWEN_IMPORT_CHECKPOINT_GGUF_H

#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"
#include "qwen/Import/Checkpoint/StoredTensors.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Types of values of keys, by their numbers in files.
enum class GgufType : uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64,
};

/// An array of scalars or strings, in the mapping of the file.
struct GgufArray {
  GgufType type;
  uint64_t count;
  std::span<const uint8_t> bytes;
};

/// The keys and tensors of a file.
struct GgufFile {
  /// An object with all keys: numbers, booleans and strings, which need not be
  /// UTF-8. An f32 is the f64 with its shortest decimal digits. An array is
  /// empty here.
  nlohmann::json values = nlohmann::json::object();
  std::map<std::string, GgufArray, std::less<>> arrays;
  /// In the order of the file. All have a type.
  std::vector<StoredTensor> tensors;
};

/// Parses a whole file of version 2 or 3, whose path is `path`. Throws Error
/// for a file that is big-endian or ends early; for a key that occurs twice or
/// has a value of an unknown type; for a tensor of a type without a row in
/// StoredTypes.def, with dimensions that are 0, too many or too large, or in
/// another place than behind the tensor before it.
GgufFile parseGguf(std::span<const uint8_t> bytes, const std::string &path);

/// The strings of the array `key`, in the mapping of the file. Throws Error,
/// which begins with `path`, if there is no such array.
std::vector<std::string_view>
ggufStrings(const GgufFile &gguf, const std::string &path, const char *key);

/// The numbers or booleans of the array `key`, like ggufStrings.
std::vector<nlohmann::json>
ggufNumbers(const GgufFile &gguf, const std::string &path, const char *key);

/// Removes sizes of 1 of `tensor` beyond `rank` dimensions: ggml counts any
/// number of them.
void dropOnes(StoredTensor &tensor, size_t rank);

/// The integers of the array `key`, like ggufStrings.
std::vector<int64_t> ggufIntegers(const GgufFile &gguf, const std::string &path,
                                  const char *key);

/// The tokenizer of `gguf`, the file `path`. Returns nullopt if there is none.
/// Throws Error if it is invalid or not of Qwen's kind.
std::optional<CheckpointTokenizer>
readGgufTokenizer(const GgufFile &gguf, const std::filesystem::path &path);

/// The f64 nearest to the shortest decimal digits that give `value`, so that
/// 1e-6 in f32 is the 1e-6 of a text.
double asDecimal(float value);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_GGUF_H
