package config

import (
	"bytes"
	"fmt"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// Location is where the admin listener of a running Edge is.
type Location struct {
	AdminListen string // host:port, as the file or the default says
	TLS         bool
	CertFile    string // the Edge's certificate; empty without TLS
}

// Locate reads of a file only what finds its Edge. The rest of the file may be
// wrong: the Edge runs with an earlier text, and whoever calls it may want to be
// told what is wrong, or to take a machine out in spite of it. Secrets are not
// looked for. An error about the content is [configs.Problems].
func Locate(path string) (Location, error) {
	content, err := configs.Read(path)
	if err != nil {
		return Location{}, err
	}
	cfg := &configv1.EdgeConfig{}
	doc, problems := configs.Decode(path, content, cfg)
	if !doc.Readable {
		block := edgeBlock(content)
		if block == nil {
			return Location{}, problems.Err()
		}
		cfg = &configv1.EdgeConfig{}
		if doc, problems = configs.Decode(path, block, cfg); !doc.Readable {
			return Location{}, problems.Err()
		}
	}
	e := cfg.GetEdge()
	need := []string{"edge.tls.cert_file", "edge.admin_listen"}
	if e.GetAdminListen() == "" {
		need = append(need, pathListen)
	}
	for _, key := range need {
		if doc.Broken(key) {
			return Location{}, fmt.Errorf("%s cannot be read:\n%w", key, problems.Err())
		}
	}
	at := Location{AdminListen: e.GetAdminListen(), TLS: e.GetTls() != nil, CertFile: e.GetTls().GetCertFile()}
	text(&at.AdminListen, e.GetListen())
	text(&at.AdminListen, DefaultListen)
	return at, nil
}

// edgeBlock is the file with nothing but its top-level key "edge", all lines in
// their places: for a file that is not YAML further down. Nil without that key.
func edgeBlock(content []byte) []byte {
	lines := bytes.SplitAfter(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), []byte("\n"))
	inside, found := false, false
	for i, line := range lines {
		if len(line) > 0 && bytes.IndexByte([]byte(" \t\r\n#"), line[0]) < 0 {
			inside = !found && bytes.HasPrefix(line, []byte("edge:"))
			found = found || inside
		}
		if !inside {
			lines[i] = []byte("\n")
		}
	}
	if !found {
		return nil
	}
	return bytes.Join(lines, nil)
}
