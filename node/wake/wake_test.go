package wake

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is what the watch looks at, under the test's control.
type machine struct {
	watcher *watcher
	clock   *clockwork.FakeClock
	// wall is how far the wall clock is ahead of the monotonic one.
	wall    time.Duration
	have    []net.Addr
	failure error
}

// newMachine has been looked at once.
func newMachine() *machine {
	m := &machine{clock: clockwork.NewFakeClock(), have: addresses("192.168.1.7/24")}
	m.watcher = &watcher{
		clock:     m.clock,
		wall:      func() time.Time { return m.clock.Now().Add(m.wall) },
		addresses: func() ([]net.Addr, error) { return m.have, m.failure },
	}
	m.watcher.look()
	return m
}

func addresses(texts ...string) (out []net.Addr) {
	for _, text := range texts {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			panic(err)
		}
		n.IP = ip
		out = append(out, n)
	}
	return out
}

// tick is what the watch finds after d.
func (m *machine) tick(d time.Duration) Event {
	m.clock.Advance(d)
	return m.watcher.look()
}

// Linux and macOS: the monotonic clock stops in suspend, the wall clock goes on.
func TestCase_G04_SuspendShowsAsALeapOfTheWallClock(t *testing.T) {
	m := newMachine()
	require.Zero(t, m.tick(period))
	m.wall += 8 * time.Hour
	require.Equal(t, Event{Slept: 8 * time.Hour}, m.tick(period))
	require.Zero(t, m.tick(period), "told once")
}

// A stopped process, a paused virtual machine, and suspend where the monotonic
// clock counts it: the tick comes too late.
func TestCase_G21_AStandstillShowsAsALateTick(t *testing.T) {
	m := newMachine()
	require.Equal(t, Event{Slept: 20 * time.Second}, m.tick(period+20*time.Second))
	require.Zero(t, m.tick(period))
}

func TestABusyMachineAndASetBackClockAreNoSleep(t *testing.T) {
	m := newMachine()
	require.Zero(t, m.tick(period+leap-time.Millisecond))
	m.wall -= time.Hour
	require.Zero(t, m.tick(period))
	m.wall += leap - time.Millisecond
	require.Zero(t, m.tick(period))
	m.wall += leap
	require.Equal(t, Event{Slept: leap}, m.tick(period))
}

func TestCase_G03_AddressesThatComeOrGoAreAChangeOfTheNetwork(t *testing.T) {
	m := newMachine()
	changed := Event{NetworkChanged: true}
	m.have = addresses("192.168.1.7/24", "10.0.0.4/8")
	require.Equal(t, changed, m.tick(period))
	m.have = addresses("10.0.0.4/8", "192.168.1.7/24")
	require.Zero(t, m.tick(period), "another order")
	m.have = addresses("10.0.0.4/8", "192.168.1.7/24", "127.0.0.2/8", "fe80::1/64")
	require.Zero(t, m.tick(period), "only a container's")
	m.have, m.failure = nil, errors.New("netlink")
	require.Zero(t, m.tick(period), "they cannot be read")
	m.failure = nil
	require.Equal(t, changed, m.tick(period), "all gone")
	m.have = addresses("2001:db8::7/64")
	m.wall += time.Minute
	require.Equal(t, Event{Slept: time.Minute, NetworkChanged: true}, m.tick(period))
}

// The real sources can be read, and agree with themselves: nothing is told of a
// machine to which nothing happens.
func TestWatchReadsTheRealMachineAndEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	clock := clockwork.NewFakeClock()
	events := make(chan Event, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		Watch(ctx, clock, func(e Event) { events <- e })
	}()
	require.NoError(t, clock.BlockUntilContext(ctx, 1))
	clock.Advance(time.Hour)
	e := <-events
	require.Equal(t, time.Hour-period, e.Slept)
	cancel()
	<-done
}

func BenchmarkLook(b *testing.B) {
	clock := clockwork.NewRealClock()
	w := watcher{clock: clock, wall: clock.Now, addresses: net.InterfaceAddrs}
	for b.Loop() {
		w.look()
	}
}
