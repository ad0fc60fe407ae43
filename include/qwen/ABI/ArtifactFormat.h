//===- ArtifactFormat.h - Bytes of a compiled model -------------*- C++ -*-===//
//
// One file: an ELF shared object at offset 0, then the manifest, the tokenizer,
// the chat template, the checksums of the weights, and the weight image at a
// multiple of 64 KiB. docs/artifact.md describes it. The ELF has the header as
// the descriptor of a note; the header gives the place of every part.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_ARTIFACTFORMAT_H
#define QWEN_ABI_ARTIFACTFORMAT_H

#include <cstddef>
#include <cstdint>

namespace qwen {

/// Version of everything in the file except the kernel ABI and the numbers.
/// Readers accept this version only.
inline constexpr uint32_t kFormatVersion = 6;

/// Version of docs/numerics.md: it changes only with a definition there, and so
/// with the bits of an answer. Readers accept this version only.
inline constexpr uint32_t kNumericsVersion = 1;

/// ELF note that holds ArtifactHeader: section ".note.qwen", owner "Qwen".
inline constexpr char kNoteName[] = "Qwen";
inline constexpr uint32_t kNoteType = 1;
inline constexpr char kNoteSection[] = ".note.qwen";

inline constexpr char kArtifactMagic[8] = {'Q', 'W', 'E', 'N',
                                           'A', 'O', 'T', 0};

/// Alignment of ELF segments, in file and address (Linux on Arm has memory
/// pages of 4, 16 or 64 KiB).
inline constexpr uint64_t kSegmentAlign = uint64_t{64} << 10;
/// Alignment of the weight image in the file: a memory page of any system.
inline constexpr uint64_t kWeightsAlign = kSegmentAlign;
/// Bytes of a huge memory page. Huge pages of a file lie at multiples of this
/// offset, in memory too.
inline constexpr uint64_t kHugePage = uint64_t{2} << 20;
/// Alignment of each part of the weight image and each buffer of the arena.
inline constexpr uint64_t kTensorAlign = 64;
/// Bytes of the weight image that one checksum covers.
inline constexpr uint64_t kChecksumBytes = uint64_t{1} << 20;

/// Part of the file.
struct FileRange {
  uint64_t offset;
  uint64_t size;
};

/// All numbers are little-endian. Checksums are XXH3-64 with seed 0.
struct ArtifactHeader {
  char magic[8];
  uint32_t formatVersion;
  uint32_t kernelAbiVersion;
  /// sizeof(Context).
  uint32_t contextSize;
  /// An Arch.
  uint32_t arch;
  /// Must be the size of the file.
  uint64_t fileSize;
  /// The ELF, from offset 0.
  FileRange code;
  /// JSON, UTF-8.
  FileRange manifest;
  /// TokenizerFormat.h; empty if the checkpoint has no tokenizer.
  FileRange tokenizer;
  /// Jinja, UTF-8; empty if the checkpoint has no chat template.
  FileRange chatTemplate;
  /// uint64_t [ceil(weights.size / kChecksumBytes)].
  FileRange weightChecksums;
  FileRange weights;
  /// Virtual address of the EntryTable in the ELF.
  uint64_t entryTable;
  /// Checksum of the ELF, with zeros in place of this header.
  uint64_t codeChecksum;
  uint64_t manifestChecksum;
  uint64_t tokenizerChecksum;
  uint64_t chatTemplateChecksum;
  /// Checksum of the checksums, not of the weights.
  uint64_t weightChecksumsChecksum;
  /// Checksum of this header up to here.
  uint64_t headerChecksum;
};
static_assert(sizeof(ArtifactHeader) == 32 + 6 * 16 + 7 * 8);

/// One function of the generated code. Both offsets are relative to the address
/// of the field itself.
struct EntryPoint {
  int32_t function;
  /// NUL-terminated: "<program>.<target>" or "<kernel>.<target>".
  int32_t name;
};

/// In the ELF's read-only data, at a multiple of 4. `count` EntryPoints follow.
struct EntryTable {
  uint32_t count;
};

} // namespace qwen

#endif // QWEN_ABI_ARTIFACTFORMAT_H
