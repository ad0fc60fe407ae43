//===- Gguf.cpp - Parser of GGUF files ------------------------------------===//

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

using namespace qwen;
using nlohmann::json;

static constexpr uint32_t kVersions[] = {2, 3};
static constexpr uint64_t kMaxAlignment = 1 << 20;

namespace {
/// A type of ggml that has no row in StoredTypes.def.
struct RefusedType {
  uint32_t number;
  std::string_view name;
};
} // namespace

static constexpr RefusedType kRefusedTypes[] = {
    {4, "Q4_2"},        {5, "Q4_3"},        {9, "Q8_1"},
    {15, "Q8_K"},       {16, "IQ2_XXS"},    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},    {19, "IQ1_S"},      {21, "IQ3_S"},
    {22, "IQ2_S"},      {24, "I8"},         {25, "I16"},
    {26, "I32"},        {27, "I64"},        {28, "F64"},
    {29, "IQ1_M"},      {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},   {34, "TQ1_0"},      {35, "TQ2_0"},
    {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
    {40, "NVFP4"},      {41, "Q1_0"},       {42, "Q2_0"},
};

namespace {
/// Reads numbers and strings one after another.
class Reader {
public:
  Reader(std::span<const uint8_t> bytes, const std::string &path)
      : bytes(bytes), path(path) {}

  uint64_t offset() const { return at; }

  /// The next `size` bytes; `what` names them in errors.
  std::span<const uint8_t> take(uint64_t size, const std::string &what) {
    if (size > bytes.size() - at)
      throw Error(part::file(path) + ": " + part::subject(what) + " needs " +
                  part::needed(size) + " bytes when " +
                  part::found(bytes.size() - at) +
                  " are left in the file; it may be truncated");
    at += size;
    return bytes.subspan(at - size, size);
  }

