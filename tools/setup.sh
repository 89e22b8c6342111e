#!/bin/sh
# Builds .venv from requirements-dev.txt and installs ringfence into it in editable form. Does nothing when nothing
# changed: .venv/ringfence.lock and .venv/ringfence.tree remember what it was built from. `setup.sh docs` adds the
# packages of the documentation site instead.
set -eu
cd "$(dirname "$0")/.."

missing() { # what, how to get it
    echo "setup: $1. $2" >&2
    exit 1
}

# "1.95.0" is at least "1.88"
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

find_python() {
    for name in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
}

check_tools() {
    python=$(find_python)
    [ -n "$python" ] || missing "Python >= 3.11 is missing" "Install it (apt-get install python3 python3-venv) or set PYTHON to it."
    command -v cc >/dev/null && command -v c++ >/dev/null ||
        missing "a C and C++ compiler is missing" "Install one: apt-get install build-essential."
    command -v cargo >/dev/null && command -v rustc >/dev/null ||
        missing "Rust >= 1.88 is missing" "Install it: curl https://sh.rustup.rs -sSf | sh."
    found=$(rustc --version | cut -d' ' -f2)
    at_least "$found" 1.88 || missing "Rust is $found, 1.88 is needed" "Update it: rustup update stable."
    command -v java >/dev/null ||
        missing "Java >= 17 is missing, Spark needs it" "Install it: apt-get install openjdk-17-jre-headless."
    found=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    at_least "${found:-0}" 17 ||
        missing "Java is ${found:-unknown}, Spark needs 17 or newer" "Install it: apt-get install openjdk-17-jre-headless."
    command -v uv >/dev/null || "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        missing "Python's venv module is missing" "Install it: apt-get install python3-venv."
}

# Everything that a new build could change: contents of native sources, names of Python files.
tree() {
    {
        find client control native core benchmarks/native -type f \
            ! -name '*.so' ! -name '*.pyc' ! -path '*/__pycache__/*' ! -path '*/target/*' -print | LC_ALL=C sort
        find core native benchmarks/native Cargo.toml Cargo.lock setup.py pyproject.toml -type f \
            \( -name '*.rs' -o -name '*.toml' -o -name '*.lock' -o -name '*.py[xd]' -o -name '*.[chS]' -o -name 'setup.py' \) \
            ! -path '*/target/*' -print0 | LC_ALL=C sort -z | xargs -0 cat
    } | sha256sum
}

locked() { # the packages of a lock file
    if command -v uv >/dev/null; then
        uv pip install -q --python .venv/bin/python --require-hashes -r "$1"
    else
        [ -x .venv/bin/pip ] || .venv/bin/python -m ensurepip -q
        # Compiled where it is imported, as with uv: half a minute for thousands of files that nothing imports.
        .venv/bin/python -m pip install -q --disable-pip-version-check --no-compile --require-hashes -r "$1"
    fi
}

packages() {
    if [ ! -x .venv/bin/python ]; then
        if command -v uv >/dev/null; then uv venv -q --python "$python" .venv; else "$python" -m venv .venv; fi
    fi
    locked requirements-dev.txt
    sha256sum <requirements-dev.txt >.venv/ringfence.lock
}

install() {
    built_from=$(tree) # before it: what is edited meanwhile is not in the build
    if command -v uv >/dev/null; then
        # Without uv's cache: an editable install links into build/, which a cached one would not make again.
        uv pip install -q --no-cache --python .venv/bin/python --no-build-isolation --no-deps --reinstall-package ringfence -e .
    else
        .venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall -e .
    fi
    echo "$built_from" >.venv/ringfence.tree
}

same() { # output of a command, remembered file
    [ "$1" = "$(cat "$2" 2>/dev/null)" ]
}

if [ "${1:-}" = docs ]; then
    if ! same "$(sha256sum <requirements-docs.txt)" .venv/ringfence.docs-lock; then
        locked requirements-docs.txt
        sha256sum <requirements-docs.txt >.venv/ringfence.docs-lock
    fi
    exit
fi
if ! same "$(sha256sum <requirements-dev.txt)" .venv/ringfence.lock; then
    check_tools
    echo "setup: packages of requirements-dev.txt into .venv" >&2
    packages
fi
if ! same "$(tree)" .venv/ringfence.tree || [ -z "$(ls -d build/__editable__.* 2>/dev/null)" ]; then
    check_tools
    echo "setup: building ringfence (Rust, Cython) into .venv" >&2
    install
    echo "setup: done; use it by: . .venv/bin/activate" >&2
fi
