//===- ElfMappingTest.cpp - Loading of generated code ---------------------===//

#include "artifact/ElfMapping.h"
#include "HandmadeArtifact.h"
#include "TempDir.h"

#include "qwen/ABI/KernelABI.h"

#include <gtest/gtest.h>

#include <functional>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;

namespace {
class ElfMappingTest : public testing::Test {
protected:
  /// The error of loading `artifact`, without the path before it.
  std::string load() {
    path = artifact.write("elf-image.qwen");
    std::string error = messageOf([&] { ElfMapping image(path); });
    if (error.starts_with(path))
      error = error.substr(path.size());
    return error;
  }
  void TearDown() override { unlink(path.c_str()); }

  HandmadeArtifact artifact;
  std::string path;
};
} // namespace

TEST_F(ElfMappingTest, RunsFunctionsByName) {
  path = artifact.write("elf-image-run.qwen");
  for (CodeMemory memory : {CodeMemory::FileOrCopy, CodeMemory::Copy}) {
    const File file(path);
    const ElfMapping image(file, readElfLayout(file), memory);
    ASSERT_EQ(image.entries().size(), 2u);
    EXPECT_EQ(image.entries()[0].first, "answer.test");
    EXPECT_EQ(image.function<int()>("answer.test")(), 42);
    EXPECT_EQ(image.find("answer"), nullptr);
  }
}

TEST_F(ElfMappingTest, NoMemoryIsWritableAndExecutable) {
  path = artifact.write("elf-image-maps.qwen");
  for (CodeMemory memory : {CodeMemory::FileOrCopy, CodeMemory::Copy}) {
    const File file(path);
    const ElfMapping image(file, readElfLayout(file), memory);
    const auto code = reinterpret_cast<uintptr_t>(image.find("answer.test"));
    FILE *maps = fopen("/proc/self/maps", "r");
    ASSERT_NE(maps, nullptr);
    char line[512], flags[5];
    unsigned long begin, end;
    bool found = false;
    while (fgets(line, sizeof(line), maps))
      if (sscanf(line, "%lx-%lx %4s", &begin, &end, flags) == 3 &&
          begin <= code && code < end) {
        found = true;
        EXPECT_EQ(std::string(flags), "r-xp");
      }
    fclose(maps);
    EXPECT_TRUE(found);
  }
}

TEST_F(ElfMappingTest, RefusesWhatIsNoArtifact) {
  artifact.bytes = {'h', 'e', 'l', 'l', 'o'};
  EXPECT_EQ(load(), " is not a compiled model: it does not start with an ELF "
                    "header");
  artifact.bytes.clear();
  EXPECT_EQ(load(), " is not a compiled model: it is too short");
  artifact = HandmadeArtifact();
  artifact.segment(2).p_type = PT_NULL;
  EXPECT_EQ(load(), " is not a compiled model: it has no note of qwen-opt");
  artifact = HandmadeArtifact();
  artifact.elf().e_type = ET_EXEC;
  EXPECT_EQ(load(), " is not a compiled model: it is another kind of ELF file");
  artifact = HandmadeArtifact();
  artifact.elf().e_phnum = 1000;
  EXPECT_EQ(load(), " is damaged: its ELF has 1000 program headers");
  EXPECT_EQ(messageOf([&] { ElfMapping image("/nowhere/at all"); }),
            "cannot read /nowhere/at all: No such file or directory");
  EXPECT_EQ(messageOf([&] { ElfMapping image("/tmp"); }),
            "cannot read /tmp: it is a directory");
  EXPECT_EQ(messageOf([&] { ElfMapping image("/dev/null"); }),
            "cannot read /dev/null: it is not a regular file");
}

TEST_F(ElfMappingTest, RefusesEveryTruncation) {
  const HandmadeArtifact whole = artifact;
  using H = HandmadeArtifact;
  const ArtifactHeader header = artifact.header();
  for (uint64_t size : {uint64_t{1},
                        uint64_t{4},
                        uint64_t{63},
                        uint64_t{64},
                        uint64_t{100},
                        uint64_t{64 + 5 * 56 - 1},
                        H::kHeader - 1,
                        H::kHeader + 3,
                        H::kHeader + sizeof(ArtifactHeader) - 1,
                        H::kDynamic,
                        H::kDynamic + 8,
                        H::kTable + 1,
                        H::kNames + 3,
                        H::kCode,
                        H::kCode + 1,
                        header.manifest.offset,
                        header.manifest.offset + 1,
                        header.weightChecksums.offset + 7,
                        header.weights.offset,
                        header.fileSize - 1}) {
    artifact = whole;
    artifact.bytes.resize(size);
    const std::string error = load();
    EXPECT_TRUE(error.starts_with(" is truncated: ") ||
                error.starts_with(" is not a compiled model: "))
        << size << ":" << error;
  }
  artifact = whole;
  artifact.bytes.push_back(0);
  EXPECT_EQ(load(), " is damaged: it has " +
                        std::to_string(header.fileSize + 1) +
                        " bytes when its header says " +
                        std::to_string(header.fileSize));
}

