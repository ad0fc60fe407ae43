//===- FaultTest.cpp - A compiled model with one fault at a time ----------===//
//
// If bits of a file are flipped or its end is cut off, opening it and running a
// token gives a clear error or the answer of the whole file, never another
// answer. The file is in memory, which allows tens of thousands of faults.
//
//===----------------------------------------------------------------------===//

#include "Sampled.h"
#include "engine/Engine.h"
#include "text/Tokenizer.h"

#include "qwen/Support/Error.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

using namespace qwen;

namespace {
using Answer = std::vector<float>;

/// Whether to run the whole matrix (make test-full).
bool full() { return std::getenv("QWEN_TEST_FULL") != nullptr; }

class FaultTest : public testing::Test {
protected:
  void SetUp() override {
    // models/stories in q4_0 has all parts of an artifact.
    const char *file = std::getenv("QWEN_FAULT");
    std::ifstream stream(file ? file : "stories.qwen", std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(stream), {});
    ASSERT_FALSE(whole.empty()) << "no compiled model in QWEN_FAULT";
    fd = memfd_create("fault", MFD_CLOEXEC);
    ASSERT_GE(fd, 0);
    path = "/proc/self/fd/" + std::to_string(fd);
    write(0, whole.data(), whole.size());
    const Artifact artifact(path);
    header = artifact.header();
    manifest = artifact.manifest();
    expected = run();
    ASSERT_FALSE(expected.empty());
  }
  void TearDown() override { close(fd); }

  void write(uint64_t offset, const char *bytes, size_t size) const {
    ASSERT_EQ(pwrite(fd, bytes, size, static_cast<off_t>(offset)),
              static_cast<ssize_t>(size));
  }

  /// Logits of two tokens.
  Answer run() const {
    const Artifact artifact(path);
    ThreadPool pool(1);
    Engine engine(artifact, pool, {.check = WeightCheck::Off});
    if (!artifact.tokenizer().empty())
      Tokenizer::fromBlob(artifact.tokenizer());
    const SequenceId sequence = engine.state().open();
    const Token batch[] = {{5, sequence, 0, true}, {17, sequence, 1, true}};
    Answer answer;
    engine.forward(batch, [&](size_t, std::span<float> row) {
      answer.insert(answer.end(), row.begin(), row.end());
    });
    return answer;
  }

  /// Expects one line that names the file.
  void expectClear(const std::string &message, const std::string &what) const {
    EXPECT_NE(message.find(path), std::string::npos) << what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << what << ": " << message;
  }

  /// Runs the file and returns whether it was rejected.
  bool isRefused(const std::string &what) const {
    try {
      EXPECT_TRUE(run() == expected) << what << " gives another answer";
      return false;
    } catch (const Error &error) {
      expectClear(error.what(), what);
      return true;
    }
  }

  /// Flips bits of one byte while `check` runs.
  template <typename FnType>
  void flipped(uint64_t offset, uint8_t bits, FnType check) const {
    const char byte =
        static_cast<char>(whole[offset] ^ static_cast<char>(bits));
    write(offset, &byte, 1);
    check("byte " + std::to_string(offset) + " flipped by " +
          std::to_string(bits));
    write(offset, &whole[offset], 1);
  }
  static uint8_t bitOf(uint64_t offset) {
    return static_cast<uint8_t>(1 << offset % 8);
  }

  std::vector<FileRange> checkedParts() const {
    return {header.code, header.manifest, header.tokenizer, header.chatTemplate,
            header.weightChecksums};
  }

  std::vector<char> whole;
  int fd = -1;
  std::string path;
  ArtifactHeader header;
  Manifest manifest;
  Answer expected;
};
} // namespace

TEST_F(FaultTest, EveryFlippedByteOfAPartIsRefused) {
  // Primes reach all bits and all offsets within structures. A checksum is slow
  // under sanitizers.
  const uint64_t stride = full() ? 1 : test::isSampled() ? 1999 : 127;
  for (FileRange part : checkedParts())
    for (uint64_t at = part.offset; at < part.offset + part.size;
         at += part.size > 4096 ? stride : 1)
      flipped(at, bitOf(at), [&](const std::string &what) {
        EXPECT_TRUE(isRefused(what)) << what << " is not seen";
      });
}

