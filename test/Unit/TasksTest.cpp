//===- TasksTest.cpp - Data, requests and metrics of tasks ----------------===//
//
// Numbers of Python were written by CPython 3.11, those of metrics by
// lm-evaluation-harness 0.4.13. test/Integration/tasks.py compares whole tasks.
//
//===----------------------------------------------------------------------===//

#include "tasks/Evaluation.h"
#include "tasks/PythonRandom.h"
#include "tasks/Records.h"
#include "tasks/TaskText.h"

#include "TempDir.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;
using namespace qwen::tasks;
namespace fs = std::filesystem;

using Numbers = std::vector<size_t>;

TEST(PythonRandom, DrawsAsPython) {
  PythonRandom random(1234);
  Numbers drawn;
  for (int i = 0; i < 6; ++i)
    drawn.push_back(random.below(2251));
  EXPECT_EQ(drawn, (Numbers{1805, 478, 30, 371, 143, 343}));
  PythonRandom other(0);
  EXPECT_EQ(other.real(), 0.8444218515250481);
  EXPECT_EQ(other.real(), 0.7579544029403025);
}

TEST(PythonRandom, SamplesAsPython) {
  PythonRandom few(1234), many(1234), atLimit(1234), aboveLimit(1234);
  // From a list, and from a set.
  EXPECT_EQ(few.sample(20, 6), (Numbers{14, 3, 0, 2, 1, 10}));
  EXPECT_EQ(few.sample(20, 6), (Numbers{2, 3, 11, 7, 0, 15}));
  EXPECT_EQ(many.sample(39905, 6),
            (Numbers{28883, 7657, 490, 5940, 38156, 2288}));
  EXPECT_EQ(many.sample(39905, 6),
            (Numbers{5500, 6450, 23241, 15519, 1142, 2019}));
  EXPECT_EQ(atLimit.sample(21, 3), (Numbers{14, 3, 0}));
  EXPECT_EQ(aboveLimit.sample(22, 3), (Numbers{14, 3, 0}));
}

using Fields = std::vector<std::vector<std::string>>;

TEST(Records, ParsesCsv) {
  EXPECT_EQ(parseCsv("a,\"b, \"\"c\"\"\r\nd\",\r\n\n\"\",e", "f.csv"),
            (Fields{{"a", "b, \"c\"\r\nd", ""}, {"", "e"}}));
  EXPECT_THROW(parseCsv("a\n\"b", "f.csv"), Error);
  EXPECT_THROW(parseCsv("\"a\"b\n", "f.csv"), Error);
}

TEST(Records, NamesTheRow) {
  EXPECT_EQ(messageOf([] {
              const Records rows({"f.jsonl", "{\"a\": 1}\n{\"b\": 2}\n"});
              rows[1].at("a");
            }),
            "f.jsonl line 2 has no a");
  EXPECT_EQ(messageOf([] { Records({"f.csv", "a,b\n1,2\n3\n"}); }),
            "f.csv row 2 has 1 fields when 2 are needed");
  EXPECT_EQ(messageOf([] { Records({"f.csv", "\n \n"}); }), "f.csv is empty");
  const Records array({"f.json", "[{\"a\": 7}]"});
  EXPECT_EQ(array[0].at("a").integer(0, 9), 7);
  const Records csv({"f.csv", "x,y\n"}, {"a", "b"});
  EXPECT_EQ(csv[0].at("b").string(), "y");
}

TEST(TaskText, ChangesTextAsPython) {
  EXPECT_EQ(strip(" \t\u3000a b\u00a0\n"), "a b");
  EXPECT_EQ(stripEnd(" a\u2003"), " a");
  EXPECT_EQ(capitalize("\u00e9COLE A"), "\u00c9cole a");
  EXPECT_EQ(capitalize(""), "");
  EXPECT_EQ(replaceAll("a    b", "  ", " "), "a  b");
}

namespace {
/// A folder with files, which it removes.
class Folder {
public:
  explicit Folder(const std::vector<std::pair<std::string, std::string>> &files)
      : path(fs::temp_directory_path() /
             ("tasks-test-" + std::to_string(getpid()))) {
    for (const auto &[name, text] : files) {
      fs::create_directories((path / name).parent_path());
      std::ofstream(path / name) << text;
    }
  }
  ~Folder() { fs::remove_all(path); }
  const fs::path path;
};
} // namespace

/// The documents of a task with these files.
static TaskData
read(const std::string &task,
     const std::vector<std::pair<std::string, std::string>> &files) {
  const Folder folder(files);
  const TaskTable table;
  const std::vector<std::string> names = {task};
  return table.choose(names).tasks.front()->read(DataFolder(folder.path),
                                                 false);
}

