//===- count_instructions.c - Executed instructions under emulation -------===//
//
// A plugin for QEMU's user-mode emulation, which prints the number of executed
// instructions when the program ends. For programs with one thread.
// bench/instructions.py builds and loads it.
//
//===----------------------------------------------------------------------===//

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

// The needed part of QEMU's plugin interface, version 1. Debian has no package
// with its header.
typedef uint64_t PluginId;
struct qemu_plugin_tb;
enum { kAddU64 };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(
    PluginId id, void (*translated)(PluginId, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block,
                                              int operation, void *counter,
                                              uint64_t number);
void qemu_plugin_register_atexit_cb(PluginId id,
                                    void (*ended)(PluginId, void *),
                                    void *data);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t executed;

static void onTranslation(PluginId id, struct qemu_plugin_tb *block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, kAddU64, &executed,
                                           qemu_plugin_tb_n_insns(block));
}

static void onExit(PluginId id, void *data) {
  (void)id, (void)data;
  fprintf(stderr, "executed %" PRIu64 "\n", executed);
}

__attribute__((visibility("default"))) int
qemu_plugin_install(PluginId id, const void *info, int argc, char **argv) {
  (void)info, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, onTranslation);
  qemu_plugin_register_atexit_cb(id, onExit, NULL);
  return 0;
}
