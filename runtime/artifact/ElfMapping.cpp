//===- ElfMapping.cpp - Generated code of an artifact ---------------------===//

#include "artifact/ElfMapping.h"

#include "qwen/ABI/KernelABI.h"
#include "qwen/Support/InputError.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <elf.h>
#include <optional>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

static_assert(std::endian::native == std::endian::little);

/// Greater than the number of program headers that any linker writes for our
/// code.
static constexpr unsigned kMaxProgramHeaders = 64;
/// Addresses are below this, so that sums never overflow.
static constexpr uint64_t kMaxAddress = uint64_t{1} << 40;
static constexpr size_t kMaxName = 256;

namespace {
/// Reads and checks the parts of a file's ELF.
class LayoutReader {
public:
  explicit LayoutReader(const File &file) : file(file) {}

  ElfLayout read();

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(file.path() + what);
  }
  [[noreturn]] void notAnArtifact(const char *why) const {
    fail(std::string(" is not a compiled model: ") + why);
  }
  [[noreturn]] void refuse(const std::string &why) const {
    fail(" has unsafe code: " + why + "; recompile it with qwen-opt");
  }
  [[noreturn]] void damaged(const std::string &why) const {
    fail(" is damaged: " + why);
  }

  void checkInFile(const char *what, uint64_t offset, uint64_t size) const;
  void readNotes(const Elf64_Phdr &header);
  void checkHeader(uint64_t descriptorSize);
  void checkRanges() const;
  void addSegment(const Elf64_Phdr &header);
  void checkDynamic(const Elf64_Phdr &header) const;

  const File &file;
  uint16_t machine = EM_NONE;
  ElfLayout layout = {};
};
} // namespace

void LayoutReader::checkInFile(const char *what, uint64_t offset,
                               uint64_t size) const {
  if (offset > file.size() || size > file.size() - offset)
    fail(std::string(" is truncated: ") + what + " needs bytes " +
         std::to_string(offset) + " to " + std::to_string(offset + size) +
         " of a file of " + std::to_string(file.size()));
}

ElfLayout LayoutReader::read() {
  Elf64_Ehdr elf;
  if (file.size() < SELFMAG)
    notAnArtifact("it is too short");
  file.read(0, elf.e_ident, SELFMAG);
  if (memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0)
    notAnArtifact("it does not start with an ELF header");
  checkInFile("the ELF header", 0, sizeof(elf));
  file.read(0, &elf, sizeof(elf));
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 ||
      elf.e_ident[EI_DATA] != ELFDATA2LSB || elf.e_type != ET_DYN ||
      elf.e_phentsize != sizeof(Elf64_Phdr))
    notAnArtifact("it is another kind of ELF file");
  if (elf.e_phnum == 0 || elf.e_phnum > kMaxProgramHeaders)
    damaged("its ELF has " + std::to_string(elf.e_phnum) + " program headers");

  machine = elf.e_machine;

  std::vector<Elf64_Phdr> headers(elf.e_phnum);
  const size_t headersSize = headers.size() * sizeof(Elf64_Phdr);
  checkInFile("the program headers", elf.e_phoff, headersSize);
  file.read(elf.e_phoff, headers.data(), headersSize);

  for (const Elf64_Phdr &header : headers)
    if (header.p_type == PT_NOTE && layout.headerOffset == 0)
      readNotes(header);
  if (layout.headerOffset == 0)
    notAnArtifact("it has no note of qwen-opt");

  for (const Elf64_Phdr &header : headers) {
    switch (header.p_type) {
    case PT_LOAD:
      addSegment(header);
      break;
    case PT_DYNAMIC:
      checkDynamic(header);
      break;
    case PT_GNU_STACK:
      if (header.p_flags & PF_X)
        refuse("it asks for an executable stack");
      break;
    case PT_TLS:
      refuse("it has thread-local data");
    case PT_INTERP:
      refuse("it asks for an interpreter");
    default:
      break;
    }
  }
  if (layout.segments.empty())
    damaged("its ELF has no segments to load");
  return layout;
}

