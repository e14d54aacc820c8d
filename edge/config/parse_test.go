package config

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// hashes stand in the test files as $A to $F: valid hashes, all different.
var hashes = strings.NewReplacer(
	"$A", strings.Repeat("a1", 32),
	"$B", strings.Repeat("b2", 32),
	"$C", strings.Repeat("c3", 32),
	"$D", strings.Repeat("d4", 32),
	"$UPPER_A", strings.Repeat("A1", 32),
	"$NOTHING", hashOfNothing,
)

// golden runs a file of configurations. Commands: bad prints the problems of a
// configuration that must be refused; warnings and show print those and the
// effective values of one that must be accepted; admission prints what the core
// is told.
func golden(t *testing.T, file string) {
	t.Helper()
	datadriven.RunTest(t, "testdata/"+file, func(t *testing.T, d *datadriven.TestData) string {
		s, err := Parse("edge.yaml", []byte(hashes.Replace(d.Input)))
		if d.Cmd == "bad" {
			if err == nil {
				d.Fatalf(t, "accepted, but must be refused")
			}
			return err.Error() + "\n"
		}
		if err != nil {
			d.Fatalf(t, "refused, but must be accepted: %v", err)
		}
		var out strings.Builder
		switch d.Cmd {
		case "warnings":
			for _, w := range s.Warnings {
				out.WriteString(w + "\n")
			}
		case "show":
			if err := s.Effective().Write(&out); err != nil {
				d.Fatalf(t, "%v", err)
			}
		case "admission":
			writeAdmission(&out, s.Admission)
		default:
			d.Fatalf(t, "unknown command %q", d.Cmd)
		}
		return out.String()
	})
}

func TestCase_H08_MisspeltKeysAndWrongTypesAreNamed(t *testing.T)   { golden(t, "keys.txt") }
func TestCase_H13_OddNumbersAndDuplicatesAreRefused(t *testing.T)   { golden(t, "values.txt") }
func TestCase_F10_NamesAreUniqueAndBothPlacesAreNamed(t *testing.T) { golden(t, "names.txt") }
func TestReferencesNameTheNearestRightOne(t *testing.T)             { golden(t, "references.txt") }
func TestOneMistakeIsOneProblem(t *testing.T)                       { golden(t, "follow_ups.txt") }
func TestL03_TotalContextIsValidated(t *testing.T)                  { golden(t, "long_context.txt") }
func TestS06_LegacyQueueValues(t *testing.T)                        { golden(t, "legacy_queue.txt") }
func TestR01_RoutesKeepTheirValuesAndNames(t *testing.T)            { golden(t, "routes_r01.txt") }
func TestR03_RouteValuesWin(t *testing.T)                           { golden(t, "routes_r03.txt") }
func TestListenersOffLoopback(t *testing.T)                         { golden(t, "listeners.txt") }
func TestKeysAndTokens(t *testing.T)                                { golden(t, "secrets.txt") }
func TestBaseURLs(t *testing.T)                                     { golden(t, "base_url.txt") }
func TestEffectiveValuesAreShown(t *testing.T)                      { golden(t, "show.txt") }
func TestAdmissionIsToldAll(t *testing.T)                           { golden(t, "admission.txt") }
