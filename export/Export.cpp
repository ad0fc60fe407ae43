//===- Export.cpp - From a compiled model to a GGUF file ------------------===//

#include "export/Export.h"

#include "export/GgufHead.h"
#include "export/TokenizerKeys.h"

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"
#include "qwen/Support/TemporaryFile.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <unistd.h>

using namespace qwen;

/// Whether a part has a matrix for each expert, even for a single one.
static bool hasExperts(const TensorInfo &part) { return part.stride != 0; }

namespace {
/// Some outputs of a part of the image, which become a tensor of the file.
struct ExportedTensor {
  const TensorInfo *part;
  /// In the Hugging Face model.
  std::string name;
  int64_t first, outputs;
  StoredType type;
  /// The place of its bytes behind the head.
  uint64_t offset = 0;

  bool isMatrix() const { return part->shape.size() == 2; }
  /// The outputs that it has of a matrix of the part, and the number of the
  /// first one there.
  int64_t outputsOfMatrix() const { return outputs / part->experts; }
  int64_t firstOfMatrix() const { return first / part->experts; }
  std::vector<int64_t> shape() const {
    std::vector<int64_t> sizes = part->shape;
    sizes.front() = outputsOfMatrix();
    if (hasExperts(*part))
      sizes.insert(sizes.begin(), part->experts);
    return sizes;
  }
  /// Bytes of an output, or of the value of a vector.
  int64_t outputBytes() const {
    return storedBytes(type, isMatrix() ? part->shape[1] : 1);
  }
  uint64_t bytes() const {
    return static_cast<uint64_t>(outputs * outputBytes());
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// What is exported
//===----------------------------------------------------------------------===//

/// The row of the model's architecture.
static Architecture architectureOf(const Artifact &artifact) {
  const std::string &name = artifact.manifest().model.architecture;
  std::vector<std::string> supported;
  for (const ArchitectureInfo &info : kArchitectures) {
    if (info.ggufName.empty() || info.layers.hasLinear || info.hasVision)
      continue;
    if (info.name == name)
      return static_cast<Architecture>(&info - kArchitectures);
    supported.emplace_back(info.name);
  }
  throw Error(part::file(artifact.path()) + " is a model of " +
              part::found(quote(name)) + ", which is not exported; " +
              part::needed(listed(supported)) +
              " are; run it with qwen-run, or convert the checkpoint");
}

/// Throws Error for experts that a GGUF file cannot describe.
static void checkExperts(const Artifact &artifact,
                         const ArchitectureInfo &info) {
  if (!info.layers.hasExperts)
    return;
  const auto fail = [&](const std::string &found) {
    throw Error(part::file(artifact.path()) + " has " + part::found(found) +
                ", which a GGUF file of " + std::string(info.ggufName) +
                " cannot say; run it with " + part::needed("qwen-run"));
  };
  const auto isDense = [](const TensorInfo::Segment &segment) {
    return segment.name.ends_with(".mlp.down_proj.weight");
  };
  const auto &experts = artifact.manifest().model.experts;
  for (const TensorInfo &tensor : artifact.manifest().tensors)
    if (!experts || std::ranges::any_of(tensor.segments, isDense))
      fail("layers without experts");
  if (experts->normalized != info.layers.normalizesGgufExperts)
    fail(experts->normalized
             ? "experts whose weights are divided by their sum"
             : "experts whose weights are not divided by their sum");
}

/// Throws Error unless the sizes that the manifest gives a part agree.
static void checkPart(const std::string &path, const TensorInfo &tensor) {
  const auto fail = [&] {
    throw Error(part::file(path) + " is damaged: in its manifest, " +
                part::tensor(tensor.name) + " has sizes that disagree");
  };
  int64_t outputs = 0;
  for (const TensorInfo::Segment &segment : tensor.segments) {
    outputs += segment.outputs;
    // Matrices of experts have whole panels of each weight.
    if (hasExperts(tensor) &&
        segment.outputs % (tensor.experts * kPanelOutputs) != 0)
      fail();
  }
  const size_t rank = tensor.shape.size();
  if (rank < 1 || rank > 2 || tensor.shape.front() != outputs)
    fail();
  uint64_t bytes = sizeof(float), count = static_cast<uint64_t>(outputs);
  if (rank == 2) {
    if (tensor.shape[1] % kGroup != 0)
      fail();
    bytes = static_cast<uint64_t>(panelBytes(tensor.format, tensor.shape[1]));
    count = static_cast<uint64_t>(ceilDiv(outputs, kPanelOutputs));
  } else if (tensor.format != WeightFormat::F32) {
    fail();
  }
  if (__builtin_mul_overflow(bytes, count, &bytes) || bytes > tensor.bytes)
    fail();
}

/// Throws Error unless these are the frequencies that a reader computes. Older
/// manifests lack YaRN.
static void checkFrequencies(const Artifact &artifact,
                             const TensorInfo &tensor) {
  const ModelInfo &model = artifact.manifest().model;
  const double theta = asDecimal(static_cast<float>(model.ropeTheta));
  const uint8_t *bytes = artifact.weights() + tensor.offset;
  for (int64_t i = 0; i < tensor.shape.front(); ++i) {
    float found = 0;
    std::memcpy(&found, bytes + i * sizeof(found), sizeof(found));
    const float needed =
        model.yarn ? numerics::yarnInvFreq(theta, i, model.headDim, *model.yarn)
                   : numerics::ropeInvFreq(theta, i, model.headDim);
    // An earlier compiler had the C library's power.
    if (!(std::abs(found - needed) <= 1e-6F * needed))
      throw Error(part::file(artifact.path()) +
                  " has another rotary embedding than its manifest says; "
                  "compile the checkpoint again");
  }
}

/// The tensors of the file, by the name in the model, without their places.
static std::vector<ExportedTensor> findTensors(const Artifact &artifact) {
  const std::string &path = artifact.path();
  std::vector<ExportedTensor> tensors;
  std::set<std::string> names = {kFrequenciesName};
  for (const TensorInfo &tensor : artifact.manifest().tensors) {
    checkPart(path, tensor);
    const StoredType type = exportedType(tensor.format);
    int64_t first = 0;
    for (const auto &[name, outputs] : tensor.segments) {
      if (name == kFrequenciesName)
        checkFrequencies(artifact, tensor);
      // Parts of different layouts may have the same weight.
      if (names.insert(name).second)
        tensors.push_back({&tensor, name, first, outputs, type});
      first += outputs;
    }
    if (const int64_t values = infoOf(type).values;
        tensor.shape.size() == 2 && tensor.shape[1] % values != 0)
      throw Error(
          part::file(path) + ": " + part::tensor(tensor.segments.front().name) +
          " in " + std::string(weightFormatName(tensor.format)) + " has " +
          part::found("K " + std::to_string(tensor.shape[1])) +
          " when blocks of " + std::string(storedTypeName(type)) + " need " +
          part::needed("a multiple of " + std::to_string(values)) +
          "; compile with --weights q8_0 --rotate off, or with "
          "another format of blocks of 32");
  }
  return tensors;
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

static void addYarn(const ModelInfo &model, const std::string &prefix,
                    GgufHead &head) {
  const Yarn &yarn = *model.yarn;
  const auto addNumber = [&](const char *key, double value) {
    head.addNumber(prefix + key, static_cast<float>(value));
  };
  head.addText(prefix + kGgufRopeScaling, kGgufYarn);
  addNumber(kGgufYarnFactor, yarn.factor);
  head.addInteger(prefix + kGgufYarnPositions,
                  static_cast<uint32_t>(yarn.positions));
  addNumber(kGgufYarnSlow, yarn.slow);
  addNumber(kGgufYarnFast, yarn.fast);
  addNumber(kGgufYarnScales[0],
            yarn.scale / numerics::yarnAttentionFactor(yarn.factor));
}

/// Adds the keys that the reader's ConfigReader reads.
static void addModel(const ModelInfo &model, const ArchitectureInfo &info,
                     GgufHead &head, std::vector<std::string> &warnings) {
  const std::string prefix = std::string(info.ggufName) + ".";
  const auto addSize = [&](const char *key, int64_t size) {
    head.addInteger(prefix + key, static_cast<uint32_t>(size));
  };
  head.addText(kGgufArchitecture, info.ggufName);
  head.addText(kGgufModelType, "model");
  head.addText("general.name", model.name);
  // The version of ggml's blocks.
  head.addInteger("general.quantization_version", 2);
  for (const SizeKey &key : kGgufSizes)
    addSize(key.key, model.*key.size);
  addSize(kGgufLayers, model.layers);
  addSize(kGgufContext, model.maxContext);
  addSize(kGgufKeyDim, model.headDim);
  addSize(kGgufValueDim, model.headDim);
  if (info.layers.hasExperts) {
    const auto &[count, active, width, sharedWidth, normalized] =
        *model.experts;
    addSize(kGgufExpertCount, count);
    addSize(kGgufActiveExperts, active);
    addSize(kGgufExpertWidth, width);
    if (info.layers.hasSharedExpert)
      addSize(kGgufSharedWidth, sharedWidth);
  }
  head.addNumber(prefix + kGgufRopeTheta, static_cast<float>(model.ropeTheta));
  head.addNumber(prefix + kGgufEpsilon, static_cast<float>(model.rmsNormEps));
  if (model.yarn)
    addYarn(model, prefix, head);
  const auto &[kind, labels, tokens, pooling] = model.output;
  if (!labels.empty())
    head.addTexts(prefix + kGgufLabels, labels);
  if (kind == OutputKind::Logits && pooling == kLastPooling)
    return;
  if (const auto *found = std::ranges::find(kGgufPoolings, pooling);
      found != std::end(kGgufPoolings))
    addSize(kGgufPooling, found - kGgufPoolings);
  else
    warnings.push_back("the pooling " + quote(pooling) +
                       " is not one of a GGUF file, which does not say it");
}

/// Adds the sampling defaults. A temperature of 0 says that nothing is drawn.
static void addSampling(GenerationConfig generation, GgufHead &head) {
  using Member = decltype(Fact<GenerationConfig>::member);
  if (!generation.doSample)
    generation.temperature = 0;
  for (const auto &option : kGgufSampling) {
    const char *key = option.fact.key;
    if (option.draws && !generation.doSample &&
        option.fact.member != Member(&GenerationConfig::temperature))
      continue;
    option.fact.visitIn(generation, [&](auto value) {
      if constexpr (std::is_same_v<decltype(value), double>)
        head.addNumber(key, static_cast<float>(value));
      else
        head.addInteger(key, static_cast<uint32_t>(value));
    });
  }
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

namespace {
/// Writes tensors on several threads.
class TensorWriter {
public:
  /// The tensors begin at byte `begin` of the file.
  TensorWriter(const Artifact &artifact, const WritableFile &file,
               uint64_t begin)
      : artifact(artifact), file(file), begin(begin) {}

  void write(const ExportedTensor &tensor) const {
    const uint8_t *bytes = artifact.weights() + tensor.part->offset;
    if (!tensor.isMatrix())
      return write(tensor, 0,
                   {bytes + tensor.first * tensor.outputBytes(),
                    static_cast<size_t>(tensor.bytes())});
    const int64_t outputs = tensor.firstOfMatrix();
    const int64_t panel = outputs / kPanelOutputs;
    const int64_t panels =
        ceilDiv(outputs + tensor.outputsOfMatrix(), kPanelOutputs) - panel;
    const unsigned threads = machineThreads();
    std::vector<std::vector<uint8_t>> buffers(threads);
    parallelFor(static_cast<size_t>(tensor.part->experts * panels), threads,
                [&](size_t i, unsigned thread) {
                  const auto task = static_cast<int64_t>(i);
                  writePanel(tensor, task / panels, panel + task % panels,
                             buffers[thread]);
                });
  }

private:
  /// Writes the outputs that the tensor has in a panel of a matrix.
  void writePanel(const ExportedTensor &tensor, int64_t matrix, int64_t panel,
                  std::vector<uint8_t> &buffer) const {
    const TensorInfo &from = *tensor.part;
    const int64_t k = from.shape[1], size = tensor.outputBytes();
    const uint8_t *bytes = artifact.weights() + from.offset +
                           static_cast<uint64_t>(matrix) * from.stride +
                           panel * panelBytes(from.format, k);
    const int64_t outputs = tensor.firstOfMatrix();
    const int64_t count = tensor.outputsOfMatrix();
    const int64_t first = std::max(outputs, panel * kPanelOutputs);
    const int64_t end = std::min(outputs + count, (panel + 1) * kPanelOutputs);
    buffer.resize(static_cast<size_t>((end - first) * size));
    for (int64_t output = first; output < end; ++output)
      if (!numerics::exportOutput(from.format, bytes, k, output % kPanelOutputs,
                                  buffer.data() + (output - first) * size))
        throw Error(part::file(artifact.path()) + ": " +
                    part::tensor(tensor.name) + " in " +
                    std::string(weightFormatName(from.format)) + " has " +
                    part::found("a zero point") + " that is no " +
                    part::needed("integer from 0 to 16") + ", and " +
                    std::string(storedTypeName(tensor.type)) +
                    " holds no other; compile with another format, such as "
                    "--weights q8_0 --rotate off");
    write(tensor, matrix * count + first - outputs, buffer);
  }

  /// Writes `bytes` of the tensor, from its output `output` on.
  void write(const ExportedTensor &tensor, int64_t output,
             std::span<const uint8_t> bytes) const {
    const uint64_t offset =
        begin + tensor.offset +
        static_cast<uint64_t>(output * tensor.outputBytes());
    if (const int error =
            writeAllAt(file.descriptor(), bytes.data(), bytes.size(), offset))
      file.fail(error);
  }

  const Artifact &artifact;
  const WritableFile &file;
  const uint64_t begin;
};
} // namespace

/// Adds the tensor to the row of its format and type.
static void count(const ExportedTensor &tensor,
                  std::vector<ExportSummary::Row> &rows) {
  const WeightFormat from = tensor.part->format;
  auto row = std::ranges::find(rows, from, &ExportSummary::Row::from);
  if (row == rows.end())
    row = rows.insert(
        std::ranges::upper_bound(rows, from, {}, &ExportSummary::Row::from),
        ExportSummary::Row{from, tensor.type});
  ++row->tensors;
  row->bytes += tensor.bytes();
}

ExportSummary qwen::exportGguf(const Artifact &artifact, WritableFile &file) {
  const Architecture architecture = architectureOf(artifact);
  const ArchitectureInfo &info = infoOf(architecture);
  checkExperts(artifact, info);
  if (artifact.manifest().quantization.rotated)
    throw Error(part::file(artifact.path()) + " is " + part::found("rotated") +
                ": it transforms its activations while it runs, which a GGUF "
                "file does not say; compile it with " +
                part::needed("--rotate off"));
  std::vector<ExportedTensor> tensors = findTensors(artifact);
  artifact.checkWeights();

  ExportSummary summary = {std::string(info.ggufName), {}, 0, {}};
  GgufHead head;
  addModel(artifact.manifest().model, info, head, summary.warnings);
  addSampling(artifact.manifest().generation, head);
  addTokenizer(artifact, head, summary.warnings);
  for (ExportedTensor &tensor : tensors) {
    tensor.offset = head.addTensor(ggufOwnName(architecture, tensor.name),
                                   tensor.type, tensor.shape());
    count(tensor, summary.rows);
  }
  const std::string front = head.make();
  summary.fileBytes = front.size() + head.tensorBytes();
  if (ftruncate(file.descriptor(), static_cast<off_t>(summary.fileBytes)) != 0)
    file.fail(errno);
  if (const int error =
          writeAllAt(file.descriptor(), front.data(), front.size(), 0))
    file.fail(error);
  const TensorWriter writer(artifact, file, front.size());
  for (const ExportedTensor &tensor : tensors)
    writer.write(tensor);
  file.commit();
  return summary;
}