TEST(Tasks, CleansHellaSwag) {
  const TaskData data = read(
      "hellaswag",
      {{"hellaswag_val.jsonl",
        R"({"activity_label": "Cooking", "ctx_a": "A [title] step. [step]  x", )"
        R"("ctx_b": "then SHE", "endings": ["a  b [c]", " d", "e", "f"], )"
        R"("label": "1"})"}});
  const Document &document = data.documents.at(0);
  EXPECT_EQ(document.queries.at(0).context, "Cooking: A. step.  x Then she");
  EXPECT_EQ(document.queries.at(0).continuation, " a b ");
  EXPECT_EQ(document.queries.at(1).continuation, " d");
  EXPECT_EQ(document.gold, 1U);
}

TEST(Tasks, ReadsPages) {
  const TaskData data =
      read("wikitext", {{"wiki.test.raw", " \n = One = \n \n A @-@ b ( c ) , d "
                                          "\" e \" . \n = = Part = = \n x\n"
                                          " = Two = \n y 's\n"}});
  ASSERT_EQ(data.documents.size(), 2U);
  EXPECT_EQ(data.documents[0].queries[0].continuation,
            " = One =\n\nA-b (c), d \"e\".\n== Part ==\nx");
  EXPECT_EQ(data.documents[0].words, 22U);
  EXPECT_EQ(data.documents[1].queries[0].continuation, " = Two =\ny's\n");
  EXPECT_EQ(data.documents[1].words, 7U);
  EXPECT_EQ(data.documents[1].bytes, 16U);
}

TEST(Tasks, NamesWhatIsMissing) {
  const std::string error = messageOf([] { read("piqa", {{"x", ""}}); });
  EXPECT_NE(error.find("has no data of piqa: it needs piqa/valid.jsonl, "
                       "piqa.jsonl"),
            std::string::npos)
      << error;
  const std::string parquet =
      messageOf([] { read("piqa", {{"a/b.parquet", ""}}); });
  EXPECT_NE(parquet.find("b.parquet to JSON lines"), std::string::npos);
  const std::string damaged =
      messageOf([] { read("ceval-valid_law", {{"ceval.zip", "PK"}}); });
  EXPECT_NE(damaged.find("damaged or no ZIP archive"), std::string::npos);
  const std::string cut = messageOf(
      [] { read("hellaswag", {{"hellaswag_val.jsonl.bz2", "BZh9"}}); });
  EXPECT_NE(cut.find("damaged or no bzip2 file"), std::string::npos) << cut;
  const TaskTable table;
  const std::vector<std::string> names = {"arc_hard"};
  EXPECT_NE(messageOf([&] {
              table.choose(names);
            }).find("no task is named \"arc_hard\"; there are arc_easy, "),
            std::string::npos);
}

TEST(Tasks, ExpandsNames) {
  const TaskTable table;
  const std::vector<std::string> names = {"mmlu", "arc", "arc_easy"};
  const TaskTable::Chosen chosen = table.choose(names);
  EXPECT_EQ(chosen.tasks.size(), 59U);
  // Parts stand before the whole.
  ASSERT_EQ(chosen.groups.size(), 5U);
  EXPECT_EQ(chosen.groups.back()->name, "mmlu");
}

TEST(Metrics, AreThoseOfTheHarness) {
  std::vector<Score> scores;
  for (int i = 0; i < 50; ++i)
    scores.push_back({-0.5 * ((i * 7919) % 101) / 10});
  EXPECT_DOUBLE_EQ(metric::perplexity.aggregate(scores), 11.611546604814132);
  EXPECT_NEAR(*metric::perplexity.error(scores), 2.504370435889639, 1e-12);
  EXPECT_FALSE(metric::acc.error(std::span(scores).first(1)));
  // The second choice is longer, in characters.
  const Document document = {
      {{"q", " a"}, {"q", " \u4e2d\u6587b"}}, {"a", "\u4e2d\u6587b"}, 1};
  const std::vector<Likelihood> likelihoods = {{-2}, {-3}};
  EXPECT_EQ(metric::acc.ofDocument(document, likelihoods).value, 0);
  EXPECT_EQ(metric::acc_norm.ofDocument(document, likelihoods).value, 1);
  const std::vector<Likelihood> equal = {{-2}, {-2}};
  EXPECT_EQ(metric::acc.ofDocument(document, equal).value, 0);
}