TEST_F(FaultTest, EveryFlippedByteOfTheHeadersIsRefused) {
  const char *magic = kArtifactMagic;
  const auto found = std::search(whole.begin(), whole.end(), magic,
                                 magic + sizeof(kArtifactMagic));
  ASSERT_NE(found, whole.end());
  const auto start = static_cast<uint64_t>(found - whole.begin());
  Elf64_Ehdr elf;
  memcpy(&elf, whole.data(), sizeof(elf));
  const FileRange parts[] = {
      {0, elf.e_phoff + uint64_t{elf.e_phnum} * sizeof(Elf64_Phdr)},
      {start - sizeof(Elf64_Nhdr) - 8,
       sizeof(Elf64_Nhdr) + 8 + sizeof(ArtifactHeader)}};
  const uint8_t patterns[] = {0x01, 0x10, 0x80, 0xFF};
  const size_t step = test::isSampled() ? 3 : 1;
  size_t number = 0;
  for (FileRange part : parts)
    for (uint64_t at = part.offset; at < part.offset + part.size; ++at)
      for (uint8_t bits : patterns)
        if (number++ % step == 0)
          flipped(at, bits, [&](const std::string &what) {
            EXPECT_TRUE(isRefused(what)) << what << " is not seen";
          });
}

TEST_F(FaultTest, FlippedBytesBetweenThePartsChangeNothing) {
  const uint64_t stride = full() ? 997 : test::isSampled() ? 99991 : 19997;
  const auto isInPart = [&](uint64_t at) {
    for (FileRange part : checkedParts())
      if (at >= part.offset && at - part.offset < part.size)
        return true;
    return false;
  };
  size_t count = 0;
  for (uint64_t at = 0; at < header.weights.offset; at += stride)
    if (!isInPart(at)) {
      ++count;
      flipped(at, 0xFF, [&](const std::string &what) { isRefused(what); });
    }
  EXPECT_GT(count, 0u);
}

TEST_F(FaultTest, VerifySeesFlippedWeights) {
  const Artifact artifact(path);
  EXPECT_EQ(artifact.check(), header.code.size + header.weights.size);
  const uint64_t stride = full() ? 9973 : 99991;
  std::vector<uint64_t> places = {0, header.weights.size - 1};
  for (uint64_t at = 0; at < header.weights.size; at += stride)
    places.push_back(at);
  for (const TensorInfo &tensor : manifest.tensors) {
    places.push_back(tensor.offset);
    places.push_back(tensor.offset + tensor.bytes - 1);
  }
  for (uint64_t at : places)
    flipped(header.weights.offset + at, bitOf(at),
            [&](const std::string &what) {
              try {
                artifact.check();
                ADD_FAILURE() << what << " is not seen";
              } catch (const Error &error) {
                expectClear(error.what(), what);
              }
            });
  artifact.check();
}

TEST_F(FaultTest, EveryFileCutAtABorderIsRefused) {
  std::set<uint64_t> borders = {0, 1, 2, 3, 4, sizeof(Elf64_Ehdr)};
  const auto add = [&](uint64_t offset, uint64_t size) {
    for (uint64_t border : {offset, offset + size})
      for (uint64_t at : {border - 1, border, border + 1})
        if (at < whole.size())
          borders.insert(at);
  };
  for (FileRange part : checkedParts())
    add(part.offset, part.size);
  add(header.weights.offset, header.weights.size);
  Elf64_Ehdr elf;
  memcpy(&elf, whole.data(), sizeof(elf));
  for (unsigned i = 0; i < elf.e_phnum; ++i) {
    const uint64_t at = elf.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr program;
    memcpy(&program, whole.data() + at, sizeof(program));
    add(at, sizeof(program));
    add(program.p_offset, program.p_filesz);
  }
  for (unsigned i = 0; i < elf.e_shnum; ++i) {
    const uint64_t at = elf.e_shoff + i * sizeof(Elf64_Shdr);
    Elf64_Shdr section;
    memcpy(&section, whole.data() + at, sizeof(section));
    add(at, sizeof(section));
    add(section.sh_offset, section.sh_size);
  }
  for (const TensorInfo &tensor : manifest.tensors)
    add(header.weights.offset + tensor.offset, tensor.bytes);
  for (uint64_t at = 0; at < header.weights.size; at += kChecksumBytes)
    add(header.weights.offset + at, 0);

  // From the longest to the shortest, so that the file is written only once.
  for (auto border = borders.rbegin(); border != borders.rend(); ++border) {
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(*border)), 0);
    const std::string what = "a file of " + std::to_string(*border) + " bytes";
    EXPECT_TRUE(isRefused(what)) << what << " is not seen";
  }
}

TEST_F(FaultTest, LongerFilesAreRefused) {
  for (uint64_t more : {1, 4096, 1 << 20}) {
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(whole.size() + more)), 0);
    EXPECT_TRUE(isRefused(std::to_string(more) + " more bytes"));
  }
}
