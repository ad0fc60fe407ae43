//===- Artifact.h - A compiled model, opened --------------------*- C++ -*-===//
//
// The manifest, the tokenizer, the chat template and the mapped weights of an
// artifact. ElfMapping.h maps its code.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ARTIFACT_ARTIFACT_H
#define QWEN_RUNTIME_ARTIFACT_ARTIFACT_H

#include "artifact/ElfMapping.h"
#include "artifact/File.h"
#include "artifact/Manifest.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace qwen {

/// An artifact of any architecture, open for reading.
class Artifact {
public:
  /// Opens `path` and checks the header, the manifest, the tokenizer and the
  /// chat template. Maps the weights without reading or checking them. Throws
  /// Error.
  explicit Artifact(const std::string &path);

  const std::string &path() const { return file.path(); }
  uint64_t fileSize() const { return file.size(); }
  const ArtifactHeader &header() const { return layout.header; }
  const Manifest &manifest() const { return facts; }
  /// The JSON text of the manifest.
  std::string_view manifestText() const { return text(layout.header.manifest); }

  /// Bytes of TokenizerFormat.h; empty if the checkpoint had no tokenizer.
  std::span<const uint8_t> tokenizer() const {
    return part(layout.header.tokenizer);
  }
  /// Jinja source; empty if the checkpoint had no template.
  std::string_view chatTemplate() const {
    return text(layout.header.chatTemplate);
  }
  /// The weight image, as far behind a multiple of kHugePage as in the file.
  const uint8_t *weights() const { return weightMap.data(); }

  /// Makes the system read and map all weights, in huge memory pages if
  /// possible. Takes a few milliseconds if they are in memory already. Does
  /// nothing if the weights exceed the free memory. The system then reads a
  /// page when a token first needs it.
  void readAhead() const;

  /// The system may take back the memory of the mapped weights, which are read
  /// from the file again when they are needed.
  void forget() const;

  /// Locks the weights in memory. Throws Error if the system does not allow it.
  void lock() const;

  /// The best target that `features` of `arch` can run, which is the manifest's
  /// first such target. Throws Error, which names the missing features of each
  /// target.
  const TargetInfo &selectTarget(Arch arch, CpuFeatureSet features) const;

  /// Maps the code; see ElfMapping.
  ElfMapping loadCode(CodeMemory memory = CodeMemory::FileOrCopy) const {
    return ElfMapping(file, layout, memory);
  }

  /// Number of MiB of the weights, each with a checksum; the last may be
  /// shorter.
  uint64_t weightMiBs() const;
  /// Checks the weights from MiB `first` on, to the end or until `enough`
  /// returns true, which is called before each MiB. Returns the first unchecked
  /// MiB. Throws Error if one is damaged.
  uint64_t checkWeights(uint64_t first = 0,
                        const std::function<bool()> &enough = {}) const;

  /// Checks the code. Throws Error if it is damaged.
  void checkCode() const { qwen::checkCode(file, layout); }

  /// Checks the code and all weights. Returns the number of checked bytes.
  /// Throws Error if the code or a MiB of the weights is damaged.
  uint64_t check() const;

private:
  std::span<const uint8_t> part(FileRange range) const;
  std::string_view text(FileRange range) const;

  File file;
  ElfLayout layout;
  /// The file from its start to the weights.
  Mapping front;
  Mapping weightMap;
  Manifest facts;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ARTIFACT_ARTIFACT_H
