package e2e

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What servers send, in the writes in which they send it. Every "served" is the model's own name.
const (
	delta    = "data: {\"model\":\"served\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n"
	finish   = "data: {\"model\":\"served\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	usage    = "data: {\"model\":\"served\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\n"
	endMark  = "data: [DONE]\n\n"
	inBand   = "data: {\"error\":{\"message\":\"CUDA out of memory\",\"type\":\"server_error\",\"code\":500}}\n\n"
	multi    = "data: {\"model\":\"served\",\ndata:  \"choices\":[{\"index\":0,\"delta\":{},\ndata: \"finish_reason\":\"stop\"}]}\n\n"
	unspaced = "data:{\"model\":\"served\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"y\"}}]}\n\n"
	thinking = "data: {\"model\":\"served\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"h\\u006d\",\"reasoning_content\":\"hm\",\"x_unknown\":[1.50,null]}}]}\n\n"
)

func lineEnds(s, end string) string { return strings.ReplaceAll(s, "\n", end) }

// Streams of every make pass byte for byte, but for the model, and end as what they are: whole or failed.
func TestCase_A01_A04_A06_A09_A10_A14_A23_A25_A26_A28_StreamsOverTheWholePath(t *testing.T) {
	type stream struct {
		writes  []string
		outcome string // "" = completed
	}
	streams := map[string]stream{
		"a01-pings":            {writes: []string{": ping\n\n", ": ping\n\n", delta, ": ping\n\n", delta, ":\n\n", finish, usage, endMark}},
		"a04-lf":               {writes: []string{delta, delta, finish, usage, endMark}},
		"a04-crlf":             {writes: []string{lineEnds(delta, "\r\n"), lineEnds(finish+usage, "\r\n"), lineEnds(endMark, "\r\n")}},
		"a04-cr":               {writes: []string{lineEnds(delta, "\r"), lineEnds(finish+usage, "\r"), lineEnds(endMark, "\r")}},
		"a04-mixed":            {writes: []string{lineEnds(delta, "\r\n"), delta, lineEnds(finish, "\r"), usage, lineEnds(endMark, "\r\n")}},
		"a04-split":            {writes: []string{strings.TrimSuffix(delta, "\n\n") + "\r", "\n\r", "\n" + strings.TrimSuffix(finish, "\n\n") + "\r", "\n", "\r", "\n", lineEnds(endMark, "\r\n")}},
		"a04-crlf-no-end-mark": {writes: []string{lineEnds(delta, "\r\n"), lineEnds(finish, "\r\n")}},
		"a04-cr-no-end-mark":   {writes: []string{lineEnds(delta, "\r"), lineEnds(finish, "\r")}},
		"a06-several-lines":    {writes: []string{unspaced, multi}},
		"a09-no-choices":       {writes: []string{"data: {\"model\":\"served\",\"choices\":[],\"prompt_filter_results\":[]}\n\n", "data: {\"id\":\"c1\"}\n\n", delta, finish, usage, endMark}},
		"a25-finish-on-last":   {writes: []string{delta, strings.Replace(delta, "null", `"length"`, 1), usage, endMark}},
		"a26-reasoning":        {writes: []string{thinking, thinking, finish, endMark}},
		"a28-one-newline":      {writes: []string{delta, finish, strings.TrimSuffix(usage, "\n")}},
		"a28-no-newline":       {writes: []string{delta, finish, strings.TrimSuffix(usage, "\n\n")}},
		"a10-neat":             {writes: []string{delta, delta, delta, delta, delta}, outcome: "provider_disconnected"},
		"a10-neat-crlf":        {writes: []string{lineEnds(strings.Repeat(delta, 5), "\r\n")}, outcome: "provider_disconnected"},
		"a14-in-band":          {writes: []string{delta, inBand}, outcome: "provider_disconnected"},
		"a14-in-band-then-end": {writes: []string{delta, inBand, endMark}, outcome: "provider_disconnected"},
	}
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		if target == "a23-plain" {
			complete(w, target, "all at once")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, write := range streams[target].writes {
			_, _ = io.WriteString(w, write)
			_ = http.NewResponseController(w).Flush()
		}
	})
	names := slices.Sorted(maps.Keys(streams))
	r := serving(t, s, 1, append([]string{"a23-plain"}, names...))
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			id, c := fmt.Sprint("stream-", i), streams[name]
			a := r.chat(id, chatBody("m-"+name, true, ""))
			require.NoError(t, a.err)
			require.Equal(t, http.StatusOK, a.status)
			want := strings.ReplaceAll(strings.Join(c.writes, ""), `"served"`, `"m-`+name+`"`)
			if c.outcome != "" && !strings.Contains(want, inBand) { // nothing in it says that it failed: IOP does
				require.True(t, strings.HasPrefix(a.body, want), "%q", a.body)
				require.Regexp(t, `^data: \{"error":\{"message":"[^"]+","type":"server_error","param":null,"code":"provider_disconnected"\}\}\n\n$`, a.body[len(want):])
				require.NotContains(t, a.body, "[DONE]")
			} else {
				require.Equal(t, want, a.body)
			}
			require.Equal(t, or(c.outcome, "completed"), r.ended(id)["outcome"])
		})
	}
	a := r.chat("plain", chatBody("m-a23-plain", true, "")) // A23
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Contains(t, a.body, `"model":"m-a23-plain"`)
	require.Equal(t, "completed", r.ended("plain")["outcome"])
	r.quiet()
	require.EqualValues(t, len(names)+1, r.snapshot().GetCounters().GetGranted(), "each request counts once")
}

