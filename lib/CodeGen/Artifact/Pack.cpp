//===- Pack.cpp - The weight image ----------------------------------------===//

#include "qwen/CodeGen/Artifact/Pack.h"

#include "qwen/ABI/Artifact.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/Stored.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"
#include "qwen/Support/Text.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

using namespace qwen;

namespace {
/// A weight in a part of the image.
struct Segment {
  /// Its file and its name there, for errors.
  std::string place;
  /// In the checkpoint or in `computed`.
  std::span<const uint8_t> bytes;
  StoredType type;
  int64_t values;
  /// 1 for a vector.
  int64_t outputs;
  std::vector<float> computed = {};
  std::optional<WeightMap> map = {};
  /// The outputs of the tensor in `bytes`; null for all.
  OutputsAttr selected = {};

  /// The stored bytes of output `i`, which has k values.
  const uint8_t *output(int64_t i, int64_t k) const {
    if (selected)
      i = selected.stored(i);
    return bytes.data() + storedBytes(type, i * k);
  }
  float mapped(float value) const {
    if (!map)
      return value;
    switch (*map) {
    case WeightMap::PlusOne:
      return 1 + value;
    case WeightMap::Exp:
      return numerics::exp(value);
    case WeightMap::Negate:
      return -value;
    }
    llvm_unreachable("all maps are listed");
  }
};

/// A conversion, as a key.
using TypePair = std::pair<StoredType, WeightFormat>;
using ErrorsByTypes = std::map<TypePair, numerics::EncodeError>;

/// A part of the image.
struct Part {
  uint64_t offset;
  uint64_t size;
  std::vector<Segment> segments;
  /// K of a matrix; 0 for vectors.
  int64_t k = 0;
  WeightFormat format = WeightFormat::F32;

  bool isMatrix() const { return k > 0; }
};

/// One panel of a matrix, or a whole vector.
struct Task {
  const Part *part;
  int64_t panel;
};
} // namespace

/// The inverse frequencies of the rotary embedding.
static std::vector<float> computeFrequencies(FrequenciesAttr frequencies,
                                             int64_t count) {
  const double theta = frequencies.getTheta().convertToDouble();
  std::optional<numerics::Yarn> yarn;
  if (const YarnAttr from = frequencies.getYarn())
    yarn = {from.getFactor().convertToDouble(), from.getPositions(),
            from.getFast().convertToDouble(), from.getSlow().convertToDouble()};
  std::vector<float> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values.push_back(yarn ? numerics::yarnInvFreq(theta, i, 2 * count, *yarn)
                          : numerics::ropeInvFreq(theta, i, 2 * count));
  return values;
}

static Segment readSegment(WeightOp weight, const StoredTensors &tensors) {
  const auto type = llvm::cast<mlir::ShapedType>(weight.getType());
  Segment segment{weight.getSymName().str(),
                  {},
                  weight.getStoredType(),
                  type.getNumElements(),
                  type.getRank() == 2 ? type.getDimSize(0) : 1,
                  {},
                  weight.getMap(),
                  weight.getOutputsAttr()};
  if (const auto frequencies = weight.getFrequencies()) {
    segment.computed = computeFrequencies(*frequencies, type.getNumElements());
    segment.bytes = {reinterpret_cast<const uint8_t *>(segment.computed.data()),
                     segment.computed.size() * sizeof(float)};
    return segment;
  }
  const StoredTensor *stored = tensors.find(segment.place);
  segment.place =
      (tensors.directory() / std::string_view(*weight.getFile())).string() +
      ": tensor " + quote(stored ? stored->name : segment.place);
  const int64_t values = segment.selected
                             ? segment.values / segment.selected.getCount() *
                                   segment.selected.getPeriod()
                             : segment.values;
  segment.bytes =
      tensors.bytes(std::string_view(*weight.getFile()),
                    static_cast<uint64_t>(*weight.getOffset()),
                    static_cast<uint64_t>(storedBytes(segment.type, values)));
  return segment;
}

