//===- FormsFuzz.cpp - Quantization configurations ----------------------===//
//
// A module of each packing of tensors and the configuration of a quant_method.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "qwen/Weights/Forms.h"

#include <list>
#include <map>

using namespace qwen;

namespace {
/// A tensor of a module, whose bytes all are `fill`.
struct Shape {
  const char *name;
  const char *dtype;
  std::vector<int64_t> sizes;
  uint8_t fill = 0;
};
} // namespace

/// Modules of 16 outputs and 64 columns, by the packing of their tensors.
static const std::map<std::string, std::vector<Shape>, std::less<>> kModules = {
    {"gptq",
     {{"qweight", "I32", {8, 16}},
      {"scales", "F16", {2, 16}},
      {"qzeros", "I32", {2, 2}, 0x88},
      {"g_idx", "I32", {64}}}},
    {"awq",
     {{"qweight", "I32", {64, 2}},
      {"scales", "F16", {2, 16}},
      {"qzeros", "I32", {2, 2}, 0x88}}},
    {"packed",
     {{"weight_packed", "I32", {16, 8}},
      {"weight_scale", "BF16", {16, 2}},
      {"weight_zero_point", "I32", {2, 2}, 0x88},
      {"weight_g_idx", "I32", {64}}}},
    {"packed-mxfp4",
     {{"weight_packed", "U8", {16, 32}}, {"weight_scale", "U8", {16, 2}}}},
    {"int8", {{"weight", "I8", {16, 64}}, {"weight_scale", "BF16", {16, 1}}}},
    {"float8",
     {{"weight", "F8_E4M3", {16, 64}}, {"weight_scale", "BF16", {16, 1}}}},
    {"fp8",
     {{"weight", "F8_E4M3", {16, 64}}, {"weight_scale_inv", "F32", {1, 1}}}},
    {"mlx",
     {{"weight", "U32", {16, 8}},
      {"scales", "BF16", {16, 2}},
      {"biases", "BF16", {16, 2}}}},
    {"mxfp4", {{"weight", "U32", {16, 8}}, {"scales", "U8", {16, 2}}}},
    {"nf4",
     {{"weight", "U8", {512, 1}},
      {"weight.absmax", "U8", {16}},
      {"weight.quant_map", "F32", {16}},
      {"weight.nested_absmax", "F32", {1}},
      {"weight.nested_quant_map", "F32", {256}}}},
};

namespace {
/// The tensors of a module and their bytes.
class Module {
public:
  Module(const std::vector<Shape> &shapes, std::string_view state) {
    for (const auto &[name, dtype, sizes, fill] : shapes) {
      const std::string_view type = dtype;
      size_t count = type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 1;
      for (int64_t size : sizes)
        count *= static_cast<size_t>(size);
      add(name, dtype, sizes, std::vector<uint8_t>(count, fill));
    }
    if (byName.contains(kModule + "weight.absmax"))
      add("weight.quant_state.bitsandbytes__nf4", "U8",
          {static_cast<int64_t>(state.size())}, {state.begin(), state.end()});
    if (byName.contains(kModule + "weight_packed"))
      add("weight_shape", "I64", {2},
          {16, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0});
  }

  const TensorsByName &tensors() const { return byName; }

private:
  /// Rules of published configurations match it.
  static const inline std::string kModule = "model.layers.0.self_attn.q_proj.";

  void add(const char *name, const char *dtype, std::vector<int64_t> sizes,
           std::vector<uint8_t> content) {
    StoredTensor &tensor = byName[kModule + name];
    tensor.name = kModule + name;
    tensor.path = "model.safetensors";
    tensor.type = parseStoredType(dtype);
    tensor.typeName = dtype;
    tensor.shape = std::move(sizes);
    tensor.bytes = bytes.emplace_back(std::move(content));
  }

  std::list<std::vector<uint8_t>> bytes;
  TensorsByName byName;
};
} // namespace

/// Reads all that a weight gives.
static void readAll(const WeightSource &source) {
  const int64_t outputs = source.shape().outputs(), k = source.shape().k();
  std::vector<float> values(static_cast<size_t>(outputs * k));
  source.read(0, outputs, values.data());
  const WeightFormat format = source.keptFormat();
  if (!isQuantized(format) || k % kGroup != 0)
    return;
  const int64_t count = std::min(outputs, kPanelOutputs);
  std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, k)));
  if (const OutputSet kept = source.kept(format, 0, count))
    source.keep(format, 0, kept, 0, panel.data());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // The packing, the method, the configuration and the state of nf4.
  const auto parts = fuzz::splitParts(fuzz::asText(data, size), 4);
  const auto shapes = kModules.find(parts[0]);
  if (shapes == kModules.end())
    return 0;
  const Module module(shapes->second, parts[3]);
  // A regular expression takes more memory than its text.
  constexpr size_t kPatternBytes = 64 << 20;
  fuzz::parses(kPatternBytes, [&] {
    const auto config = parseJsonObject<nlohmann::json>(parts[2], "config");
    JsonReads read;
    JsonSource source = JsonSource::ofFile("config.json", &read);
    source.keysOf = [&](const std::string &path) {
      return keysInOrder(parts[2], path);
    };
    const JsonValue root(config, "", source);
    const WeightSources sources = makeSources(module.tensors(), root, parts[1]);
    for (const auto &[name, entry] : sources.all())
      readAll(*entry.source);
    root.unread();
  });
  return 0;
}
