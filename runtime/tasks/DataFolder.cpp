//===- DataFolder.cpp - The files of tasks --------------------------------===//

#include "tasks/DataFolder.h"

#include "artifact/File.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/OutputTarget.h"

#include <bzlib.h>
#include <minizip/unzip.h>

#include <filesystem>
#include <memory>

using namespace qwen;
using namespace qwen::tasks;
namespace fs = std::filesystem;

/// A bound for archives that are damaged or hostile: the largest file of the
/// tasks has 11 MB.
static constexpr uint64_t kMostBytes = 512 << 20;
static constexpr size_t kPieceBytes = 1 << 16;

static Error tooLarge(const std::string &where) {
  return Error(part::file(where) + " has more than " +
               part::needed(kMostBytes) +
               " bytes, which is more than the data of a task");
}

static std::string readPlain(const std::string &path) {
  const File file(path);
  if (file.size() > kMostBytes)
    throw tooLarge(path);
  std::string bytes(file.size(), '\0');
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

//===----------------------------------------------------------------------===//
// bzip2
//===----------------------------------------------------------------------===//

static std::string readBzip2(const std::string &path) {
  std::string packed = readPlain(path);
  bz_stream stream = {};
  if (BZ2_bzDecompressInit(&stream, 0, 0) != BZ_OK)
    throw std::bad_alloc();
  const std::unique_ptr<bz_stream, decltype(&BZ2_bzDecompressEnd)> end(
      &stream, BZ2_bzDecompressEnd);
  stream.next_in = packed.data();
  stream.avail_in = static_cast<unsigned>(packed.size());
  std::string bytes, piece(kPieceBytes, '\0');
  for (int result = BZ_OK; result != BZ_STREAM_END;) {
    stream.next_out = piece.data();
    stream.avail_out = kPieceBytes;
    result = BZ2_bzDecompress(&stream);
    const bool isCut = result == BZ_OK && stream.avail_in == 0 &&
                       stream.avail_out == kPieceBytes;
    if ((result != BZ_OK && result != BZ_STREAM_END) || isCut)
      throw Error(part::file(path) + " is damaged or no bzip2 file");
    bytes.append(piece, 0, kPieceBytes - stream.avail_out);
    if (bytes.size() > kMostBytes)
      throw tooLarge(path);
  }
  return bytes;
}

//===----------------------------------------------------------------------===//
// ZIP
//===----------------------------------------------------------------------===//

/// The member `name` of a ZIP archive, or nothing if it has none.
static std::optional<DataFile> readMember(const std::string &archive,
                                          const std::string &name) {
  noteInput(archive);
  const std::unique_ptr<void, decltype(&unzClose)> zip(
      unzOpen64(archive.c_str()), unzClose);
  if (!zip)
    throw Error(part::file(archive) + " is damaged or no ZIP archive");
  constexpr int kCaseSensitive = 1;
  if (unzLocateFile(zip.get(), name.c_str(), kCaseSensitive) != UNZ_OK)
    return std::nullopt;
  DataFile file = {archive + ": " + name, ""};
  const auto damaged = [&] {
    return Error(part::file(file.where) +
                 " is damaged, encrypted or compressed by another method than "
                 "DEFLATE");
  };
  if (unzOpenCurrentFile(zip.get()) != UNZ_OK)
    throw damaged();
  std::string piece(kPieceBytes, '\0');
  while (const int count =
             unzReadCurrentFile(zip.get(), piece.data(), kPieceBytes)) {
    if (count < 0)
      throw damaged();
    file.bytes.append(piece, 0, static_cast<size_t>(count));
    if (file.bytes.size() > kMostBytes)
      throw tooLarge(file.where);
  }
  // Compares the checksum.
  if (unzCloseCurrentFile(zip.get()) != UNZ_OK)
    throw damaged();
  return file;
}

//===----------------------------------------------------------------------===//
// DataFolder
//===----------------------------------------------------------------------===//

DataFolder::DataFolder(std::string path) : folder(std::move(path)) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(part::file(folder) + " is " + part::found("no folder") +
                " when a folder with the data of tasks is needed");
}

std::optional<DataFile> DataFolder::read(const std::string &name) const {
  std::error_code error;
  const std::string path = folder + "/" + name;
  if (fs::exists(path, error))
    return DataFile{path, readPlain(path)};
  if (fs::exists(path + ".bz2", error))
    return DataFile{path + ".bz2", readBzip2(path + ".bz2")};
  const size_t slash = name.find('/');
  const std::string archive = folder + "/" + name.substr(0, slash) + ".zip";
  if (slash == std::string::npos || !fs::exists(archive, error))
    return std::nullopt;
  if (std::optional<DataFile> file =
          readMember(archive, name.substr(slash + 1)))
    return file;
  return readMember(archive, name);
}

std::string DataFolder::parquetFile() const {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".parquet")
      return entry->path().string();
  return "";
}
