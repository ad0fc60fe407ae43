//===- Link.h - ELF of generated code ---------------------------*- C++ -*-===//
//
// Links object files to the shared object at the start of an artifact
// (docs/artifact.md), with lld in this process.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_BACKEND_LINK_H
#define QWEN_CODEGEN_BACKEND_LINK_H

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/CodeGen/Backend/Target.h"
#include "llvm/ADT/ArrayRef.h"
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class LLVMContext;
class Module;
} // namespace llvm

namespace qwen {

/// The EntryTable of `functions`, which other objects define, and the header's
/// note.
std::unique_ptr<llvm::Module>
generateEntryTable(llvm::ArrayRef<std::string> functions, const Target &target,
                   llvm::LLVMContext &context);

/// An ELF shared object that is mapped without changes: read-only and
/// executable segments at multiples of kSegmentAlign, no relocations.
struct SharedObject {
  std::vector<char> bytes;
  /// Offset of the ArtifactHeader in `bytes`, which is all zeros until
  /// writeHeader.
  uint64_t headerOffset = 0;
  /// Address of the EntryTable, for ArtifactHeader::entryTable.
  uint64_t entryTable = 0;
};

/// Links object files. One file has the entry table. The same input gives the
/// same bytes. Throws Error with lld's message, or if the result would need
/// relocations, a writable segment or another symbol. Only one thread may call
/// it at a time.
SharedObject linkSharedObject(llvm::ArrayRef<std::vector<char>> objects,
                              const Target &target);

/// The header of a file that starts with `object`. Sets magic, versions,
/// `code`, `entryTable` and `codeChecksum`; the rest is zero.
ArtifactHeader codeHeader(const SharedObject &object, Arch arch);

/// Sets header.headerChecksum and writes the header at object.headerOffset.
void writeHeader(SharedObject &object, ArtifactHeader header);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_LINK_H
