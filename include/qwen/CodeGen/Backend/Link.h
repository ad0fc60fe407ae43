//===- Link.h - ELF image of generated code ---------------------*- C++ -*-===//
//
// From object files to the shared object at the start of an artifact
// (docs/artifact.md), by lld in this process.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_BACKEND_LINK_H
#define QWEN_CODEGEN_BACKEND_LINK_H

#include "qwen/ABI/Artifact.h"
#include "qwen/CodeGen/Backend/Target.h"
#include "llvm/ADT/ArrayRef.h"
#include <string>
#include <vector>

namespace llvm {
class Module;
} // namespace llvm

namespace qwen {

/// Adds the EntryTable of `functions` and the header's note to `module`. Throws
/// Error for a function that the module does not define.
void addEntryTable(llvm::Module &module, llvm::ArrayRef<std::string> functions);

/// An ELF shared object that maps as it lies in the file: read-only and
/// executable segments at multiples of kSegmentAlign, no relocations.
struct SharedObject {
  std::vector<char> bytes;
  /// Where in `bytes` the ArtifactHeader lies, still all zeros.
  uint64_t headerOffset = 0;
  /// Address of the EntryTable, for ArtifactHeader::entryTable.
  uint64_t entryTable = 0;
};

/// Links object files, one of which holds the entry table. The same input
/// gives the same bytes. Throws Error with lld's message, or where the result
/// would need relocation, a writable segment or another symbol. Not to be
/// called from two threads at once.
SharedObject linkSharedObject(llvm::ArrayRef<std::vector<char>> objects,
                              const Target &target);

/// The header of a file that starts with `object`: magic, versions, `code`,
/// `entryTable` and `codeChecksum` are filled, the rest is zero.
ArtifactHeader codeHeader(const SharedObject &object, Arch arch);

/// Sets header.headerChecksum and writes the header at object.headerOffset.
void writeHeader(SharedObject &object, ArtifactHeader header);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_LINK_H
