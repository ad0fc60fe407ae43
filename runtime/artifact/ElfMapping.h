//===- ElfMapping.h - Generated code of an artifact ---------------*- C++
//-*-===//
//
// Reads the ELF at the start of an artifact as hostile input, and maps it
// without the system's loader: a static program has none, and the file needs
// none (no relocations, no writable segments, no undefined symbols).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ARTIFACT_ELFIMAGE_H
#define QWEN_RUNTIME_ARTIFACT_ELFIMAGE_H

#include "artifact/File.h"

#include "qwen/ABI/Artifact.h"
#include "qwen/ABI/CpuFeatures.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qwen {

/// One PT_LOAD of the ELF. Bytes and addresses have been checked.
struct ElfSegment {
  uint64_t offset;
  uint64_t address;
  uint64_t size;
  bool executable;
};

/// What is known of an artifact's ELF before it is mapped. Works for artifacts
/// of any architecture.
struct ElfLayout {
  ArtifactHeader header;
  /// Offset of the header in the file.
  uint64_t headerOffset;
  /// Ascending addresses, multiples of kSegmentAlign.
  std::vector<ElfSegment> segments;
};

/// Reads the ELF header, the program headers, the dynamic section and the
/// ArtifactHeader of `file`, and checks all but the checksum of the code.
///
/// Throws Error where the file is not an artifact; is of another format
/// version, kernel ABI version or context size; is truncated or damaged; or
/// has a segment that is writable, not aligned to kSegmentAlign, larger in
/// memory than in the file or outside of the code; an executable stack;
/// relocations; needed libraries; constructors or thread-local data.
ElfLayout readElfLayout(const File &file);

/// Throws Error where the bytes of the code are not those of its checksum.
void checkCode(const File &file, const ElfLayout &layout);

/// Where executable segments come from.
enum class CodeMemory {
  /// The file, or a copy where the system does not allow that (noexec mounts,
  /// SELinux).
  FileOrCopy,
  /// Always a copy in anonymous memory.
  Copy,
};

/// The generated code of an artifact, mapped: read-only data, and functions to
/// call by name. Memory is never writable and executable at once.
class ElfMapping {
public:
  /// Maps the code. Throws Error where it is for another architecture than
  /// this program's, its checksum does not match, an entry of its table lies
  /// outside of the segments, or the system refuses executable memory.
  ElfMapping(const File &file, const ElfLayout &layout,
             CodeMemory memory = CodeMemory::FileOrCopy);

  /// Opens and maps an artifact, or a file of kernels alone.
  explicit ElfMapping(const std::string &path);

  /// The address of a function, null where there is none of that name. Names
  /// are "forward.<target>" and "<kernel>.<target>".
  void *find(std::string_view name) const;

  /// As find, as a function type of KernelABI.h:
  /// `image.function<LinearF32Fn>("linear_f32_4x16_avx2.znver4")`.
  template <typename FnType> FnType *function(std::string_view name) const {
    return reinterpret_cast<FnType *>(find(name));
  }

  /// Names and addresses in the order of the file's table.
  const std::vector<std::pair<std::string_view, void *>> &entries() const {
    return table;
  }

private:
  void map(const File &file, const ElfLayout &layout, CodeMemory memory);
  void readEntries(const File &file, const ElfLayout &layout);

  Mapping range;
  std::vector<std::pair<std::string_view, void *>> table;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ARTIFACT_ELFIMAGE_H
