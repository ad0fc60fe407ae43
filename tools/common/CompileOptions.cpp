//===- CompileOptions.cpp - The options of a compile ----------------------===//

#include "CompileOptions.h"

#include <algorithm>

using namespace qwen;

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

static void setForm(Option option, const CompileOption &row) {
  if (row.form == OptionForm::Many)
    option.repeatable();
  if (row.form == OptionForm::Maybe)
    option.type("[=" + row.typeName + "]");
  else if (row.form != OptionForm::Flag)
    option.type(row.typeName);
}

void qwen::setCompileForms(const Command &command) {
  for (const CompileOption &row : compileOptions())
    setForm(command.option(row.name), row);
}

std::string CompileArgument::text() const {
  const bool hasValue = !isFlag(*option) || !value.empty();
  return option->name + (hasValue ? "=" + value : "");
}

static Option addOption(const Command &command, const CompileOption &row,
                        std::vector<CompileArgument> &arguments) {
  const auto take = [&arguments, &row](const std::string &value) {
    arguments.push_back({&row, value});
  };
  if (row.form == OptionForm::Flag)
    return command.addFlag(row.name, [take](bool) { take(""); });
  if (row.form == OptionForm::Maybe)
    return command.addFlagWithValue(row.name, [take](const std::string &value) {
      take(value == kNoValue ? "" : value);
    });
  if (row.form == OptionForm::Many)
    return command.addTexts(row.name,
                            [take](const std::vector<std::string> &values) {
                              std::ranges::for_each(values, take);
                            });
  return command.addText(row.name, take);
}

void qwen::addCompileOptions(const Command &command,
                             std::vector<CompileArgument> &arguments) {
  for (const CompileOption &row : compileOptions())
    if (!command.findOption(row.name))
      setForm(addOption(command, row, arguments).group(""), row);
}
