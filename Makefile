# Two commands matter: `make demo` and `make test`. Both install what they need (Debian, as root).
.PHONY: build demo test deps clean
TARGET := $(or $(CARGO_TARGET_DIR),target)

build:
	cargo build --release --bin ferroviad --bin ferrovia

deps:
	sh scripts/deps.sh

demo: deps build
	$(TARGET)/release/ferrovia demo

test: deps
	cargo xtask ci

clean:
	cargo clean
