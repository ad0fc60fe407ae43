//===- Safetensors.cpp - Reader of safetensors files ----------------------===//

#include "qwen/Import/Checkpoint/Safetensors.h"

#include "CheckpointFile.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Import/Checkpoint/ModelScope.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <fnmatch.h>
#include <optional>
#include <set>

using namespace qwen;
using nlohmann::json;

//===----------------------------------------------------------------------===//
// One file
//===----------------------------------------------------------------------===//

/// Bytes of the header's length, which comes first, little-endian.
static constexpr uint64_t kLengthBytes = 8;
static constexpr uint64_t kMaxHeaderBytes = 100'000'000;
/// The longest and deepest array of a header is a shape, here of at most 8
/// dimensions.
static constexpr JsonLimits kHeaderLimits = {.depth = 3, .elements = 8};

namespace {
/// A type of the format.
struct TypeInfo {
  std::string_view name;
  int64_t bits;
};
} // namespace

static constexpr TypeInfo kTypes[] = {
    {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"BOOL", 8},
    {"U8", 8},      {"I8", 8},      {"U16", 16},    {"I16", 16},
    {"U32", 32},    {"I32", 32},    {"U64", 64},    {"I64", 64},
    {"F64", 64},    {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

/// The value of a non-negative integer, or nullopt if it does not fit in
/// int64_t.
static std::optional<int64_t> asSize(const json &value) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  return value.get<int64_t>();
}

/// Parses a shape of values of `bits` bits and returns its number of bytes.
/// `what` begins errors.
static int64_t parseShape(const ErrorText &what, const json &shape,
                          int64_t bits, std::vector<int64_t> &result) {
  if (!shape.is_array())
    throw Error(what + " has the shape " + part::found(describe(shape)) +
                " when " + part::needed("an array") + " is needed");
  for (const json &element : shape) {
    const std::optional<int64_t> size = asSize(element);
    if (!size)
      throw Error(what + " has " + part::found(describe(element)) +
                  " in its shape when " + part::needed("a size") +
                  " is needed");
    if (__builtin_mul_overflow(bits, *size, &bits))
      throw Error(what + " has a shape of more than 2^63 bits");
    result.push_back(*size);
  }
  if (bits % 8 != 0)
    throw Error(what + " has " + part::found(bits) + " bits when " +
                part::needed("whole bytes") + " are needed");
  return bits / 8;
}

/// Parses the entry of one tensor. `data` are the bytes after the header.
static StoredTensor parseEntry(const std::string &name, const json &entry,
                               std::span<const uint8_t> data,
                               uint64_t dataOffset, const std::string &path) {
  const ErrorText what = part::file(path) + ": " + part::tensor(name);
  const auto at = [&](const char *key) -> const json & {
    if (!entry.is_object())
      throw Error(what + " is " + part::found(describe(entry)) + " when " +
                  part::needed("an object") + " is needed");
    const auto found = entry.find(key);
    if (found == entry.end())
      throw Error(what + " has no " + part::needed(key));
    return *found;
  };

  StoredTensor tensor;
  tensor.name = name;
  tensor.path = path;

  const json &dtype = at("dtype");
  const TypeInfo *type = std::ranges::find_if(kTypes, [&](const TypeInfo &t) {
    return dtype.is_string() && dtype.get_ref<const std::string &>() == t.name;
  });
  if (type == std::end(kTypes))
    throw Error(what + " has the unknown dtype " +
                part::found(describe(dtype)));
  tensor.type = parseStoredType(type->name);
  tensor.typeName = type->name;

  const int64_t bytes = parseShape(what, at("shape"), type->bits, tensor.shape);

  const json &range = at("data_offsets");
  const bool pair = range.is_array() && range.size() == 2;
  const std::optional<int64_t> first = pair ? asSize(range[0]) : std::nullopt;
  const std::optional<int64_t> last = pair ? asSize(range[1]) : std::nullopt;
  if (!first || !last)
    throw Error(what + " has data_offsets that are not two offsets");
  const int64_t begin = *first, end = *last;
  const ErrorText place = part::found("data_offsets " + std::to_string(begin) +
                                      " to " + std::to_string(end));
  if (begin > end)
    throw Error(what + " has " + place + ", which end before they begin");
  if (static_cast<uint64_t>(end) > data.size())
    throw Error(what + " has " + place + " when the file has " +
                part::needed(data.size()) +
                " bytes of data; it may be truncated");
  if (end - begin != bytes)
    throw Error(what + " has " + place + " when its dtype and shape need " +
                part::needed(bytes) + " bytes");
  tensor.offset = dataOffset + static_cast<uint64_t>(begin);
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

std::vector<StoredTensor> qwen::parseSafetensors(std::span<const uint8_t> bytes,
                                                 const std::string &path) {
  if (bytes.size() < kLengthBytes)
    throw Error(part::file(path) + " has " + part::found(bytes.size()) +
                " bytes when a safetensors file starts with 8 for the length "
                "of its header");
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  if (length > bytes.size() - kLengthBytes)
    throw Error(part::file(path) + ": its header would have " +
                part::needed(length) + " bytes when " +
                part::found(bytes.size() - kLengthBytes) +
                " are left in the file; it is truncated or not a safetensors "
                "file");
  if (length > kMaxHeaderBytes)
    throw Error(part::file(path) + ": its header has " + part::found(length) +
                " bytes when at most " + part::needed(kMaxHeaderBytes) +
                " are allowed");
  const uint64_t dataOffset = kLengthBytes + length;
  const std::span<const uint8_t> data = bytes.subspan(dataOffset);

  const auto header = parseJsonObject<json>(
      {reinterpret_cast<const char *>(bytes.data()) + kLengthBytes, length},
      part::file(path) + ": its header", kHeaderLimits);
  std::vector<StoredTensor> tensors;
  for (const auto &[name, entry] : header.items())
    if (name != "__metadata__")
      tensors.push_back(parseEntry(name, entry, data, dataOffset, path));

  // The format requires tensors to cover the data without gaps.
  std::ranges::sort(tensors, [](const StoredTensor &a, const StoredTensor &b) {
    return std::pair(a.offset, a.bytes.size()) <
           std::pair(b.offset, b.bytes.size());
  });
  uint64_t covered = dataOffset;
  const auto checkNoGap = [&](uint64_t next) {
    if (next > covered)
      throw Error(part::file(path) + ": " +
                  part::found("bytes " + std::to_string(covered - dataOffset) +
                              " to " + std::to_string(next - dataOffset)) +
                  " of its data belong to no tensor");
  };
  const StoredTensor *previous = nullptr;
  for (const StoredTensor &tensor : tensors) {
    if (tensor.offset < covered)
      throw Error(part::file(path) + ": " +
                  part::subject("tensors " + quote(previous->name) + " and " +
                                quote(tensor.name)) +
                  " overlap at byte " +
                  part::found(tensor.offset - dataOffset) + " of its data");
    checkNoGap(tensor.offset);
    covered += tensor.bytes.size();
    previous = &tensor;
  }
  checkNoGap(bytes.size());
  return tensors;
}

//===----------------------------------------------------------------------===//
// The files of a checkpoint
//===----------------------------------------------------------------------===//

static constexpr char kSingleFile[] = "model.safetensors";
static constexpr char kIndexFile[] = "model.safetensors.index.json";

/// The file name of each tensor in the index, which is in `path`.
static std::map<std::string, std::string> parseIndex(const json &index,
                                                     const std::string &path) {
  const auto found = index.find("weight_map");
  if (found == index.end())
    throw Error(part::file(path) + " has no " + part::subject("weight_map"));
  if (!found->is_object())
    throw Error(part::file(path) + ": " + part::subject("weight_map") + " is " +
                part::found(describe(*found)) + " when " +
                part::needed("an object") + " is needed");
  std::map<std::string, std::string> fileOf;
  for (const auto &[name, file] : found->items()) {
    const auto what = [&] {
      return part::file(path) + ": the file of " + part::tensor(name) + " is " +
             part::found(describe(file));
    };
    if (!file.is_string())
      throw Error(what() + " when " + part::needed("a name") + " is needed");
    const std::string &plain = file.get_ref<const std::string &>();
    // Files outside of the checkpoint's folder do not belong to it.
    const bool odd = std::ranges::any_of(plain, [](unsigned char c) {
      return c == '/' || c == '\\' || c < 0x20;
    });
    if (plain.empty() || plain == "." || plain == ".." || odd)
      throw Error(what() + " when " + part::needed("the plain name of a file") +
                  " is needed");
    fileOf.emplace(name, plain);
  }
  return fileOf;
}

namespace {
/// What the names of tensors begin with in a folder and in the model.
struct Prefix {
  std::string_view own;
  std::string_view model;
};
} // namespace

/// The text model inside a model with vision, of all versions of transformers,
/// and base models, without a head. The first row counts.
static constexpr Prefix kPrefixes[] = {
    {"model.language_model.", kTextModel},
    {"language_model.model.", kTextModel},
    {"language_model.lm_head.", "lm_head."},
    {"language_model.", kTextModel},
    {"embed_tokens.", "model.embed_tokens."},
    {kLayers, kTextLayers},
    {"norm.", "model.norm."},
};

namespace {
/// Part of a name in a folder and in the model.
struct NamePart {
  std::string_view own;
  std::string_view model;
  /// Whether it ends the name.
  bool isLast = true;
};
} // namespace

/// The experts of MLX, and the tensors of all experts that transformers names
/// as parameters, with what bitsandbytes adds to these. The first row counts.
static constexpr NamePart kExpertsParts[] = {
    {".mlp.switch_mlp.", ".mlp.experts.", /*isLast=*/false},
    {".mlp.experts.gate_up_proj", ".mlp.experts.gate_up_proj.weight"},
    {".mlp.experts.down_proj", ".mlp.experts.down_proj.weight"},
    {".mlp.experts.gate_up_proj_scale_inv",
     ".mlp.experts.gate_up_proj.weight_scale_inv"},
    {".mlp.experts.down_proj_scale_inv",
     ".mlp.experts.down_proj.weight_scale_inv"},
    {".mlp.experts.gate_up_proj_activation_scale",
     ".mlp.experts.gate_up_proj.input_scale"},
    {".mlp.experts.down_proj_activation_scale",
     ".mlp.experts.down_proj.input_scale"},
    {".mlp.experts.gate_up_proj.absmax",
     ".mlp.experts.gate_up_proj.weight.absmax"},
    {".mlp.experts.gate_up_proj.nested_",
     ".mlp.experts.gate_up_proj.weight.nested_", /*isLast=*/false},
    {".mlp.experts.gate_up_proj.quant_",
     ".mlp.experts.gate_up_proj.weight.quant_", /*isLast=*/false},
    {".mlp.experts.down_proj.absmax", ".mlp.experts.down_proj.weight.absmax"},
    {".mlp.experts.down_proj.nested_", ".mlp.experts.down_proj.weight.nested_",
     /*isLast=*/false},
    {".mlp.experts.down_proj.quant_", ".mlp.experts.down_proj.weight.quant_",
     /*isLast=*/false},
};

std::string qwen::modelName(const std::string &name) {
  std::string result = name;
  for (const auto &[own, model] : kPrefixes)
    if (name.starts_with(own)) {
      result = std::string(model) + name.substr(own.size());
      break;
    }
  for (const auto &[own, model, isLast] : kExpertsParts)
    if (const size_t at = result.find(own);
        at != result.npos && (!isLast || at + own.size() == result.size()))
      return result.replace(at, own.size(), model);
  return result;
}

/// Whether the files of an index, which names the file of each tensor, are the
/// checkpoint rather than the single file beside them: all are there, and not
/// only the single file. Notes what is not used.
static bool indexReplaces(const std::map<std::string, std::string> &fileOf,
                          StoredTensors &tensors) {
  std::set<std::string> files;
  for (const auto &[name, file] : fileOf)
    files.insert(file);
  const bool hasSingle = files.erase(kSingleFile) != 0;
  if (files.empty())
    return false;
  const auto missing = std::ranges::find_if(files, [&](const auto &file) {
    return !isThere(tensors.directory() / file);
  });
  if (missing != files.end())
    tensors.note(std::string(kIndexFile) + " is not used, because its file " +
                 quote(*missing) + " is missing");
  else if (!hasSingle)
    tensors.note(std::string(kSingleFile) + " is not used, because " +
                 kIndexFile + " names other files, which are all there");
  return missing == files.end();
}

namespace {
/// Weights that are not read.
struct OtherWeights {
  /// What the name of their file is, as for fnmatch.
  const char *pattern;
  const char *wayOut;
};
} // namespace

/// The first row counts.
static constexpr OtherWeights kOtherWeights[] = {
    {"adapter_model.safetensors",
     "an adapter: compile its base model with --lora FOLDER"},
    {"*-of-*.safetensors", "a part of the weights: the index, which names the "
                           "tensors of each part, is needed, too"},
    {"*.safetensors", "under another name: rename it to model.safetensors"},
    {"*.gguf", "a GGUF file: name that instead of the folder"},
    {"*.bin", "a file of PyTorch: save the model as safetensors"},
    {"*.pt", "a file of PyTorch: save the model as safetensors"},
    {"*.pth", "a file of PyTorch: save the model as safetensors"},
};

/// "; it has FILE, ..." with the way out, or "" for a folder without weights.
static std::string otherWeights(const std::filesystem::path &dir) {
  std::error_code ignored;
  std::set<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(dir, ignored))
    names.insert(entry.path().filename().string());
  for (const auto &[pattern, wayOut] : kOtherWeights)
    for (const std::string &name : names)
      if (fnmatch(pattern, name.c_str(), 0) == 0)
        return "; it has " + quote(name) + ", " + wayOut;
  return "";
}

StoredTensors qwen::openSafetensors(const std::filesystem::path &dir) {
  requireDirectory(dir);
  StoredTensors tensors(dir);
  const auto add = [&](const StoredTensor &tensor) {
    if (!tensors.add(modelName(tensor.name), tensor))
      throw Error(describeTensor(tensor) +
                  " has the name of another tensor in the model");
  };
  const auto parse = [&](const std::string &file) {
    return parseSafetensors(tensors.map(file), (dir / file).string());
  };

  const std::string indexPath = (dir / kIndexFile).string();
  const bool hasSingle = CheckpointFile::open(dir / kSingleFile).has_value();
  const std::optional<json> index = readJsonObject(indexPath);
  if (!index && !hasSingle)
    throw Error(part::file(dir.string()) + " has neither " + kSingleFile +
                " nor " + kIndexFile + otherWeights(dir));
  const auto fileOf = index ? parseIndex(*index, indexPath)
                            : std::map<std::string, std::string>();
  if (hasSingle && !indexReplaces(fileOf, tensors)) {
    for (const StoredTensor &tensor : parse(kSingleFile))
      add(tensor);
    return tensors;
  }

  std::vector<std::string> copies;
  for (const auto &[name, file] : fileOf) {
    if (tensors.hasMapped(file))
      continue;
    for (const StoredTensor &tensor : parse(file)) {
      // One that the index does not name is the checkpoint's, too.
      const auto named = fileOf.find(tensor.name);
      if (named == fileOf.end() || named->second == file)
        add(tensor);
      else
        copies.push_back(quote(tensor.name) + " of " + file);
    }
  }
  if (!copies.empty())
    tensors.note("tensors that " + std::string(kIndexFile) +
                 " places in another file are not used: " + copies.front() +
                 (copies.size() == 1
                      ? ""
                      : " and " + std::to_string(copies.size() - 1) + " more"));
  const auto missing = std::ranges::find_if(fileOf, [&](const auto &entry) {
    return !tensors.find(modelName(entry.first));
  });
  if (missing != fileOf.end())
    throw Error(part::file(indexPath) + ": " + part::tensor(missing->first) +
                " is not in " + part::needed(missing->second));
  return tensors;
}
