// Package credentials provides the keys that sign the calls to ECS: from the
// environment, from the files of a directory, or from a RAM role, whose temporary
// keys come from STS or the instance metadata service and are renewed in time.
//
// Its figures: no call waits for keys while there are valid ones, keys are renewed
// when three quarters of their time are over, and rotated files count within ten
// seconds, without a restart and without a call that mixes old and new ones.
//
// No error of this package holds a key or a token.
package credentials

import (
	"context"
	"fmt"
	"os"

	"github.com/topodisk/topodisk/diskdriver/ecs/internal/redact"
)

// Keys are what a call is signed with. SecurityToken is set for temporary keys
// alone.
type Keys struct {
	AccessKeyID     string
	AccessKeySecret string
	SecurityToken   string
}

// String hides the keys, so that no log shows them by accident.
func (Keys) String() string { return "credentials.Keys(hidden)" }

// GoString hides the keys.
func (k Keys) GoString() string { return k.String() }

// Redact returns a foreign text on one short line, without the keys.
func (k Keys) Redact(foreign string) string {
	return redact.Text(foreign, k.AccessKeySecret, k.SecurityToken, k.AccessKeyID)
}

// Provider is a source of keys. It is called before every call to ECS.
type Provider interface {
	// Get returns the keys of now. An error names what is missing, never a value.
	Get(ctx context.Context) (Keys, error)
}

// Static returns keys that never change.
func Static(keys Keys) Provider {
	return static{Keys: keys, id: "the access key ID", secret: "the access key secret"}
}

// The environment variables that hold credentials, under the names that all
// tools of Alibaba Cloud read.
const (
	idVariable     = "ALIBABA_CLOUD_ACCESS_KEY_ID"
	secretVariable = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"
	tokenVariable  = "ALIBABA_CLOUD_SECURITY_TOKEN"
)

// environment returns the keys in ALIBABA_CLOUD_ACCESS_KEY_ID,
// ALIBABA_CLOUD_ACCESS_KEY_SECRET and, for temporary keys,
// ALIBABA_CLOUD_SECURITY_TOKEN.
func environment() Provider {
	return static{
		Keys:   Keys{AccessKeyID: os.Getenv(idVariable), AccessKeySecret: os.Getenv(secretVariable), SecurityToken: os.Getenv(tokenVariable)},
		id:     "environment variable " + idVariable,
		secret: "environment variable " + secretVariable,
	}
}

// static are keys that never change. They are embedded to stay hidden when they
// are printed.
type static struct {
	Keys
	id, secret string // what errors call the two
}

func (s static) Get(context.Context) (Keys, error) {
	switch {
	case s.AccessKeyID == "":
		return Keys{}, fmt.Errorf("%s is empty", s.id)
	case s.AccessKeySecret == "":
		return Keys{}, fmt.Errorf("%s is empty", s.secret)
	}
	return s.Keys, nil
}
