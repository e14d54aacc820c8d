package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// teach lets a provider count ratio times the estimate of some prose, and returns the estimate.
func teach(c *Calibration, target string, ratio float64, times int) Estimate {
	e := Of(user(strings.Repeat("Explain how the gate keeps two long prompts apart. ", 100)))
	for range times {
		c.Observe(target, e, int(ratio*float64(e.Text)))
	}
	return e
}

func TestCalibrationTightensAndRaises(t *testing.T) {
	for _, ratio := range []float64{0.5, 0.8, 1, 1.5, 2.5} {
		c := NewCalibration()
		e := teach(c, "t", ratio, enough-1)
		require.Equal(t, e.Text, c.Tokens([]string{"t"}, e), "too few answers change nothing")
		teach(c, "t", ratio, 1)
		got := float64(c.Tokens([]string{"t"}, e)) / float64(e.Text)
		require.InDelta(t, ratio*margin, got, 0.03*ratio)
		require.GreaterOrEqual(t, got, ratio*margin-0.01, "never below what was seen and the margin")
	}
}

// One prompt in a hundred may be dearer than the rest: the estimate covers it.
func TestCalibrationFollowsTheDearest(t *testing.T) {
	c := NewCalibration()
	e := teach(c, "t", 0.6, 90)
	teach(c, "t", 0.9, 2)
	require.GreaterOrEqual(t, c.Tokens([]string{"t"}, e), int(0.9*float64(e.Text)))
}

func TestCalibrationTakesTheLargestOfTheTargets(t *testing.T) {
	c := NewCalibration()
	e := teach(c, "small", 0.5, 50)
	teach(c, "large", 0.8, 50)
	require.Less(t, c.Tokens([]string{"small"}, e), c.Tokens([]string{"small", "large"}, e))
	require.Equal(t, c.Tokens([]string{"large"}, e), c.Tokens([]string{"large", "small"}, e))
	require.Equal(t, e.Text, c.Tokens([]string{"small", "unheard of"}, e), "a target that has said nothing may count all")
	require.Equal(t, e.Text, c.Tokens(nil, e))
}

func TestCalibrationIsToldOfTextAlone(t *testing.T) {
	prose := strings.Repeat("Explain how the gate keeps two long prompts apart. ", 100)
	picture := `{"messages":[{"content":[{"type":"text","text":"` + prose + `"},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]}]}`
	document := `{"messages":[{"content":[{"type":"text","text":"` + prose + `"},{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0x"}}]}]}`
	ids := `{"prompt":[` + strings.Repeat("17,", 5000) + `1]}`
	text := Of(user(prose))
	for name, c := range map[string]struct {
		e       Estimate
		counted int
	}{
		"picture":                       {Of([]byte(picture)), 2000},
		"document":                      {Of([]byte(document)), 2000},
		"token ids":                     {Of([]byte(ids)), 5001},
		"a short prompt":                {Of(user("hi")), 500},
		"a short count":                 {text, leastTokens - 1},
		"nothing":                       {text, 0},
		"what a cache did not have":     {text, text.Text / 5},
		"more than a tokenizer makes":   {text, text.Text * 7},
		"more than any number could be": {text, 1 << 40},
	} {
		calibration := NewCalibration()
		for range 50 {
			calibration.Observe("t", c.e, c.counted)
		}
		require.Empty(t, calibration.Scales(10), name)
	}
}

// What is no text costs what it costs, whatever was learned of text that looks like it.
func TestCalibrationLeavesFixedPricesAlone(t *testing.T) {
	c := NewCalibration()
	e := teach(c, "t", 0.5, 50)
	withIDs := e
	withIDs.Fixed = 7000
	require.Equal(t, 7000+c.Tokens([]string{"t"}, e), c.Tokens([]string{"t"}, withIDs))
	e.Foreign = true
	require.Equal(t, e.Text, c.Tokens([]string{"t"}, e), "the text's kind is not known: nothing is taken off")
	teach(c, "dear", 1.5, 50)
	require.Greater(t, c.Tokens([]string{"dear"}, e), e.Text)
}

func TestCalibrationIsBoundedAndResets(t *testing.T) {
	c := NewCalibration()
	e := Of(user(strings.Repeat("Explain how the gate keeps two long prompts apart. ", 100)))
	for i := range maxCalibrated / 8 { // each with up to 32 scales
		c.Observe(fmt.Sprint("t", i), e, e.Text)
	}
	require.LessOrEqual(t, len(c.scales), maxCalibrated)
	require.Len(t, c.Scales(10), 10)
	teach(c, "new", 0.5, 50)
	require.Less(t, c.Tokens([]string{"new"}, e), e.Text, "what is seen now is learned all the same")

	scales := c.Scales(maxCalibrated)
	require.Equal(t, "new", scales[0].Target, "the most answers first")
	require.NotEmpty(t, scales[0].Kind)
	c.Reset("new")
	require.Equal(t, e.Text, c.Tokens([]string{"new"}, e))
	require.NotEmpty(t, c.Scales(10))
	c.Reset("")
	require.Empty(t, c.Scales(10))
}

// BenchmarkInput is what a request of 4 KiB pays for its class.
func BenchmarkInput(b *testing.B) {
	c := NewCalibration()
	teach(c, "one", 0.7, 50)
	body, targets := user(strings.Repeat("Explain how the gate keeps two long prompts apart. ", 80)), []string{"one", "two"}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Input(body, targets, 100000)
		}
	})
}

// BenchmarkObserve is what an answer pays for teaching.
func BenchmarkObserve(b *testing.B) {
	c := NewCalibration()
	e := teach(c, "t", 0.7, 100)
	b.ReportAllocs()
	for b.Loop() {
		c.Observe("t", e, e.Text*7/10)
	}
}
