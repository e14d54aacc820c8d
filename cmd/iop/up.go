package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/cmd/iop/discover"
	"github.com/iop-dev/iop/cmd/iop/up"
	"github.com/iop-dev/iop/cmd/noded"
	"github.com/iop-dev/iop/edge/auth"
)

// maxPortTries bounds the search for a free port, the wanted one included.
const maxPortTries = 64

// upFlags are the flags of iop up.
type upFlags struct {
	listen     string
	simulator  bool
	providers  []string
	capacities map[string]int
	stateDir   string
}

func newUp(logs *logFlags, stdout, stderr io.Writer) *cobra.Command {
	var flags upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Serve what runs on this machine: Edge and Node in one process",
		Long: `Serve what runs on this machine: an Edge and a Node in one process, without any
configuration. It looks for Ollama, llama.cpp, vLLM, LM Studio, Lemonade and MLX
at their usual ports, and serves the built-in simulator when there is none.`,
		Args: noArgs,
		RunE: operation(func(c *cobra.Command, _ []string) error {
			log, err := logs.logger(stderr, slog.LevelWarn)
			if err != nil {
				return err
			}
			if err := up.CheckListen(flags.listen); err != nil {
				return usagef("%w", err)
			}
			ctx, release := untilHangup(c.Context())
			defer release()
			return runUp(ctx, flags, stdout, stderr, log)
		}),
	}
	f := c.Flags()
	f.StringVar(&flags.listen, "listen", up.DefaultListen, "loopback `address` of the API; the next free port if it is taken")
	f.BoolVar(&flags.simulator, "simulator", false, "serve the built-in simulator and look for no servers")
	f.StringArrayVar(&flags.providers, "provider", nil, "serve this `type=url` and look for no servers, as in ollama=http://127.0.0.1:11434 (repeatable)")
	f.StringToIntVar(&flags.capacities, "capacity", nil, "requests at once for a `provider=N` by its printed name (repeatable)")
	f.StringVar(&flags.stateDir, "state-dir", "", "`folder` for the admin token (default: iop in the user's configuration folder)")
	return c
}

func runUp(ctx context.Context, flags upFlags, stdout, stderr io.Writer, log *slog.Logger) error {
	banner, err := plan(ctx, flags)
	if err != nil {
		return err
	}
	adminToken, stateDir := "", ""
	if stateDir, err = stateFolder(flags.stateDir); err == nil {
		adminToken, banner.AdminTokenFile, err = up.AdminToken(stateDir)
	}
	if err != nil {
		if flags.stateDir != "" {
			return err
		}
		log.Warn("no admin token: the admin API stays closed (give a writable --state-dir)", "error", err)
		stateDir = ""
	}
	nodeToken := auth.NewToken(auth.PrefixNode)
	secrets := up.Credentials{NodeTokenSHA256: auth.HashToken(nodeToken)}
	if adminToken != "" {
		secrets.AdminTokenSHA256 = auth.HashToken(adminToken)
	}
	edge, err := openEdge(banner.Plan, flags.listen, stateDir, secrets, log)
	if err != nil {
		return err
	}
	banner.Address, banner.Wanted, banner.Dashboard = edge.Addr(), flags.listen, edge.Dashboard()
	return serveUp(ctx, edge, nodeToken, banner, stdout, stderr, log)
}

// plan finds out what is to be served.
func plan(ctx context.Context, flags upFlags) (*up.Banner, error) {
	banner := &up.Banner{}
	var servers []discover.Server
	for _, given := range flags.providers {
		kind, address, ok := strings.Cut(given, "=")
		if !ok {
			return nil, usagef("--provider %q: expected type=url, as in ollama=http://127.0.0.1:11434", given)
		}
		server, err := discover.Inspect(ctx, discover.Kind(kind), address)
		if err != nil {
			return nil, fmt.Errorf("--provider %s: %w", kind, err)
		}
		servers = append(servers, server)
	}
	if len(flags.providers) == 0 && !flags.simulator {
		found := discover.Find(ctx, discover.Addresses())
		for _, s := range found.Servers {
			if len(s.Models) > 0 {
				servers = append(servers, s)
			} else {
				banner.Empty = append(banner.Empty, s)
			}
		}
		banner.Unknown, banner.Edges, banner.Searched = found.Unknown, found.Edges, true
	}
	var err error
	if banner.Plan, err = up.NewPlan(servers, flags.simulator, flags.capacities); err != nil {
		return nil, usagef("%w", err)
	}
	return banner, nil
}

// stateFolder is the folder that is asked for, or the user's own.
func stateFolder(asked string) (string, error) {
	if asked != "" {
		return filepath.Abs(asked)
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "iop"), nil
}

// openEdge opens an Edge at the wanted address, or at the next free port.
func openEdge(plan *up.Plan, listen, stateDir string, secrets up.Credentials, log *slog.Logger) (*edged.Edge, error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, usagef("--listen %q: %w", listen, err)
	}
	first, err := strconv.Atoi(text)
	if err != nil {
		return nil, usagef("--listen %q: %w", listen, err)
	}
	for port := first; ; port++ {
		snapshot, err := plan.EdgeSnapshot(net.JoinHostPort(host, strconv.Itoa(port)), stateDir, secrets)
		if err != nil {
			return nil, err
		}
		edge, err := edged.New(edged.Options{Snapshot: snapshot, Logger: log, Version: currentVersion().Version})
		last := port == first+maxPortTries-1 || port == 65535
		if errors.Is(err, errAddressTaken) && !last {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("--listen %s: %w", listen, err)
		}
		return edge, nil
	}
}

// serveUp runs Edge and Node until ctx ends, which stops both in order, or one of
// them fails. Both wait for what runs.
func serveUp(ctx context.Context, edge *edged.Edge, nodeToken string, banner *up.Banner, stdout, stderr io.Writer, log *slog.Logger) error {
	config, err := banner.Plan.NodeConfig(banner.Address)
	if err != nil {
		return err
	}
	edgeCtx, stopEdge := context.WithCancel(ctx)
	defer stopEdge()
	nodeCtx, stopNode := context.WithCancel(ctx)
	defer stopNode()

	ready := make(chan struct{}, 1)
	edgeEnded, nodeEnded := make(chan error, 1), make(chan error, 1)
	go func() { edgeEnded <- edge.Run(edgeCtx) }()
	go func() {
		nodeEnded <- noded.Run(nodeCtx, noded.Options{
			Config: config, Token: nodeToken, Logger: log, Version: currentVersion().Version,
			Ready: func() {
				select {
				case ready <- struct{}{}:
				default: // It has come back after a loss: the banner is out.
				}
			},
		})
	}()
	printed, interrupted := false, ctx.Done()
	for {
		select {
		case <-interrupted:
			interrupted = nil
			fmt.Fprintln(stderr, "iop: stopping once running requests are done; Ctrl-C again stops at once")
		case <-ready:
			if !printed {
				printed = true
				if err := banner.Write(stdout); err != nil {
					log.Warn("cannot print the endpoint", "error", err)
				}
			}
		case err := <-edgeEnded:
			stopNode()
			return errors.Join(err, <-nodeEnded)
		case err := <-nodeEnded:
			stopEdge()
			return errors.Join(err, <-edgeEnded)
		}
	}
}
