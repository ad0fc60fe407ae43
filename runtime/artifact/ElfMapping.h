//===- ElfMapping.h - Generated code of an artifact -------------*- C++ -*-===//
//
// Reads the ELF at the start of an artifact as hostile input, and maps it
// without the system's loader, which a static program does not have. The file
// needs no loader: it has no relocations, no writable segments and no undefined
// symbols.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ARTIFACT_ELFIMAGE_H
#define QWEN_RUNTIME_ARTIFACT_ELFIMAGE_H

#include "artifact/File.h"

#include "qwen/ABI/ArtifactFormat.h"
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

/// The parts of an artifact's ELF, for artifacts of any architecture.
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
/// Throws Error if the file is not an artifact; if it has another format
/// version, kernel ABI version or context size; if it is truncated or damaged;
/// if a segment is writable, not aligned to kSegmentAlign, larger in memory
/// than in the file or outside of the code; or if it has an executable stack,
/// relocations, needed libraries, constructors or thread-local data.
ElfLayout readElfLayout(const File &file);

/// Throws Error if the code differs from its checksum.
void checkCode(const File &file, const ElfLayout &layout);

/// The source of executable segments.
enum class CodeMemory {
  /// The file, or a copy if the system does not allow that (noexec mounts,
  /// SELinux).
  FileOrCopy,
  /// Always a copy in anonymous memory.
  Copy,
};

/// The mapped code of an artifact: read-only data and named functions. Memory
/// is never writable and executable at the same time.
class ElfMapping {
public:
  /// Maps the code. Throws Error if it is for another architecture than this
  /// program, if its checksum does not match, if an entry of its table is
  /// outside of the segments, or if the system refuses executable memory.
  ElfMapping(const File &file, const ElfLayout &layout,
             CodeMemory memory = CodeMemory::FileOrCopy);

  /// Opens and maps an artifact or a file that has only kernels.
  explicit ElfMapping(const std::string &path);

  /// The address of a function, or null. Names are "forward.<target>" and
  /// "<kernel>.<target>".
  void *find(std::string_view name) const;

  /// Like find, with a function type of KernelABI.h:
  /// `code.function<LinearF32Fn>("linear_f32_4x16_avx2.znver4")`.
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
