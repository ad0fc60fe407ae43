//===- GgufBytes.h - GGUF files made by tests -------------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_GGUFBYTES_H
#define QWEN_TEST_UNIT_GGUFBYTES_H

#include "qwen/Import/Checkpoint/Gguf.h"

#include <cstring>

namespace qwen::test {

template <typename T> std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string text(std::string_view value) {
  return raw(uint64_t{value.size()}) + std::string(value);
}

inline std::string key(std::string_view name, GgufType type,
                       const std::string &value) {
  return text(name) + raw(static_cast<uint32_t>(type)) + value;
}
inline std::string u32(std::string_view name, uint32_t value) {
  return key(name, GgufType::U32, raw(value));
}
inline std::string f32(std::string_view name, float value) {
  return key(name, GgufType::F32, raw(value));
}
inline std::string string(std::string_view name, std::string_view value) {
  return key(name, GgufType::String, text(value));
}
inline std::string array(std::string_view name, GgufType type, uint64_t count,
                         const std::string &values) {
  return key(name, GgufType::Array,
             raw(static_cast<uint32_t>(type)) + raw(count) + values);
}
inline std::string strings(std::string_view name,
                           const std::vector<std::string> &values) {
  std::string bytes;
  for (const std::string &value : values)
    bytes += text(value);
  return array(name, GgufType::String, values.size(), bytes);
}

/// A tensor of zeros.
struct GgufEntry {
  std::string name;
  /// The first dimension is K.
  std::vector<uint64_t> dimensions;
  StoredType type = StoredType::F32;

  uint64_t bytes() const {
    int64_t values = 1;
    for (uint64_t size : dimensions)
      values *= static_cast<int64_t>(size);
    return static_cast<uint64_t>(storedBytes(type, values));
  }
};

/// A file, to be changed before it is made.
struct GgufBytes {
  std::vector<std::string> keys;
  std::vector<GgufEntry> tensors;
  uint32_t version = 3;
  uint64_t alignment = 32;

  std::string make() const {
    std::string file = "GGUF" + raw(version) + raw(uint64_t{tensors.size()}) +
                       raw(uint64_t{keys.size()});
    for (const std::string &key : keys)
      file += key;
    uint64_t offset = 0;
    for (const GgufEntry &tensor : tensors) {
      file += entry(tensor, offset);
      offset += aligned(tensor.bytes());
    }
    file.resize(aligned(file.size()) + offset);
    return file;
  }

  static std::string entry(const GgufEntry &tensor, uint64_t offset) {
    std::string entry = text(tensor.name) +
                        raw(static_cast<uint32_t>(tensor.dimensions.size()));
    for (uint64_t size : tensor.dimensions)
      entry += raw(size);
    return entry + raw(infoOf(tensor.type).ggmlType) + raw(offset);
  }

private:
  uint64_t aligned(uint64_t size) const {
    return (size + alignment - 1) / alignment * alignment;
  }
};

inline GgufFile parse(const std::string &file) {
  return parseGguf(
      {reinterpret_cast<const uint8_t *>(file.data()), file.size()}, "dir/f");
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_GGUFBYTES_H
