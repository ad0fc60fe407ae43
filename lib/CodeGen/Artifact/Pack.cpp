//===- Pack.cpp - The weight image ----------------------------------------===//

#include "qwen/CodeGen/Artifact/Pack.h"

#include "qwen/ABI/Error.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Math.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

using namespace qwen;

namespace {
/// A weight in a part of the image.
struct Segment {
  std::string name;
  /// In the checkpoint or in `computed`.
  std::span<const uint8_t> bytes;
  mlir::Type type;
  /// 1 for a vector.
  int64_t outputs;
  std::vector<float> computed = {};
};

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
  std::vector<float> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values.push_back(numerics::ropeInvFreq(theta, i, 2 * count));
  return values;
}

static Segment readSegment(WeightOp weight, const Checkpoint &checkpoint) {
  const auto type = llvm::cast<mlir::ShapedType>(weight.getType());
  Segment segment{weight.getSymName().str(),
                  {},
                  type.getElementType(),
                  type.getRank() == 2 ? type.getDimSize(0) : 1};
  if (const auto frequencies = weight.getFrequencies()) {
    segment.computed = computeFrequencies(*frequencies, type.getNumElements());
    segment.bytes = {reinterpret_cast<const uint8_t *>(segment.computed.data()),
                     segment.computed.size() * sizeof(float)};
    return segment;
  }
  const auto size = static_cast<uint64_t>(type.getNumElements()) *
                    (type.getElementTypeBitWidth() / 8);
  segment.bytes =
      checkpoint.bytes(std::string_view(*weight.getFile()),
                       static_cast<uint64_t>(*weight.getOffset()), size);
  return segment;
}

static Part readPart(PackedOp packed, const mlir::SymbolTable &symbols,
                     const Checkpoint &checkpoint) {
  Part part{static_cast<uint64_t>(packed.getOffset()),
            static_cast<uint64_t>(packed.getByteSize()),
            {}};
  if (auto layout = packed.getLayout()) {
    part.format = layout->getFormat();
    part.k = llvm::cast<mlir::ShapedType>(packed.getType()).getDimSize(1);
  }
  for (auto symbol : packed.getSegments().getAsRange<mlir::FlatSymbolRefAttr>())
    part.segments.push_back(
        readSegment(symbols.lookup<WeightOp>(symbol.getValue()), checkpoint));
  return part;
}

/// Converts `count` stored values from value `first` on to f32. They need not
/// be aligned.
static void widen(const Segment &segment, int64_t first, int64_t count,
                  float *to) {
  if (segment.type.isF32()) {
    std::memcpy(to, segment.bytes.data() + first * 4,
                static_cast<size_t>(count) * 4);
    return;
  }
  const uint8_t *from = segment.bytes.data() + first * 2;
  const bool bf16 = segment.type.isBF16();
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * 2, 2);
    to[i] = bf16 ? bf16ToF32(bits) : f16ToF32(bits);
  }
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

