# What `make install` and the packages contain. None of them builds: cmake/install.cmake
# and cmake/packages.cmake build first.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

qwen_make_portable(qwenrt-shared)
qwen_make_portable(qwen-run)
install(TARGETS qwen-run)
if(TARGET qwen-opt)
  qwen_make_portable(qwen-opt)
  if(QWEN_PORTABLE)
    qwen_leave_out_targets(qwen-opt)
  else()
    # libMLIR lies in LLVM's folder only.
    set_target_properties(qwen-opt PROPERTIES INSTALL_RPATH ${LLVM_LIBRARY_DIR})
  endif()
  install(TARGETS qwen-opt)
endif()

# qwen_install_output(PROGRAM FILE ARGUMENTS...): installs what a program prints.
# FILE is below the folder of data.
function(qwen_install_output program file)
  install(CODE "
    set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${file}\")
    message(STATUS \"Installing: \${file}\")
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY \${folder})
    execute_process(COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${program}> ${ARGN} OUTPUT_FILE \${file} COMMAND_ERROR_IS_FATAL ANY)
    file(CHMOD \${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)")
endfunction()

# Completions and manual pages come from the programs' own tables, and lie where
# the shells of Debian look.
install(CODE "
  set(zsh site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
    set(zsh vendor-completions)
  endif()")
foreach(program qwen-run qwen-opt)
  if(TARGET ${program})
    qwen_install_output(${program} man/man1/${program}.1 man)
    qwen_install_output(${program} bash-completion/completions/${program} completion bash)
    qwen_install_output(${program} "zsh/\${zsh}/_${program}" completion zsh)
    qwen_install_output(${program} fish/vendor_completions.d/${program}.fish completion fish)
  endif()
endforeach()

# The library, for C and all that calls C: find_package(qwenrt) gives the target
# qwen::qwenrt, and pkg-config knows qwenrt.
install(TARGETS qwenrt-shared EXPORT qwenrt FILE_SET HEADERS)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/qwenrt)
install(EXPORT qwenrt FILE qwenrtConfig.cmake NAMESPACE qwen:: DESTINATION ${package})
write_basic_package_version_file(qwenrtConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/qwenrtConfigVersion.cmake DESTINATION ${package})
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up ${up})
configure_file(cmake/qwenrt.pc.in qwenrt.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/qwenrt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What packages contain besides (cmake/packages.cmake): the licences, and in an archive
# the program that installs it.
set(documents ${CMAKE_INSTALL_DATADIR}/doc/qwen-compiler)
install(CODE "
  set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${documents}/copyright\")
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY \${folder})
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/.venv/bin/python ${CMAKE_SOURCE_DIR}/cmake/licences.py ${CMAKE_BINARY_DIR}
    bin/qwen-run bin/qwen-opt runtime/libqwenrt.so OUTPUT_FILE \${file} COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD \${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)" COMPONENT licences EXCLUDE_FROM_ALL)
configure_file(deploy/install.sh install.sh @ONLY)
foreach(folder . ${documents})
  install(PROGRAMS ${CMAKE_BINARY_DIR}/install.sh DESTINATION ${folder} COMPONENT archive EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME qwen-compiler)
set(CPACK_PACKAGE_CONTACT "Qwen compiler <maintainers@users.noreply.a-seed-22ece77f.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "qwen-opt turns a Qwen model into one file for one CPU. qwen-run maps that
file and runs it: in a terminal, over files of requests, and as a server with
OpenAI's API. libqwenrt has a C interface for other programs.")
set(CPACK_PACKAGE_FILE_NAME qwen-compiler-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};${PROJECT_NAME};ALL;/;${CMAKE_BINARY_DIR};${PROJECT_NAME};licences;/")
set(CPACK_STRIP_FILES ON)
# CPack takes that of this machine else.
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
if(QWEN_PORTABLE)
  file(STRINGS deploy/install.sh glibc REGEX "^glibc=")
  string(REPLACE "glibc=" "" glibc ${glibc})
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${glibc}), libgcc-s1")
  # What qwen-run loads for --kv-events.
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS libzmq5)
else()
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  if(TARGET qwen-opt)
    # dpkg-shlibdeps may miss it: in LLVM's folder, where libMLIR lies, a package of
    # headers has the name of libLLVM.
    set(CPACK_DEBIAN_PACKAGE_DEPENDS libllvm${LLVM_VERSION_MAJOR})
  endif()
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# Folders that every umask has read.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
