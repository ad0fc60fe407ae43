//===- BreakKernel.cpp - An artifact with a wrong kernel ------------------===//
//
// break-kernel FILE OUT KERNEL [OTHER]
//
// Copies an artifact and replaces KERNEL ("<kernel>.<target>") by the function
// OTHER, or its first instruction by one that no machine has. The checksums are
// correct.
//
//===----------------------------------------------------------------------===//

#include "artifact/ElfMapping.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

namespace {
class Patcher {
public:
  explicit Patcher(const std::string &path)
      : layout(readElfLayout(File(path))) {
    std::ifstream stream(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(stream), {});
  }

  void redirect(const std::string &kernel, const std::string &other) {
    const uint64_t field = findEntry(kernel);
    write(field, static_cast<int32_t>(function(findEntry(other)) - field));
  }

  void makeIllegal(const std::string &kernel) {
    // ud2, and udf #0.
    const bool x86 = layout.header.arch == uint32_t(Arch::X86_64);
    write(function(findEntry(kernel)), x86 ? 0x0b0f : 0);
  }

  void save(const std::string &path) {
    ArtifactHeader header = {};
    char *place = bytes.data() + layout.headerOffset;
    std::memcpy(place, &header, sizeof(header));
    header = layout.header;
    header.codeChecksum = XXH3_64bits(bytes.data(), header.code.size);
    header.headerChecksum =
        XXH3_64bits(&header, offsetof(ArtifactHeader, headerChecksum));
    std::memcpy(place, &header, sizeof(header));
    std::ofstream stream(path, std::ios::binary);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!stream)
      throw Error("cannot write " + path);
  }

private:
  /// The bytes of the file that are mapped at an address.
  char *at(uint64_t address) {
    for (const ElfSegment &segment : layout.segments)
      if (address >= segment.address &&
          address < segment.address + segment.size)
        return bytes.data() + segment.offset + (address - segment.address);
    throw Error("no segment has address " + std::to_string(address));
  }
  int32_t read(uint64_t address) {
    int32_t value;
    std::memcpy(&value, at(address), sizeof(value));
    return value;
  }
  void write(uint64_t address, int32_t value) {
    std::memcpy(at(address), &value, sizeof(value));
  }
  uint64_t function(uint64_t entry) {
    return entry + static_cast<uint64_t>(int64_t{read(entry)});
  }

  /// Address of the EntryPoint of that name.
  uint64_t findEntry(const std::string &name) {
    const uint64_t table = layout.header.entryTable;
    for (int32_t i = 0; i < read(table); ++i) {
      const uint64_t entry = table + sizeof(EntryTable) +
                             sizeof(EntryPoint) * static_cast<uint64_t>(i);
      if (at(function(entry + offsetof(EntryPoint, name))) == name)
        return entry;
    }
    throw Error("no function " + name);
  }

  ElfLayout layout;
  std::vector<char> bytes;
};
} // namespace

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5) {
    std::cerr << "usage: break-kernel FILE OUT KERNEL [OTHER]\n";
    return 2;
  }
  try {
    Patcher patcher(argv[1]);
    if (argc == 5)
      patcher.redirect(argv[3], argv[4]);
    else
      patcher.makeIllegal(argv[3]);
    patcher.save(argv[2]);
  } catch (const std::exception &error) {
    std::cerr << "break-kernel: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
