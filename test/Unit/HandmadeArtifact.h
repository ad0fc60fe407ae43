//===- HandmadeArtifact.h - Artifacts for tests -----------------*- C++ -*-===//
//
// Writes small artifacts byte by byte, so that tests can damage each byte.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_HANDMADEARTIFACT_H
#define QWEN_TEST_UNIT_HANDMADEARTIFACT_H

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/ABI/CpuFeatures.h"

#include <cstdint>
#include <elf.h>
#include <string>
#include <vector>

namespace qwen::test {

/// A manifest of a model of one layer, with `target` for this machine and 64
/// bytes of weights.
std::string handmadeManifest();

/// The bytes of an artifact and the places of its parts. Its two functions are
/// "answer.test", which returns 42, and "forward.test", which does nothing.
struct HandmadeArtifact {
  explicit HandmadeArtifact(const std::string &manifest = handmadeManifest());

  ArtifactHeader &header() {
    return *reinterpret_cast<ArtifactHeader *>(bytes.data() + kHeader);
  }
  Elf64_Ehdr &elf() { return *reinterpret_cast<Elf64_Ehdr *>(bytes.data()); }
  /// 0: read-only, 1: code, 2: note, 3: dynamic, 4: stack.
  Elf64_Phdr &segment(int index) {
    return reinterpret_cast<Elf64_Phdr *>(bytes.data() +
                                          sizeof(Elf64_Ehdr))[index];
  }
  Elf64_Dyn &dynamic() {
    return *reinterpret_cast<Elf64_Dyn *>(bytes.data() + kDynamic);
  }
  EntryPoint &entry(int index) {
    return reinterpret_cast<EntryPoint *>(bytes.data() + kTable +
                                          sizeof(EntryTable))[index];
  }

  /// Sets the size of the weights and seals the artifact.
  void resizeWeights(uint64_t size);
  /// Computes every checksum again, from the last to the first.
  void seal();
  void sealHeader();
  /// Writes a file in the tests' temporary directory and returns its path.
  std::string write(const std::string &name) const;

  static constexpr uint64_t kHeader = 0x400, kDynamic = 0x800, kTable = 0xA00;
  static constexpr uint64_t kNames = 0xC00, kCode = kSegmentAlign;
  /// No multiple of a huge page.
  static constexpr uint64_t kWeights = kHugePage + kWeightsAlign;
  std::vector<uint8_t> bytes;
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_HANDMADEARTIFACT_H
