//===- ArtifactWriter.cpp - Writes a compiled model -----------------------===//

#include "qwen/CodeGen/Artifact/ArtifactWriter.h"

#include "ArtifactFile.h"
#include "ArtifactManifest.h"
#include "CodeCache.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/CodeGen/Artifact/Code.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/InstructionModels.h"
#include "qwen/CodeGen/Backend/Link.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Parallel.h"

#include <optional>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

static std::vector<char> emitPart(Code &code, size_t i) {
  const auto emit = [&] {
    llvm::LLVMContext context;
    return emitObject(*code.generate(i, context), code.target());
  };
  const std::string identity = code.identity(i);
  return identity.empty() ? emit() : cachedObject(identity, emit);
}

/// All parts that `emit` makes, linked.
static SharedObject
linkCode(Code &code,
         const std::function<std::vector<char>(Code &, size_t)> &emit) {
  std::vector<std::vector<char>> objects(code.parts());
  parallelFor(objects.size(), machineThreads(),
              [&](size_t i, unsigned) { objects[i] = emit(code, i); });
  return linkSharedObject(objects, code.target());
}

//===----------------------------------------------------------------------===//
// Checksums of the weights
//===----------------------------------------------------------------------===//

/// The checksum of each kChecksumBytes of `range`.
static std::vector<uint64_t>
checksumWeights(const ArtifactFile &file, FileRange range, unsigned threads) {
  std::vector<uint64_t> checksums((range.size + kChecksumBytes - 1) /
                                  kChecksumBytes);
  std::vector<std::vector<uint8_t>> buffers(threads);
  parallelFor(checksums.size(), threads, [&](size_t i, unsigned thread) {
    const uint64_t offset = i * kChecksumBytes;
    std::vector<uint8_t> &bytes = buffers[thread];
    bytes.resize(std::min(kChecksumBytes, range.size - offset));
    file.read(range.offset + offset, bytes);
    checksums[i] = XXH3_64bits(bytes.data(), bytes.size());
  });
  return checksums;
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

namespace {
/// Places the parts of a file one after another.
class FileLayout {
public:
  FileRange place(uint64_t size, uint64_t alignment) {
    const FileRange range{(end + alignment - 1) / alignment * alignment, size};
    end = range.offset + size;
    return range;
  }
  uint64_t size() const { return end; }

private:
  uint64_t end = 0;
};
} // namespace

template <typename T>
static std::span<const uint8_t> asBytes(const T &container) {
  return {reinterpret_cast<const uint8_t *>(container.data()),
          container.size() * sizeof(*container.data())};
}

static uint64_t checksum(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

namespace {
/// All parts of a file but the code and the weights.
struct Metadata {
  Metadata(llvm::ArrayRef<TargetCode> targets, const ArtifactInput &input)
      : manifest(writeManifest(targets, input)) {
    if (const std::optional<TokenizerImport> &from = *input.tokenizer) {
      tokenizer = asBytes(from->blob);
      chatTemplate = asBytes(from->chatTemplate);
    }
  }

  const std::string manifest;
  std::span<const uint8_t> tokenizer, chatTemplate;
};
} // namespace

/// `header` with the places of all parts of a file. The code gets `codeBytes`.
static ArtifactHeader layOut(ArtifactHeader header, uint64_t codeBytes,
                             const Metadata &metadata, uint64_t weightBytes) {
  FileLayout layout;
  layout.place(codeBytes, 1);
  header.manifest = layout.place(metadata.manifest.size(), kTensorAlign);
  header.tokenizer = layout.place(metadata.tokenizer.size(), kTensorAlign);
  header.chatTemplate =
      layout.place(metadata.chatTemplate.size(), kTensorAlign);
  header.weightChecksums = layout.place((weightBytes + kChecksumBytes - 1) /
                                            kChecksumBytes * sizeof(uint64_t),
                                        kTensorAlign);
  header.weights = layout.place(weightBytes, kWeightsAlign);
  header.fileSize = layout.size();
  return header;
}

/// Bytes of a file for the code of a target. Weights lie behind the code and
/// are packed while it is generated, so their place cannot depend on its size.
/// They are packed again if it needs more.
static constexpr uint64_t kCodeRoom = uint64_t{512} << 10;

static uint64_t weightBytesOf(mlir::ModuleOp module) {
  return static_cast<uint64_t>(
      module->getAttrOfType<mlir::IntegerAttr>(kWeightBytesAttr).getInt());
}

uint64_t qwen::artifactBytes(llvm::ArrayRef<TargetCode> targets,
                             const ArtifactInput &input) {
  const Metadata metadata(targets, input);
  Code code(targets);
  const SharedObject object = linkCode(code, emitPart);
  const uint64_t room =
      std::max<uint64_t>(kCodeRoom * targets.size(), object.bytes.size());
  return layOut({}, room, metadata, weightBytesOf(*targets.front().module))
      .fileSize;
}

ArtifactSummary qwen::writeArtifact(WritableFile &output,
                                    llvm::ArrayRef<TargetCode> targets,
                                    const ArtifactInput &input,
                                    const ProgressFn &progress,
                                    const CheckFn &check) {
  // Shared facts come from the first target.
  const auto &[target, first] = targets.front();
  mlir::ModuleOp module = *first;
  const Metadata metadata(targets, input);
  const uint64_t weightBytes = weightBytesOf(module);
  const uint64_t room = kCodeRoom * targets.size();
  ArtifactHeader header = layOut({}, room, metadata, weightBytes);
  const unsigned threads = machineThreads();
  std::optional<ArtifactFile> file;
  const auto pack = [&](size_t jobs, const JobFn &job) {
    file.emplace(output, header.fileSize);
    return packWeights(
        module, /*image=*/{}, input.checkpoint->weights(), threads,
        [&](uint64_t offset, std::span<const uint8_t> bytes) {
          file->write(header.weights.offset + offset, bytes);
        },
        progress, jobs, job);
  };
  Code code(targets);
  std::vector<std::vector<char>> objects(code.parts());
  std::vector<Conversion> conversions =
      pack(code.parts(), [&](size_t i) { objects[i] = emitPart(code, i); });
  SharedObject object = linkSharedObject(objects, target);
  const uint64_t weightsOffset = header.weights.offset;
  header = layOut(codeHeader(object, target.arch),
                  std::max(room, object.bytes.size()), metadata, weightBytes);
  if (header.weights.offset != weightsOffset)
    conversions = pack(0, {});

  header.manifestChecksum = checksum(asBytes(metadata.manifest));
  header.tokenizerChecksum = checksum(metadata.tokenizer);
  header.chatTemplateChecksum = checksum(metadata.chatTemplate);
  file->write(header.manifest.offset, asBytes(metadata.manifest));
  file->write(header.tokenizer.offset, metadata.tokenizer);
  file->write(header.chatTemplate.offset, metadata.chatTemplate);
  const std::vector<uint64_t> checksums =
      checksumWeights(*file, header.weights, threads);
  file->write(header.weightChecksums.offset, asBytes(checksums));
  header.weightChecksumsChecksum = checksum(asBytes(checksums));
  writeHeader(object, header);
  file->write(0, asBytes(object.bytes));
  check(output.path());
  output.commit();
  return {header.fileSize, header.code.size, weightBytes,
          std::move(conversions)};
}

std::vector<char> qwen::modelledArtifact(const TargetCode &code,
                                         const ArtifactInput &input,
                                         CpuFeatureSet features) {
  const Target &target = code.target;
  const CpuFeatureSet used = usedFeatures(*code.module, target.arch);
  Code parts(code);
  SharedObject object = linkCode(parts, [&](Code &whole, size_t i) {
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> part = whole.generate(i, context);
    modelInstructions(*part, features);
    return emitObject(*part, target);
  });
  const std::string manifest =
      writeKernelManifest(code, input, used - (used - features));

  FileLayout layout;
  ArtifactHeader header = codeHeader(object, target.arch);
  layout.place(object.bytes.size(), 1);
  header.manifest = layout.place(manifest.size(), kTensorAlign);
  header.fileSize = layout.size();
  header.manifestChecksum = checksum(asBytes(manifest));
  writeHeader(object, header);
  std::vector<char> file = std::move(object.bytes);
  file.resize(header.manifest.offset);
  file.insert(file.end(), manifest.begin(), manifest.end());
  return file;
}

ProgramCode qwen::emitPrograms(const TargetCode &code) {
  Code parts(code);
  SharedObject object = linkCode(parts, emitPart);
  ArtifactHeader header = codeHeader(object, code.target.arch);
  header.fileSize = object.bytes.size();
  writeHeader(object, header);
  return {std::move(object.bytes), writeCodeManifest(code)};
}

void qwen::packImage(mlir::ModuleOp module, const WeightSources &sources,
                     WritableFile &file, mlir::FlatSymbolRefAttr image) {
  const mlir::IntegerAttr bytes =
      image ? module.lookupSymbol<ImageOp>(image).getBytesAttr()
            : module->getAttrOfType<mlir::IntegerAttr>(kWeightBytesAttr);
  const ArtifactFile to(file, static_cast<uint64_t>(bytes.getInt()));
  packWeights(
      module, image, sources, machineThreads(),
      [&](uint64_t offset, std::span<const uint8_t> part) {
        to.write(offset, part);
      },
      [](uint64_t, uint64_t) {}, 0, {});
  file.commit();
}
