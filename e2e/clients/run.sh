#!/usr/bin/env bash
# Installs what the clients of other languages need, and runs them.
#
#   e2e/clients/run.sh [arguments for go test, such as -run Python]
#
# Of Debian: python3-grpcio, python3-protobuf, protobuf-compiler-grpc, curl; installed
# here where they are missing and root runs this. Of npm: what the lock files pin.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=$root/.tools
grpcurl_version=v1.9.4
packages=(curl python3-grpcio python3-protobuf protobuf-compiler protobuf-compiler-grpc)

# The project's Go, whatever the machine has.
export GOTOOLCHAIN=go$(sed -n "s/^go //p" "$root/go.mod")

step() { printf '\n== %s\n' "$*" >&2; }

step 'Python and protoc of Debian'
if ! /usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null ||
  ! command -v curl protoc grpc_python_plugin >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    printf 'e2e-clients: as root, run: apt-get install %s\n' "${packages[*]}" >&2
    exit 2
  fi
  apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${packages[@]}" >&2
fi

step "grpcurl $grpcurl_version in .tools/bin"
if ! go version -m "$tools/bin/grpcurl" 2>/dev/null | grep -q "github.com/fullstorydev/grpcurl[[:space:]]$grpcurl_version"; then
  # Outside the module, which must not depend on it.
  (cd / && GOBIN=$tools/bin CGO_ENABLED=0 go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$grpcurl_version")
fi

step 'the clients that this project makes'
make --no-print-directory -C "$root" client-ts client-python >&2

step 'the example in TypeScript, with the package as npm installs it'
work=$tools/client-ts-example
mkdir -p "$work/docs/examples/ts" "$work/bin"
cp "$root/bin/iop-dev-client.tgz" "$work/bin/"
cp "$root"/docs/examples/ts/{package.json,tsconfig.json,.npmrc,example.ts} "$work/docs/examples/ts/"
cd "$work/docs/examples/ts"
wanted=$(cat package.json "$work/bin/iop-dev-client.tgz" | sha256sum)
if [ "$wanted" != "$(cat "$work/installed" 2>/dev/null)" ]; then
  rm -rf node_modules
  npm install --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  printf '%s\n' "$wanted" >"$work/installed"
fi
rm -rf dist
npm run --silent build
export IOP_CLIENTS_TS=$PWD

step 'programs and commands against a running Edge'
cd "$root"
exec go test -tags clients -count=1 -timeout 10m "$@" ./e2e/clients
