//===- TasksFuzz.cpp - Data of tasks --------------------------------------===//
//
// The first byte of the input chooses a file of a task, the rest is in it.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "tasks/Task.h"

#include "qwen/Support/Error.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace qwen;
namespace fs = std::filesystem;

static constexpr std::array<std::array<const char *, 2>, 11> kFiles = {
    {{"arc_easy", "arc_easy.jsonl"},
     {"hellaswag", "hellaswag_val.jsonl"},
     {"hellaswag", "hellaswag_val_full.txt"},
     {"hellaswag", "hellaswag_val.jsonl.bz2"},
     {"piqa", "piqa.jsonl"},
     {"winogrande", "winogrande/validation.jsonl"},
     {"lambada_openai", "lambada_openai.jsonl"},
     {"wikitext", "wiki.test.raw"},
     {"mmlu_anatomy", "mmlu/test/anatomy_test.csv"},
     {"cmmlu_anatomy", "cmmlu/test/anatomy.csv"},
     {"ceval-valid_law", "ceval.zip"}}};

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tasks::TaskTable table;
  static const fs::path folder =
      fs::temp_directory_path() / ("tasks-fuzz-" + std::to_string(getpid()));
  const std::string text(fuzz::asText(data, size));
  if (text.empty())
    return 0;
  const auto [name, file] =
      kFiles[static_cast<uint8_t>(text[0]) % kFiles.size()];
  fs::create_directories((folder / file).parent_path());
  std::ofstream(folder / file) << text.substr(1);
  const std::vector<std::string> names = {name};
  try {
    const tasks::Task &task = *table.choose(names).tasks.front();
    for (const tasks::Document &document :
         task.read(tasks::DataFolder(folder), false).documents)
      fuzz::require(!document.queries.empty() &&
                        (document.choices.empty() ||
                         document.gold < document.choices.size()),
                    "a document lacks what its metrics need");
  } catch (const Error &) {
  }
  fs::remove_all(folder);
  return 0;
}
