//===- Safetensors.h - Golden tensors for tests -----------------*- C++ -*-===//
//
// Reads the trusted files of test/Inputs. It is not the compiler's reader,
// which has its own tests.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_SAFETENSORS_H
#define QWEN_TEST_UNIT_SAFETENSORS_H

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace qwen {

/// A safetensors file in memory.
class Safetensors {
public:
  explicit Safetensors(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    if (bytes.size() < 8)
      throw std::runtime_error("cannot read " + path);
    uint64_t headerSize;
    std::memcpy(&headerSize, bytes.data(), 8);
    dataBegin = 8 + headerSize;
    header = nlohmann::json::parse(
        bytes.begin() + 8, bytes.begin() + static_cast<int64_t>(dataBegin));
  }

  /// The elements of a tensor, which must be stored as T.
  template <typename T> std::vector<T> get(const std::string &name) const {
    const auto &offsets = header.at(name).at("data_offsets");
    const size_t begin = offsets.at(0);
    const size_t end = offsets.at(1);
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes.data() + dataBegin + begin, end - begin);
    return values;
  }

  const nlohmann::json &tensors() const { return header; }

private:
  std::vector<char> bytes;
  nlohmann::json header;
  size_t dataBegin = 0;
};

} // namespace qwen

#endif // QWEN_TEST_UNIT_SAFETENSORS_H