void LayoutReader::readNotes(const Elf64_Phdr &header) {
  checkInFile("a note segment", header.p_offset, header.p_filesz);
  uint64_t offset = header.p_offset;
  const uint64_t end = header.p_offset + header.p_filesz;
  const auto padded = [](uint64_t size) { return (size + 3) & ~uint64_t{3}; };
  while (end - offset >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    file.read(offset, &note, sizeof(note));
    const uint64_t nameSize = padded(note.n_namesz);
    const uint64_t descriptorSize = padded(note.n_descsz);
    if (nameSize + descriptorSize > end - offset - sizeof(note))
      damaged("a note is larger than its segment");
    const uint64_t descriptor = offset + sizeof(note) + nameSize;
    char name[sizeof(kNoteName)] = {};
    if (note.n_namesz == sizeof(kNoteName))
      file.read(offset + sizeof(note), name, sizeof(name));
    if (note.n_type == kNoteType &&
        memcmp(name, kNoteName, sizeof(kNoteName)) == 0) {
      layout.headerOffset = descriptor;
      checkHeader(note.n_descsz);
      return;
    }
    offset = descriptor + descriptorSize;
  }
}

void LayoutReader::checkHeader(uint64_t descriptorSize) {
  ArtifactHeader &header = layout.header;
  // Every version has magic and format version at these offsets.
  constexpr size_t kFixed = offsetof(ArtifactHeader, kernelAbiVersion);
  if (descriptorSize < kFixed)
    damaged("its header has " + std::to_string(descriptorSize) + " bytes");
  file.read(layout.headerOffset, &header, kFixed);
  if (memcmp(header.magic, kArtifactMagic, sizeof(kArtifactMagic)) != 0)
    notAnArtifact("its header starts with other letters");
  // Before the checksum, because errors about versions say more.
  const auto version = [this](const char *what, uint32_t found,
                              uint32_t needed) {
    if (found != needed)
      fail(std::string(" has ") + what + " " + std::to_string(found) +
           " when this program reads " + std::to_string(needed) +
           "; recompile the model with the qwen-opt of this version");
  };
  version("format version", header.formatVersion, kFormatVersion);
  if (descriptorSize != sizeof(header))
    damaged("its header has " + std::to_string(descriptorSize) +
            " bytes when " + std::to_string(sizeof(header)) + " are needed");
  file.read(layout.headerOffset, &header, sizeof(header));
  version("kernel ABI version", header.kernelAbiVersion, kKernelAbiVersion);
  version("context size", header.contextSize, sizeof(Context));
  if (header.arch != static_cast<uint32_t>(Arch::X86_64) &&
      header.arch != static_cast<uint32_t>(Arch::AArch64))
    damaged("its architecture is number " + std::to_string(header.arch));
  const auto arch = static_cast<Arch>(header.arch);
  if (machine != (arch == Arch::X86_64 ? EM_X86_64 : EM_AARCH64))
    damaged("its header says " + std::string(archName(arch)) +
            " and its ELF is for machine " + std::to_string(machine));
  if (XXH3_64bits(&header, offsetof(ArtifactHeader, headerChecksum)) !=
      header.headerChecksum)
    damaged("the checksum of its header does not match");
  if (file.size() < header.fileSize)
    fail(" is truncated: it has " + std::to_string(file.size()) +
         " bytes when its header says " + std::to_string(header.fileSize));
  if (file.size() > header.fileSize)
    damaged("it has " + std::to_string(file.size()) +
            " bytes when its header says " + std::to_string(header.fileSize));
  checkRanges();
}

void LayoutReader::checkRanges() const {
  const ArtifactHeader &header = layout.header;
  if (header.code.offset != 0 || header.code.size > file.size() ||
      layout.headerOffset + sizeof(header) > header.code.size)
    damaged("its code is said to be bytes " +
            std::to_string(header.code.offset) + " to " +
            std::to_string(header.code.offset + header.code.size));
  const std::pair<const char *, FileRange> parts[] = {
      {"manifest", header.manifest},
      {"tokenizer", header.tokenizer},
      {"chat template", header.chatTemplate},
      {"weight checksums", header.weightChecksums},
      {"weights", header.weights}};
  for (const auto &[name, part] : parts) {
    if (part.size == 0)
      continue;
    if (part.offset < header.code.size || part.offset > file.size() ||
        part.size > file.size() - part.offset)
      damaged(std::string("its ") + name + " is said to be bytes " +
              std::to_string(part.offset) + " to " +
              std::to_string(part.offset + part.size));
  }
  if (header.weights.offset % kWeightsAlign != 0)
    damaged("its weights start at " + std::to_string(header.weights.offset) +
            ", no multiple of " + std::to_string(kWeightsAlign));
  const uint64_t checksums = header.weights.size / kChecksumBytes +
                             (header.weights.size % kChecksumBytes != 0);
  if (header.weightChecksums.size != checksums * sizeof(uint64_t))
    damaged("it has " + std::to_string(header.weightChecksums.size) +
            " bytes of weight checksums when " +
            std::to_string(checksums * sizeof(uint64_t)) + " are needed");
}

