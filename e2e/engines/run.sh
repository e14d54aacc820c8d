#!/usr/bin/env bash
# Runs the end-to-end tests against a real engine with real clients. Sets up all
# they need, inside the project; see README.md beside this file.
#
#   e2e/engines/run.sh [arguments for go test, such as -run TestAbort]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
ollama_version=v0.6.5
tools=$root/.tools/bin
# The project's Go, for Ollama too, whatever the machine has.
GOTOOLCHAIN=go$(sed -n 's/^go //p' "$root/go.mod")
export GOTOOLCHAIN

step() { printf '\n== %s\n' "$*" >&2; }
need() {
  if ! command -v "$1" >/dev/null; then
    printf 'e2e-engines: %s is missing: %s\n' "$1" "$2" >&2
    exit 2
  fi
}

need go 'install the Go of go.mod, https://go.dev/dl'
need node 'install Node.js 20 or later, https://nodejs.org'
need npm 'it comes with Node.js'
need make 'it builds bin/iop'
need "${CXX:-g++}" 'Ollama contains C++; install g++, or name another compiler in CC and CXX'

# The tests stop what they start. Should they be killed themselves, the process
# ids they left are ended here, each with its own children, and nothing else.
pids=$(mktemp)
stop_leftovers() {
  local pid
  while read -r pid; do
    if kill -0 -- "-$pid" 2>/dev/null; then
      printf 'e2e-engines: ending process group %s, which was left over\n' "$pid" >&2
      kill -TERM -- "-$pid" 2>/dev/null || true
      for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 -- "-$pid" 2>/dev/null || break
        sleep 0.5
      done
      kill -KILL -- "-$pid" 2>/dev/null || true
    fi
  done <"$pids"
  rm -f "$pids"
}
trap stop_leftovers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step "Ollama $ollama_version in .tools/bin"
if go version -m "$tools/ollama" 2>/dev/null | grep -q "github.com/ollama/ollama[[:space:]]$ollama_version"; then
  echo 'already there' >&2
else
  echo 'compiling; this takes a minute or two, once' >&2
  # Outside the module, which must not depend on Ollama.
  (cd / && GOBIN=$tools CGO_ENABLED=1 CGO_CFLAGS=-O1 CGO_CXXFLAGS=-O1 \
    nice go install "github.com/ollama/ollama@$ollama_version")
fi

step 'the official clients of npm'
installed=$here/clients/node_modules/.installed-lock.json
if cmp -s "$here/clients/package-lock.json" "$installed"; then
  echo 'already there' >&2
else
  (cd "$here/clients" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  cp "$here/clients/package-lock.json" "$installed"
fi

step 'bin/iop'
make --no-print-directory -C "$root" build >&2

step 'client → Edge → Node → tap → Ollama'
export IOP_ENGINES_PIDS=$pids
cd "$root"
# The exit status is that of go test (pipefail); awk leaves out its progress
# lines and adds the count.
go test -tags engines -count=1 -timeout 10m -v "$@" ./e2e/engines | awk '
  /^=== (RUN|PAUSE|CONT|NAME)/ { next }
  /^ *--- PASS/ { passed++ }
  /^ *--- FAIL/ { failed++ }
  /^ *--- SKIP/ { skipped++ }
  { print; fflush() }
  END {
    printf "\ne2e-engines: %d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit (skipped > 0)
  }
'
