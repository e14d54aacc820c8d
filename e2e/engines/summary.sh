#!/usr/bin/env bash
# Passes `go test -v` output on without its progress lines and ends it with a
# count. The exit status of go test is run.sh's (pipefail).
exec awk '
  /^=== (RUN|PAUSE|CONT|NAME)/ { next }
  /^ *--- PASS/ { passed++ }
  /^ *--- FAIL/ { failed++ }
  /^ *--- SKIP/ { skipped++ }
  { print; fflush() }
  END { printf "\ne2e-engines: %d passed, %d failed, %d skipped (subtests counted)\n", passed, failed, skipped }
'
