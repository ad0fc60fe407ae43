//===- PackImage.cpp - A weight image -------------------------------------===//

#include "qwen/CodeGen/Artifact/PackImage.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

using namespace qwen;

namespace {
/// A weight in a part of an image.
struct Segment {
  WeightSourcePtr source;
  /// Its matrices of one form become one format: the number of a Conversion.
  size_t conversion = 0;

  int64_t outputs() const { return source->shape().outputs(); }
};

/// A part of an image.
struct Part {
  uint64_t offset;
  uint64_t size;
  std::vector<Segment> segments;
  /// Matrices that have as many of the outputs of each segment, and the bytes
  /// from one to the next.
  int64_t matrices = 1;
  uint64_t stride = 0;
  /// K of a matrix; 0 for vectors.
  int64_t k = 0;
  WeightFormat format = WeightFormat::F32;
  /// Bytes that are not written yet.
  uint64_t left = size;

  bool isMatrix() const { return k > 0; }
  /// Bytes of a panel, or of the vector.
  uint64_t taskBytes() const {
    return isMatrix() ? static_cast<uint64_t>(panelBytes(format, k)) : size;
  }
  int64_t panelsOfMatrix() const {
    return static_cast<int64_t>(size / taskBytes()) / matrices;
  }
  /// The byte of the image where a panel begins.
  uint64_t placeOf(int64_t panel) const {
    const int64_t of = panelsOfMatrix();
    return offset + static_cast<uint64_t>(panel / of) * stride +
           static_cast<uint64_t>(panel % of) * taskBytes();
  }
};

/// One panel of a matrix, or a whole vector.
struct Task {
  Part *part;
  int64_t panel;
};
} // namespace

static Part readPart(PackedOp packed, const mlir::SymbolTable &symbols,
                     const WeightSources &sources) {
  Part part{static_cast<uint64_t>(packed.getOffset()),
            static_cast<uint64_t>(packed.getByteSize()),
            {}};
  part.matrices = packed.getMatrices();
  part.stride = packed.getStride().value_or(0);
  if (auto layout = packed.getLayout()) {
    part.format = layout->getFormat();
    part.k = llvm::cast<mlir::ShapedType>(packed.getType()).getDimSize(1);
  }
  for (auto symbol :
       packed.getSegments().getAsRange<mlir::FlatSymbolRefAttr>()) {
    auto weight = symbols.lookup<WeightOp>(symbol.getValue());
    part.segments.push_back({weight.open(sources)});
  }
  return part;
}

namespace {
/// Packs panels and vectors on one thread.
class Packer {
public:
  Packer(const WriteFn &write, size_t conversions)
      : write(write), sums(conversions) {}

  /// Returns the number of packed bytes.
  uint64_t run(const Task &task) {
    return task.part->isMatrix() ? packPanel(*task.part, task.panel)
                                 : packVector(*task.part);
  }

  /// Writes what is packed. A panel alone would be written in parts of blocks,
  /// which the system fills with zeros first.
  void flush() {
    if (!packed.empty())
      write(packedAt, packed);
    packed.clear();
  }

  /// The errors of the encoded outputs, by conversion.
  std::span<const numerics::EncodeError> errors() const { return sums; }

private:
  /// The outputs that one segment has in a panel.
  struct Run {
    const Segment *segment;
    int64_t first, count, lane;
    OutputSet kept;

    bool isKept(int64_t i) const { return (kept >> i & 1) != 0; }
  };

  uint64_t packPanel(const Part &part, int64_t panel) {
    const int64_t k = part.k;
    values.resize(static_cast<size_t>(kPanelOutputs * k));
    runs.clear();
    /// The numbers of the outputs that are encoded.
    const float *outputs[kPanelOutputs] = {};
    const int64_t matrix = panel / part.panelsOfMatrix();
    int64_t lane = 0, first = panel % part.panelsOfMatrix() * kPanelOutputs;
    for (const Segment &segment : part.segments) {
      const int64_t ofMatrix = segment.outputs() / part.matrices;
      const int64_t count =
          std::min(kPanelOutputs - lane, ofMatrix - first - lane);
      if (count > 0) {
        read(part, {&segment, matrix * ofMatrix + first + lane, count, lane, 0},
             outputs);
        lane += count;
      }
      first -= ofMatrix;
    }
    const uint64_t size = part.taskBytes();
    uint8_t *bytes = append(part.placeOf(panel), size);
    numerics::EncodeError errors[kPanelOutputs];
    const bool allKept = lane == kPanelOutputs &&
                         llvm::none_of(outputs, [](auto *o) { return o; });
    if (!allKept && numerics::packPanel(part.format, outputs, k, bytes,
                                        errors) != numerics::EncodeStatus::Ok)
      throw culprit(part, outputs);
    for (const Run &run : runs) {
      for (int64_t i = 0; i < run.count; ++i)
        if (!run.isKept(i))
          sums[run.segment->conversion] += errors[run.lane + i];
      if (run.kept != 0)
        sums[run.segment->conversion] += run.segment->source->keep(
            part.format, run.first, run.kept, run.lane, bytes);
    }
    return size;
  }

  /// Room for `size` bytes at `offset` of the image.
  uint8_t *append(uint64_t offset, uint64_t size) {
    if (packedAt + packed.size() != offset) {
      flush();
      packedAt = offset;
    }
    packed.resize(packed.size() + size);
    return packed.data() + packed.size() - size;
  }

