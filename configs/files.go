package configs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"path/filepath"
)

// FileProblems are what is wrong with the files and environment variables that a
// configuration names. They are judged when a process starts, and by
// `iop config check`, for which what is missing may merely be on another machine.
type FileProblems struct {
	Missing Problems // not there
	Wrong   Problems // there, and of no use
}

// All are both, sorted by place; nil when there are none.
func (p FileProblems) All() Problems {
	return append(append(Problems(nil), p.Missing...), p.Wrong...).Sorted()
}

// Add files a problem with what stands at path. An err of an absent file counts
// as missing.
func (p *FileProblems) Add(d *Document, path, name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		where, absErr := filepath.Abs(name)
		if absErr != nil {
			where = name
		}
		p.Missing = append(p.Missing, d.Problemf(path, "found %q; there is no such file (looked for %s)", name, where))
		return
	}
	// A path error repeats the name.
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	p.Wrong = append(p.Wrong, d.Problemf(path, "found %q; %v", name, err))
}

// AddKeyPair judges a certificate and its key.
func (p *FileProblems) AddKeyPair(d *Document, certPath, cert, keyPath, key string) {
	_, certErr := readRegular(cert, MaxFileBytes)
	if certErr != nil {
		p.Add(d, certPath, cert, certErr)
	}
	_, keyErr := readRegular(key, MaxFileBytes)
	if keyErr != nil {
		p.Add(d, keyPath, key, keyErr)
	}
	if certErr != nil || keyErr != nil {
		return
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		p.Wrong = append(p.Wrong, d.Problemf(certPath, "found %q; with key_file %q it is no certificate and key in PEM that belong together: %v", cert, key, err))
	}
}

// AddAuthorities judges a PEM file of certificates.
func (p *FileProblems) AddAuthorities(d *Document, path, name string) {
	text, err := readRegular(name, MaxFileBytes)
	switch {
	case err != nil:
		p.Add(d, path, name, err)
	case !x509.NewCertPool().AppendCertsFromPEM(text):
		p.Add(d, path, name, errors.New("there is no certificate in it; expected PEM, which begins with -----BEGIN CERTIFICATE-----"))
	}
}

// AddSecret judges where a secret comes from; filePath and envPath are the paths
// of the two keys that may say so.
func (p *FileProblems) AddSecret(d *Document, filePath, envPath string, from Secret) {
	_, err := from.Read()
	var unset *UnsetError
	switch {
	case err == nil:
	case errors.As(err, &unset):
		p.Missing = append(p.Missing, d.Problemf(envPath, "found %q; that environment variable is empty or not set", from.Env))
	case from.File == "":
		p.Wrong = append(p.Wrong, d.Problemf(envPath, "found %q; %v", from.Env, err))
	default:
		p.Add(d, filePath, from.File, err)
	}
}
