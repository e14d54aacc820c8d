#!/usr/bin/env bash
# Builds bin/iop-dev-client.tgz: this shell, and the messages of gen/ts as its
# sources. In a folder of its own, so that gen holds what is generated and nothing
# that is built.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/.tools/client-ts

mkdir -p "$work" "$root/bin"
# What is installed stays, as long as the pins do.
if ! cmp -s "$here/package-lock.json" "$work/installed-lock.json"; then
  cp "$here/package.json" "$here/package-lock.json" "$work/"
  (cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  cp "$here/package-lock.json" "$work/installed-lock.json"
fi
rm -rf "$work/src" "$work/dist"
cp "$here"/{package.json,tsconfig.json,README.md} "$root/LICENSE" "$work/"
cp -R "$here/src" "$work/src"
cp -R "$root/gen/ts/." "$work/src/"
(cd "$work" && npm pack --loglevel=error >/dev/null)
mv "$work"/iop-dev-client-*.tgz "$root/bin/iop-dev-client.tgz"
echo "bin/iop-dev-client.tgz" >&2
