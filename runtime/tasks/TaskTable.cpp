//===- TaskTable.cpp - All tasks by name ----------------------------------===//

#include "tasks/Task.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::tasks;

TaskTable::TaskTable() {
#define QWEN_TASKS(Name) families.push_back(make##Name());
#include "tasks/Tasks.def"
}

std::vector<std::string> TaskTable::names() const {
  std::vector<std::string> result;
  for (const TaskFamily &family : families) {
    if (family.groups.empty())
      for (const Task &task : family.tasks)
        result.push_back(task.name);
    for (const TaskGroup &group : family.groups)
      result.push_back(group.name);
    for (const ShortName &shortName : family.shortNames)
      result.push_back(shortName.name);
  }
  return result;
}

/// Appends `item` unless it is there.
template <typename T>
static void addOnce(std::vector<const T *> &items, const T &item) {
  if (std::ranges::find(items, &item) == items.end())
    items.push_back(&item);
}

void TaskTable::add(Chosen &chosen, const std::string &name) const {
  for (const TaskFamily &family : families) {
    for (const Task &task : family.tasks)
      if (task.name == name)
        return addOnce(chosen.tasks, task);
    for (const TaskGroup &group : family.groups)
      if (group.name == name) {
        for (const std::string &part : group.parts)
          add(chosen, part);
        return addOnce(chosen.groups, group);
      }
    for (const ShortName &shortName : family.shortNames)
      if (shortName.name == name) {
        for (const std::string &meant : shortName.names)
          add(chosen, meant);
        return;
      }
  }
  std::string list;
  for (const std::string &known : names())
    list += (list.empty() ? "" : ", ") + known;
  throw Error("no task is named " + quote(name) + "; there are " + list +
              ", and the subjects of the last ones, such as mmlu_anatomy");
}

TaskTable::Chosen TaskTable::choose(std::span<const std::string> asked) const {
  Chosen chosen;
  for (const std::string &name : asked)
    add(chosen, name);
  return chosen;
}
