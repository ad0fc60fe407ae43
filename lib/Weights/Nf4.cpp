//===- Nf4.cpp - The form of bitsandbytes nf4 -----------------------------===//
//
// Codes of a table of 16 numbers, and a scale for a block of values in
// row-major order (QLoRA, arXiv 2305.14314). With double quantization, the
// scales are codes of a table of 256 numbers, with scales and an offset of
// their own.
//
//===----------------------------------------------------------------------===//

#include "TensorChecks.h"

#include "qwen/Weights/Forms.h"

#include <algorithm>
#include <cfloat>

using namespace qwen;

namespace {
/// What the tensor quant_state says, a JSON text.
struct Nf4State {
  WeightShape shape;
  int64_t block = 0;
  /// Scales in a block of quantized scales; 0: they are not quantized.
  int64_t nestedBlock = 0;
  float nestedOffset = 0;
};
} // namespace

static Nf4State readNf4State(const StoredTensor &tensor) {
  requireType(tensor, "U8");
  const ErrorText what = describeTensor(tensor);
  const auto parsed = parseJsonObject<nlohmann::json>(
      {reinterpret_cast<const char *>(tensor.bytes.data()),
       tensor.bytes.size()},
      what);
  const JsonSource source = {what + ": ", what};
  const JsonValue root(parsed, source);
  if (const JsonValue type = root.at("quant_type"); type.string() != "nf4")
    type.refuse("supported is \"nf4\"");
  Nf4State state;
  const JsonValue shape = root.at("shape");
  const std::vector<JsonValue> sizes = shape.elements();
  // A tensor of all experts of a layer has three.
  if (sizes.size() != 2 && sizes.size() != 3)
    shape.fail("an array of two or three sizes");
  // The product of all fits in 64 bits.
  const int64_t most = sizes.size() == 2 ? INT32_MAX : int64_t{1} << 20;
  for (const JsonValue &size : sizes)
    state.shape.sizes.push_back(size.integer(1, most));
  state.block = root.at("blocksize").integer(1, INT32_MAX);
  if (const auto nested = root.findValue("nested_blocksize")) {
    state.nestedBlock = nested->integer(1, INT32_MAX);
    state.nestedOffset =
        static_cast<float>(root.at("nested_offset").number(-FLT_MAX, FLT_MAX));
  }
  return state;
}

/// Throws Error unless `tensor` has `bytes` bytes of codes in a column of a
/// type in which bitsandbytes stores them (bnb_4bit_quant_storage).
static void requireCodes(const StoredTensor &tensor, int64_t bytes) {
  if (tensor.typeName != "U8")
    requireFloats(tensor);
  const int64_t size = tensor.type ? storedBytes(*tensor.type, 1) : 1;
  requireShape(tensor, {ceilDiv(bytes, size), 1});
  if (bytes % size != 0)
    throw Error(describeTensor(tensor) + " has " +
                part::found(ceilDiv(bytes, size)) + " values when " +
                part::needed(bytes) + " bytes of codes are needed");
}

/// The numbers of a table of this size.
static std::vector<float> readTable(const StoredTensor &tensor, int64_t size) {
  requireFloats(tensor);
  requireShape(tensor, {size});
  std::vector<float> table(static_cast<size_t>(size));
  readFloats(tensor, 0, size, table.data());
  return table;
}

namespace {
class Nf4Source final : public WeightSource {
public:
  /// The tensors have the order of Forms.def.
  Nf4Source(WeightTensors tensors, const Nf4State &state)
      : text(describeTensor(*tensors[0])), sizes(state.shape),
        block(state.block), readBytes(storedBytesOf(tensors)),
        codes(*tensors[0]), table(readTable(*tensors[2], 16)) {
    requireCodes(codes, ceilDiv(sizes.values(), 2));
    const int64_t blocks = ceilDiv(sizes.values(), block);
    if (state.nestedBlock == 0)
      scales = readTable(*tensors[1], blocks);
    else if (tensors[4] && tensors[5])
      setScales(*tensors[1], blocks, *tensors[4], *tensors[5], state);
    else
      throw Error(text + " has quantized scales but no " +
                  part::needed("nested_absmax and nested_quant_map"));
  }

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return text; }
  std::string_view form() const override { return "nf4"; }
  uint64_t bytesToRead() const override { return readBytes; }
  WeightFormat keptFormat() const override { return WeightFormat::Q8_0; }

  void read(int64_t first, int64_t count, float *values) const override {
    const int64_t end = (first + count) * sizes.k();
    const uint8_t *bytes = codes.bytes.data();
    for (int64_t i = first * sizes.k(); i < end;) {
      const int64_t number = i / block;
      const float scale = scales[static_cast<size_t>(number)];
      for (; i < std::min(end, (number + 1) * block); ++i) {
        // The first of two values is in the high half of a byte.
        const int code = bytes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;
        *values++ = table[static_cast<size_t>(code)] * scale;
      }
    }
  }

private:
  void setScales(const StoredTensor &absmax, int64_t blocks,
                 const StoredTensor &nestedScales,
                 const StoredTensor &nestedTable, const Nf4State &state) {
    requireType(absmax, "U8");
    requireShape(absmax, {blocks});
    const std::vector<float> values = readTable(nestedTable, 256);
    const std::vector<float> factors =
        readTable(nestedScales, ceilDiv(blocks, state.nestedBlock));
    const auto nested = static_cast<size_t>(state.nestedBlock);
    scales.reserve(absmax.bytes.size());
    for (const uint8_t code : absmax.bytes)
      scales.push_back(values[code] * factors[scales.size() / nested] +
                       state.nestedOffset);
  }

  const ErrorText text;
  const WeightShape sizes;
  const int64_t block;
  const uint64_t readBytes;
  const StoredTensor codes;
  const std::vector<float> table;
  /// One for each block of values.
  std::vector<float> scales;
};

/// Which modules are quantized, and how, the tensors tell.
constexpr const char *kNf4NoEffect[] = {"_load_in_4bit",
                                        "_load_in_8bit",
                                        "bnb_4bit_compute_dtype",
                                        "bnb_4bit_quant_storage",
                                        "bnb_4bit_use_double_quant",
                                        "llm_int8_enable_fp32_cpu_offload",
                                        "llm_int8_has_fp16_weight",
                                        "llm_int8_skip_modules",
                                        "llm_int8_threshold",
                                        "load_in_4bit",
                                        "quant_method"};

class Nf4Form final : public WeightForm {
public:
  explicit Nf4Form(const JsonValue &config) {
    passOver(config, kNf4NoEffect);
    if (const auto eight = config.findValue("load_in_8bit");
        eight && eight->boolean())
      eight->refuse("supported is load_in_4bit with nf4");
    if (const auto type = config.findValue("bnb_4bit_quant_type");
        type && type->string() != "nf4")
      type->refuse("supported is \"nf4\"");
  }

  WeightSourcePtr make(WeightTensors tensors) const override {
    const Nf4State state = readNf4State(*tensors[3]);
    return std::make_shared<Nf4Source>(tensors, state);
  }
};
} // namespace

std::unique_ptr<const WeightForm> qwen::makeNf4Form(const JsonValue &config) {
  return std::make_unique<Nf4Form>(config);
}
