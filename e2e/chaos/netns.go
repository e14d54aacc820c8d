//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// netns is a network namespace for one Node, with two cables out of it: one to
// its Edge, which can turn into a black hole (packets vanish, no carrier is lost
// and nobody is told), and one to its providers, which never does.
type netns struct {
	name                   string
	edgeHost, providerHost string // addresses of this machine at the two cables
	outer, inner           string // ends of the cable to the Edge
}

// newNetns makes the namespace; an error says why this machine cannot have it.
func newNetns() (*netns, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("network namespaces need root")
	}
	pid := os.Getpid()
	subnet := fmt.Sprintf("10.213.%d", pid%250)
	n := &netns{
		name: fmt.Sprintf("chaos%d", pid), edgeHost: subnet + ".1", providerHost: subnet + ".5",
		outer: fmt.Sprintf("che%d", pid), inner: fmt.Sprintf("chi%d", pid),
	}
	other, otherInner := fmt.Sprintf("chp%d", pid), fmt.Sprintf("chq%d", pid)
	for _, command := range []string{
		"netns add " + n.name,
		fmt.Sprintf("link add %s type veth peer name %s netns %s", n.outer, n.inner, n.name),
		fmt.Sprintf("addr add %s/30 dev %s", n.edgeHost, n.outer),
		"link set " + n.outer + " up",
		fmt.Sprintf("-n %s addr add %s.2/30 dev %s", n.name, subnet, n.inner),
		fmt.Sprintf("-n %s link set %s up", n.name, n.inner),
		fmt.Sprintf("link add %s type veth peer name %s netns %s", other, otherInner, n.name),
		fmt.Sprintf("addr add %s/30 dev %s", n.providerHost, other),
		"link set " + other + " up",
		fmt.Sprintf("-n %s addr add %s.6/30 dev %s", n.name, subnet, otherInner),
		fmt.Sprintf("-n %s link set %s up", n.name, otherInner),
		fmt.Sprintf("-n %s link set lo up", n.name),
	} {
		if err := ip(command); err != nil {
			n.close()
			return nil, err
		}
	}
	// Whether the kernel knows the queue that swallows everything shows only so.
	if err := n.hole(); err != nil {
		n.close()
		return nil, err
	}
	if err := n.fill(); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// command is the prefix that runs a program inside.
func (n *netns) command() []string { return []string{"ip", "netns", "exec", n.name} }

func (n *netns) hole() error {
	if err := run("tc", "qdisc", "replace", "dev", n.outer, "root", "blackhole"); err != nil {
		return err
	}
	return run("tc", "-n", n.name, "qdisc", "replace", "dev", n.inner, "root", "blackhole")
}

func (n *netns) fill() error {
	if err := run("tc", "qdisc", "del", "dev", n.outer, "root"); err != nil {
		return err
	}
	return run("tc", "-n", n.name, "qdisc", "del", "dev", n.inner, "root")
}

// close removes the namespace; the cables go with it.
func (n *netns) close() {
	_ = ip("link del " + n.outer)
	_ = ip("link del " + strings.Replace(n.outer, "che", "chp", 1))
	_ = ip("netns del " + n.name)
}

func ip(args string) error { return run("ip", strings.Fields(args)...) }

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
