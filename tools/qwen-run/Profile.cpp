//===- Profile.cpp - Times of the ops of a model --------------------------===//

#include "Profile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdio>

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

int64_t qwen::run::layerOf(const std::string &op) {
  constexpr std::string_view prefix = "layers.";
  int64_t layer = -1;
  if (op.starts_with(prefix))
    std::from_chars(op.data() + prefix.size(), op.data() + op.size(), layer);
  return layer;
}

/// "linear o_proj" for a product, else the kind of the op.
static std::string className(const OpWork &work, const std::string &op) {
  std::string kind(opKindName(work.kind));
  if (work.kind != OpKind::Linear)
    return kind;
  return kind + " " + op.substr(op.rfind('.') + 1);
}

Profile::Profile(const Manifest &manifest)
    : layerCount(manifest.model.layers), program(manifest.forward()),
      ops(program.ops.size()) {}

void Profile::add(const Tracer &tracer, const SequenceStep &step,
                  double seconds) {
  ++steps;
  if (steps > 1 && seconds >= total)
    return;
  total = seconds;
  std::ranges::fill(ops, Times());
  for (int32_t thread = 0; thread < tracer.threads(); ++thread) {
    const std::vector<Tracer::Event> &events = tracer.events(thread);
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const auto &[from, op] = events[i];
      const auto &[to, next] = events[i + 1];
      const double spent =
          static_cast<double>(to - from) * 1e-9 / tracer.threads();
      if (op >= 0 && static_cast<size_t>(op) < ops.size())
        ops[static_cast<size_t>(op)].seconds += spent;
      else if (op == Tracer::kBarrier && next >= 0 &&
               static_cast<size_t>(next) < ops.size())
        ops[static_cast<size_t>(next)].waited += spent;
    }
  }

  for (size_t i = 0; i < ops.size(); ++i) {
    ops[i].bytes = bytesOf(i, tracer, step);
    ops[i].macs = workOfStep(program.work[i], step).macs;
  }
}

double Profile::bytesOf(size_t op, const Tracer &tracer,
                        const SequenceStep &step) const {
  OpWork work = program.work[op];
  if (!work.routed)
    return workOfStep(work, step).bytes;
  // The last route before the op has the number of experts.
  size_t route = op;
  while (route > 0 && program.work[route].kind != OpKind::Route)
    --route;
  const auto &calls = program.work[route].calls;
  if (calls.empty() || calls[0].length == 0)
    return workOfStep(work, step).bytes;
  double weights = 0;
  for (const std::vector<uint32_t> &taken : tracer.taken())
    weights += static_cast<double>(work.weightBytes) * taken[route] /
               static_cast<double>(calls[0].length);
  work.routed = false;
  work.weightBytes = work.activeBytes = 0;
  return weights + workOfStep(work, step).bytes;
}

Profile::Times &Profile::Times::operator+=(const Times &other) {
  seconds += other.seconds;
  waited += other.waited;
  bytes += other.bytes;
  macs += other.macs;
  return *this;
}

Profile::Times Profile::sum() const {
  Times result;
  for (const Times &op : ops)
    result += op;
  return result;
}

std::vector<Profile::Row> Profile::classes() const {
  std::vector<Row> rows;
  for (size_t i = 0; i < ops.size(); ++i) {
    const std::string name = className(program.work[i], program.ops[i]);
    auto row = std::ranges::find(rows, name, &Row::name);
    if (row == rows.end())
      row = rows.insert(row, {name, {}});
    row->times += ops[i];
  }
  return rows;
}

std::vector<double> Profile::layers() const {
  std::vector<double> seconds;
  for (size_t i = 0; i < ops.size(); ++i) {
    const int64_t layer = layerOf(program.ops[i]);
    if (layer < 0 || layer >= layerCount)
      continue;
    seconds.resize(static_cast<size_t>(layerCount));
    seconds[static_cast<size_t>(layer)] += ops[i].seconds + ops[i].waited;
  }
  return seconds;
}

JsonText Profile::toJson() const {
  const auto describe = [&](const Times &times) -> ordered_json {
    return {{"ms", times.seconds * 1e3},
            {"share", times.seconds / total},
            {"barrier_ms", times.waited * 1e3},
            {"megabytes", times.bytes * 1e-6},
            {"gb_per_second", times.bytes / times.seconds * 1e-9},
            {"million_macs", times.macs * 1e-6},
            {"gmac_per_second", times.macs / times.seconds * 1e-9}};
  };
  ordered_json classesJson;
  for (const Row &row : classes())
    classesJson[row.name] = describe(row.times);
  ordered_json layersJson = ordered_json::array();
  for (double seconds : layers())
    layersJson.push_back(seconds * 1e3);
  ordered_json opsJson;
  for (size_t i = 0; i < ops.size(); ++i)
    opsJson[program.ops[i]] = describe(ops[i]);
  const Times all = sum();
  const ordered_json result = {
      {"steps", steps},
      {"ms", total * 1e3},
      {"barrier_ms", all.waited * 1e3},
      {"outside_ms", (total - all.seconds - all.waited) * 1e3},
      {"classes", std::move(classesJson)},
      {"layers_ms", std::move(layersJson)},
      {"ops", std::move(opsJson)}};
  return {result.dump()};
}

[[gnu::format(printf, 1, 2)]] static std::string format(const char *text, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(buffer, sizeof buffer, text, arguments);
  va_end(arguments);
  return buffer;
}

std::string Profile::toText(const std::string &title,
                            const Peaks &peaks) const {
  std::string text = format("\n%s: %.3f ms, fastest of %lld\n", title.c_str(),
                            total * 1e3, static_cast<long long>(steps));
  text += format("  %-18s %9s %6s %11s %10s %7s %10s %8s\n", "op", "ms",
                 "share", "barrier ms", "MB", "GB/s", "MMAC", "GMAC/s");
  for (const auto &[name, times] : classes()) {
    text += format("  %-18s %9.3f %5.1f%% %11.3f %10.3f %7.1f", name.c_str(),
                   times.seconds * 1e3, times.seconds / total * 100,
                   times.waited * 1e3, times.bytes * 1e-6,
                   times.bytes / times.seconds * 1e-9);
    if (times.macs > 0)
      text += format(" %10.1f %8.1f", times.macs * 1e-6,
                     times.macs / times.seconds * 1e-9);
    text += '\n';
  }
  const auto line = [&](const char *name, double seconds) {
    text += format("  %-18s %9.3f %5.1f%%\n", name, seconds * 1e3,
                   seconds / total * 100);
  };
  const Times all = sum();
  line("barriers", all.waited);
  line("before and after", total - all.seconds - all.waited);
  text += format("  at most: %.1f GB/s read, %.1f GMAC/s in f32 (fma), %.1f in "
                 "int8 (%s)\n",
                 peaks.readGB, peaks.floatGMac, peaks.integerGMac,
                 peaks.integerInstruction.c_str());
  text += "  ms of each layer:";
  for (double seconds : layers())
    text += format(" %.3f", seconds * 1e3);
  return text + '\n';
}