static Part readPart(PackedOp packed, const mlir::SymbolTable &symbols,
                     const StoredTensors &tensors) {
  Part part{static_cast<uint64_t>(packed.getOffset()),
            static_cast<uint64_t>(packed.getByteSize()),
            {}};
  if (auto layout = packed.getLayout()) {
    part.format = layout->getFormat();
    part.k = llvm::cast<mlir::ShapedType>(packed.getType()).getDimSize(1);
  }
  for (auto symbol : packed.getSegments().getAsRange<mlir::FlatSymbolRefAttr>())
    part.segments.push_back(
        readSegment(symbols.lookup<WeightOp>(symbol.getValue()), tensors));
  return part;
}

namespace {
/// Packs panels and vectors on one thread.
class Packer {
public:
  explicit Packer(const WriteFn &write) : write(write) {}

  /// Returns the number of written bytes.
  uint64_t run(const Task &task) {
    return task.part->isMatrix() ? packPanel(*task.part, task.panel)
                                 : packVector(*task.part);
  }

  const ErrorsByTypes &errors() const { return sums; }

private:
  uint64_t packPanel(const Part &part, int64_t panel) {
    const int64_t k = part.k;
    values.resize(static_cast<size_t>(kPanelOutputs * k));
    const Segment *owners[kPanelOutputs] = {};
    const uint8_t *stored[kPanelOutputs] = {};
    /// The numbers of the outputs that are encoded.
    const float *outputs[kPanelOutputs] = {};
    int64_t count = 0, first = panel * kPanelOutputs;
    for (const Segment &segment : part.segments) {
      for (; count < kPanelOutputs && first + count < segment.outputs;
           ++count) {
        owners[count] = &segment;
        stored[count] = segment.output(first + count, k);
        if (numerics::canKeep(part.format, segment.type, stored[count], k))
          continue;
        float *output = values.data() + count * k;
        numerics::dequantize(segment.type, stored[count], k, output);
        outputs[count] = output;
      }
      first -= segment.outputs;
    }
    bytes.assign(static_cast<size_t>(panelBytes(part.format, k)), 0);
    numerics::EncodeError errors[kPanelOutputs];
    const bool allKept = count == kPanelOutputs &&
                         llvm::none_of(outputs, [](auto *o) { return o; });
    if (!allKept && numerics::packPanel(part.format, outputs, k, bytes.data(),
                                        errors) != numerics::EncodeStatus::Ok)
      throw culprit(part, outputs, owners);
    for (int64_t i = 0; i < count; ++i)
      if (outputs[i])
        sums[{owners[i]->type, part.format}] += errors[i];
      else
        numerics::keepOutput(part.format, owners[i]->type, stored[i], k, i,
                             bytes.data());
    write(part.offset + static_cast<uint64_t>(panel) * bytes.size(), bytes);
    return bytes.size();
  }

  /// The error for the first output that cannot be packed.
  Error culprit(const Part &part, const float *const (&outputs)[kPanelOutputs],
                const Segment *const (&owners)[kPanelOutputs]) {
    for (int64_t i = 0; i < kPanelOutputs && owners[i]; ++i) {
      const float *only[kPanelOutputs] = {outputs[i]};
      const numerics::EncodeStatus status =
          numerics::packPanel(part.format, only, part.k, bytes.data());
      if (status != numerics::EncodeStatus::Ok)
        return refusal(*owners[i], status);
    }
    return Error("a panel cannot be packed, but each of its outputs can");
  }

  static Error refusal(const Segment &segment, numerics::EncodeStatus status) {
    std::string message = segment.place + " " +
                          std::string(numerics::encodeStatusMessage(status));
    if (status != numerics::EncodeStatus::NotFinite)
      message += "; --weights f32 keeps it as it is";
    return Error(message);
  }

