//===- CompileOptions.cpp - The options of a compile ----------------------===//

#include "CompileOptions.h"

using namespace qwen;

/// The value that CLI11 gives a flag without one.
static constexpr char kNoValue[] = "true";

const std::vector<CompileOption> &qwen::compileOptions() {
  static const std::vector<CompileOption> options = {
#define QWEN_COMPILE_OPTION(Name, Form, TypeName)                              \
  {Name, OptionForm::Form, TypeName},
#include "CompileOptions.def"
  };
  return options;
}

static bool isFlag(const CompileOption &row) {
  return row.form == OptionForm::Flag || row.form == OptionForm::Maybe;
}

static void setForm(CLI::Option &option, const CompileOption &row) {
  if (row.form == OptionForm::Many)
    option.expected(1, CLI::detail::expected_max_vector_size)
        ->allow_extra_args(false);
  if (row.form == OptionForm::Maybe)
    option.type_name("[=" + row.typeName + "]");
  else if (row.form != OptionForm::Flag)
    option.type_name(row.typeName);
}

void qwen::setCompileForms(CLI::App &app) {
  for (const CompileOption &row : compileOptions())
    setForm(*app.get_option(row.name), row);
}

std::string CompileArgument::text() const {
  const bool hasValue = !isFlag(*option) || !value.empty();
  return option->name + (hasValue ? "=" + value : "");
}

void qwen::addCompileOptions(CLI::App &app,
                             std::vector<CompileArgument> &arguments) {
  for (const CompileOption &row : compileOptions()) {
    if (app.get_option_no_throw(row.name))
      continue;
    const auto take = [&arguments, &row](const CLI::results_t &values) {
      for (const std::string &value : values)
        arguments.push_back(
            {&row, isFlag(row) && value == kNoValue ? "" : value});
      return true;
    };
    CLI::Option *option = app.add_option(row.name, take)->group("");
    if (isFlag(row))
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
          ->expected(0);
    setForm(*option, row);
  }
}
