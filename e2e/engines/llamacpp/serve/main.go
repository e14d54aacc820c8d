// Command serve runs a server of package llamacpp until it is interrupted. It
// says where it listens, and of each request that has ended what it was.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/iop-dev/iop/e2e/engines/llamacpp"
)

func main() {
	var o llamacpp.Options
	flag.StringVar(&o.Address, "listen", "127.0.0.1:0", "address to listen on")
	flag.StringVar(&o.Alias, "alias", "count", "name of the model")
	flag.StringVar(&o.Key, "api-key", "", "key to ask for")
	flag.IntVar(&o.Slots, "np", 2, "requests at once")
	flag.IntVar(&o.Context, "c", 512, "tokens a slot holds")
	flag.DurationVar(&o.Pace, "pace", 0, "time a token takes")
	flag.BoolVar(&o.Embeddings, "embeddings", false, "serve embeddings")
	flag.BoolVar(&o.Reranking, "reranking", false, "serve reranking")
	flag.Parse()
	var one sync.Mutex
	out := json.NewEncoder(os.Stdout)
	o.Finished = func(r llamacpp.Request) {
		one.Lock()
		defer one.Unlock()
		_ = out.Encode(map[string]any{
			"conn": r.Conn, "place": r.Place, "method": r.Method, "path": r.Path, "header": r.Header, "body": string(r.Body),
			"status": r.Status, "streamed": r.Streamed, "gone": r.Gone, "ms": r.End.Sub(r.Start).Milliseconds(),
		})
	}
	s, err := llamacpp.Start(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "listening on", s.URL())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	_ = s.Close()
}
