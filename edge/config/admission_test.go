package config

import (
	"fmt"
	"strings"

	"github.com/iop-dev/iop/edge/admission"
)

func writeAdmission(out *strings.Builder, c admission.Config) {
	if c.Selection == admission.PriorityFirst {
		out.WriteString("selection: priority first\n")
	}
	for _, s := range c.Scopes {
		fmt.Fprintf(out, "scope %s: max_queue %d, timeout %v\n", s.Key, s.MaxQueue, s.Timeout)
	}
	for _, r := range c.Resources {
		fmt.Fprintf(out, "resource %v: capacity %d, long %d, priority %d, enabled %v, %v, surfaces %#x\n",
			r.Key, r.Capacity, r.LongCapacity, r.Priority, r.Enabled, r.Health, uint32(r.Surfaces))
	}
	for _, g := range c.Groups {
		fmt.Fprintf(out, "group %s in %s:", g.Key, g.Scope)
		for _, c := range g.Candidates {
			fmt.Fprintf(out, " %v=%s", c.Resource, c.Target)
		}
		out.WriteString("\n")
	}
}