  template <typename T> T number(const std::string &what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view string(const std::string &what) {
    const auto taken = take(number<uint64_t>(what), what);
    return {reinterpret_cast<const char *>(taken.data()), taken.size()};
  }

private:
  const std::span<const uint8_t> bytes;
  const std::string &path;
  uint64_t at = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Bytes of a number or boolean; 0 for strings, arrays and unknown types.
static uint64_t scalarBytes(GgufType type) {
  switch (type) {
  case GgufType::U8:
  case GgufType::I8:
  case GgufType::Bool:
    return 1;
  case GgufType::U16:
  case GgufType::I16:
    return 2;
  case GgufType::U32:
  case GgufType::I32:
  case GgufType::F32:
    return 4;
  case GgufType::U64:
  case GgufType::I64:
  case GgufType::F64:
    return 8;
  case GgufType::String:
  case GgufType::Array:
    return 0;
  }
  return 0;
}

double qwen::asDecimal(float value) {
  std::array<char, 32> text;
  const char *end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double result = value;
  std::from_chars(text.data(), end, result);
  return result;
}

/// A number or boolean; `what` names it in errors.
static json readScalar(Reader &reader, GgufType type, const std::string &what) {
  switch (type) {
  case GgufType::U8:
    return reader.number<uint8_t>(what);
  case GgufType::I8:
    return reader.number<int8_t>(what);
  case GgufType::U16:
    return reader.number<uint16_t>(what);
  case GgufType::I16:
    return reader.number<int16_t>(what);
  case GgufType::U32:
    return reader.number<uint32_t>(what);
  case GgufType::I32:
    return reader.number<int32_t>(what);
  case GgufType::F32: {
    const auto value = reader.number<float>(what);
    return std::isfinite(value) ? asDecimal(value) : double{value};
  }
  case GgufType::Bool:
    return reader.number<uint8_t>(what) != 0;
  case GgufType::U64:
    return reader.number<uint64_t>(what);
  case GgufType::I64:
    return reader.number<int64_t>(what);
  case GgufType::F64:
    return reader.number<double>(what);
  case GgufType::String:
  case GgufType::Array:
    break;
  }
  __builtin_unreachable();
}

static GgufArray readArray(Reader &reader, const std::string &path,
                           const std::string &what) {
  GgufArray array;
  array.type = GgufType(reader.number<uint32_t>(what));
  array.count = reader.number<uint64_t>(what);
  if (array.type == GgufType::String) {
    const uint64_t begin = reader.offset();
    Reader strings = reader;
    for (uint64_t i = 0; i < array.count; ++i)
      strings.string(what);
    array.bytes = reader.take(strings.offset() - begin, what);
    return array;
  }
  const uint64_t size = scalarBytes(array.type);
  if (size == 0)
    throw Error(part::file(path) + ": " + part::subject(what) +
                " is an array of type " + part::found(uint32_t(array.type)) +
                " when " + part::needed("numbers, booleans or strings") +
                " are needed");
  uint64_t total = 0;
  if (__builtin_mul_overflow(array.count, size, &total))
    throw Error(part::file(path) + ": " + part::subject(what) +
                " is an array of " + part::found(array.count) + " values");
  array.bytes = reader.take(total, what);
  return array;
}

static void readKey(Reader &reader, const std::string &path, GgufFile &gguf) {
  const std::string key(reader.string("the name of a key"));
  const std::string what = "key " + quote(key);
  json &value = gguf.values[key];
  // No value is null once it is read.
  if (!value.is_null())
    throw Error(part::file(path) + ": " + part::subject(what) +
                " is there twice");
  const auto type = GgufType(reader.number<uint32_t>(what));
  if (type == GgufType::String) {
    value = reader.string(what);
  } else if (type == GgufType::Array) {
    value = json::array();
    gguf.arrays.emplace(key, readArray(reader, path, what));
  } else if (scalarBytes(type) != 0) {
    value = readScalar(reader, type, what);
  } else {
    throw Error(part::file(path) + ": " + part::subject(what) +
                " has a value of the unknown type " +
                part::found(uint32_t(type)));
  }
}

static const GgufArray &arrayOf(const GgufFile &gguf, const std::string &path,
                                const char *key) {
  const auto found = gguf.arrays.find(key);
  if (found == gguf.arrays.end())
    throw Error(part::file(path) + " has no array " + part::subject(key));
  return found->second;
}

std::vector<std::string_view> qwen::ggufStrings(const GgufFile &gguf,
                                                const std::string &path,
                                                const char *key) {
  const GgufArray &array = arrayOf(gguf, path, key);
  if (array.type != GgufType::String)
    throw Error(part::file(path) + ": " + part::subject(key) + " is " +
                part::found("an array of numbers") + " when " +
                part::needed("strings") + " are needed");
  Reader reader(array.bytes, path);
  std::vector<std::string_view> strings(array.count);
  for (std::string_view &string : strings)
    string = reader.string(key);
  return strings;
}

std::vector<json> qwen::ggufNumbers(const GgufFile &gguf,
                                    const std::string &path, const char *key) {
  const GgufArray &array = arrayOf(gguf, path, key);
  if (array.type == GgufType::String)
    throw Error(part::file(path) + ": " + part::subject(key) + " is not " +
                part::needed("an array of numbers"));
  Reader reader(array.bytes, path);
  std::vector<json> numbers(array.count);
  for (json &number : numbers)
    number = readScalar(reader, array.type, key);
  return numbers;
}

std::vector<int64_t> qwen::ggufIntegers(const GgufFile &gguf,
                                        const std::string &path,
                                        const char *key) {
  const GgufArray &array = arrayOf(gguf, path, key);
  if (array.type == GgufType::String || array.type == GgufType::F32 ||
      array.type == GgufType::F64)
    throw Error(part::file(path) + ": " + part::subject(key) + " is not " +
                part::needed("an array of integers"));
  Reader reader(array.bytes, path);
  std::vector<int64_t> integers(array.count);
  for (int64_t &integer : integers)
    integer = readScalar(reader, array.type, key).get<int64_t>();
  return integers;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// The type `number` of the tensor that `what` names.
static StoredType findType(uint32_t number, const ErrorText &what) {
  for (StoredType type : kStoredTypes)
    if (infoOf(type).ggmlType == number)
      return type;
  const auto *refused =
      std::ranges::find(kRefusedTypes, number, &RefusedType::number);
  throw Error(
      what +
      (refused == std::end(kRefusedTypes)
           ? " has the unknown type " + part::found(number)
           : " has type " + part::found(std::string(refused->name))) +
      ", which is not supported; use a file of the model whose tensors are " +
      part::needed(storedTypeList()));
}

/// Reads the entry of one tensor without its place in the file. `bytes` is set
/// to its size.
static StoredTensor readTensor(Reader &reader, const std::string &path,
                               uint64_t &bytes) {
  StoredTensor tensor;
  tensor.name = reader.string("the name of a tensor");
  const ErrorText what = part::file(path) + ": " + part::tensor(tensor.name);
  const std::string entry = "tensor " + quote(tensor.name);
  const auto dimensions = reader.number<uint32_t>(entry);
  if (dimensions < 1 || dimensions > 4)
    throw Error(what + " has " + part::found(dimensions) + " dimensions when " +
                part::needed("1 to 4") + " are needed");
  int64_t values = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = reader.number<uint64_t>(entry);
    // With the largest block, a number of bytes below 2^63 follows.
    if (size == 0 || size > INT64_MAX ||
        __builtin_mul_overflow(values, static_cast<int64_t>(size), &values) ||
        values > INT64_MAX / 256)
      throw Error(what + " has a dimension of " + part::found(size) +
                  ", which is 0 or too large");
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const StoredType type = findType(reader.number<uint32_t>(entry), what);
  tensor.type = type;
  tensor.typeName = storedTypeName(type);
  if (tensor.shape.back() % infoOf(type).values != 0)
    throw Error(
        what + " has " +
        part::found("K " + std::to_string(tensor.shape.back())) +
        " when blocks of " + tensor.typeName + " need " +
        part::needed("a multiple of " + std::to_string(infoOf(type).values)));
  tensor.offset = reader.number<uint64_t>(entry);
  bytes = static_cast<uint64_t>(storedBytes(type, values));
  return tensor;
}

void qwen::dropOnes(StoredTensor &tensor, size_t rank) {
  while (tensor.shape.size() > rank && tensor.shape.front() == 1)
    tensor.shape.erase(tensor.shape.begin());
}

static uint64_t readAlignment(const GgufFile &gguf, const std::string &path) {
  const JsonSource source = JsonSource::ofFile(path);
  const auto found =
      JsonValue(gguf.values, source).findValue("general.alignment");
  if (!found)
    return kGgufAlignment;
  const auto alignment =
      static_cast<uint64_t>(found->integer(1, int64_t{kMaxAlignment}));
  if (!std::has_single_bit(alignment))
    found->fail("a power of two");
  return alignment;
}

/// Reads the tensors and finds their bytes, which begin behind the last entry.
static void readTensors(Reader &reader, std::span<const uint8_t> bytes,
                        uint64_t count, const std::string &path,
                        GgufFile &gguf) {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < count; ++i) {
    sizes.emplace_back();
    gguf.tensors.push_back(readTensor(reader, path, sizes.back()));
  }
  const uint64_t alignment = readAlignment(gguf, path);
  const auto aligned = [&](uint64_t offset) {
    return (offset + alignment - 1) / alignment * alignment;
  };
  const uint64_t begin = aligned(reader.offset());
  uint64_t end = begin;
  for (size_t i = 0; i < gguf.tensors.size(); ++i) {
    StoredTensor &tensor = gguf.tensors[i];
    const ErrorText what = part::file(path) + ": " + part::tensor(tensor.name);
    if (tensor.offset != aligned(end) - begin)
      throw Error(what + " is at byte " + part::found(tensor.offset) +
                  " of the data when the tensor before it ends at " +
                  part::needed(aligned(end) - begin));
    tensor.offset += begin;
    if (tensor.offset > bytes.size() || sizes[i] > bytes.size() - tensor.offset)
      throw Error(what + " needs " + part::needed(sizes[i]) + " bytes at " +
                  std::to_string(tensor.offset) + " when the file has " +
                  part::found(bytes.size()) + "; it may be truncated");
    end = tensor.offset + sizes[i];
    tensor.path = path;
    tensor.bytes = bytes.subspan(tensor.offset, sizes[i]);
  }
}

//===----------------------------------------------------------------------===//
// A file
//===----------------------------------------------------------------------===//

GgufFile qwen::parseGguf(std::span<const uint8_t> bytes,
                         const std::string &path) {
  static_assert(std::endian::native == std::endian::little);
  Reader reader(bytes, path);
  constexpr std::string_view kMagic = "GGUF";
  const size_t size = std::min(bytes.size(), kMagic.size());
  const std::string_view magic(reinterpret_cast<const char *>(bytes.data()),
                               size);
  if (magic != kMagic)
    throw Error(part::file(path) +
                " is neither a folder nor a GGUF file: it begins with " +
                part::found(quote(magic)) + " when " +
                part::needed("\"GGUF\"") + " is needed");
  reader.take(kMagic.size(), "the magic");
  const auto version = reader.number<uint32_t>("the version");
  for (uint32_t known : kVersions)
    if (version == __builtin_bswap32(known))
      throw Error(part::file(path) + " is " + part::found("big-endian") +
                  ", which is not supported; convert it "
                  "with gguf-convert-endian of the gguf package");
  if (std::ranges::find(kVersions, version) == std::end(kVersions))
    throw Error(part::file(path) + " has GGUF version " + part::found(version) +
                " when " + part::needed("2 or 3") + " is needed");
  const auto tensors = reader.number<uint64_t>("the number of tensors");
  const auto keys = reader.number<uint64_t>("the number of keys");
  GgufFile gguf;
  for (uint64_t i = 0; i < keys; ++i)
    readKey(reader, path, gguf);
  readTensors(reader, bytes, tensors, path, gguf);
  return gguf;
}
