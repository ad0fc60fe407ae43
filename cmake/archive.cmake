# Makes an archive and a wheel of what a build installs, in FOLDER. Their files have the
# time of SOURCE_DATE_EPOCH. LEVEL is zstd's; zlib's is less.
#   cmake -DBUILD=build/host -DFOLDER=build/packages -DLEVEL=19 -P cmake/archive.cmake
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
# It names the archive.
include(${BUILD}/CPackConfig.cmake)

set(stage ${FOLDER}/stage)
set(archive ${FOLDER}/${CPACK_PACKAGE_FILE_NAME}.tar.zst)
file(REMOVE_RECURSE ${stage})
set(install ${CMAKE_COMMAND} --install ${BUILD} --prefix ${stage}/${CPACK_PACKAGE_FILE_NAME})
qwen_step(${install} --strip)
qwen_step(${install} --component licences)
qwen_step(${install} --component archive)
qwen_step(tar --create --file ${archive}.tmp --use-compress-program "zstd -q -${LEVEL} -T0" --directory ${stage}
  --format=gnu --sort=name --mtime=@$ENV{SOURCE_DATE_EPOCH} --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX ${CPACK_PACKAGE_FILE_NAME})
file(RENAME ${archive}.tmp ${archive})
math(EXPR level "${LEVEL} / 3")
qwen_step(.venv/bin/python python/wheel.py ${BUILD} ${stage}/${CPACK_PACKAGE_FILE_NAME} ${FOLDER} ${level})
file(REMOVE_RECURSE ${stage})