TEST_F(ElfMappingTest, RefusesEveryFlippedByteOfTheHeaderAndCode) {
  const HandmadeArtifact whole = artifact;
  for (uint64_t i = 0; i < sizeof(ArtifactHeader); ++i) {
    artifact = whole;
    artifact.bytes[HandmadeArtifact::kHeader + i] ^= 0x10;
    EXPECT_NE(load(), "") << "byte " << i << " of the header";
  }
  for (uint64_t at = 0; at < HandmadeArtifact::kCode + 6;
       at += at < 0xE00 ? 11 : 977) {
    if (at >= HandmadeArtifact::kHeader &&
        at < HandmadeArtifact::kHeader + sizeof(ArtifactHeader))
      continue;
    artifact = whole;
    artifact.bytes[at] ^= 0x81;
    EXPECT_NE(load(), "") << "byte " << at;
  }
  artifact = whole;
  artifact.bytes[HandmadeArtifact::kCode + 1] ^= 1;
  EXPECT_EQ(load(), " is damaged: the checksum of its code does not match");
}

TEST_F(ElfMappingTest, NamesTheVersionThatDiffers) {
  const HandmadeArtifact whole = artifact;
  const auto check = [&](uint32_t ArtifactHeader::*field, uint32_t value,
                         const std::string &error) {
    artifact = whole;
    artifact.header().*field = value;
    artifact.sealHeader();
    EXPECT_EQ(load(), error);
  };
  const std::string remedy =
      "; recompile the model with the qwen-opt of this version";
  const auto reads = [&](size_t version) {
    return " when this program reads " + std::to_string(version) + remedy;
  };
  check(&ArtifactHeader::formatVersion, 99,
        " has format version 99" + reads(kFormatVersion));
  check(&ArtifactHeader::kernelAbiVersion, 99,
        " has kernel ABI version 99" + reads(kKernelAbiVersion));
  check(&ArtifactHeader::contextSize, 8,
        " has context size 8" + reads(sizeof(Context)));
  check(&ArtifactHeader::arch, 9, " is damaged: its architecture is number 9");
  artifact = whole;
  artifact.header().tokenizer.offset ^= 1;
  EXPECT_EQ(load(), " is damaged: the checksum of its header does not match");
  artifact = whole;
  artifact.elf().e_machine = EM_RISCV;
  EXPECT_TRUE(load().ends_with(" and its ELF is for machine 243")) << load();
  artifact = whole;
  const bool x86 = hostArch() == Arch::X86_64;
  artifact.header().arch = x86 ? 2 : 1;
  artifact.elf().e_machine = x86 ? EM_AARCH64 : EM_X86_64;
  artifact.seal();
  EXPECT_EQ(load(), x86 ? " was compiled for aarch64 and this program is for "
                          "x86-64; recompile the model with qwen-opt --target"
                        : " was compiled for x86-64 and this program is for "
                          "aarch64; recompile the model with qwen-opt "
                          "--target");
}

