//===- Interrupt.h - Ctrl-C of a chat ---------------------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_INTERRUPT_H
#define QWEN_RUN_CHAT_INTERRUPT_H

#include <csignal>

namespace qwen::run {

/// Set by Ctrl-C (SIGINT). Who acts on it sets it to 0 before.
extern volatile sig_atomic_t interrupted;

/// Makes Ctrl-C set `interrupted` and end reads with EINTR.
void catchInterrupts();

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_INTERRUPT_H
