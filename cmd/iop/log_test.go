package main

import (
	"bytes"
	"log" //nolint:depguard // what others write to it is taken over
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// What net/http says of a provider that sends more than it announced quotes the
// surplus, which may be an answer.
func TestForeignLogLinesQuoteNothing(t *testing.T) {
	var out bytes.Buffer
	flags := logFlags{format: "json"}
	logger, err := flags.build(&out, slog.LevelInfo)
	require.NoError(t, err)
	foreign := log.New(foreignLog{logger}, "", 0)
	foreign.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "a secret \"answer\"", nil)
	require.Contains(t, out.String(), `"text":"Unsolicited response received on idle HTTP channel starting with"`)
	require.NotContains(t, out.String(), "secret")
	require.NotContains(t, out.String(), "answer")
}