void LayoutReader::addSegment(const Elf64_Phdr &header) {
  if (header.p_flags & PF_W)
    refuse("a segment is writable");
  if (header.p_memsz != header.p_filesz)
    refuse("a segment has " + std::to_string(header.p_memsz) +
           " bytes in memory and " + std::to_string(header.p_filesz) +
           " in the file");
  if (header.p_offset % kSegmentAlign != 0 ||
      header.p_vaddr % kSegmentAlign != 0)
    refuse("a segment is not aligned to " + std::to_string(kSegmentAlign));
  if (header.p_filesz == 0)
    return;
  const uint64_t codeSize = layout.header.code.size;
  if (header.p_offset > codeSize ||
      header.p_filesz > codeSize - header.p_offset)
    refuse("a segment lies outside of the code");
  if (header.p_vaddr > kMaxAddress)
    damaged("a segment has address " + std::to_string(header.p_vaddr));
  if (!layout.segments.empty()) {
    const ElfSegment &last = layout.segments.back();
    if (header.p_vaddr < last.address + last.size)
      damaged("its segments overlap or are not in order");
  }
  layout.segments.push_back({header.p_offset, header.p_vaddr, header.p_filesz,
                             (header.p_flags & PF_X) != 0});
}

void LayoutReader::checkDynamic(const Elf64_Phdr &header) const {
  checkInFile("the dynamic section", header.p_offset, header.p_filesz);
  const uint64_t count = header.p_filesz / sizeof(Elf64_Dyn);
  for (uint64_t i = 0; i < count; ++i) {
    Elf64_Dyn entry;
    file.read(header.p_offset + i * sizeof(entry), &entry, sizeof(entry));
    switch (entry.d_tag) {
    case DT_NULL:
      return;
    case DT_NEEDED:
      refuse("it needs other libraries");
    case DT_RELASZ:
    case DT_RELSZ:
    case DT_RELRSZ:
    case DT_PLTRELSZ:
      if (entry.d_un.d_val != 0)
        refuse("it has relocations");
      break;
    case DT_TEXTREL:
      refuse("it has relocations");
    case DT_INIT:
    case DT_INIT_ARRAY:
    case DT_PREINIT_ARRAY:
      refuse("it has constructors");
    default:
      break;
    }
  }
}

ElfLayout qwen::readElfLayout(const File &file) {
  return LayoutReader(file).read();
}

void qwen::checkCode(const File &file, const ElfLayout &layout) {
  const size_t size = layout.header.code.size;
  const Mapping code = Mapping::file(file, 0, size, 0);
  static constexpr ArtifactHeader kZeros = {};
  const size_t behind = layout.headerOffset + sizeof(kZeros);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, code.data(), layout.headerOffset);
  XXH3_64bits_update(&state, &kZeros, sizeof(kZeros));
  XXH3_64bits_update(&state, code.data() + behind, size - behind);
  if (XXH3_64bits_digest(&state) != layout.header.codeChecksum)
    throw InputError(file.path() +
                     " is damaged: the checksum of its code does not match");
}

ElfMapping::ElfMapping(const File &file, const ElfLayout &layout,
                       CodeMemory memory) {
  if (layout.header.arch != static_cast<uint32_t>(hostArch()))
    throw TargetError(
        file.path() + " was compiled for " +
        std::string(archName(static_cast<Arch>(layout.header.arch))) +
        " and this program is for " + std::string(archName(hostArch())) +
        "; recompile the model with qwen-opt --target");
  checkCode(file, layout);
  map(file, layout, memory);
  readEntries(file, layout);
}

