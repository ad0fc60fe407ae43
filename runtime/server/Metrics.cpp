//===- Metrics.cpp - What Prometheus reads --------------------------------===//

#include "server/Metrics.h"

#include "qwen/ABI/Blocks.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>

using namespace qwen;
using namespace qwen::server;

/// A number as Prometheus reads it.
static std::string number(double value) { return nlohmann::json(value).dump(); }

void Histogram::record(double value) {
  const auto bound = std::ranges::lower_bound(bounds, value);
  ++counts[static_cast<size_t>(bound - bounds.begin())];
  sum += value;
}

std::string Histogram::text(const std::string &name,
                            const std::string &label) const {
  std::string lines;
  int64_t count = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    count += counts[i];
    const std::string bound = i < bounds.size() ? number(bounds[i]) : "+Inf";
    lines.append(name).append("_bucket{").append(label).append(",le=\"");
    lines.append(bound).append("\"} ").append(std::to_string(count));
    lines += '\n';
  }
  return lines + name + "_sum{" + label + "} " + number(sum) + "\n" + name +
         "_count{" + label + "} " + std::to_string(count) + "\n";
}

void Metrics::countEnd(const Ending &ending, const RequestTimes &times) {
  // A stop string ends a request by its callback.
  const EndReason reason =
      ending.reason == EndReason::Callback ? EndReason::Stop : ending.reason;
  ++ends[static_cast<size_t>(reason)];
  promptTokens += ending.promptTokens;
  cachedTokens += ending.cachedTokens;
  drawnTokens += ending.drawnTokens;
  promptLength.record(static_cast<double>(ending.promptTokens));
  answerLength.record(static_cast<double>(ending.drawnTokens));
  request.record(times.end);
  if (times.start > 0) {
    queue.record(times.start);
    inference.record(times.end - times.start);
  }
  if (times.firstToken > 0) {
    prefill.record(times.firstToken - times.start);
    decode.record(times.end - times.firstToken);
  }
  if (ending.drawnTokens <= 1)
    return;
  laterTokens += ending.drawnTokens - 1;
  perToken.record((times.end - times.firstToken) /
                  static_cast<double>(ending.drawnTokens - 1));
}

/// A label's value with Prometheus' escapes.
static std::string escaped(const std::string &value) {
  std::string text;
  for (char c : value)
    if (c == '\n')
      text += "\\n";
    else
      text +=
          (c == '\\' || c == '"') ? std::string("\\") + c : std::string(1, c);
  return text;
}

/// The lines before the values of a metric.
static std::string head(const std::string &name, const std::string &type,
                        const std::string &help) {
  std::string lines = "# HELP ";
  lines += name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  return lines;
}

