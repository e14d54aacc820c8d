package credentials

import (
	"time"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/state"
)

// NewKey is what an API key is to be.
type NewKey struct {
	Name          string
	Models        []string // empty = all
	MaxConcurrent int      // 0 = no limit
}

// Key is what is known of an API key.
type Key struct {
	Name          string
	OfFile        bool
	Created       time.Time // zero = of the file
	By            string    // name of the admin token
	Models        []string
	MaxConcurrent int
	Running       int
	Refused       string // why it does not pass; empty if it does
}

// CreateKey makes an API key.
func (r *Registry) CreateKey(by string, k NewKey) (secret string, made Key, err error) {
	secret = auth.NewToken(auth.PrefixKey)
	kept := state.Key{
		Name: k.Name, Hash: state.Hash(auth.HashOf(secret)), Created: r.Clock.Now().UTC(), By: by,
		Models: k.Models, MaxConcurrent: k.MaxConcurrent,
	}
	err = r.add(func(all *state.Credentials) error {
		switch {
		case r.Keyring.Configured(k.Name):
			return &HeldByFileError{"API key", k.Name}
		case all.Key(k.Name) != nil:
			return &ExistsError{"API key", k.Name}
		case len(all.Keys) >= maxKeys:
			return &TooManyError{"API keys", maxKeys}
		}
		all.AddKey(kept)
		return nil
	})
	if err != nil {
		return "", Key{}, err
	}
	return secret, r.known(kept, ""), nil
}

func (r *Registry) known(k state.Key, refused string) Key {
	return Key{
		Name: k.Name, Created: k.Created, By: k.By, Models: k.Models, MaxConcurrent: k.MaxConcurrent,
		Running: r.Keyring.Running(auth.Hash(k.Hash)), Refused: refused,
	}
}

// Keys lists the keys of the file in its order, then those made here by name.
func (r *Registry) Keys() []Key {
	r.mu.Lock()
	own, all := r.own, r.all
	r.mu.Unlock()
	keys := make([]Key, 0, len(own.Keys)+len(all.Keys))
	for _, k := range own.Keys {
		keys = append(keys, Key{
			Name: k.Name, OfFile: true, Models: k.Models, MaxConcurrent: k.MaxConcurrent, Running: r.Keyring.Running(k.Hash),
		})
	}
	for _, k := range all.Keys {
		keys = append(keys, r.known(k, own.Shadows(issuedKey(k))))
	}
	return keys
}

// RevokedKey is an API key that has been taken away.
type RevokedKey struct {
	Running int   // requests that it had admitted
	Lost    error // why this does not outlast a restart; nil if it does
}

// RevokeKey takes an API key away.
func (r *Registry) RevokeKey(name string) (RevokedKey, error) {
	var out RevokedKey
	err := r.now(func(all *state.Credentials) error {
		k := all.Key(name)
		switch {
		case k == nil && r.Keyring.Configured(name):
			return &HeldByFileError{"API key", name}
		case k == nil:
			return &UnknownError{"API key", name}
		}
		out.Running = r.Keyring.Running(auth.Hash(k.Hash))
		all.RemoveKey(name)
		return nil
	})
	if err == nil {
		out.Lost = r.write()
	}
	return out, err
}
