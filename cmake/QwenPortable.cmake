# Portable programs: what `make install` and the packages contain runs on every Linux
# with the glibc of deploy/install.sh or a newer one. With QWEN_PORTABLE, LLVM, MLIR, lld,
# libstdc++ and OpenSSL are in these programs. Tests link the shared libraries of LLVM
# and MLIR, because there are many of them.

# qwen_choose_libraries(NAME SHARED ARCHIVES...): a library that is SHARED for all but
# portable programs, which get the archives.
function(qwen_choose_libraries name shared)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(${name} INTERFACE "$<IF:$<BOOL:$<TARGET_PROPERTY:QWEN_IS_PORTABLE>>,${ARGN},${shared}>")
endfunction()

# Defines QwenLLVM, QwenMLIR and QwenLLD after the packages are found. The linker reads of
# archives what it needs.
function(qwen_find_llvm)
  set(folder ${LLVM_LIBRARY_DIR})
  if(CMAKE_CROSSCOMPILING)
    # The host's package has the headers, all but one, and the programs.
    set(folder ${QWEN_LLVM_DIR}/lib)
    include_directories(SYSTEM ${QWEN_LLVM_DIR}/include)
    if(NOT EXISTS ${folder})
      message(FATAL_ERROR "LLVM for ${CMAKE_SYSTEM_PROCESSOR} is missing in ${QWEN_LLVM_DIR}; run sh cmake/setup.sh arm")
    endif()
  endif()
  file(GLOB llvm ${folder}/libLLVM*.a)
  file(GLOB mlir ${folder}/libMLIR*.a)
  find_library(ZSTD NAMES libzstd.a REQUIRED)
  find_library(ZLIB NAMES libz.a REQUIRED)
  qwen_choose_libraries(QwenLLVM LLVM ${llvm} ${ZSTD} ${ZLIB})
  qwen_choose_libraries(QwenMLIR MLIR ${mlir})
  # By their paths, because the targets link LLVM's shared library.
  qwen_choose_libraries(QwenLLD "lldELF;lldCommon" ${folder}/liblldELF.a ${folder}/liblldCommon.a)
endfunction()

# Targets of LLVM that qwen-opt compiles for.
set(QWEN_LLVM_TARGETS X86 AArch64)

# qwen_leave_out_targets(PROGRAM): gives a program functions that do nothing in place of
# those by which lld starts each target of LLVM, so that the linker takes of LLVM the
# targets of QWEN_LLVM_TARGETS alone.
function(qwen_leave_out_targets program)
  set(others ${LLVM_TARGETS_TO_BUILD})
  list(REMOVE_ITEM others ${QWEN_LLVM_TARGETS})
  set(source "// The functions of OtherTargets.cpp.\n")
  foreach(target ${others})
    foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser)
      string(APPEND source "QWEN_NOTHING(LLVMInitialize${target}${part})\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT portable/OtherTargets.inc CONTENT "${source}" @ONLY)
  target_sources(${program} PRIVATE ${CMAKE_SOURCE_DIR}/lib/Portable/OtherTargets.cpp)
  target_include_directories(${program} PRIVATE ${CMAKE_BINARY_DIR}/portable)
endfunction()

# qwen_make_portable(TARGET): links what it can statically into a program or a library.
function(qwen_make_portable target)
  if(NOT QWEN_PORTABLE)
    return()
  endif()
  set_target_properties(${target} PROPERTIES QWEN_IS_PORTABLE ON)
  # libgcc_s, which unwinds the stack, stays shared: a static one needs glibc 2.35.
  target_link_options(${target} PRIVATE -static-libstdc++ LINKER:--gc-sections)
  target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/lib/Portable/Arc4Random.cpp)
endfunction()
