// Package supervisor keeps a node connected to its Edge: it makes one attempt
// at a time, waits between attempts, and decides when to give up.
//
//	             ready                     remote end
//	connecting ─────────► connected ───────────────────► retrying ◄─┐ failed attempt
//	    │   │                │                              │ │ └───┘
//	    │   │ failed attempt │ local shutdown         ready │ │ shutdown, final error,
//	    │   └────────────────┼──────► retrying    connected ◄┘ │ exhaustion
//	    ▼                    ▼                                ▼
//	 stopped ◄───────────── stopped (final) ◄──────────────────
//
// It owns the cadence, the count of consecutive failed attempts and the state
// that people see. It must not know what an attempt does: dialing, registering
// and serving are behind the Attempt function, and whether an error is final, or
// asks for a longer wait, is asked of the error (S16, S17). Nor does it know what
// makes a wait pointless: whoever does calls Hurry.
package supervisor
