//===- IndexFuzz.cpp - Indices of sharded checkpoints -------------------===//

#include "Fuzz.h"

#include "qwen/Import/Checkpoint/Safetensors.h"

using namespace qwen;

/// A file of two tensors of one byte, "a" and `second`.
static std::string makeFile(const std::string &second) {
  const auto entry = [](const std::string &name, const char *range) {
    return "\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":)" +
           range + "}";
  };
  const std::string header =
      "{" + entry("a", "[0,1]") + "," + entry(second, "[1,2]") + "}";
  return std::string(1, static_cast<char>(header.size())) +
         std::string(7, '\0') + header + "xy";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const fuzz::Folder folder;
  static const bool once = [] {
    folder.write("one.safetensors", makeFile("b"));
    folder.write("two.safetensors", makeFile("c"));
    return true;
  }();
  (void)once;
  folder.write("model.safetensors.index.json", fuzz::asText(data, size));
  fuzz::parses(size, [] {
    const StoredTensors found = openSafetensors(folder.path());
    for (const auto &[name, tensor] : found.tensors())
      fuzz::require(tensor.bytes.size() == 1, "a tensor is another");
  });
  return 0;
}
