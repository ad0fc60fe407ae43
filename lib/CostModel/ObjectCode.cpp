//===- ObjectCode.cpp - The functions of an ELF file ----------------------===//

#include "qwen/CostModel/ObjectCode.h"

#include "qwen/Support/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/FormatVariadic.h"

using namespace qwen;

template <typename T>
static T valueOf(llvm::Expected<T> value, const std::string &path) {
  if (!value)
    throw Error(path + ": " + llvm::toString(value.takeError()));
  return std::move(*value);
}

ObjectCode::ObjectCode(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                          /*RequiresNullTerminator=*/false);
  if (!file)
    throw Error("cannot read '" + path + "': " + file.getError().message());
  buffer = std::move(*file);
  read(path);
}

ObjectCode::ObjectCode(llvm::ArrayRef<char> bytes, const std::string &name)
    : buffer(llvm::MemoryBuffer::getMemBufferCopy(
          llvm::StringRef(bytes.data(), bytes.size()), name)) {
  read(name);
}

void ObjectCode::read(const std::string &path) {
  object = valueOf(
      llvm::object::ObjectFile::createELFObjectFile(buffer->getMemBufferRef()),
      path);
  if (object->getArch() != llvm::Triple::x86_64 &&
      object->getArch() != llvm::Triple::aarch64)
    throw Error(path + ": code for " + object->getFileFormatName().str() +
                " when x86-64 or aarch64 is needed");
  for (const llvm::object::ELFSymbolRef symbol : object->symbols()) {
    if (valueOf(symbol.getType(), path) != llvm::object::SymbolRef::ST_Function)
      continue;
    const auto section = valueOf(symbol.getSection(), path);
    if (section == object->section_end())
      continue;
    const llvm::StringRef contents = valueOf(section->getContents(), path);
    const uint64_t address = valueOf(symbol.getAddress(), path);
    const uint64_t offset = address - section->getAddress();
    const llvm::StringRef name = valueOf(symbol.getName(), path);
    if (offset > contents.size() || symbol.getSize() > contents.size() - offset)
      throw Error(llvm::formatv("{0}: function '{1}' does not lie within its "
                                "section",
                                path, name)
                      .str());
    all.push_back({name.str(), address,
                   llvm::arrayRefFromStringRef(
                       contents.substr(offset, symbol.getSize()))});
  }
}

Arch ObjectCode::arch() const {
  return object->getArch() == llvm::Triple::x86_64 ? Arch::X86_64
                                                   : Arch::AArch64;
}

const FunctionCode *ObjectCode::find(llvm::StringRef name) const {
  const auto found = llvm::find_if(
      all, [&](const FunctionCode &code) { return code.name == name; });
  return found == all.end() ? nullptr : &*found;
}