  /// Reads the numbers of a run's outputs whose integers the format of `part`
  /// does not hold.
  void read(const Part &part, Run run, const float *(&outputs)[kPanelOutputs]) {
    const WeightSource &source = *run.segment->source;
    run.kept = source.kept(part.format, run.first, run.count);
    for (int64_t i = 0, next = 0; i < run.count; i = next) {
      next = i + 1;
      if (run.isKept(i))
        continue;
      while (next < run.count && !run.isKept(next))
        ++next;
      float *to = values.data() + (run.lane + i) * part.k;
      source.read(run.first + i, next - i, to);
      for (int64_t j = i; j < next; ++j, to += part.k)
        outputs[run.lane + j] = to;
    }
    runs.push_back(run);
  }

  /// The error for the first output that cannot be packed.
  Error culprit(const Part &part,
                const float *const (&outputs)[kPanelOutputs]) {
    std::vector<uint8_t> bytes(
        static_cast<size_t>(panelBytes(part.format, part.k)));
    for (const Run &run : runs)
      for (int64_t lane = run.lane; lane < run.lane + run.count; ++lane) {
        const float *only[kPanelOutputs] = {outputs[lane]};
        const numerics::EncodeStatus status =
            numerics::packPanel(part.format, only, part.k, bytes.data());
        if (status != numerics::EncodeStatus::Ok)
          return refusal(*run.segment->source, status,
                         run.first + lane - run.lane);
      }
    return Error("a panel cannot be packed, but each of its outputs can");
  }

  uint64_t packVector(const Part &part) {
    values.assign(part.size / sizeof(float), 0);
    float *to = values.data();
    for (const Segment &segment : part.segments) {
      const int64_t count = segment.source->shape().values();
      segment.source->read(0, segment.outputs(), to);
      if (!std::all_of(to, to + count,
                       [](float x) { return std::isfinite(x); }))
        throw refusal(*segment.source, numerics::EncodeStatus::NotFinite);
      to += count;
    }
    memcpy(append(part.offset, part.size), values.data(), part.size);
    return part.size;
  }

  const WriteFn &write;
  /// The weights of one panel or vector in f32.
  std::vector<float> values;
  /// Packed bytes that are not written yet, from `packedAt` of the image on.
  std::vector<uint8_t> packed;
  uint64_t packedAt = 0;
  /// The runs of one panel.
  std::vector<Run> runs;
  std::vector<numerics::EncodeError> sums;
};
} // namespace

/// The conversions of the matrices of `parts`, in the order of StoredTypes.def
/// and of the formats; other forms come first. Numbers them in the segments.
static std::vector<Conversion> findConversions(std::span<Part> parts) {
  using Key = std::tuple<std::optional<StoredType>, std::string, WeightFormat>;
  std::map<Key, std::vector<std::pair<Segment *, const Part *>>> matrices;
  for (Part &part : parts)
    for (Segment &segment : part.segments)
      if (const std::string form(segment.source->form()); part.isMatrix())
        matrices[{parseStoredType(form), form, part.format}].emplace_back(
            &segment, &part);
  std::vector<Conversion> conversions;
  for (const auto &[key, segments] : matrices) {
    Conversion to = {std::get<std::string>(key), std::get<WeightFormat>(key)};
    for (const auto &[segment, part] : segments) {
      segment->conversion = conversions.size();
      to.matrices += 1;
      to.bytesBefore += segment->source->bytesToRead();
      to.bytesAfter +=
          static_cast<uint64_t>(panelBytes(part->format, part->k) /
                                kPanelOutputs * segment->outputs());
    }
    conversions.push_back(std::move(to));
  }
  return conversions;
}

/// The panels and vectors of the image, in its order. A batch starts in each
/// kHugePage bytes, so that a thread shares few huge pages with others.
static std::vector<std::vector<Task>> batchesOf(std::span<Part> parts) {
  std::map<uint64_t, std::vector<Task>> batches;
  for (Part &part : parts) {
    const int64_t panels = part.panelsOfMatrix() * part.matrices;
    for (int64_t panel = 0; panel < panels; ++panel)
      batches[part.placeOf(panel) / kHugePage].push_back({&part, panel});
  }
  std::vector<std::vector<Task>> result;
  result.reserve(batches.size());
  for (auto &[page, tasks] : batches)
    result.push_back(std::move(tasks));
  return result;
}

std::vector<Conversion>
qwen::packWeights(mlir::ModuleOp module, mlir::FlatSymbolRefAttr image,
                  const WeightSources &sources, unsigned threads,
                  const WriteFn &write, const ProgressFn &progress, size_t jobs,
                  const JobFn &job) {
  const mlir::SymbolTable symbols(module);
  std::vector<Part> parts;
  uint64_t total = 0;
  for (PackedOp packed : module.getOps<PackedOp>()) {
    if (packed.getImageAttr() != image)
      continue;
    parts.push_back(readPart(packed, symbols, sources));
    total += parts.back().size;
  }
  std::vector<Conversion> conversions = findConversions(parts);
  const std::vector<std::vector<Task>> batches = batchesOf(parts);
  std::vector<Packer> packers(threads, Packer(write, conversions.size()));
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
      // A source may hold all of its values.
      task.part->left -= written;
      if (task.part->left == 0)
        task.part->segments.clear();
      progress(done, total);
    }
    packers[thread].flush();
  });
  for (size_t i = 0; i < conversions.size(); ++i) {
    numerics::EncodeError sum;
    for (const Packer &packer : packers)
      sum += packer.errors()[i];
    if (sum.values > 0)
      conversions[i].error = std::sqrt(sum.errors / sum.values);
  }
  return conversions;
}
