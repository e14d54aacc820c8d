package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/iop/console"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// completionLimit is how long a shell waits for names at most.
const completionLimit = 2 * time.Second

// names are what an argument can be completed to in a state of the Edge.
type names func(s *controlv1.EdgeNodeSnapshot, typed string) []cobra.Completion

// completion asks the Edge for names, where one answers and a token is at hand;
// else there are none, and no word about it: the user is in the middle of a line.
func completion(flags *edgeFlags, known names) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if known == nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		edge, err := flags.caller(reader)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer edge.client.CloseIdleConnections()
		edge.client.Timeout = completionLimit
		s, err := edge.snapshot(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return known(s, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func nodeNames(s *controlv1.EdgeNodeSnapshot, _ string) (all []cobra.Completion) {
	for _, n := range s.GetNodes() {
		all = append(all, cobra.CompletionWithDesc(n.GetId(), n.GetState()))
	}
	return all
}

func providerNames(s *controlv1.EdgeNodeSnapshot, _ string) (all []cobra.Completion) {
	for _, n := range s.GetNodes() {
		for _, p := range n.GetProviders() {
			all = append(all, cobra.CompletionWithDesc(n.GetId()+"/"+p.GetId(), p.GetType()+", "+p.GetStatus()))
		}
	}
	return all
}

// requestNames are ids, or numbers where one is begun. One that a shell would not
// take as it is, or a terminal would act on, is left to its number.
func requestNames(s *controlv1.EdgeNodeSnapshot, typed string) (all []cobra.Completion) {
	add := func(seq uint64, id, about string) {
		switch number := fmt.Sprintf("#%d", seq); {
		case strings.HasPrefix(typed, "#") && seq != 0:
			all = append(all, cobra.CompletionWithDesc(number, about))
		case id != "" && id == console.Clean(id) && !strings.ContainsAny(id, " \t"):
			all = append(all, cobra.CompletionWithDesc(id, about))
		}
	}
	for _, r := range s.GetRequests() {
		add(r.GetEnqueueSeq(), r.GetRequestId(), strings.TrimSpace(r.GetState()+" "+r.GetModel()+" "+r.GetClient()))
	}
	return all
}

// explainedNames are those of requests that wait, run, or have just ended.
func explainedNames(s *controlv1.EdgeNodeSnapshot, typed string) []cobra.Completion {
	ended := &controlv1.EdgeNodeSnapshot{}
	for _, e := range s.GetEndings() {
		ended.Requests = append(ended.Requests, &controlv1.RequestSnapshot{
			EnqueueSeq: e.GetEnqueueSeq(), RequestId: e.GetRequestId(), State: e.GetOutcome(), Model: e.GetModel(), Client: e.GetClient(),
		})
	}
	return append(requestNames(s, typed), requestNames(ended, typed)...)
}
