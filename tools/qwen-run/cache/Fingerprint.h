//===- Fingerprint.h - A hash of files by samples ---------------*- C++ -*-===//

#ifndef QWEN_RUN_CACHE_FINGERPRINT_H
#define QWEN_RUN_CACHE_FINGERPRINT_H

#include <filesystem>
#include <string>
#include <string_view>

namespace qwen::run {

/// Collects texts and files, in order, and gives a hash of them.
class Fingerprint {
public:
  void add(std::string_view text);
  /// Adds `name`, and size, time of change and samples of the file: all of a
  /// small one; of others the two ends, which have the headers of checkpoints,
  /// and blocks between. Throws Error if it cannot be read.
  void addFile(const std::string &name, const std::filesystem::path &path);
  /// Adds all bytes of a file and nothing else. Throws Error.
  void addContents(const std::filesystem::path &path);

  /// 16 hexadecimal digits.
  std::string digits() const;

private:
  /// What was added: texts with their lengths, hashes of bytes.
  std::string record;
};

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_FINGERPRINT_H
