//===- peer_llama_cpp.cpp - llama.cpp under emulation ---------------------===//
//
// peer_llama_cpp GGUF PROMPT COUNT runs a prompt and then single tokens on one
// thread. bench/instructions.py builds it with llama.cpp's headers.
//
//===----------------------------------------------------------------------===//

#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  const int prompt = std::atoi(argv[2]), count = std::atoi(argv[3]);
  llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
  llama_backend_init();
  llama_model *model =
      llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) {
    std::fprintf(stderr, "llama.cpp cannot load %s\n", argv[1]);
    return 1;
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(prompt + count);
  params.n_threads = params.n_threads_batch = 1;
  llama_context *context = llama_init_from_model(model, params);
  std::vector<llama_token> ids;
  for (int i = 0; i < prompt + count; ++i)
    ids.push_back((i * 7919 + 17) % 150000);
  if (!context ||
      llama_decode(context, llama_batch_get_one(ids.data(), prompt)) != 0)
    return 1;
  for (int i = 0; i < count; ++i)
    if (llama_decode(context, llama_batch_get_one(&ids[prompt + i], 1)) != 0)
      return 1;
  return 0;
}