  uint64_t packVector(const Part &part) {
    values.assign(part.size / sizeof(float), 0);
    size_t at = 0;
    for (const Segment &segment : part.segments) {
      floats.resize(static_cast<size_t>(segment.values));
      numerics::dequantize(segment.type, segment.bytes.data(), segment.values,
                           floats.data());
      for (float value : floats) {
        if (!std::isfinite(value))
          throw refusal(segment, numerics::EncodeStatus::NotFinite);
        values[at++] = segment.mapped(value);
      }
    }
    write(part.offset, {reinterpret_cast<const uint8_t *>(values.data()),
                        values.size() * sizeof(float)});
    return part.size;
  }

  const WriteFn &write;
  /// The weights of one panel in f32, and the packed panel.
  std::vector<float> values;
  std::vector<uint8_t> bytes;
  /// The values of a vector.
  std::vector<float> floats;
  /// Of the encoded outputs.
  ErrorsByTypes sums;
};
} // namespace

/// The conversions of the matrices of `parts`.
static std::vector<Conversion> conversionsOf(std::span<const Part> parts,
                                             const ErrorsByTypes &sums) {
  std::map<TypePair, Conversion> conversions;
  for (const Part &part : parts) {
    if (!part.isMatrix())
      continue;
    for (const Segment &segment : part.segments) {
      Conversion &to = conversions[{segment.type, part.format}];
      to.matrices += 1;
      to.bytesBefore +=
          static_cast<uint64_t>(storedBytes(segment.type, segment.values));
      to.bytesAfter += static_cast<uint64_t>(panelBytes(part.format, part.k) /
                                             kPanelOutputs * segment.outputs);
    }
  }
  std::vector<Conversion> result;
  for (auto &[types, conversion] : conversions) {
    conversion.from = types.first;
    conversion.to = types.second;
    if (const auto found = sums.find(types);
        found != sums.end() && found->second.values > 0)
      conversion.error = std::sqrt(found->second.errors / found->second.values);
    result.push_back(conversion);
  }
  return result;
}

/// The panels and vectors of the image, in its order. A batch starts in each
/// kWeightsAlign bytes, a huge page, which its thread has for itself.
static std::vector<std::vector<Task>> batchesOf(std::span<const Part> parts) {
  std::map<uint64_t, std::vector<Task>> batches;
  for (const Part &part : parts) {
    const uint64_t bytes =
        part.isMatrix() ? static_cast<uint64_t>(panelBytes(part.format, part.k))
                        : part.size;
    for (uint64_t at = 0; at < part.size; at += bytes)
      batches[(part.offset + at) / kWeightsAlign].push_back(
          {&part, static_cast<int64_t>(at / bytes)});
  }
  std::vector<std::vector<Task>> result;
  result.reserve(batches.size());
  for (auto &[page, tasks] : batches)
    result.push_back(std::move(tasks));
  return result;
}

std::vector<Conversion>
qwen::packWeights(mlir::ModuleOp module, const StoredTensors &tensors,
                  unsigned threads, const WriteFn &write,
                  const ProgressFn &progress, size_t jobs, const JobFn &job) {
  const mlir::SymbolTable symbols(module);
  std::vector<Part> parts;
  uint64_t total = 0;
  for (PackedOp packed : module.getOps<PackedOp>()) {
    parts.push_back(readPart(packed, symbols, tensors));
    total += parts.back().size;
  }
  const std::vector<std::vector<Task>> batches = batchesOf(parts);
  std::vector<Packer> packers(threads, Packer(write));
  std::mutex mutex;
  uint64_t done = 0;
  const size_t count = jobs + batches.size();
  const auto jobsBefore = [&](size_t i) {
    return llvm::divideCeil(i * jobs, count);
  };
  parallelFor(count, threads, [&](size_t i, unsigned thread) {
    const size_t before = jobsBefore(i);
    if (before < jobsBefore(i + 1))
      return job(before);
    for (const Task &task : batches[i - before]) {
      const uint64_t written = packers[thread].run(task);
      const std::lock_guard lock(mutex);
      done += written;
      progress(done, total);
    }
  });
  ErrorsByTypes sums;
  for (const Packer &packer : packers)
    for (const auto &[types, errors] : packer.errors())
      sums[types] += errors;
  return conversionsOf(parts, sums);
}
