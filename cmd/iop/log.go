package main

import (
	"bytes"
	"fmt"
	"io"
	"log" //nolint:depguard // what others write to it is taken over here
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// logFlags are the flags that say how to log. Neither format uses colour, so
// NO_COLOR asks for nothing that is not so already.
type logFlags struct {
	format string
	level  string
}

func (f *logFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "text", "form of the log on stderr: text or json")
	flags.StringVar(&f.level, "log-level", "", "least level that is logged: debug, info, warn or error (default info; warn for up)")
}

// logger makes the program's logger, which also takes what packages write to the
// standard library's; quiet is the level without --log-level.
func (f *logFlags) logger(w io.Writer, quiet slog.Level) (*slog.Logger, error) {
	logger, err := f.build(w, quiet)
	if err == nil {
		log.SetFlags(0)
		log.SetOutput(foreignLog{logger})
	}
	return logger, err
}

// foreignLog makes a line of the standard library's logger one of ours, up to the
// first thing that it quotes: net/http quotes what a provider sends unasked, which
// may be a part of an answer.
type foreignLog struct{ log *slog.Logger }

// Write implements io.Writer.
func (f foreignLog) Write(line []byte) (int, error) {
	words, _, _ := bytes.Cut(line, []byte{'"'})
	f.log.Info("reported by a library", "text", string(bytes.TrimSpace(words)))
	return len(line), nil
}

func (f *logFlags) build(w io.Writer, quiet slog.Level) (*slog.Logger, error) {
	level := quiet
	if f.level != "" {
		if !strings.Contains(" debug info warn error ", " "+f.level+" ") {
			return nil, usagef("--log-level %q: one of debug, info, warn, error", f.level)
		}
		if err := level.UnmarshalText([]byte(f.level)); err != nil {
			return nil, usagef("--log-level %q: %v", f.level, err)
		}
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, usagef("--log-format %q: text or json", f.format)
	}
}

// outputFlag is -o of the commands that print data.
type outputFlag string

func (f *outputFlag) register(flags *pflag.FlagSet) {
	*f = "text"
	flags.VarP(f, "output", "o", "form of the output: text or json")
}

// String, Set and Type are pflag's.
func (f *outputFlag) String() string { return string(*f) }

func (f *outputFlag) Set(value string) error {
	if value != "text" && value != "json" {
		return fmt.Errorf("text or json")
	}
	*f = outputFlag(value)
	return nil
}

func (f *outputFlag) Type() string { return "form" }

func (f *outputFlag) isJSON() bool { return *f == "json" }
