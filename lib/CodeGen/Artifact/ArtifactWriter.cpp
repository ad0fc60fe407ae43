//===- ArtifactWriter.cpp - Writes a compiled model -----------------------===//

#include "qwen/CodeGen/Artifact/ArtifactWriter.h"

#include "ArtifactFile.h"
#include "ArtifactManifest.h"

#include "qwen/ABI/Artifact.h"
#include "qwen/ABI/Error.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/BitcodeKernels.h"
#include "qwen/CodeGen/Backend/InstructionModels.h"
#include "qwen/CodeGen/Backend/Link.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/CodeGen/Products/Products.h"
#include "qwen/Dialect/QwenDialect.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

/// Generates code for one target without optimizing it. Appends the names of
/// its entries to `entries`.
static std::unique_ptr<llvm::Module>
generateTarget(mlir::ModuleOp module, const Target &target,
               llvm::LLVMContext &context, std::vector<std::string> &entries) {
  // Only functions are translated, not weights.
  mlir::OwningOpRef<mlir::ModuleOp> functions =
      mlir::ModuleOp::create(module.getLoc());
  for (auto function : module.getOps<mlir::func::FuncOp>())
    functions->push_back(function.clone());
  std::unique_ptr<llvm::Module> whole = translateToLLVM(*functions, context);
  const CpuFeatureSet features = usedFeatures(module, target.arch);
  setTarget(*whole, target, features);
  linkDriver(*whole, target, features);

  entries.push_back(nameForTarget(kForwardName, target));
  for (const std::string &name : calledKernels(module)) {
    const KernelInfo &kernel = *findKernel(name);
    std::unique_ptr<llvm::Module> part;
    if (kernel.provider() != KernelProvider::MLIR) {
      part = emitBitcodeKernel(kernel, context);
    } else {
      mlir::OwningOpRef<mlir::ModuleOp> product =
          mlir::ModuleOp::create(module.getLoc());
      emitProduct(kernel, scheduleOf(kernel), *product);
      part = translateToLLVM(*product, context);
    }
    setTarget(*part, target, kernel.features());
    linkModule(*whole, std::move(part));
    entries.push_back(nameForTarget(name, target));
  }
  nameForTarget(*whole, target);
  return whole;
}

std::unique_ptr<llvm::Module>
qwen::generateCode(llvm::ArrayRef<TargetCode> targets,
                   llvm::LLVMContext &context) {
  std::vector<std::string> entries;
  std::unique_ptr<llvm::Module> whole;
  for (const auto &[target, module] : targets) {
    std::unique_ptr<llvm::Module> part =
        generateTarget(*module, target, context, entries);
    if (whole)
      linkModule(*whole, std::move(part));
    else
      whole = std::move(part);
  }
  addEntryTable(*whole, entries);
  optimize(*whole, targets.front().target);
  return whole;
}

//===----------------------------------------------------------------------===//
// Checksums of the weights
//===----------------------------------------------------------------------===//

/// The checksum of each kChecksumBytes of `range`.
static std::vector<uint64_t>
checksumWeights(const ArtifactFile &file, FileRange range, unsigned threads) {
  std::vector<uint64_t> checksums((range.size + kChecksumBytes - 1) /
                                  kChecksumBytes);
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    try {
      std::vector<uint8_t> bytes(kChecksumBytes);
      for (size_t i; (i = next++) < checksums.size();) {
        const uint64_t offset = i * kChecksumBytes;
        const std::span<uint8_t> checked(
            bytes.data(), std::min(kChecksumBytes, range.size - offset));
        file.read(range.offset + offset, checked);
        checksums[i] = XXH3_64bits(checked.data(), checked.size());
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i)
    others.emplace_back(work);
  work();
  for (std::thread &thread : others)
    thread.join();
  if (error)
    std::rethrow_exception(error);
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

/// `header` with the places of all parts of a file, of which the code gets
/// `codeBytes`.
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

ArtifactSummary qwen::writeArtifact(TemporaryFile &output,
                                    llvm::ArrayRef<TargetCode> targets,
                                    const ArtifactInput &input,
                                    const ProgressFn &progress,
                                    const CheckFn &check) {
  // Shared facts come from the first target.
  const auto &[target, first] = targets.front();
  mlir::ModuleOp module = *first;
  const Metadata metadata(targets, input);
  const auto weightBytes = static_cast<uint64_t>(
      module->getAttrOfType<mlir::IntegerAttr>(kWeightBytesAttr).getInt());
  const uint64_t room = kCodeRoom * targets.size();
  ArtifactHeader header = layOut({}, room, metadata, weightBytes);
  const unsigned threads = std::max(std::thread::hardware_concurrency(), 1u);
  std::optional<ArtifactFile> file;
  const auto pack = [&](llvm::function_ref<void()> meanwhile) {
    file.emplace(output, header.fileSize);
    return packWeights(
        module, input.checkpoint->tensors(), threads,
        [&](uint64_t offset, std::span<const uint8_t> bytes) {
          file->write(header.weights.offset + offset, bytes);
        },
        progress, meanwhile);
  };
  SharedObject object;
  std::vector<Conversion> conversions = pack([&] {
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> code = generateCode(targets, context);
    object = linkSharedObject(emitObjects(*code, target), target);
  });
  const uint64_t weightsOffset = header.weights.offset;
  header = layOut(codeHeader(object, target.arch),
                  std::max(room, object.bytes.size()), metadata, weightBytes);
  if (header.weights.offset != weightsOffset)
    conversions = pack([] {});

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
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> modelled = generateCode(code, context);
  modelInstructions(*modelled, features);
  SharedObject object =
      linkSharedObject(emitObjects(*modelled, target), target);
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
