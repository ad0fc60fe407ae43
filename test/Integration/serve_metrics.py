"""The metrics of qwen-run serve. serve.py calls this."""
import re
import shutil
import subprocess
import time


def metrics(checks, server):
    """The text of /metrics has the form that Prometheus reads; promtool checks it where it is installed."""
    before = time.time()
    _, headers, text = server.send("GET", "/metrics")
    checks.check(before - 600 < int(headers["Process-Start-Time-Unix"]) <= before, f"the server started at {headers['Process-Start-Time-Unix']}")
    types, sums = {}, {}
    for line in text.splitlines():
        if match := re.fullmatch(r"# TYPE ([a-z0-9_:]+) (counter|gauge|histogram)", line):
            types[match[1]] = match[2]
        elif not re.fullmatch(r"# HELP [a-z0-9_:]+ .+\.", line):
            match = re.fullmatch(r'([a-z0-9_:]+?)(_bucket|_sum|_count)?\{model_name="stories"(?:,(le|finished_reason)="([^"]+)"|,(?:[a-z_]+="[^"]*",?)+)?\} ([0-9.e+-]+)', line)
            checks.check(match and types.get(match[1]) == ("histogram" if match[2] else types.get(match[1])), f"a metric is {line!r}")
            if match and match[2] == "_bucket":
                checks.check(float(match[5]) >= sums.get(match[1], 0), f"a bucket has less than the one before: {line!r}")
                sums[match[1]] = float(match[5])
            elif match and match[2] == "_count":
                checks.expect(f"the count of {match[1]}", float(match[5]), sums[match[1]])
    checks.check(all(name.endswith("_total") == (kind == "counter") for name, kind in types.items()), f"names of counters: {types}")
    # What schedulers of the Gateway API read in labels.
    checks.check(re.search(r'vllm:cache_config_info\{.*,block_size="64",num_gpu_blocks="[0-9]+"\} 1$', text, re.M), "the pages are missing")
    adapters = re.search(r'vllm:lora_requests_info\{.*,max_lora="0",running_lora_adapters="",waiting_lora_adapters=""\} ([0-9]+)$', text, re.M)
    checks.check(adapters and before - 1 < int(adapters[1]) < before + 60, "the time of the adapters is wrong")
    # vLLM's, with their bounds.
    for name, bounds in (("time_to_first_token_seconds", 23), ("inter_token_latency_seconds", 20), ("time_per_output_token_seconds", 20),
                         ("request_time_per_output_token_seconds", 20), ("e2e_request_latency_seconds", 22),
                         ("request_queue_time_seconds", 22), ("request_prefill_time_seconds", 22), ("request_decode_time_seconds", 22),
                         ("request_inference_time_seconds", 22), ("request_prompt_tokens", 17), ("request_generation_tokens", 17)):
        checks.expect(f"buckets of {name}", text.count(f"vllm:{name}_bucket"), bounds)
        checks.check(sums.get(f"vllm:{name}", 0) > 0, f"{name} has no value")
    for name in ("prompt_tokens_seconds", "predicted_tokens_seconds"):
        checks.check(server.metric(f"llamacpp:{name}") > 0, f"{name} has no value")
    if promtool := shutil.which("promtool"):
        # It warns of the colons that llama.cpp and vLLM have in their names.
        result = subprocess.run([promtool, "check", "metrics"], input=re.sub("(llamacpp|vllm):", r"\1_", text), capture_output=True, text=True)
        checks.expect("promtool", (result.returncode, result.stdout + result.stderr), (0, ""))
