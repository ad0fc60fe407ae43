"""The errors that other tests check: each comes beside other output, or the machine decides when. {{...}} is as in the tables.

Each message stands beside the test that checks it. The status is 1.
"""
# memory_limits.py
RUN_IN_LITTLE = (
    "qwen-run: cannot get {{[0-9]+}} bytes for {{.*}} (ulimit -v allows {{[0-9]+}} bytes of address space, and {{[0-9]+}} are in use)",
    "qwen-run: cannot start {{[0-9]+}} threads: only {{[0-9]+}} started; use fewer with -t",
    "qwen-run: out of memory (ulimit -v allows {{[0-9]+}} bytes of address space, and {{[0-9]+}} are in use)",
)
RUN_IN_GROUP = ("qwen-run: stories needs at least {{[0-9]+}} bytes of memory (process {{[0-9]+}}, calls {{[0-9]+}}, the KV cache {{[0-9]+}}) "
                "when its control group allows {{[0-9]+}} bytes",)
COMPILE_IN_LITTLE = "qwen-opt: compiling {{.*}} needs about {{([0-9.]+)}} MiB of address space when ulimit -v allows {{[0-9.]+}} MiB"
COMPILE_IN_GROUP = ("qwen-opt: compiling {{.*}} needs about 192.0 MiB of memory when its control group allows {{[0-9.]+}} MiB",)

# signals.py
IN_USE = "{program}: {path} was truncated or cannot be read while it is in use"

# chat.py
NO_ANSWER = ("qwen-run: the line gets no answer: it has {length} when the model was compiled for a context of {context}; "
             "recompile it with qwen-opt --context for up to 1024")
NO_ANSWERS = "qwen-run: {count} of the lines got no answer"
