# Two commands matter: `make demo` and `make test`. Both install what they need (Debian, as root).
.PHONY: build demo test deps clean
build:
	cargo build --release --bin ferroviad --bin ferrovia

deps:
	sh scripts/deps.sh

demo: deps build
	target/release/ferrovia demo

test: deps
	cargo xtask ci

clean:
	cargo clean
