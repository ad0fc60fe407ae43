//===- TempDir.h - Files of a test ------------------------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_TEMPDIR_H
#define QWEN_TEST_UNIT_TEMPDIR_H

#include "qwen/Support/Error.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace qwen::test {

/// A new folder, which is removed with this object.
class TempDir {
public:
  TempDir() {
    std::string name =
        (std::filesystem::temp_directory_path() / "qwen-test-XXXXXX").string();
    if (!mkdtemp(name.data()))
      std::abort();
    folder = name;
  }
  ~TempDir() { std::filesystem::remove_all(folder); }
  TempDir(const TempDir &) = delete;
  TempDir &operator=(const TempDir &) = delete;

  const std::filesystem::path &path() const { return folder; }
  std::string string() const { return folder.string(); }

  void write(const std::string &name, std::string_view bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }

private:
  std::filesystem::path folder;
};

/// The message of the Error that `function` throws, or "".
template <typename FnType> std::string messageOf(FnType function) {
  try {
    function();
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_TEMPDIR_H
