//===- Fingerprint.cpp - A hash of files by samples -----------------------===//

#include "cache/Fingerprint.h"

#include "artifact/File.h"
#include "qwen/Support/Error.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;
using namespace qwen::run;

void Fingerprint::add(std::string_view text) {
  record.append(std::to_string(text.size())).append(":").append(text);
}

void Fingerprint::addFile(const std::string &name,
                          const std::filesystem::path &path) {
  constexpr uint64_t kEnd = uint64_t{64} << 10, kBlock = uint64_t{4} << 10,
                     kBlocks = 14;
  const File file(path.string());
  struct stat status;
  if (fstat(file.descriptor(), &status) != 0)
    throw Error("cannot read " + part::file(path.string()) + ": " +
                part::found(std::strerror(errno)));
  add(name);
  add(std::to_string(file.size()));
  add(std::to_string(status.st_mtim.tv_sec) + "." +
      std::to_string(status.st_mtim.tv_nsec));
  std::vector<char> bytes;
  const auto sample = [&](uint64_t offset, uint64_t count) {
    bytes.resize(bytes.size() + count);
    file.read(offset, bytes.data() + bytes.size() - count, count);
  };
  if (file.size() <= 2 * kEnd + kBlocks * kBlock) {
    sample(0, file.size());
  } else {
    sample(0, kEnd);
    const uint64_t between = file.size() - 2 * kEnd;
    for (uint64_t i = 1; i <= kBlocks; ++i)
      sample(kEnd + (between - kBlock) / (kBlocks + 1) * i, kBlock);
    sample(file.size() - kEnd, kEnd);
  }
  add(std::to_string(XXH3_64bits(bytes.data(), bytes.size())));
}

void Fingerprint::addContents(const std::filesystem::path &path) {
  const File file(path.string());
  std::vector<char> bytes(file.size());
  file.read(0, bytes.data(), bytes.size());
  add(std::to_string(XXH3_64bits(bytes.data(), bytes.size())));
}

std::string Fingerprint::digits() const {
  constexpr char kDigits[] = "0123456789abcdef";
  uint64_t hash = XXH3_64bits(record.data(), record.size());
  std::string text;
  for (int i = 0; i < 16; ++i, hash >>= 4)
    text += kDigits[hash & 15];
  return text;
}
