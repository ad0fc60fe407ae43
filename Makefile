# Names for what people do first; make alone is make demo. CMake does the work; 3 is where a
# terminal sees its progress (cmake/steps.cmake).

CMAKE := .venv/bin/cmake

.PHONY: arm-test demo install packages packages-test test test-full tidy docs web setup setup-tests

# Compiles models/stories for this CPU and prints generated text: stdout is that text alone.
demo: setup
	@$(CMAKE) -P cmake/demo.cmake 3>&2

# Installs the programs and the library below DESTDIR and prefix.
prefix := /usr/local
install: setup
	@$(CMAKE) -DPREFIX=$(prefix) -P cmake/install.cmake 3>&2

# Makes an archive and a Debian package in build/packages.
packages: setup
	@sh cmake/setup.sh arm
	@$(CMAKE) -P cmake/packages.cmake 3>&2

# Installs and uses these packages in systems where nothing else is installed.
packages-test: packages setup-tests
	@.venv/bin/python test/Integration/archive_elf.py build/packages/*-x86_64.tar.zst build/host
	@.venv/bin/python test/Integration/archive_elf.py build/packages/*-aarch64.tar.zst build/aarch64-compiler
	@.venv/bin/python test/Integration/systems.py build/packages models/stories
	@.venv/bin/python test/Integration/systems_wheel.py build/packages models/stories

# Builds everything and runs the tests.
test: setup-tests
	@$(CMAKE) -P cmake/test.cmake 3>&2

# The same with the full matrix of targets, formats and batch shapes, each source compiled by itself, make arm-test, and clang-tidy.
test-full:
	@QWEN_TEST_FULL=1 sh cmake/setup.sh tests
	@QWEN_TEST_FULL=1 $(CMAKE) -P cmake/test.cmake 3>&2
	@sh cmake/setup.sh arm
	@$(CMAKE) -P cmake/arm.cmake 3>&2
	@QWEN_TEST_FULL=1 $(CMAKE) -P cmake/tidy.cmake 3>&2

# Builds the compiler for AArch64 and compares its files with those of this machine.
arm-test: setup-tests
	@sh cmake/setup.sh arm
	@$(CMAKE) -P cmake/arm.cmake 3>&2

# Runs clang-tidy on the sources.
tidy: setup-tests
	@$(CMAKE) -P cmake/tidy.cmake 3>&2

# Refreshes what the tools write into docs/.
docs: setup-tests
	@$(CMAKE) -P cmake/docs.cmake 3>&2

# Makes the bundle of the page in web/dist, which is committed, of the sources in web/. Needs the npm registry.
web:
	@sh cmake/setup.sh web
	@cd web && npm ci --no-audit --no-fund --fetch-retries 0 >&2 || { echo "make web: npm ci failed; it needs the npm registry" >&2; exit 1; }
	@cd web && node build.mjs dist >&2

# Installs what is missing.
setup:
	@sh cmake/setup.sh

# The same with what only tests need.
setup-tests:
	@sh cmake/setup.sh tests