private:
  uint64_t packPanel(const Part &part, int64_t panel) {
    const int64_t k = part.k;
    values.resize(static_cast<size_t>(kPanelOutputs * k));
    const float *outputs[kPanelOutputs] = {};
    const Segment *owners[kPanelOutputs] = {};
    int64_t count = 0, first = panel * kPanelOutputs;
    for (const Segment &segment : part.segments) {
      for (; count < kPanelOutputs && first + count < segment.outputs;
           ++count) {
        float *output = values.data() + count * k;
        widen(segment, (first + count) * k, k, output);
        outputs[count] = output;
        owners[count] = &segment;
      }
      first -= segment.outputs;
    }
    bytes.resize(static_cast<size_t>(panelBytes(part.format, k)));
    const numerics::EncodeStatus status =
        numerics::packPanel(part.format, outputs, k, bytes.data());
    if (status != numerics::EncodeStatus::Ok)
      throw culprit(part, outputs, owners);
    write(part.offset + static_cast<uint64_t>(panel) * bytes.size(), bytes);
    return bytes.size();
  }

  /// The error for the first output that cannot be packed.
  Error culprit(const Part &part, const float *const (&outputs)[kPanelOutputs],
                const Segment *const (&owners)[kPanelOutputs]) {
    for (int64_t i = 0; i < kPanelOutputs && outputs[i]; ++i) {
      const float *only[kPanelOutputs] = {outputs[i]};
      const numerics::EncodeStatus status =
          numerics::packPanel(part.format, only, part.k, bytes.data());
      if (status != numerics::EncodeStatus::Ok)
        return refusal(*owners[i], status);
    }
    return Error("a panel cannot be packed, but each of its outputs can");
  }

  static Error refusal(const Segment &segment, numerics::EncodeStatus status) {
    std::string message = "tensor '" + segment.name + "' " +
                          std::string(numerics::encodeStatusMessage(status));
    if (status != numerics::EncodeStatus::NotFinite)
      message += "; --weights f32 keeps it as it is";
    return Error(message);
  }

  uint64_t packVector(const Part &part) {
    values.assign(part.size / sizeof(float), 0);
    int64_t at = 0;
    for (const Segment &segment : part.segments) {
      const auto count = static_cast<int64_t>(
          segment.bytes.size() / (segment.type.getIntOrFloatBitWidth() / 8));
      widen(segment, 0, count, values.data() + at);
      for (int64_t i = at; i < at + count; ++i)
        if (!std::isfinite(values[static_cast<size_t>(i)]))
          throw refusal(segment, numerics::EncodeStatus::NotFinite);
      at += count;
    }
    write(part.offset, {reinterpret_cast<const uint8_t *>(values.data()),
                        values.size() * sizeof(float)});
    return part.size;
  }

  const WriteFn &write;
  /// The weights of one panel in f32, and the packed panel.
  std::vector<float> values;
  std::vector<uint8_t> bytes;
};

/// Runs tasks on several threads. If several tasks fail, the error is always
/// that of the first: tasks start in order, and every started task is finished.
class TaskRunner {
public:
  TaskRunner(std::span<const Task> tasks, const WriteFn &write,
             const ProgressFn &progress, uint64_t total)
      : tasks(tasks), write(write), progress(progress), total(total) {}

  void run(unsigned threads) {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i)
      others.emplace_back([this] { work(); });
    work();
    for (std::thread &thread : others)
      thread.join();
    if (error)
      std::rethrow_exception(error);
  }

private:
  void work() {
    Packer packer(write);
    for (size_t i; !stopped && (i = next++) < tasks.size();) {
      try {
        const uint64_t written = packer.run(tasks[i]);
        const std::lock_guard lock(mutex);
        done += written;
        progress(done, total);
      } catch (...) {
        const std::lock_guard lock(mutex);
        stopped = true;
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
      }
    }
  }

  const std::span<const Task> tasks;
  const WriteFn &write;
  const ProgressFn &progress;
  const uint64_t total;
  std::atomic<size_t> next = 0;
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  uint64_t done = 0;
  size_t failed = SIZE_MAX;
  std::exception_ptr error;
};
} // namespace

void qwen::packWeights(mlir::ModuleOp module, const Checkpoint &checkpoint,
                       unsigned threads, const WriteFn &write,
                       const ProgressFn &progress) {
  const mlir::SymbolTable symbols(module);
  std::vector<Part> parts;
  uint64_t total = 0;
  for (PackedOp packed : module.getOps<PackedOp>()) {
    parts.push_back(readPart(packed, symbols, checkpoint));
    total += parts.back().size;
  }
  std::vector<Task> tasks;
  for (const Part &part : parts) {
    const int64_t panels = part.isMatrix() ? static_cast<int64_t>(part.size) /
                                                 panelBytes(part.format, part.k)
                                           : 1;
    for (int64_t panel = 0; panel < panels; ++panel)
      tasks.push_back({&part, panel});
  }
  TaskRunner(tasks, write, progress, total).run(std::max(threads, 1u));
}
