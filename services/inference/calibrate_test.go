package inference

import (
	"bytes"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// L04: what providers count for whole runs tightens the estimate of the next.
func TestL04_WholeRunsCalibrateTheEstimate(t *testing.T) {
	text := strings.Repeat("Explain how the gate keeps two long prompts apart. ", 60)
	d := &dispatcher{}
	s, client := service(t, d)
	s.Target = func(string) (Target, bool) { return Target{Group: "g", Targets: []string{grant.Target}}, true }
	var counted uint64
	end := []*inferencev1.RunResponse{completed()}
	d.answer = func(sink dispatch.Sink) error {
		usage := &inferencev1.RunResponse{Event: &inferencev1.RunResponse_Usage{Usage: &inferencev1.Usage{InputTokens: counted, CachedInputTokens: counted - 1}}}
		return sink.Frame(grant, &dispatch.Frame{Head: runHead(), Body: []byte(encoded(t, append([]*inferencev1.RunResponse{usage}, end...)...)), End: true})
	}
	ask := func() { _, _, _ = call(t, client, runOf(text)) }
	ask()
	plain := d.last.Input
	require.Equal(t, plain.Estimate.Tokens(), plain.Tokens)
	counted = uint64(plain.Tokens) * 7 / 10
	end = nil
	for range 50 {
		ask()
	}
	require.Empty(t, s.Calibration.Scales(1), "runs without a completion tell nothing")
	end = []*inferencev1.RunResponse{completed()}
	for range 50 {
		ask()
	}
	require.Less(t, d.last.Input.Tokens, plain.Tokens*8/10)
	require.GreaterOrEqual(t, d.last.Input.Tokens, int(counted))
	require.Equal(t, plain.Estimate, d.last.Input.Estimate)
}

// A picture costs by its size, as on /v1.
func TestL04_PicturesOfRunsCostByTheirSize(t *testing.T) {
	d := &dispatcher{answer: func(dispatch.Sink) error { return broker.ErrUnknownGroup }}
	_, client := service(t, d)
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, image.NewGray(image.Rect(0, 0, 1000, 800))))
	picture := runOf("hi")
	picture.Messages[0].Parts = append(picture.Messages[0].Parts, &inferencev1.Part{Content: &inferencev1.Part_Image{Image: &inferencev1.Image{Data: file.Bytes(), MediaType: "image/png"}}})
	_, _, err := call(t, client, picture)
	require.Error(t, err)
	require.Equal(t, 36*29, d.last.Input.Estimate.Fixed)
}
