//===- Link.cpp - ELF of generated code -----------------------------------===//

#define XXH_INLINE_ALL
#include "qwen/CodeGen/Backend/Link.h"
#include "lld/Common/Driver.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"
#include "qwen/Support/Process.h"
#include "qwen/Support/Text.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ELF.h"
#include "llvm/Support/raw_ostream.h"
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

LLD_HAS_DRIVER(elf)

using namespace qwen;

static constexpr char kEntriesSymbol[] = "qwen.entries";
static constexpr char kNoteSymbol[] = "qwen.note";

//===----------------------------------------------------------------------===//
// Entry table and note
//===----------------------------------------------------------------------===//

/// Adds a constant that stays under its name but is not exported.
static llvm::GlobalVariable *addConstant(llvm::Module &module, llvm::Type *type,
                                         const char *name,
                                         const char *section) {
  auto *global = new llvm::GlobalVariable(module, type, /*isConstant=*/true,
                                          llvm::GlobalValue::ExternalLinkage,
                                          /*Initializer=*/nullptr, name);
  global->setVisibility(llvm::GlobalValue::HiddenVisibility);
  global->setDSOLocal(true);
  global->setSection(section);
  global->setAlignment(llvm::Align(4));
  return global;
}

static void addNote(llvm::Module &module) {
  // Elf64_Nhdr, the owner padded to four bytes, the header.
  std::vector<char> note(3 * sizeof(uint32_t));
  const uint32_t words[] = {sizeof(kNoteName), sizeof(ArtifactHeader),
                            kNoteType};
  std::memcpy(note.data(), words, sizeof(words));
  note.insert(note.end(), std::begin(kNoteName), std::end(kNoteName));
  note.resize(llvm::alignTo(note.size(), 4) + sizeof(ArtifactHeader));
  llvm::Constant *data =
      llvm::ConstantDataArray::get(module.getContext(), llvm::ArrayRef(note));
  addConstant(module, data->getType(), kNoteSymbol, kNoteSection)
      ->setInitializer(data);
}

/// A function of another object.
static llvm::Function *declare(llvm::Module &module, const std::string &name) {
  auto *function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(module.getContext()),
                              /*isVarArg=*/false),
      llvm::GlobalValue::ExternalLinkage, name, module);
  function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  function->setDSOLocal(true);
  return function;
}

std::unique_ptr<llvm::Module>
qwen::generateEntryTable(llvm::ArrayRef<std::string> functions,
                         const Target &target, llvm::LLVMContext &context) {
  auto module = std::make_unique<llvm::Module>("entries", context);
  setTarget(*module, target, {});
  llvm::Type *i32 = llvm::Type::getInt32Ty(context);
  llvm::Type *i64 = llvm::Type::getInt64Ty(context);
  auto *type = llvm::ArrayType::get(i32, 1 + 2 * functions.size());
  llvm::GlobalVariable *table =
      addConstant(*module, type, kEntriesSymbol, ".rodata.qwen");

  std::vector<llvm::Constant *> words = {
      llvm::ConstantInt::get(i32, functions.size())};
  auto addOffset = [&](llvm::Constant *value) {
    llvm::Constant *field = llvm::ConstantExpr::getInBoundsGetElementPtr(
        i32, table,
        llvm::ArrayRef<llvm::Constant *>{
            llvm::ConstantInt::get(i64, words.size())});
    llvm::Constant *offset =
        llvm::ConstantExpr::getSub(llvm::ConstantExpr::getPtrToInt(value, i64),
                                   llvm::ConstantExpr::getPtrToInt(field, i64));
    words.push_back(llvm::ConstantExpr::getTrunc(offset, i32));
  };
  for (const std::string &name : functions) {
    addOffset(declare(*module, name));
    addOffset(llvm::IRBuilder<>(context).CreateGlobalString(name, "entry.name",
                                                            0, module.get()));
  }
  table->setInitializer(llvm::ConstantArray::get(type, words));
  addNote(*module);
  return module;
}

//===----------------------------------------------------------------------===//
// lld
//===----------------------------------------------------------------------===//

namespace {
/// The linker's output. The linker can only write to a path; the path of a pipe
/// spares a temporary file on disk.
class LinkerOutput {
public:
  LinkerOutput() {
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(std::string("cannot make a pipe for the linker: ") +
                  std::strerror(errno));
    reader = startThread("reads the linker's output", [this] { read(); });
  }
  LinkerOutput(const LinkerOutput &) = delete;
  LinkerOutput &operator=(const LinkerOutput &) = delete;
  ~LinkerOutput() {
    stop();
    close(ends[0]);
  }

  std::string path() const {
    return "/proc/self/fd/" + std::to_string(ends[1]);
  }

  /// All bytes, once the linker has ended.
  std::vector<char> take() {
    stop();
    return std::move(bytes);
  }

private:
  void read() {
    std::array<char, 1 << 16> buffer;
    for (ssize_t count = 1; count != 0;) {
      count = ::read(ends[0], buffer.data(), buffer.size());
      if (count < 0 && errno != EINTR)
        return;
      if (count > 0)
        bytes.insert(bytes.end(), buffer.begin(), buffer.begin() + count);
    }
  }

