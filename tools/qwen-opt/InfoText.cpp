//===- InfoText.cpp - What info says of a checkpoint, as text -------------===//

#include "InfoText.h"

#include "PrintSummary.h"

#include "qwen/ABI/Caches.h"
#include "qwen/Support/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;
using nlohmann::ordered_json;

static std::string bytesText(const ordered_json &bytes) {
  return withUnit(bytes.get<uint64_t>());
}

static std::string tokenText(const ordered_json &token) {
  if (token.is_null())
    return "none";
  return quote(token["text"].get<std::string>()) + " (" + token["id"].dump() +
         ")";
}

static void printModel(const ordered_json &all, llvm::raw_ostream &out) {
  const ordered_json &shape = all["shape"];
  const auto size = [&](const char *key) { return shape[key].dump(); };
  out << "model       " << printable(all["name"].get<std::string>()) << ", "
      << all["architecture"].get<std::string>() << "\n"
      << llvm::formatv("parameters  {0:n}\n", all["parameters"].get<int64_t>())
      << "shape       " << size("layers") << " layers of hidden size "
      << size("hidden_size") << ", ffn " << size("intermediate_size") << "; "
      << size("heads") << " heads, " << size("kv_heads") << " kv, of "
      << size("head_dim") << "; vocabulary " << size("vocab_size") << ", "
      << (shape["tied"].get<bool>() ? "tied" : "untied") << "\n"
      << "output      " << all["output"].get<std::string>() << "\n"
      << "context     " << all["context"].dump() << " positions";
  if (const ordered_json &scaling = all["rope_scaling"]; !scaling.is_null())
    out << ", by YaRN: " << scaling["factor"].dump() << " times "
        << scaling["positions"].dump();
  out << "\n";
  for (const ordered_json &form : all["stored"])
    out << "stored      " << form["form"].get<std::string>() << ": "
        << form["tensors"].dump() << " tensors, " << bytesText(form["bytes"])
        << "\n";
  if (const ordered_json &tokenizer = all["tokenizer"]; tokenizer.is_null())
    out << "tokenizer   none\n";
  else
    out << "tokenizer   " << tokenizer["tokens"].dump() << " tokens; bos "
        << tokenText(tokenizer["bos_token"]) << ", eos "
        << tokenText(tokenizer["eos_token"]) << ", pad "
        << tokenText(tokenizer["pad_token"]) << "\n";
  if (const ordered_json &chat = all["chat_template"]; chat.is_null())
    out << "template    none\n";
  else
    out << "template    " << chat["bytes"].dump() << " bytes, in "
        << printable(chat["file"].get<std::string>())
        << (chat["error"].is_null()
                ? ""
                : "; not supported: " + chat["error"].get<std::string>())
        << "\n";
}

static void printSizes(const ordered_json &all, llvm::raw_ostream &out) {
  const ordered_json &own = all["compiled"];
  out << "compiled    by default ";
  llvm::interleaveComma(own["formats"], out, [&](const ordered_json &format) {
    out << format["tensors"].dump() << " tensors as "
        << format["format"].get<std::string>() << " ("
        << bytesText(format["bytes"]) << ")";
  });
  out << "\nkv cache    " << own["kv_format"].get<std::string>() << ", "
      << own["kv_bytes_a_token"].dump() << " bytes a token, "
      << withUnit(own["kv_bytes_a_token"].get<uint64_t>() *
                  all["context"].get<uint64_t>())
      << " for the context\n";
  if (own["state_bytes_a_sequence"] != 0)
    out << "state       "
        << describeStates(own["state_bytes_a_sequence"],
                          own["step_back_bytes_a_sequence"])
        << "\n";
  out << "arena       " << bytesText(own["arena_bytes"]) << "\n";
  const ordered_json &machine = all["machine"];
  out << llvm::formatv("memory      {0:f1} GB/s",
                       machine["bytes_per_second"].get<double>() * 1e-9);
  if (!machine["threads"].is_null())
    out << ", measured with " << machine["threads"].dump() << " threads";
  out << "\n\n"
      << llvm::formatv("{0,-11} {1,12} {2,12} {3,25} {4,12}\n", "--weights",
                       "bytes", "a token", "tokens/s at most", "KL of a");
  out << llvm::formatv("{0,-11} {1,12} {2,12} {3,12} {4,12} {5,12}\n", "", "",
                       "reads", "at first", "full context", "small model");
  const auto print = [&](const std::string &name, const ordered_json &row) {
    std::string loss;
    if (row.contains("measured_kl") && !row["measured_kl"].is_null())
      loss = llvm::formatv("{0:f4}", row["measured_kl"].get<double>());
    const std::string line = llvm::formatv(
        "{0,-11} {1,12} {2,12} {3,12:f1} {4,12:f1} {5,12}", name,
        bytesText(row["weight_bytes"]), bytesText(row["token_bytes"]),
        row["tokens_per_second"].get<double>(),
        row["tokens_per_second_at_context"].get<double>(), loss);
    out << llvm::StringRef(line).rtrim() << '\n';
  };
  print("(default)", own);
  for (const ordered_json &row : all["formats"])
    print(row["format"].get<std::string>(), row);
}

static void printNotes(const ordered_json &all, llvm::raw_ostream &out) {
  for (const char *kind : {"notes", "warnings"})
    for (const ordered_json &line : all[kind])
      out << (kind == std::string_view("notes") ? "note        "
                                                : "warning     ")
          << line.get<std::string>() << "\n";
  for (const auto &[kind, names] : all["unused"].items())
    out << "note        " << names.size() << " tensors are not used: " << kind
        << "\n";
}

void qwen::printInfo(const ordered_json &all, llvm::raw_ostream &out) {
  printModel(all, out);
  printNotes(all, out);
  printSizes(all, out);
}
