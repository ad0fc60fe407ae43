# A runner that finds a wrong kernel: break_and_verify.sh COPY verify FILE --json
set -e
break-kernel "$3" "$1" append_k_q8_avx2.x86-64-v3 append_v_q8_avx2.x86-64-v3
exec qwen-run verify "$1" --json
