# SPDX-License-Identifier: GPL-2.0 OR MIT
#
# The front end. Kbuild reads the file Kbuild instead, so this one is for people: make help.

SHELL := /bin/bash
.DEFAULT_GOAL := $(if $(KDIR),module,help)

export KDIR TOOLBOX RKFD_CACHE RKFD_OUT V

flavour := $(if $(filter 1 y,$(DEBUG)),debug,base)
debug_option := $(if $(filter 1 y,$(DEBUG)),--debug-kernel)
upstream_option := $(if $(filter 1 y,$(UPSTREAM)),--upstream)
harsh_option := $(if $(filter 1 y,$(HARSH)),--harsh)
changed_option := $(if $(CHANGED),--changed$(if $(filter-out 1 y,$(CHANGED)),=$(CHANGED)))

.PHONY: help
help:
	@sed -n 's/^#: \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

#: rkfd: an HSA compute driver for AMD gfx9 in Rust, and a GPU that anyone can have
#:
#:   make run                   build everything, boot the VM, load the module, run the demo (DEBUG=1: the debug kernel)
#:   make test                  all tests; the last line is the count
#:   make test DEBUG=1          the same on the debug kernel (KASAN, lockdep, UBSAN, kmemleak)
#:   make test HARSH=1          the same on GPU models that give nothing that hardware does not promise
#:   make test FILTER=TEXT      only tests whose name contains TEXT
#:   make test CHANGED=1        only what changed files can affect, since the branch left main (or CHANGED=COMMIT)
#:   make test ROCM=1           the same, and the tests that Debian ships of ROCm's libraries (gigabytes of packages)
#:   make test TIMINGS=1        prints at the end where the time went
#:   make test UPSTREAM=1       the kernel's own amdgpu instead of rkfd: a kernel of its own, tests/upstream
#:   make versus                rkfd and the kernel's own amdgpu side by side (RUNS=N VMs of each; WRITE=1: into Documentation/versus.md)
#:   make mutants               small wrong changes to the driver, each of which a test must notice (FILTER=TEXT)
#:   make shell                 a shell in the VM (DEBUG=1 likewise)
#:
#:   make toolbox               the Debian 13 root that everything is built and run in
#:   make kernel                the test kernel (DEBUG=1: the debug kernel)
#:   make module                rkfd.ko for the test kernel, into build/module
#:   make tools                 GPU model, VM runner, rkfdctl, self-tests, into build/bin
#:   make clean                 drop build/; what checkouts share stays in the cache
#:   make prune                 drop toolboxes and kernels in the cache that this checkout does not use, and packages of --with
#:
#:   make KDIR=/path            rkfd.ko against your own Rust-enabled kernel build tree
#:   make KDIR=/path modules_install
#:
#: Variables
#:   TOOLBOX=none               use this machine's own tools; says which are missing
#:   RKFD_CACHE=DIR             toolbox, kernels, crates [~/.cache/rkfd]
#:   RKFD_OUT=DIR               what this checkout builds [build]
#:
#: One command in the VM: scripts/vm [--gpus 2] [--asic gfx906] -- COMMAND  (scripts/vm --help)

.PHONY: run
run: toolbox kernel module tools
	@scripts/vm --no-build $(debug_option) -- sh -c '! command -v hip >/dev/null || hip saxpy && rkfdctl demo'

.PHONY: test
test:
	@scripts/test $(debug_option) $(harsh_option) $(upstream_option) $(if $(TIMINGS),--timings) $(if $(ROCM),--rocm) $(changed_option) $(if $(FILTER),--filter '$(FILTER)')

.PHONY: versus
versus:
	@scripts/bench-versus $(if $(RUNS),--runs '$(RUNS)') $(if $(filter 1 y,$(WRITE)),--write)

.PHONY: mutants
mutants:
	@scripts/mutants $(if $(FILTER),--filter '$(FILTER)')

.PHONY: shell
shell: toolbox kernel module tools
	@scripts/vm --no-build $(debug_option)

.PHONY: toolbox
toolbox:
	@scripts/toolbox ensure

.PHONY: kernel
kernel: toolbox
	@$(if $(KDIR),:,scripts/kernel ensure $(flavour))

.PHONY: module modules
module modules: $(if $(KDIR),,kernel)
	@scripts/build module $(flavour)

.PHONY: modules_install
modules_install:
	@[ -n "$(KDIR)" ] || { echo 'modules_install needs KDIR=/path/to/your/kernel' >&2; exit 1; }
	@scripts/build install

.PHONY: tools
tools: toolbox
	@scripts/build tools

.PHONY: clean
clean:
	rm -rf build

.PHONY: prune
prune:
	@scripts/prune

# The steps print their own progress, one at a time.
.NOTPARALLEL:
