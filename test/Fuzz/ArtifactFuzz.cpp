//===- ArtifactFuzz.cpp - ELF and layout of artifacts ---------------------===//
//
// The input is a mask of bits to flip in the parts of a small handmade artifact
// that have offsets (kParts, one after another). Checksums are computed again;
// otherwise no input would pass them. No code is mapped for execution.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "HandmadeArtifact.h"
#include "artifact/Artifact.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace qwen;
using test::HandmadeArtifact;

/// The places of the parts of an input.
static constexpr FileRange kParts[] = {
    {0, sizeof(Elf64_Ehdr) + 5 * sizeof(Elf64_Phdr)},
    {HandmadeArtifact::kHeader - sizeof(Elf64_Nhdr) - 8,
     sizeof(Elf64_Nhdr) + 8 + sizeof(ArtifactHeader)},
    {HandmadeArtifact::kDynamic, 2 * sizeof(Elf64_Dyn)},
};

/// All that inputs and checksums change lies before this.
static constexpr size_t kFront = HandmadeArtifact::kCode + 8192;

/// Computes the checksums of what lies in the file. The header says where.
static void seal(HandmadeArtifact &artifact) {
  const ArtifactHeader &header = artifact.header();
  const size_t fileSize = artifact.bytes.size();
  const auto lies = [](FileRange part, uint64_t bytes) {
    return part.offset <= bytes && part.size <= bytes - part.offset;
  };
  bool all = lies({header.weightChecksums.offset, 8}, kFront);
  for (FileRange part : {header.manifest, header.tokenizer, header.chatTemplate,
                         header.weightChecksums, header.weights, header.code})
    all &= lies(part, fileSize);
  if (all)
    artifact.seal();
  else
    artifact.sealHeader();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const HandmadeArtifact whole;
  static HandmadeArtifact artifact;
  static const int fd = memfd_create("artifact", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  static const ssize_t written =
      pwrite(fd, whole.bytes.data(), whole.bytes.size(), 0);
  fuzz::require(written == static_cast<ssize_t>(whole.bytes.size()),
                "the input cannot be written");

  size_t at = 0;
  for (FileRange part : kParts) {
    const size_t count = std::min<size_t>(part.size, size - at);
    for (size_t i = 0; i < count; ++i)
      artifact.bytes[part.offset + i] ^= data[at + i];
    at += count;
  }
  seal(artifact);
  fuzz::require(pwrite(fd, artifact.bytes.data(), kFront, 0) == kFront,
                "the input cannot be written");
  fuzz::parses(size + kFront, [] {
    const Artifact opened(path);
    fuzz::require(opened.header().fileSize == opened.fileSize(),
                  "a file of another size is taken");
    try {
      opened.check();
    } catch (const Error &) {
      // The checksum of the code may not match if parts overlap.
    }
  });
  memcpy(artifact.bytes.data(), whole.bytes.data(), kFront);
  return 0;
}
