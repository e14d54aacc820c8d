package up

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/iop-dev/iop/cmd/iop/discover"
)

// maxLines bounds what is printed: it fits a small terminal at a glance.
const maxLines = 12

// Banner is what the person who started the process is told once it serves.
type Banner struct {
	Plan *Plan
	// Address is where the Edge listens, Wanted where it was to.
	Address, Wanted string
	// Dashboard is the dashboard's address.
	Dashboard string
	// Searched is whether servers were looked for.
	Searched bool
	// Empty are servers without a model, which cannot serve.
	Empty []discover.Server
	// Unknown and Edges are addresses that were passed over.
	Unknown, Edges []string
	// AdminTokenFile holds the admin token; "" = the admin API is closed.
	AdminTokenFile string
}

// Write prints at most maxLines lines. Names that servers chose for themselves
// are printed as JSON only, so that none can steer the terminal.
func (b *Banner) Write(w io.Writer) error {
	head := []string{"IOP serves " + b.endpoint() + "  (on this machine only; no API key needed)"}
	if b.moved() {
		head = append(head, fmt.Sprintf("  %s is taken, this is the next free port", b.Wanted))
	}
	tail := []string{
		"Try it:",
		"  " + b.Curl(),
		`Add a machine: "Several machines" in README.md has the files and secrets for`,
		`  "iop edge -c edge.yaml" here and "iop node -c node.yaml" there.`,
	}
	if b.AdminTokenFile != "" {
		tail = append(tail, "Dashboard: "+b.Dashboard+"  (it asks for the admin token)", "Admin token: in "+b.AdminTokenFile)
	}
	tail = append(tail, "Ctrl-C stops it.")
	body := b.found()
	if room := maxLines - len(head) - len(tail); len(body) > room {
		body = append(body[:room-1], fmt.Sprintf("  … and %d more", len(body)-room+1))
	}
	lines := append(append(head, body...), tail...)
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

func (b *Banner) endpoint() string { return "http://" + b.Address + "/v1" }

// moved reports whether the wanted port was taken; port 0 wants any.
func (b *Banner) moved() bool {
	_, wanted, _ := net.SplitHostPort(b.Wanted)
	_, got, _ := net.SplitHostPort(b.Address)
	return wanted != "0" && wanted != got
}

// found has a line for each provider, and for what was passed over.
func (b *Banner) found() []string {
	var lines []string
	for _, p := range b.Plan.Providers {
		if p.IsSimulator() {
			why := "as asked"
			if b.Searched {
				why = "no server with a model found here"
			}
			lines = append(lines, fmt.Sprintf("  simulator (built in, %s): made-up answers, no real model", why))
			continue
		}
		line := fmt.Sprintf("  %s %s: %s, %d at a time", p.ID, p.Server.Address, count(len(p.Server.Models), "model"), p.Capacity)
		if !p.CapacityKnown() && p.Capacity == 1 {
			line += fmt.Sprintf(" (if it can do more: --capacity %s=N)", p.ID)
		}
		lines = append(lines, line)
	}
	for _, s := range b.Empty {
		lines = append(lines, fmt.Sprintf("  %s %s: no models yet, not used", s.Kind, s.Address))
	}
	for _, address := range b.Unknown {
		lines = append(lines, fmt.Sprintf("  %s: unknown kind, not used (to use it: --provider openai=http://%s)", address, address))
	}
	for _, address := range b.Edges {
		lines = append(lines, fmt.Sprintf("  %s: another IOP Edge, not used", address))
	}
	return lines
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Curl is a command line that streams an answer when pasted into a shell.
func (b *Banner) Curl() string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	// Strings only: this cannot fail.
	_ = encoder.Encode(struct {
		Model    string    `json:"model"`
		Stream   bool      `json:"stream"`
		Messages []message `json:"messages"`
	}{b.Plan.ChatModel(), true, []message{{"user", "Say hello"}}})
	return fmt.Sprintf("curl -N %s/chat/completions -H 'Content-Type: application/json' -d %s",
		b.endpoint(), shellQuote(strings.TrimSpace(body.String())))
}

// shellQuote makes one word of the POSIX shell.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