// A08: only who asks for usage gets it: nothing is added to the request, and nothing of the answer is taken away.
func TestCase_A08_UsageForThoseWhoAsk(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, delta+finish)
		if strings.Contains(string(body), `"include_usage":true`) {
			_, _ = io.WriteString(w, usage)
		}
		_, _ = io.WriteString(w, endMark)
	})
	r := single(t, s)
	require.NotContains(t, r.chat("silent", chatBody("m", true, "")).body, "usage")
	require.Contains(t, r.chat("asks", chatBody("m", true, `,"stream_options":{"include_usage":true}`)).body, `"usage":{"prompt_tokens":7`)
	r.quiet()
}

// A13: what fails before the first token has its own status, type and body, whatever was asked for; so has a page of HTML.
func TestCase_A13_FailuresBeforeAStream(t *testing.T) {
	answers := map[string]struct {
		status     int
		kind, body string
	}{
		"bad":     {400, "application/json", `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`},
		"missing": {404, "application/json", `{"error":"model 'x' not found"}`},
		"busy":    {429, "application/json; charset=utf-8", `{"error":{"message":"slow down"}}`},
		"broken":  {500, "application/json", `{"error":{"code":500,"message":"no"}}`},
		"page":    {502, "text/html", `<html><body>502 Bad Gateway</body></html>`},
	}
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		a := answers[asked(t, body)]
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	})
	r := serving(t, s, 1, slices.Sorted(maps.Keys(answers)))
	for name, want := range answers {
		a := r.chat("early-"+name, chatBody("m-"+name, true, ""))
		require.NoError(t, a.err)
		require.Equal(t, want.status, a.status)
		require.Equal(t, want.kind, a.header.Get("Content-Type"))
		require.Equal(t, want.body, a.body)
		require.Equal(t, "7", a.header.Get("Retry-After"))
		require.Empty(t, a.header.Get("X-Accel-Buffering"))
	}
	r.quiet()
}