  /// The reader ends when no end for writing is open.
  void stop() {
    if (!reader.joinable())
      return;
    close(ends[1]);
    reader.join();
  }

  int ends[2];
  std::vector<char> bytes;
  std::thread reader;
};
} // namespace

static std::vector<char> runLinker(llvm::ArrayRef<std::vector<char>> objects,
                                   Arch arch) {
  LinkerOutput output;
  std::vector<std::string> arguments = {
      "ld.lld", "-m", arch == Arch::X86_64 ? "elf_x86_64" : "aarch64linux",
      "-shared", "-o", output.path(), "--build-id=none", "--hash-style=gnu",
      // The runtime maps each segment with its own protection. The compiler
      // does not know the size of its memory pages.
      "-z", "separate-loadable-segments", "-z",
      "max-page-size=" + std::to_string(kSegmentAlign),
      // Nothing is writable, so there is nothing to protect after relocation.
      "-z", "rodynamic", "-z", "norelro", "-z", "noexecstack", "-z", "text",
      "-Bsymbolic", "--no-undefined", "--threads=1"};
  std::deque<MemoryFile> inputs;
  for (const std::vector<char> &object : objects) {
    inputs.emplace_back().write(object);
    arguments.push_back(inputs.back().path());
  }
  llvm::SmallVector<const char *> pointers;
  for (const std::string &argument : arguments)
    pointers.push_back(argument.c_str());
  std::string out, err;
  llvm::raw_string_ostream outStream(out), errStream(err);
  const lld::Result result = lld::lldMain(pointers, outStream, errStream,
                                          {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    throw Error("cannot link the generated code: " +
                llvm::StringRef(err).split('\n').first.str());
  return output.take();
}

//===----------------------------------------------------------------------===//
// The result
//===----------------------------------------------------------------------===//

using ElfFile = llvm::object::ELFFile<llvm::object::ELF64LE>;

template <typename T> static T unwrap(llvm::Expected<T> value) {
  if (!value)
    throw Error("the linker wrote a broken file: " +
                llvm::toString(value.takeError()));
  return *value;
}

static void checkSegments(const ElfFile &elf) {
  for (const auto &segment : unwrap(elf.program_headers())) {
    if (segment.p_type != llvm::ELF::PT_LOAD)
      continue;
    if (segment.p_flags & llvm::ELF::PF_W)
      throw Error("generated code has writable data");
    if (segment.p_offset % kSegmentAlign || segment.p_vaddr % kSegmentAlign ||
        segment.p_filesz != segment.p_memsz)
      throw Error("generated code cannot be mapped as it lies in the file: a "
                  "segment at " +
                  std::to_string(segment.p_offset) +
                  " is not at a multiple of " + std::to_string(kSegmentAlign) +
                  " or not all in the file");
  }
}

static SharedObject checkResult(std::vector<char> bytes) {
  SharedObject object;
  const ElfFile elf =
      unwrap(ElfFile::create(llvm::StringRef(bytes.data(), bytes.size())));
  checkSegments(elf);
  for (const auto &section : unwrap(elf.sections())) {
    switch (section.sh_type) {
    case llvm::ELF::SHT_REL:
    case llvm::ELF::SHT_RELA:
    case llvm::ELF::SHT_RELR:
      if (section.sh_size)
        throw Error("generated code needs relocation: the linker made " +
                    unwrap(elf.getSectionName(section)).str());
      break;
    case llvm::ELF::SHT_NOTE:
      if (unwrap(elf.getSectionName(section)) == kNoteSection)
        object.headerOffset =
            section.sh_offset + section.sh_size - sizeof(ArtifactHeader);
      break;
    case llvm::ELF::SHT_SYMTAB: {
      const llvm::StringRef strings =
          unwrap(elf.getStringTableForSymtab(section));
      for (const auto &symbol : unwrap(elf.symbols(&section)))
        if (unwrap(symbol.getName(strings)) == kEntriesSymbol)
          object.entryTable = symbol.st_value;
      break;
    }
    default:
      break;
    }
  }
  if (!object.headerOffset || !object.entryTable)
    throw Error("no object to link has an entry table");
  object.bytes = std::move(bytes);
  return object;
}

SharedObject qwen::linkSharedObject(llvm::ArrayRef<std::vector<char>> objects,
                                    const Target &target) {
  return checkResult(runLinker(objects, target.arch));
}

ArtifactHeader qwen::codeHeader(const SharedObject &object, Arch arch) {
  ArtifactHeader header = {};
  std::memcpy(header.magic, kArtifactMagic, sizeof(header.magic));
  header.formatVersion = kFormatVersion;
  header.kernelAbiVersion = kKernelAbiVersion;
  header.contextSize = sizeof(Context);
  header.arch = static_cast<uint32_t>(arch);
  header.code = {0, object.bytes.size()};
  header.entryTable = object.entryTable;
  header.codeChecksum = XXH3_64bits(object.bytes.data(), object.bytes.size());
  return header;
}

void qwen::writeHeader(SharedObject &object, ArtifactHeader header) {
  header.headerChecksum =
      XXH3_64bits(&header, offsetof(ArtifactHeader, headerChecksum));
  std::memcpy(object.bytes.data() + object.headerOffset, &header,
              sizeof(header));
}
