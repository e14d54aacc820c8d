package edgewire

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
)

// errPin says that another certificate was shown than the pinned one.
var errPin = errors.New("the Edge's certificate is not the one of ca_pin")

// Trust says which Edge is believed. caFile is a PEM file with its certificate or
// its authority; caPin the SHA-256 of its certificate in lower-case hexadecimal,
// which then is accepted whatever name and dates it bears; without either the
// system's authorities decide. At most one is set.
func Trust(caFile, caPin string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case caFile != "":
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca_file: %s holds no PEM certificate", caFile)
		}
	case caPin != "":
		// The pin takes the place of the chain, the name and the dates:
		// VerifyConnection runs for resumed connections too.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("the Edge shows no certificate")
			}
			sum := sha256.Sum256(state.PeerCertificates[0].Raw)
			if hex.EncodeToString(sum[:]) != caPin {
				return errPin
			}
			return nil
		}
	}
	return config, nil
}