ElfMapping::ElfMapping(const std::string &path) {
  const File file(path);
  *this = ElfMapping(file, readElfLayout(file));
}

/// Puts a copy of a segment into the reserved range.
static void copySegment(const File &file, const ElfSegment &segment,
                        uint8_t *to) {
  if (mmap(to, segment.size, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    throw Error("cannot get memory for the code of " + file.path() + ": " +
                strerror(errno));
  file.read(segment.offset, to, segment.size);
  auto *begin = reinterpret_cast<char *>(to);
  __builtin___clear_cache(begin, begin + segment.size);
  if (mprotect(to, segment.size, PROT_READ | PROT_EXEC) != 0)
    throw Error("this system allows no executable memory for the code of " +
                file.path() + ": " + strerror(errno));
}

void ElfMapping::map(const File &file, const ElfLayout &layout,
                     CodeMemory memory) {
  const ElfSegment &last = layout.segments.back();
  range = Mapping::reserve(last.address + last.size, kSegmentAlign,
                           "the code of " + file.path());
  range.setFile(file.path());
  for (const ElfSegment &segment : layout.segments) {
    uint8_t *to = range.data() + segment.address;
    if (segment.executable && memory == CodeMemory::Copy) {
      copySegment(file, segment, to);
      continue;
    }
    if (mmap(to, segment.size, PROT_READ, MAP_PRIVATE | MAP_FIXED,
             file.descriptor(),
             static_cast<off_t>(segment.offset)) == MAP_FAILED)
      throw Error("cannot map " + file.path() + ": " + strerror(errno));
    if (segment.executable &&
        mprotect(to, segment.size, PROT_READ | PROT_EXEC) != 0)
      copySegment(file, segment, to);
  }
}

void ElfMapping::readEntries(const File &file, const ElfLayout &layout) {
  const auto damaged = [&](const char *why) {
    throw Error(file.path() + " is damaged: " + why);
  };
  const auto segmentOf = [&](uint64_t address) -> const ElfSegment * {
    for (const ElfSegment &segment : layout.segments)
      if (address >= segment.address &&
          address - segment.address < segment.size)
        return &segment;
    return nullptr;
  };
  // The bytes from `address` to the end of its segment.
  const auto bytesFrom = [&](uint64_t address) -> std::string_view {
    const ElfSegment *segment = segmentOf(address);
    if (!segment || segment->executable)
      return {};
    return {reinterpret_cast<const char *>(range.data()) + address,
            segment->address + segment->size - address};
  };

  const uint64_t start = layout.header.entryTable;
  const std::string_view bytes = bytesFrom(start);
  if (start % alignof(EntryTable) != 0 || bytes.size() < sizeof(EntryTable))
    damaged("its table of functions lies outside of the code");
  const auto *entryTable = reinterpret_cast<const EntryTable *>(bytes.data());
  if (entryTable->count >
      (bytes.size() - sizeof(EntryTable)) / sizeof(EntryPoint))
    damaged("its table of functions is longer than its segment");

  const auto *points = reinterpret_cast<const EntryPoint *>(entryTable + 1);
  table.reserve(entryTable->count);
  for (uint32_t i = 0; i < entryTable->count; ++i) {
    const EntryPoint &entry = points[i];
    const uint64_t field = start + sizeof(EntryTable) + i * sizeof(EntryPoint);
    const uint64_t function =
        field + static_cast<uint64_t>(int64_t{entry.function});
    const uint64_t name = field + offsetof(EntryPoint, name) +
                          static_cast<uint64_t>(int64_t{entry.name});
    const ElfSegment *segment = segmentOf(function);
    if (!segment || !segment->executable)
      damaged("an entry of its table of functions is no code");
    const std::string_view text = bytesFrom(name).substr(0, kMaxName);
    const size_t length = text.find('\0');
    if (length == 0 || length == std::string_view::npos)
      damaged("an entry of its table of functions has no name");
    table.emplace_back(text.substr(0, length), range.data() + function);
  }
}

void *ElfMapping::find(std::string_view name) const {
  for (const auto &[entry, address] : table)
    if (entry == name)
      return address;
  return nullptr;
}