// A15, A16: an event is sent only when the client has read the one before: whatever kept one back on the way would hang here.
func TestCase_A15_A16_EachEventAsItComes(t *testing.T) {
	next := make(chan string)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range next {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	})
	r := single(t, s)
	go func() { next <- "data: 20 bytes long\n\n" }()
	res, err := r.post(t.Context(), chatBody("m", true, ""))
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, "no-cache", res.Header.Get("Cache-Control"))
	require.Equal(t, "no", res.Header.Get("X-Accel-Buffering"))
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	lines := bufio.NewReader(res.Body)
	read := func(want string) {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	read("data: 20 bytes long\n")
	read("\n")
	var slowest time.Duration
	for range 20 {
		sent := time.Now()
		next <- "data: 20 bytes long\n\n"
		read("data: 20 bytes long\n")
		read("\n")
		slowest = max(slowest, time.Since(sent))
	}
	t.Logf("slowest of 20 events: %s", slowest)
	next <- endMark
	close(next)
	_, err = io.Copy(io.Discard, lines)
	require.NoError(t, err)
	r.quiet()
}

// A02, A18, A20, A21: with every limit of the configuration shorter than the exchanges last, a limit ends only what it is about. The answer to a silent
// prefill comes in full, streamed or not; a stream that keeps coming outlasts the limits of its head, of its silences and of the server's own
// reading; the one whose head comes too late is 504 and its slot free.
func TestCase_A02_A18_A20_A21_LimitsEndOnlyWhatTheyAreAbout(t *testing.T) {
	const (
		headLimit, idleLimit = 2 * time.Second, 4 * time.Second
		silence              = 5 * time.Second  // longer than both, and than the Edge waits before it asks after a hand-off
		long                 = 12 * time.Second // longer than the server waits for a request's header
		pace                 = 300 * time.Millisecond
	)
	answering := func(w http.ResponseWriter, r *http.Request, body []byte) {
		switch target := asked(t, body); target {
		case "prefill":
			if passes(r, silence) {
				_ = sse(w, lastChunk(target))
				_ = sse(w, "[DONE]")
			}
		case "cold":
			if passes(r, silence) {
				complete(w, target, "warm now")
			}
		case "steady":
			for range long / pace {
				if sse(w, chunk(target, "x")) != nil || !passes(r, pace) {
					return
				}
			}
			_ = sse(w, lastChunk(target))
		case "late":
			<-r.Context().Done()
		default:
			complete(w, target, "hi")
		}
	}
	patient, limited := newStub(t, answering), newStub(t, answering)
	r := site(t, edgeFile(
		[]object{nodeConfig("n", provider("p", patient.URL, 2), provider("l", limited.URL, 2, object{"request_timeout_ms": headLimit.Milliseconds()}))},
		[]object{model("prefill", "n/p=prefill"), model("cold", "n/p=cold"), model("steady", "n/l=steady"), model("late", "n/l=late"), model("next", "n/l=next")},
		object{"openai": object{"idle_timeout_ms": idleLimit.Milliseconds()}}), "n")
	var all sync.WaitGroup
	answers := map[string]*answer{"prefill": {}, "steady": {}, "cold": {}, "late": {}}
	for id, a := range answers {
		all.Go(func() { *a = r.chat("long-"+id, chatBody(id, id == "prefill" || id == "steady", "")) })
	}
	<-limited.goneNews
	require.Equal(t, http.StatusOK, r.chat("long-next", chatBody("next", false, "")).status, "the slot of the late one")
	all.Wait()
	for _, id := range []string{"prefill", "steady", "cold"} {
		require.NoError(t, answers[id].err, id)
		require.Equal(t, http.StatusOK, answers[id].status, id)
		require.Equal(t, "completed", r.ended("long-" + id)["outcome"], id)
	}
	require.Equal(t, "data: "+lastChunk("prefill")+"\n\n"+endMark, answers["prefill"].body)
	require.Equal(t, int(long/pace), strings.Count(answers["steady"].body, `"content":"x"`))
	require.Contains(t, answers["cold"].body, "warm now")
	late := answers["late"]
	require.Equal(t, http.StatusGatewayTimeout, late.status)
	require.Equal(t, "provider_timeout", late.code(t))
	require.Equal(t, "application/json", late.header.Get("Content-Type"))
	require.Equal(t, "false", late.header.Get("X-Should-Retry"))
	require.Equal(t, "provider_timeout", r.ended("long-late")["outcome"])
	r.quiet()
}