std::string Metrics::values(const SchedulerCounts &now, int64_t pages,
                            const std::string &label) const {
  struct Row {
    const char *name, *type, *help;
    double value;
  };
  const auto number64 = [](int64_t value) {
    return static_cast<double>(value);
  };
  const auto perSecond = [](double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
  };
  const double running = number64(static_cast<int64_t>(now.running));
  const double waiting = number64(static_cast<int64_t>(now.waiting));
  const double used =
      1 - number64(now.freePages) / number64(std::max<int64_t>(pages, 1));
  const double steps = number64(now.sums.steps);
  const double prompt = number64(promptTokens), drawn = number64(drawnTokens);
  const double cached = number64(cachedTokens);
  const double preemptions = number64(now.sums.preemptions);
  const double grammars = number64(now.sums.constraintNanoseconds) * 1e-9;
  const Row rows[] = {
      {"llamacpp:prompt_tokens_total", "counter", "Prompt tokens.", prompt},
      {"llamacpp:prompt_tokens_cached_total", "counter",
       "Prompt tokens that the prefix cache had.", cached},
      {"llamacpp:tokens_predicted_total", "counter", "Drawn tokens.", drawn},
      {"llamacpp:prompt_seconds_total", "counter",
       "Time from the start of requests to their first token.",
       prefill.total()},
      {"llamacpp:tokens_predicted_seconds_total", "counter",
       "Time from the first token of requests to their end.", decode.total()},
      {"llamacpp:prompt_tokens_seconds", "gauge",
       "Prompt tokens a second, on average.",
       perSecond(prompt - cached, prefill.total())},
      {"llamacpp:predicted_tokens_seconds", "gauge",
       "Drawn tokens a second and request, on average.",
       perSecond(number64(laterTokens), decode.total())},
      {"llamacpp:n_decode_total", "counter", "Steps.", steps},
      {"llamacpp:requests_processing", "gauge", "Requests that run.", running},
      {"llamacpp:requests_deferred", "gauge", "Requests that wait.", waiting},
      {"vllm:num_requests_running", "gauge", "Requests that run.", running},
      {"vllm:num_requests_waiting", "gauge", "Requests that wait.", waiting},
      {"vllm:kv_cache_usage_perc", "gauge",
       "Fraction of the pages that sequences hold.", used},
      {"qwen_prefix_cache_pages", "gauge",
       "Pages that the prefix cache has; those that no sequence holds are free "
       "for others.",
       number64(now.keptPages)},
      {"qwen_grammar_seconds_total", "counter",
       "Time of all threads that grammars take: their masks, which are a part "
       "of each step.",
       grammars},
      {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens.", prompt},
      {"vllm:prefix_cache_hits_total", "counter",
       "Prompt tokens that the prefix cache had.", cached},
      {"vllm:prompt_tokens_total", "counter", "Prompt tokens.", prompt},
      {"vllm:generation_tokens_total", "counter", "Drawn tokens.", drawn},
      {"vllm:num_preemptions_total", "counter",
       "Requests that gave up their pages for a while.", preemptions},
      {"vllm:spec_decode_num_drafts_total", "counter",
       "Times that a request had drafts in a step.", number64(now.sums.drafts)},
      {"vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts.",
       number64(now.sums.draftTokens)},
      {"vllm:spec_decode_num_accepted_tokens_total", "counter",
       "Drafts that answers have.", number64(now.sums.acceptedTokens)},
  };
  std::string lines;
  for (const Row &row : rows)
    lines += head(row.name, row.type, row.help) + row.name + "{" + label +
             "} " + number(row.value) + "\n";
  return lines;
}

/// What a store has done for a model.
static std::string storeValues(const StoreCounts &counts,
                               const std::string &label) {
  static constexpr struct {
    const char *name, *help;
    int64_t StoreCounts::*sum;
  } kRows[] = {
      {"qwen_cache_disk_written_total",
       "Pages and snapshots that were written to disk.", &StoreCounts::written},
      {"qwen_cache_disk_written_bytes_total", "Their bytes.",
       &StoreCounts::writtenBytes},
      {"qwen_cache_disk_read_total",
       "Pages and snapshots that were read from disk, or from what waits to "
       "be written.",
       &StoreCounts::read},
      {"qwen_cache_disk_read_bytes_total", "Their bytes.",
       &StoreCounts::readBytes},
      {"qwen_cache_disk_hit_tokens_total",
       "Their tokens, which did not run again.", &StoreCounts::readTokens},
      {"qwen_cache_disk_lost_total",
       "Files that were gone, damaged or of others when they were read.",
       &StoreCounts::lost},
      {"qwen_cache_disk_dropped_total",
       "Times that a page or a snapshot was left out because too much waited.",
       &StoreCounts::dropped},
      {"qwen_cache_disk_failed_total",
       "Pages and snapshots that waited when a fault ended the writing.",
       &StoreCounts::failed},
  };
  std::string lines;
  for (const auto &[name, help, sum] : kRows)
    lines += head(name, "counter", help) + name + "{" + label + "} " +
             std::to_string(counts.*sum) + "\n";
  return lines;
}

std::string server::storeMetrics(const StoreSize &size) {
  const struct {
    const char *name, *help;
    int64_t value;
  } rows[] = {
      {"qwen_cache_disk_bytes", "Bytes of the files of all models.",
       size.bytes},
      {"qwen_cache_disk_waiting_bytes",
       "Bytes in memory that wait to be written.", size.waitingBytes},
  };
  std::string lines;
  for (const auto &[name, help, value] : rows)
    lines +=
        head(name, "gauge", help) + name + " " + std::to_string(value) + "\n";
  return lines;
}

/// The metrics whose labels schedulers of the Gateway API read.
static std::string infos(int64_t pages, const std::string &label) {
  const std::string cache = "vllm:cache_config_info",
                    adapters = "vllm:lora_requests_info";
  std::string lines = head(cache, "gauge", "The pages, as vLLM's blocks.");
  lines += cache + "{" + label + ",block_size=\"" +
           std::to_string(kPageTokens) + "\",num_gpu_blocks=\"" +
           std::to_string(pages) + "\"} 1\n";
  lines += head(adapters, "gauge",
                "When the server has told which adapters run and wait.");
  lines += adapters + "{" + label +
           ",max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters="
           "\"\"} " +
           std::to_string(time(nullptr)) + "\n";
  return lines;
}

std::string Metrics::text(const SchedulerCounts &now, int64_t pages,
                          const std::optional<StoreCounts> &store,
                          const std::string &model) const {
  const std::string label = "model_name=\"" + escaped(model) + "\"";
  SchedulerCounts all = now;
  all.sums += past;
  std::string lines = values(all, pages, label) + infos(pages, label);
  if (store)
    lines += storeValues(*store, label);
  const struct {
    const char *name, *help;
    const Histogram &histogram;
  } histograms[] = {
      {"vllm:time_to_first_token_seconds", "Time to the first token.",
       firstToken},
      {"vllm:inter_token_latency_seconds", "Time between tokens.", interToken},
      // Its name before version 0.11.
      {"vllm:time_per_output_token_seconds", "Time between tokens.",
       interToken},
      {"vllm:request_time_per_output_token_seconds",
       "Mean time between the tokens of a request.", perToken},
      {"vllm:e2e_request_latency_seconds", "Time of a request.", request},
      {"vllm:request_queue_time_seconds", "Time until a request started.",
       queue},
      {"vllm:request_prefill_time_seconds",
       "Time from the start of a request to its first token.", prefill},
      {"vllm:request_decode_time_seconds",
       "Time from the first token of a request to its end.", decode},
      {"vllm:request_inference_time_seconds",
       "Time from the start of a request to its end.", inference},
      {"vllm:request_prompt_tokens", "Prompt tokens of a request.",
       promptLength},
      {"vllm:request_generation_tokens", "Drawn tokens of a request.",
       answerLength},
  };
  for (const auto &[name, help, histogram] : histograms)
    lines += head(name, "histogram", help) + histogram.text(name, label);
  const struct {
    EndReason reason;
    const char *name;
  } reasons[] = {{EndReason::Stop, "stop"},
                 {EndReason::Length, "length"},
                 {EndReason::Cancelled, "abort"},
                 {EndReason::Failed, "error"}};
  const std::string success = "vllm:request_success_total";
  lines += head(success, "counter", "Requests that ended, by reason.");
  for (const auto &[reason, word] : reasons) {
    lines.append(success).append("{").append(label);
    lines.append(",finished_reason=\"").append(word).append("\"} ");
    lines += std::to_string(ends[static_cast<size_t>(reason)]) + "\n";
  }
  return lines;
}

std::string server::modelMetrics(
    std::span<const std::pair<std::string, ModelStatus>> models) {
  const struct {
    const char *name, *type, *help;
    uint64_t (*value)(const ModelStatus &status);
  } rows[] = {
      {"qwen_model_loaded", "gauge", "Whether the model is loaded.",
       [](const ModelStatus &status) {
         return uint64_t{status.state == ModelState::Loaded};
       }},
      {"qwen_model_loads_total", "counter", "Times that the model was loaded.",
       [](const ModelStatus &status) { return status.loads; }},
      {"qwen_model_memory_bytes", "gauge",
       "Memory of the model's weights, buffers and KV cache.",
       [](const ModelStatus &status) { return status.bytes; }},
  };
  std::string lines;
  for (const auto &row : rows) {
    lines += head(row.name, row.type, row.help);
    for (const auto &[name, status] : models)
      lines += std::string(row.name) + "{model_name=\"" + escaped(name) +
               "\"} " + std::to_string(row.value(status)) + "\n";
  }
  return lines;
}

std::string server::joinMetrics(std::span<const std::string> texts) {
  constexpr std::string_view kHelp = "# HELP ";
  // The lines of each metric, by its head, in the order of their first text.
  std::vector<std::pair<std::string_view, std::string>> all;
  for (std::string_view text : texts)
    while (!text.empty()) {
      const size_t end =
          std::min(text.find("\n# HELP ", kHelp.size()), text.size() - 1) + 1;
      const std::string_view metric = text.substr(0, end);
      text.remove_prefix(end);
      // The head is two lines.
      const size_t lines = metric.find('\n', metric.find('\n') + 1) + 1;
      const std::string_view name = metric.substr(0, lines);
      const auto known = std::ranges::find(
          all, name, &std::pair<std::string_view, std::string>::first);
      if (known == all.end())
        all.emplace_back(name, metric.substr(lines));
      else
        known->second += metric.substr(lines);
    }
  std::string joined;
  for (const auto &[name, lines] : all)
    joined.append(name).append(lines);
  return joined;
}
