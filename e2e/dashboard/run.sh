#!/usr/bin/env bash
# Drives the dashboard in Chromium against real processes. Sets up what is missing:
# Chromium where it may install packages, and Playwright inside this folder.
#
#   e2e/dashboard/run.sh [arguments for go test]
#
# CHROMIUM names another browser binary; CI_ARTEFACTS the folder for screenshots.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${CHROMIUM:=$(command -v chromium || command -v chromium-browser || true)}"
if [ -z "$CHROMIUM" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo 'e2e-dashboard: installing chromium' >&2
  apt-get install -y --no-install-recommends chromium >&2 || { apt-get update >&2 && apt-get install -y --no-install-recommends chromium >&2; } || true
  CHROMIUM=$(command -v chromium || true)
fi
if [ -z "$CHROMIUM" ]; then
  echo 'e2e-dashboard: there is no chromium; install it (Debian: apt-get install chromium) or name one in CHROMIUM, and run again' >&2
  exit 1
fi
if ! command -v npm >/dev/null; then
  echo 'e2e-dashboard: npm is missing; it comes with Node.js 20 or later, https://nodejs.org' >&2
  exit 1
fi
export CHROMIUM IOP_E2E_DASHBOARD=1

installed=$here/node_modules/.installed-lock.json
if ! cmp -s "$here/package-lock.json" "$installed"; then
  (cd "$here" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  cp "$here/package-lock.json" "$installed"
fi
cd "$here"
exec go test -count=1 -timeout 20m "$@" .
