//===- ObjectCode.h - The functions of an ELF file --------------*- C++ -*-===//

#ifndef QWEN_COSTMODEL_OBJECTCODE_H
#define QWEN_COSTMODEL_OBJECTCODE_H

#include "qwen/ABI/CpuFeatures.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>
#include <vector>

namespace qwen {

/// A function of an ELF file.
struct FunctionCode {
  std::string name;
  uint64_t address;
  llvm::ArrayRef<uint8_t> bytes;
};

/// An object file, a shared object or a compiled model, open for reading.
class ObjectCode {
public:
  /// Throws Error if `path` cannot be read or is not an ELF file of a supported
  /// architecture.
  explicit ObjectCode(const std::string &path);
  /// The object file `bytes`, which errors call `name`.
  ObjectCode(llvm::ArrayRef<char> bytes, const std::string &name);

  Arch arch() const;
  const std::vector<FunctionCode> &functions() const { return all; }
  /// The function of that name, or null.
  const FunctionCode *find(llvm::StringRef name) const;

private:
  void read(const std::string &name);

  std::unique_ptr<llvm::MemoryBuffer> buffer;
  std::unique_ptr<llvm::object::ObjectFile> object;
  std::vector<FunctionCode> all;
};

} // namespace qwen

#endif // QWEN_COSTMODEL_OBJECTCODE_H
