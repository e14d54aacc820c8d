package llamacpp

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// said sends bytes on a connection of their own and returns all that comes back,
// to the server's close.
func said(t *testing.T, s *Server, request []byte) []byte {
	t.Helper()
	c, err := net.Dial("tcp", s.Address())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = c.Write(request)
	require.NoError(t, err)
	reply, err := io.ReadAll(c)
	require.NoError(t, err)
	return reply
}

// varying is what differs between two answers of the real server to the same
// request: names, times, and what its cache spared it.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`(chatcmpl-|resp_|msg_|"id":")[A-Za-z0-9]{32}`), "${1}ID"},
	{regexp.MustCompile(`"(created|created_at|completed_at|cached_tokens|cache_n|prompt_n|tokens_cached)":\d+`), `"$1":N`},
	{regexp.MustCompile(`"((?:prompt|predicted)_(?:ms|per_token_ms|per_second))":[0-9.e+-]+`), `"$1":N`},
	{regexp.MustCompile(`"cache_read_input_tokens":\d+,"input_tokens":\d+`), `"cache_read_input_tokens":N,"input_tokens":N`},
	{regexp.MustCompile(`"(id_task|n_prompt_tokens|max_tokens|n_predict)":-?\d+`), `"$1":N`},
	{regexp.MustCompile(`"embedding":\[(?:-?[0-9.e-]+,){255}-?[0-9.e-]+\]`), `"embedding":[256 numbers]`},
	{regexp.MustCompile(`"embedding":"[A-Za-z0-9+/]{900}[A-Za-z0-9+/]*=="`), `"embedding":"floats"`},
	{regexp.MustCompile(`Content-Length: \d+`), "Content-Length: N"},
}

// normal is a reply without what varies, its chunks one a line. The framing is
// checked on the way.
func normal(t *testing.T, reply []byte) string {
	t.Helper()
	at := bytes.LastIndex(reply[:min(len(reply), 600)], []byte("\r\n\r\n"))
	if i := bytes.Index(reply, []byte("Server: llama.cpp")); i > 0 {
		at = i + bytes.Index(reply[i:], []byte("\r\n\r\n"))
	}
	require.Positive(t, at, "%q", reply)
	head, body := string(reply[:at+4]), string(reply[at+4:])
	if length := regexp.MustCompile(`Content-Length: (\d+)`).FindStringSubmatch(head); length != nil {
		require.Equal(t, strconv.Itoa(len(body)), length[1])
	} else {
		body = chunks(t, body)
	}
	text := head + body
	for _, v := range varying {
		text = v.what.ReplaceAllString(text, v.by)
	}
	return text
}

func chunks(t *testing.T, body string) string {
	t.Helper()
	var all strings.Builder
	for {
		size, rest, ok := strings.Cut(body, "\r\n")
		require.True(t, ok, "%q", body)
		n, err := strconv.ParseInt(size, 16, 32)
		require.NoError(t, err)
		require.Greater(t, len(rest), int(n)+1)
		require.Equal(t, "\r\n", rest[n:n+2])
		all.WriteString("chunk: " + rest[:n])
		body = rest[n+2:]
		if n == 0 {
			require.Empty(t, body)
			return all.String()
		}
	}
}

// Every request that the real server was sent is answered by the same bytes, but
// for what varies there, too; and both close the connection afterwards.
func TestAnswersAreTheRealOnes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.req")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	special := map[string]Options{
		"embeddings": {Embeddings: true, Alias: "count-emb"}, "embeddings-base64": {Embeddings: true, Alias: "count-emb"},
		"err-no-key": {Key: "k"}, "err-bad-key": {Key: "k"}, "models-no-key": {Key: "k"}, "health-no-key": {Key: "k"},
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".req")
		t.Run(name, func(t *testing.T) {
			request, err := os.ReadFile(file)
			require.NoError(t, err)
			recorded, err := os.ReadFile(strings.TrimSuffix(file, ".req") + ".resp")
			require.NoError(t, err)
			s := start(t, special[name])
			switch {
			case strings.HasPrefix(name, "loading-"):
				s.SetLoading(true)
			case name == "slots-busy":
				for range 2 {
					_, ok := s.slots.acquire(nil)
					require.True(t, ok)
				}
			}
			assert.Equal(t, normal(t, recorded), normal(t, said(t, s, request)))
		})
	}
}
