//===- Artifact.h - A compiled model, opened --------------------*- C++ -*-===//
//
// Everything of an artifact but its code (ElfMapping.h): the manifest, the
// tokenizer, the chat template, and the weights, mapped and shared.
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
  /// Opens `path`, and checks the header, the manifest, the tokenizer and the
  /// template. Weights are mapped and neither read nor checked. Throws Error.
  explicit Artifact(const std::string &path);

  const std::string &path() const { return file.path(); }
  uint64_t fileSize() const { return file.size(); }
  const ArtifactHeader &header() const { return layout.header; }
  const Manifest &manifest() const { return facts; }
  /// The JSON that it was parsed from.
  std::string_view manifestText() const { return text(layout.header.manifest); }

  /// TokenizerFormat.h; empty where the checkpoint had no tokenizer.
  std::span<const uint8_t> tokenizer() const {
    return part(layout.header.tokenizer);
  }
  /// Jinja; empty where the checkpoint had none.
  std::string_view chatTemplate() const {
    return text(layout.header.chatTemplate);
  }
  /// The weight image, at a multiple of kWeightsAlign.
  const uint8_t *weights() const { return weightMap.data(); }

  /// Has the system read all weights that are not in memory, in huge pages
  /// where it can, and map them: a few milliseconds where all are there.
  void readAhead() const;

  /// Keeps the weights in memory, whatever else needs it. Throws Error where
  /// the system does not allow it.
  void lock() const;

  /// The best target that `features` of `arch` can run: the first such one of
  /// the manifest. Throws Error that names, for each target, the features that
  /// this machine lacks.
  const TargetInfo &selectTarget(Arch arch, CpuFeatureSet features) const;

  /// Maps the code; see ElfMapping.
  ElfMapping loadCode(CodeMemory memory = CodeMemory::FileOrCopy) const {
    return ElfMapping(file, layout, memory);
  }

  /// MiB of the weights, each with a checksum; the last may be shorter.
  uint64_t weightMiBs() const;
  /// Reads the weights from MiB `first` on, to the end or until `enough`, which
  /// is asked before each MiB, returns true. Returns the first MiB that was not
  /// read. Throws Error where one is damaged.
  uint64_t checkWeights(uint64_t first = 0,
                        const std::function<bool()> &enough = {}) const;

  /// Reads the whole file and throws Error where the code or a MiB of the
  /// weights is damaged. Returns the bytes that were checked.
  uint64_t check() const;

private:
  std::span<const uint8_t> part(FileRange range) const;
  std::string_view text(FileRange range) const;

  File file;
  ElfLayout layout;
  /// From the file's start to the weights.
  Mapping front;
  Mapping weightMap;
  Manifest facts;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ARTIFACT_ARTIFACT_H
