//===- DataFolder.h - The files of tasks ------------------------*- C++ -*-===//
//
// A folder with the data of tasks, as published: files, also compressed by
// bzip2 ("NAME.bz2") or in a ZIP archive. "ceval/val/law_val.csv" may be that
// file, or the member "val/law_val.csv" or "ceval/val/law_val.csv" of
// "ceval.zip".
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TASKS_DATAFOLDER_H
#define QWEN_RUNTIME_TASKS_DATAFOLDER_H

#include <optional>
#include <string>

namespace qwen::tasks {

/// A file and what errors call it.
struct DataFile {
  std::string where;
  std::string bytes;
};

class DataFolder {
public:
  /// Throws Error unless `path` is a folder.
  explicit DataFolder(std::string path);

  const std::string &path() const { return folder; }
  /// The file `name`, or nothing if it is missing. Throws Error if it cannot be
  /// read or has more than 512 MiB.
  std::optional<DataFile> read(const std::string &name) const;
  /// The name of a Parquet file below the folder, or "".
  std::string parquetFile() const;

private:
  std::string folder;
};

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_DATAFOLDER_H
