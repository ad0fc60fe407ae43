//===- ReferenceLogits.cpp - A checkpoint's logits in plain C++ -----------===//
//
// reference-logits CHECKPOINT WEIGHTS KV IDS OUT [NAME=FORMAT]...
// reference-logits CHECKPOINT values OUT
//
// Reads a checkpoint by ReferenceReader.h, runs ReferenceModel.h and writes the
// logits of all positions as f32. NAME is a matrix with another format than
// WEIGHTS, which may be "keep". "values" writes the values of all weights as
// safetensors. test/Integration/random_models.py, gguf_files.py and forms.py
// compare them.
//
//===----------------------------------------------------------------------===//

#include "ReferenceReader.h"

#include <cstdio>
#include <map>
#include <span>
#include <sstream>

using namespace qwen;
using nlohmann::json;
using namespace qwen::test;

namespace {
WeightFormat formatOf(const std::string &name) {
  if (const auto format = parseWeightFormat(name))
    return *format;
  throw Error("format '" + name + "' when " + weightFormatList() +
              " is needed");
}

/// Writes the values of the weights of a checkpoint as the compiler reads them.
void writeValues(const std::string &path, const std::string &to) {
  const std::unique_ptr<Checkpoint> checkpoint = openCheckpoint(path);
  json header;
  Values all;
  for (const auto &[name, entry] : checkpoint->weights().all()) {
    const WeightShape &shape = entry.source->shape();
    const size_t begin = all.size();
    all.resize(begin + static_cast<size_t>(shape.values()));
    entry.source->read(0, shape.outputs(), all.data() + begin);
    header[name] = {
        {"dtype", "F32"},
        {"shape", shape.sizes},
        {"data_offsets", {begin * sizeof(float), all.size() * sizeof(float)}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream out(to, std::ios::binary);
  out.write(reinterpret_cast<const char *>(&size), sizeof(size));
  out << text;
  out.write(reinterpret_cast<const char *>(all.data()),
            static_cast<std::streamsize>(all.size() * sizeof(float)));
  out.close();
  if (!out)
    throw Error("cannot write " + to);
}

void write(const std::vector<std::string> &arguments) {
  std::map<std::string, WeightFormat> others;
  for (const std::string &rule : std::span(arguments).subspan(5)) {
    const size_t split = rule.rfind('=');
    others[rule.substr(0, split)] = formatOf(rule.substr(split + 1));
  }
  std::optional<WeightFormat> weights;
  if (arguments[1] != "keep")
    weights = formatOf(arguments[1]);
  const ModelReader reader(arguments[0], weights, std::move(others));
  const ReferenceModel model = reader.read(parseKvFormat(arguments[2]).value());
  ReferenceSequence sequence(model);
  std::ofstream out(arguments[4], std::ios::binary);
  std::istringstream ids(arguments[3]);
  for (std::string id; std::getline(ids, id, ',');) {
    const Values logits = model.logits(sequence.next(std::stoi(id)));
    out.write(reinterpret_cast<const char *>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
  }
  out.close();
  if (!out)
    throw Error("cannot write " + arguments[4]);
}
} // namespace

int main(int argc, char **argv) {
  try {
    if (argc == 4 && argv[2] == std::string_view("values")) {
      writeValues(argv[1], argv[3]);
      return 0;
    }
    if (argc < 6)
      throw Error("usage: reference-logits CHECKPOINT WEIGHTS KV IDS OUT "
                  "[NAME=FORMAT]...");
    write({argv + 1, argv + argc});
  } catch (const std::exception &error) {
    fprintf(stderr, "reference-logits: %s\n", error.what());
    return 1;
  }
  return 0;
}