TEST_F(ElfMappingTest, RefusesUnsafeCode) {
  const HandmadeArtifact whole = artifact;
  const auto check = [&](const char *error,
                         const std::function<void()> &change) {
    artifact = whole;
    change();
    artifact.seal();
    EXPECT_EQ(load(), error);
  };
  check(" has unsafe code: a segment is writable; recompile it with qwen-opt",
        [&] { artifact.segment(0).p_flags |= PF_W; });
  check(" has unsafe code: it asks for an executable stack; recompile it with "
        "qwen-opt",
        [&] { artifact.segment(4).p_flags |= PF_X; });
  check(" has unsafe code: a segment has 7 bytes in memory and 6 in the file; "
        "recompile it with qwen-opt",
        [&] {
          artifact.segment(1).p_filesz = 6;
          artifact.segment(1).p_memsz = 7;
        });
  check(" has unsafe code: a segment is not aligned to 65536; recompile it "
        "with qwen-opt",
        [&] { artifact.segment(1).p_vaddr += 4096; });
  check(" has unsafe code: a segment lies outside of the code; recompile it "
        "with qwen-opt",
        [&] {
          artifact.segment(1).p_filesz += 64;
          artifact.segment(1).p_memsz += 64;
        });
  check(" is damaged: its segments overlap or are not in order",
        [&] { artifact.segment(1).p_vaddr = 0; });
  check(" is damaged: a segment has address 18446744073709486080",
        [&] { artifact.segment(1).p_vaddr = 0 - kSegmentAlign; });
  check(" has unsafe code: it has thread-local data; recompile it with "
        "qwen-opt",
        [&] { artifact.segment(4).p_type = PT_TLS; });
  check(" has unsafe code: it asks for an interpreter; recompile it with "
        "qwen-opt",
        [&] { artifact.segment(4).p_type = PT_INTERP; });
  for (int64_t tag : {DT_RELASZ, DT_RELSZ, DT_PLTRELSZ, DT_RELRSZ, DT_TEXTREL})
    check(" has unsafe code: it has relocations; recompile it with qwen-opt",
          [&] { artifact.dynamic() = {tag, {24}}; });
  check(" has unsafe code: it needs other libraries; recompile it with "
        "qwen-opt",
        [&] { artifact.dynamic() = {DT_NEEDED, {1}}; });
  check(" has unsafe code: it has constructors; recompile it with qwen-opt",
        [&] { artifact.dynamic() = {DT_INIT_ARRAY, {1}}; });
}

TEST_F(ElfMappingTest, ChecksTheTableOfFunctions) {
  const HandmadeArtifact whole = artifact;
  const auto check = [&](const char *error,
                         const std::function<void()> &change) {
    artifact = whole;
    change();
    artifact.seal();
    EXPECT_EQ(load(), std::string(" is damaged: ") + error);
  };
  const char *outside = "its table of functions lies outside of the code";
  check(outside, [&] { artifact.header().entryTable = uint64_t{1} << 62; });
  check(outside, [&] { artifact.header().entryTable = 0x1000 - 2; });
  check(outside, [&] { artifact.header().entryTable = 0x5000; });
  check(outside,
        [&] { artifact.header().entryTable = HandmadeArtifact::kCode; });
  check(outside, [&] { artifact.header().entryTable += 2; });
  check("its table of functions is longer than its segment",
        [&] { artifact.bytes[HandmadeArtifact::kTable + 3] = 0xFF; });
  check("an entry of its table of functions is no code",
        [&] { artifact.entry(0).function = -16; });
  check("an entry of its table of functions is no code",
        [&] { artifact.entry(0).function = INT32_MIN; });
  check("an entry of its table of functions is no code",
        [&] { artifact.entry(0).function += 4096; });
  check("an entry of its table of functions has no name",
        [&] { artifact.entry(0).name = INT32_MAX; });
  check("an entry of its table of functions has no name", [&] {
    std::fill(artifact.bytes.begin() + HandmadeArtifact::kNames,
              artifact.bytes.begin() + 0x1000, 'x');
  });
}

TEST_F(ElfMappingTest, ChecksTheHeadersRanges) {
  const HandmadeArtifact whole = artifact;
  const auto check = [&](const std::function<void()> &change) {
    artifact = whole;
    change();
    artifact.sealHeader();
    EXPECT_TRUE(load().starts_with(" is damaged: ")) << load();
  };
  for (FileRange ArtifactHeader::*range :
       {&ArtifactHeader::manifest, &ArtifactHeader::weightChecksums,
        &ArtifactHeader::weights}) {
    check([&] { (artifact.header().*range).offset = ~uint64_t{0} - 4; });
    check([&] { (artifact.header().*range).offset = 16; });
    check([&] { (artifact.header().*range).size = ~uint64_t{0}; });
    check([&] { (artifact.header().*range).size = 1 << 22; });
  }
  check([&] { artifact.header().weights.offset -= 64; });
  check([&] { artifact.header().code.offset = 64; });
  check([&] { artifact.header().code.size = 64; });
  check([&] { artifact.header().code.size = uint64_t{1} << 40; });
}
